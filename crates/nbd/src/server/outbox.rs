//! What goes to a client: replies, whole, from any thread of its connection.
//!
//! The connection's own thread collects its replies in a [`Batch`] and sends them with one call of
//! the system; workers send theirs at once.
//!
//! # Invariants
//! - A message is never mixed with another: the lock is held until its last byte is sent.
//! - After a failed send nothing more is sent: the connection is ended.
//! - A batch is bounded, and allocated once.
//! # Locking
//! One lock, around sends alone; but a reply that is longer than a buffer is read under it.

use std::{
    io::{self, IoSlice},
    ops::Range,
};

use parking_lot::{Mutex, MutexGuard};

use super::socket::Socket;

/// See the module.
pub(super) struct Outbox<'a> {
    socket: &'a Socket,
    broken: Mutex<bool>,
}

/// The right to send one message in parts.
pub(super) struct Sending<'a> {
    socket: &'a Socket,
    broken: MutexGuard<'a, bool>,
}

/// The connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl<'a> Outbox<'a> {
    pub(super) fn new(socket: &'a Socket) -> Self {
        Self { socket, broken: Mutex::new(false) }
    }

    /// Sends `parts` as one message.
    pub(super) fn send(&self, parts: &mut [IoSlice<'_>]) -> Result<(), Broken> {
        self.begin().send(parts)
    }

    /// Begins a message, which ends with the returned value.
    pub(super) fn begin(&self) -> Sending<'_> {
        Sending { socket: self.socket, broken: self.broken.lock() }
    }
}

impl Sending<'_> {
    /// Sends a part of the message.
    pub(super) fn send(&mut self, parts: &mut [IoSlice<'_>]) -> Result<(), Broken> {
        if *self.broken {
            return Err(Broken);
        }
        self.socket.send(parts).map_err(|_: io::Error| self.end())
    }

    /// Ends the connection in the middle of a message.
    pub(super) fn end(&mut self) -> Broken {
        *self.broken = true;
        self.socket.end();
        Broken
    }
}

/// Replies that are sent together.
pub(super) struct Batch {
    buffer: Box<[u8]>,
    used: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BATCH_BYTES].into_boxed_slice(), used: 0 }
    }

    /// Whether a message of `bytes` fits.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.buffer.len() - self.used
    }

    /// Room for a message, of which `keep` then keeps a part.
    ///
    /// # Panics
    /// It does not fit.
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.buffer[self.used..self.used + bytes]
    }

    /// Keeps the first `bytes` of the room.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.used += bytes;
        assert!(self.used <= self.buffer.len(), "it was given room");
    }

    /// Sends all that was kept.
    pub(super) fn send(&mut self, outbox: &Outbox<'_>) -> Result<(), Broken> {
        let Range { start, end } = 0..std::mem::take(&mut self.used);
        if start == end {
            return Ok(());
        }
        outbox.send(&mut [IoSlice::new(&self.buffer[start..end])])
    }
}

/// A piece with its head, and as many short replies.
const BATCH_BYTES: usize = super::PIECE_BYTES + (64 << 10);
