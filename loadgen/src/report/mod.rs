//! Results in the forms that people and other tools read.

pub mod console;
pub mod hgrm;
pub mod hlog;
pub mod outages;
pub mod svg;
