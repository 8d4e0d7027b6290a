//! `gleaner top`: the daemon's status, again and again, as a picture of the machine.
//!
//! Problem: whether retention does anything, and why it does not, is seen best while it happens. A table of numbers
//! hides it; so does a page of the last hour.
//!
//! ```text
//!   feed        statuses: asked for over the control socket, by a thread
//!   app         what is shown of them, and what keys do to that; pure
//!   view/       the same as a picture: header, vcpus, group, footer; look: glyphs and colours
//!   screen      the terminal: taken, given back
//!   top         ties them: one channel, on which keys, signals and statuses come
//! ```
//!
//! Nothing polls: between two events the process sleeps, because it shares the vCPUs that it shows.

mod app;
mod feed;
mod look;
mod screen;
mod top;
mod view;

pub use look::Look;
pub use top::{Options, TopError, once, run};
