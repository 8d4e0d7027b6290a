//! Windows in, decisions out. Pure: no I/O, no clock, no `Result` in stepping; the same windows give the same
//! decisions.

pub mod guest;
pub mod host;
mod params;

pub use params::{ParamError, Parameter};
