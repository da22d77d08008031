//! The commands of forerun, as a library.
//!
//! ```text
//!   main --> cli (what is asked for) --> one module a command --> output (stdout)
//!                                                             --> failure (stderr, exit status)
//! ```
//! | module | what |
//! |---|---|
//! | `cli` | the commands and their dispatch |
//! | `vectors`, `sim`, `trace`, `demo`, `report`, `soak` | a command each |
//! | `bench`, `profile`, `replay_journal` | commands on real devices and live runs |
//! | `run`, `explain` | runs a program and reads ahead of it, or says what that would gain |
//! | `warm` | the kernel's page cache, filled |
//! | `specs` | lists of policies, sizes: what every command reads alike |
//! | `journal` | `--journal` of the commands that run live |
//! | `output` | stdout: text, tables, JSON |
//! | `failure` | usage errors, exit statuses, the one line on stderr |
//! | `interrupt` | SIGINT: ends at once, or soon, never in the middle of a file |
//! | `windows` | readahead windows as records tell them |
//! | `machine` | the time, the commit and the machine, for records |
//!
//! To add a command: write its module with an `Args` struct and a `run`, and its line in
//! `cli::Command`.
//!
//! # Invariants
//! - stdout carries results alone; with `--json`, one object. Everything else goes to stderr.
//! - Exit status 0: done; 1: failed; 2: bad usage; 130: interrupted.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod demo;
mod explain;
mod failure;
mod interrupt;
mod journal;
mod machine;
mod output;
mod profile;
mod replay_journal;
mod report;
mod run;
mod sim;
mod soak;
mod specs;
mod trace;
mod vectors;
mod warm;
mod windows;

pub use cli::{main, run};
