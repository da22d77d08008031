//! `cargo xtask range-server`: a local HTTP/1.1 server of byte ranges, for tests and benches.
//!
//! It serves a pattern that a reader can compute for itself, or a folder; as slow as a remote
//! store if asked to, and as wrong as some of them are. Paths under `/-/` tell what it has served
//! and change how it serves:
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
//! - Without `--stay` it ends when its standard input does, so that no child outlives a test.
//! - It listens on the loopback device alone.

mod answer;
mod connection;
mod content;
mod fault;
mod gzip;
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

use anyhow::{Context as _, Result, ensure};

use content::Content;
use state::State;

/// What the command line says.
pub(crate) struct Options {
    /// 0: any that is free.
    port: u16,
    content: Content,
    state: State,
    /// Goes on after the end of the standard input.
    stay: bool,
}

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let (mut port, mut state, mut stay, mut contents) = (0, State::new(), false, Vec::new());
        crate::bench::options::each(words, &["--stay"], |name, value| {
            match name {
                "--port" => port = value.parse().with_context(|| format!("no port: {value}"))?,
                "--latency" => state.latency = units::time(value)?,
                "--rate" => state.rate = units::rate(value)?,
                "--fault" => state.plan = fault::Plan::parse(value)?,
                "--pattern" => contents.push(Content::Pattern { bytes: units::size(value)? }),
                "--dir" => contents.push(Content::Folder(PathBuf::from(value))),
                "--stay" => stay = true,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        ensure!(contents.len() == 1, "what is served: --pattern SIZE or --dir DIR, one of them");
        Ok(Self { port, content: contents.remove(0), state, stay })
    }
}

/// Prints the address once it listens, and serves until it is ended.
pub(crate) fn run(options: Options) -> Result<bool> {
    let address = ("127.0.0.1", options.port);
    let listener = TcpListener::bind(address).with_context(|| format!("port {}", options.port))?;
    println!("http://{}", listener.local_addr()?);
    if !options.stay {
        thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
    }
    let server = Arc::new(connection::Server::new(options.content, options.state));
    // Each connection holds a clone of it.
    let open = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptor is free, or the client has gone: the others are served on.
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
                // A client may leave at any time, and nobody else wants to know.
                let _ = server.serve(&stream);
                drop(open);
            })
            .context("a thread for a connection")?;
    }
    Ok(true)
}

const CONNECTIONS_MAX: usize = 1_024;
const ACCEPT_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::Options;

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
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(Options::parse(&words).is_ok(), fine, "{why}");
        }
    }
}
