//! What a client sent and no one has taken: one buffer of fixed size a connection.
//!
//! One call of the system brings as many requests as fit, so a client with several in flight costs
//! a fraction of a call each.
//!
//! # Invariants
//! - A request is taken whole, a payload in any pieces, in the order in which they came.
//! - The buffer never grows.

use std::io;

use forerun_io::reaper::Spinner;

use super::socket::Socket;
use crate::request::REQUEST_BYTES;

/// See the module.
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// An empty one, after what a handshake received and did not take.
    pub(super) fn after(rest: &[u8]) -> Self {
        assert!(rest.len() <= INBOX_BYTES, "a handshake keeps less than a message");
        let mut buffer = vec![0; INBOX_BYTES].into_boxed_slice();
        buffer[..rest.len()].copy_from_slice(rest);
        Self { buffer, start: 0, end: rest.len() }
    }

    /// The next request's bytes, if they are all here.
    pub(super) fn request(&mut self) -> Option<[u8; REQUEST_BYTES]> {
        let request = *self.buffer[self.start..self.end].first_chunk()?;
        self.start += REQUEST_BYTES;
        Some(request)
    }

    /// Whether `bytes` are here.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.end - self.start >= bytes
    }

    /// Whether nothing is here.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// As [`Inbox::receive`], for a client that may send the next request at once.
    pub(super) fn receive_soon(
        &mut self,
        socket: &Socket,
        spinner: &mut Spinner,
    ) -> io::Result<bool> {
        self.make_room();
        let room = &mut self.buffer[self.end..];
        let count = match spinner.spin(|| socket.receive_now(room).transpose()) {
            Some(count) => count?,
            None => socket.receive(room)?,
        };
        spinner.came();
        self.end += count;
        Ok(count > 0)
    }

    /// Receives more, at least a byte; `false` at the end of what the client sends.
    pub(super) fn receive(&mut self, socket: &Socket) -> io::Result<bool> {
        self.make_room();
        let count = socket.receive(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count > 0)
    }

    /// Receives what is there, without waiting; `None` where nothing is, `false` at the end.
    pub(super) fn receive_now(&mut self, socket: &Socket) -> io::Result<Option<bool>> {
        self.make_room();
        let Some(count) = socket.receive_now(&mut self.buffer[self.end..])? else {
            return Ok(None);
        };
        self.end += count;
        Ok(Some(count > 0))
    }

    /// Fills `payload` from the buffer and then from `socket`; `false` where the client ends first.
    pub(super) fn payload(&mut self, socket: &Socket, payload: &mut [u8]) -> io::Result<bool> {
        let here = payload.len().min(self.end - self.start);
        payload[..here].copy_from_slice(&self.buffer[self.start..self.start + here]);
        self.start += here;
        let mut done = here;
        while done < payload.len() {
            match socket.receive(&mut payload[done..])? {
                0 => return Ok(false),
                count => done += count,
            }
        }
        Ok(true)
    }

    /// Takes `bytes` of a payload and drops them; `false` where the client ends first.
    pub(super) fn skip(&mut self, socket: &Socket, mut bytes: usize) -> io::Result<bool> {
        loop {
            let here = bytes.min(self.end - self.start);
            self.start += here;
            bytes -= here;
            if bytes == 0 {
                return Ok(true);
            }
            if !self.receive(socket)? {
                return Ok(false);
            }
        }
    }

    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        assert!(self.end < self.buffer.len(), "less than a request is left");
    }
}

/// Some two thousand requests of no payload.
pub(super) const INBOX_BYTES: usize = 64 << 10;
