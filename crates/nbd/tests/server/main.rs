//! The server and its clients, in one process: what is answered, in which order, and what ends.

mod bounds;
mod client;
mod ends;
mod reads;
mod rig;
mod writes;
