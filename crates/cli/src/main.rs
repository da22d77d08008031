//! The forerun command.
#![forbid(unsafe_code)]

fn main() {}
