//! Benches beside peers: fio, the kernel's readahead, libCacheSim, programs as they are.
//!
//! ```text
//!   engine     the live engine                    beside fio and pread, on this machine
//!   streams    readahead in real time             beside the kernel's, on emulated devices
//!   programs   programs under `forerun run`       beside the same programs alone
//!   learned    programs that start, with lists    beside the same programs alone
//!   virtual    readahead in virtual time          beside floors
//!   sweep      short streams in virtual time      drawn as surfaces
//!   lab        the simulator                      beside libCacheSim
//!   serve      files over NBD                     beside nbdkit and the raw file
//!   overhead   policies, whole files in order     beside the kernel's cache
//!   replay     traces at their times              beside fio's own replay
//! ```
//! `cargo xtask bench NAME` runs one of them. The range server, a slow and faulty store for tests
//! and benches, lies here too.
//!
//! # Invariants
//! - A ratio is of figures of the same round; no figure is left out.
//! - Targets are judged in the summary alone: a missed target does not fail the run.
#![forbid(unsafe_code)]

mod args;
mod bed;
mod device;
mod engine;
mod floors;
mod forerun;
mod lab;
mod learned;
mod overhead;
mod programs;
mod range_server;
mod replay;
mod serve;
mod streams;
mod sweep;
mod table;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// Benches of forerun beside its peers, and a slow store to read from
#[derive(Parser)]
#[command(name = "forerun-compare")]
enum Command {
    /// The engine beside fio and pread, side by side
    Engine(engine::Args),
    /// The kernel's readahead beside forerun's, on emulated devices
    Streams(streams::Args),
    /// Programs alone and under `forerun run`, on those devices
    Programs(programs::Args),
    /// Programs that start on those devices: alone, and with learned lists, right ones and wrong
    Learned(learned::Args),
    /// Readahead in virtual time, against its floors
    Virtual(floors::Args),
    /// Short streams in virtual time, over their number, length and mix: where cliffs are
    Sweep(sweep::Args),
    /// The lab's simulator beside libCacheSim: its library, if Python has it, and its program, if
    /// one is named
    Lab(lab::Args),
    /// `forerun serve` beside nbdkit and the raw file, by fio over NBD
    Serve(serve::Args),
    /// Files read and written in order: replacement policies beside the kernel's cache
    Overhead(overhead::Args),
    /// `forerun replay` beside fio's `read_iolog`: bytes, order, and when each read is issued
    Replay(replay::Args),
    /// A local HTTP server of byte ranges, slow and faulty if asked to
    RangeServer(range_server::Args),
}

fn main() -> ExitCode {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2).expect("the package lies two folders deep");
    let done = match Command::parse() {
        Command::Engine(args) => engine::run(root, &args),
        Command::Streams(args) => streams::run(root, &args),
        Command::Programs(args) => programs::run(root, &args),
        Command::Learned(args) => learned::run(root, &args),
        Command::Virtual(args) => floors::run(root, &args),
        Command::Sweep(args) => sweep::run(root, &args),
        Command::Lab(args) => lab::run(root, &args),
        Command::Serve(args) => serve::run(root, &args),
        Command::Overhead(args) => overhead::run(root, &args),
        Command::Replay(args) => replay::run(root, &args),
        Command::RangeServer(args) => range_server::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forerun-compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}
