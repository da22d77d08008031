//! `forerun serve` and programs of others: they read what is in the files, and nothing else comes
//! of them.

mod clients;
mod command;
mod crash;
mod replayed;
mod rig;
mod tls;
