//! The commands of forerun, as a library.
#![forbid(unsafe_code)]
