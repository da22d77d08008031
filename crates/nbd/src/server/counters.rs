//! What a server counts, since it began.
//!
//! # Invariants
//! - A request is counted once, when its reply is known: among the done or the failed.
//! - Counts are read one by one: a reading of several is of about one moment.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::Command;

/// A count that threads share.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionCounters {
    pub(super) accepted: Count,
    pub(super) refused: Count,
    pub(super) ended_in_handshake: Count,
    pub(super) violations: Count,
}

/// Of one client's requests.
#[derive(Debug, Default)]
pub(super) struct ClientCounters {
    pub(super) requests: Count,
    pub(super) bytes_read: Count,
    pub(super) bytes_written: Count,
}

/// Of an export's requests.
#[derive(Debug, Default)]
pub(super) struct RequestCounters {
    done: [Count; COMMANDS.len()],
    pub(super) failed: Count,
    pub(super) bytes_read: Count,
    pub(super) bytes_written: Count,
}

impl RequestCounters {
    /// Counts a request.
    pub(super) fn add(&self, command: Command, failed: bool) {
        if failed {
            self.failed.add(1);
        } else if let Some(at) = COMMANDS.iter().position(|known| known.0 == command) {
            self.done[at].add(1);
        }
    }

    /// The count of each command that was done, by name.
    pub(super) fn done(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COMMANDS.iter().zip(&self.done).map(|(&(_, name), count)| (name, count.get()))
    }
}

const COMMANDS: [(Command, &str); 7] = [
    (Command::Read, "read"),
    (Command::Write, "write"),
    (Command::Flush, "flush"),
    (Command::Trim, "trim"),
    (Command::Cache, "cache"),
    (Command::WriteZeroes, "write_zeroes"),
    (Command::BlockStatus, "block_status"),
];
