//! Small real programs with known synchronization.
//!
//! So far the one that the paper's Table 2 is made of: [`wakeup`].

pub mod wakeup;
