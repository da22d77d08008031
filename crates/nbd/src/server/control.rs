//! Control of a running server: its partitions, and how large they are.
//!
//! ```text
//!   one line   partitions | resize NAME BYTES | move FROM TO BYTES
//!   answer     ok, then by tabs | why not
//!              a line a partition:       name, bytes, the least, used, policy, rule
//!              a line a move of sizing:  second, from, to, bytes, reason, hits of a million reads
//!                                        that were expected before and after
//! ```
//! # Invariants
//! - The socket is open to its owner alone; one client at a time, for a bounded time.
//! - A request that is refused changes nothing.

use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader, IoSlice, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use forerun_engine::{Cache, params::Param as _};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    Server,
    socket::{ListenError, Listener, Socket},
};

/// A socket that takes requests.
#[derive(Debug)]
pub struct Control(Listener);

impl Control {
    /// Listens at `path`.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn listen(path: &Path) -> Result<Self, ListenError> {
        Listener::unix(path).map(Self)
    }

    /// Answers until `server` stops.
    ///
    /// # Errors
    /// The system cannot wait for clients.
    pub fn run(&self, server: &Server) -> io::Result<()> {
        let stop = &server.0.stop;
        loop {
            let mut events =
                [PollFd::new(&self.0, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut events, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if !events[1].revents().is_empty() {
                return Ok(());
            }
            if let Ok(client) = self.0.accept() {
                // A client that fails asks again.
                let _ = answer(&client, &server.0.cache);
            }
        }
    }
}

/// Asks the server whose socket of control is at `path`; its answer without `ok`.
///
/// # Errors
/// No server listens there, or it refuses, which is `InvalidInput`.
pub fn ask(path: &Path, request: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(CLIENT_MAX))?;
    writeln!(stream, "{request}")?;
    let (mut first, mut rest) = (String::new(), String::new());
    let mut stream = BufReader::new(stream);
    stream.read_line(&mut first)?;
    stream.read_to_string(&mut rest)?;
    if first == "ok\n" {
        return Ok(rest);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, first.trim_end().to_owned()))
}

fn answer(client: &Socket, cache: &Cache) -> io::Result<()> {
    client.wait_to_send(CLIENT_MAX)?;
    let mut request = Vec::new();
    while !request.ends_with(b"\n") {
        let mut room = [0; 512];
        let wait = Timespec::try_from(CLIENT_MAX).map_err(io::Error::other)?;
        if poll(&mut [PollFd::new(client, PollFlags::IN)], Some(&wait))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match client.receive_now(&mut room)? {
            Some(count) if count > 0 && request.len() + count <= REQUEST_BYTES_MAX => {
                request.extend(&room[..count]);
            }
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => {}
        }
    }
    let text = match carry_out(&String::from_utf8_lossy(&request), cache) {
        Ok(()) => format!("ok\n{}{}", partitions(cache), moves(cache)),
        Err(why) => why + "\n",
    };
    client.send(&mut [IoSlice::new(text.as_bytes())])
}

fn carry_out(request: &str, cache: &Cache) -> Result<(), String> {
    let bytes = |text: &str| text.parse::<u64>().map_err(|_| format!("no bytes: {text}"));
    let words: Vec<&str> = request.split_whitespace().collect();
    let done = match words[..] {
        ["partitions"] => Ok(()),
        ["resize", name, size] => cache.resize_partition(name, bytes(size)?),
        ["move", from, to, size] => cache.move_share(from, to, bytes(size)?),
        ["policy", name, policy] => cache.change_policy(name, policy),
        _ => return Err("the server knows partitions, resize, move and policy".to_owned()),
    };
    done.map_err(|error| error.to_string())
}

fn partitions(cache: &Cache) -> String {
    cache.partitions().iter().fold(String::new(), |mut text, it| {
        let (name, bytes, least, used) = (&it.name, it.bytes, it.bytes_min, it.used_bytes);
        let (policy, rule) = (&it.policy, &it.rule);
        let _ = writeln!(text, "{name}\t{bytes}\t{least}\t{used}\t{policy}\t{rule}");
        text
    })
}

fn moves(cache: &Cache) -> String {
    cache.moves().iter().fold(String::new(), |mut text, it| {
        let (second, reason) = (it.at.as_secs(), it.reason.show());
        let (from, to, bytes) = (&it.from, &it.to, it.bytes);
        let (before, after) = (it.hits_before, it.hits_after);
        let _ = writeln!(text, "{second}\t{from}\t{to}\t{bytes}\t{reason}\t{before}\t{after}");
        text
    })
}

/// How long each side waits for the other.
const CLIENT_MAX: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 4096;
