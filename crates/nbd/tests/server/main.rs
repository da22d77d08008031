//! The server and its clients, in one process: what is answered, in which order, and what ends.

mod bounds;
mod client;
mod ends;
#[expect(clippy::cast_possible_truncation, reason = "fields of any numbers are sent")]
#[expect(clippy::disallowed_types, reason = "what others wait is printed")]
mod hostile;
mod reads;
mod rig;
mod writes;
