//! `forerun-compare range-server`: a local HTTP/1.1 server of byte ranges, for tests and benches.
//!
//! The server serves a pattern that a reader can compute, or a folder; on request with the latency,
//! the rate and the faults of a remote store. Paths under `/-/` return counts and change the
//! settings:
//!
//! ```text
//!   /-/counts         requests, bytes, connections, in_flight_max, sizes: of GETs, as JSON
//!   /-/reset          sets them to zero
//!   /-/latency/30ms   from now on; 0: none
//!   /-/rate/90M       from now on; 0: no limit
//!   /-/fault/short:3  every third GET from now on; none: no more
//! ```
//!
//! # Invariants
//! - Without `--stay` the server ends with its standard input, so no child outlives a test.
//! - The server listens on the loopback device alone.

mod answer;
mod connection;
mod content;
mod fault;
mod pace;
mod request;
mod state;
mod units;

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use content::Content;
use fault::Turns;
use state::State;

/// The options of the command line.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("content").required(true).args(["pattern", "dir"]))]
pub(crate) struct Args {
    /// Serve a pattern of this size under any path
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pattern: Option<u64>,
    /// Serve the files of this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The port [default: any that is free]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// How late an answer is, such as 30ms
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    latency: Duration,
    /// Bytes a second of each connection, such as 90M; 0: no limit
    #[arg(long, value_name = "RATE", value_parser = units::rate, default_value = "0")]
    rate: u64,
    /// What goes wrong, on every so many GETs
    #[arg(long, value_name = "KIND[:EVERY]", value_parser = Turns::parse, default_value = "none")]
    fault: Turns,
    /// Go on after the end of the standard input
    #[arg(long)]
    stay: bool,
}

/// Prints the address once it listens, and serves until it is ended.
pub(crate) fn run(args: Args) -> Result<()> {
    let address = ("127.0.0.1", args.port);
    let listener = TcpListener::bind(address).with_context(|| format!("port {}", args.port))?;
    println!("http://{}", listener.local_addr()?);
    if !args.stay {
        thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
    }
    let folder = args.dir.map(Content::Folder);
    let content = folder.or(args.pattern.map(|bytes| Content::Pattern { bytes }));
    let content = content.context("nothing to serve")?;
    let state = State::new(args.latency, args.rate, args.fault);
    let server = Arc::new(connection::Server::new(content, state));
    // Each connection owns a clone.
    let open = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptor is free, or the client has gone: the server continues.
            thread::sleep(ACCEPT_AGAIN);
            continue;
        };
        if Arc::strong_count(&open) > CONNECTIONS_MAX {
            // Closed at once: the client sees an end without an answer.
            continue;
        }
        let (server, open) = (Arc::clone(&server), Arc::clone(&open));
        thread::Builder::new()
            .spawn(move || {
                // A client may leave at any time; that is no error of the server.
                let _ = server.serve(&stream);
                drop(open);
            })
            .context("a thread for a connection")?;
    }
    Ok(())
}

const CONNECTIONS_MAX: usize = 1_024;
const ACCEPT_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::Args;
    use crate::args::parsed;

    #[test]
    fn options_are_read_and_nonsense_is_refused() {
        #[rustfmt::skip]
        let rows = [ // why                  words                                         fine
            ("the shortest",                 "--pattern 1G",                               true),
            ("all of them",                  "--port 80 --latency 30ms --rate 90M --fault short:2 \
                                              --dir . --stay",                             true),
            ("nothing to serve",             "--port 0",                                   false),
            ("two things to serve",          "--pattern 1 --dir .",                        false),
            ("a port that is none",          "--pattern 1 --port 65536",                   false),
            ("a fault that nobody knows",    "--pattern 1 --fault odd",                    false),
            ("an option that nobody knows",  "--pattern 1 --speed 3",                      false),
        ];
        for (why, words, fine) in rows {
            assert_eq!(parsed::<Args>(words).is_some(), fine, "{why}");
        }
    }
}
