//! One request, carried out and answered: what the connection's thread and its workers both do.
//!
//! ```text
//!   up to a piece         read, then one message
//!   longer, structured    a chunk a piece; chunks of other replies may go between
//!   longer, otherwise     the head, then piece by piece under the outbox's lock
//! ```
//!
//! # Invariants
//! - Every request gets one reply: whole, an error, or the connection's end.
//! - A job holds one piece of memory, whatever its request's length.
//! - Writes, flushes and zeroes are answered when the cache has answered: durable where the request
//!   says FUA or the disk is written through, and after a flush.
//! - A reply that says "no error" before all is read ends the connection where a later piece fails,
//!   but for a chunk, which is filled with zeroes and followed by the error.
//! # Sources
//! `doc/proto.md`, *Structured reply types* and `NBD_CMD_READ`.

use std::io::IoSlice;

use forerun_engine::{Handle, ReadError, WriteError, Zeroing};

use super::{
    PIECE_BYTES,
    counters::{ClientCounters, RequestCounters},
    disk::{Disk, Mode},
    outbox::{Broken, Outbox},
};
use crate::{
    error::ErrorCode,
    export::Export,
    handshake::Agreed,
    reply,
    request::{Command, Flags, Request},
};

/// What the requests of a connection are carried out on.
pub(super) struct Session<'a> {
    pub(super) disk: &'a Disk,
    pub(super) handle: &'a Handle,
    pub(super) export: &'a Export,
    pub(super) agreed: Agreed,
    pub(super) outbox: Outbox<'a>,
    pub(super) counters: &'a RequestCounters,
    pub(super) client: &'a ClientCounters,
}

/// Why a request failed: its error, and words for people.
pub(super) struct Failure {
    pub(super) error: ErrorCode,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(error: ErrorCode, text: impl Into<String>) -> Self {
        Self { error, text: text.into() }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::new(ErrorCode::of_errno(error.errno()), error.to_string())
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::new(ErrorCode::of_errno(error.errno()), error.to_string())
    }
}

impl Session<'_> {
    /// Carries out `request`, which has passed its check, with `room` for a piece; of a write up to
    /// a piece, `room` begins with its payload.
    pub(super) fn carry_out(&self, request: &Request, room: &mut Vec<u8>) -> Result<(), Broken> {
        match request.command {
            Command::Read if request.length == 0 => self.done(request),
            Command::Read if request.length as usize <= PIECE_BYTES => self.read(request, room),
            Command::Read if self.is_chunked(request) => self.read_chunks(request, room),
            Command::Read => self.read_long(request, room),
            Command::Cache => {
                let range = request.offset..request.end();
                match self.handle.prefetch(range) {
                    Ok(()) => self.done(request),
                    Err(error) => self.fail(request, &error.into()),
                }
            }
            Command::BlockStatus => self.block_status(request),
            Command::Write => {
                let payload = &room[..request.length as usize];
                let durable = self.is_durable(request);
                self.answer(request, self.write(payload, request.offset, durable))
            }
            Command::WriteZeroes => self.answer(request, self.write_zeroes(request)),
            Command::Flush => self.answer(request, self.handle.flush().map_err(Failure::from)),
            Command::Trim => self.answer(request, self.trim(request)),
            Command::Disconnect | Command::Unknown(_) => {
                unreachable!("{:?} is answered before", request.command)
            }
        }
    }

    /// Whether a read is answered in several chunks.
    pub(super) fn is_chunked(&self, request: &Request) -> bool {
        let is_long = request.length as usize > PIECE_BYTES;
        is_long && self.agreed.structured && !request.flags.has(Flags::DF)
    }

    /// The bytes before the data of a read's reply, where all of them are known.
    pub(super) fn head(&self, request: &Request, head: &mut [u8; HEAD_BYTES_MAX]) -> usize {
        let Request { cookie, offset, length, .. } = *request;
        if self.agreed.structured {
            *head = reply::data(cookie, offset, length, true);
            HEAD_BYTES_MAX
        } else {
            head[..reply::SIMPLE_BYTES].copy_from_slice(&reply::simple(cookie, None));
            reply::SIMPLE_BYTES
        }
    }

    fn read(&self, request: &Request, room: &mut Vec<u8>) -> Result<(), Broken> {
        let bytes = request.length as usize;
        let piece = piece(room, bytes);
        if let Err(failure) = self.fill(piece, request.offset) {
            return self.fail(request, &failure);
        }
        let mut head = [0; HEAD_BYTES_MAX];
        let head_bytes = self.head(request, &mut head);
        self.count(request, false);
        self.outbox.send(&mut [IoSlice::new(&head[..head_bytes]), IoSlice::new(piece)])
    }

    fn read_chunks(&self, request: &Request, room: &mut Vec<u8>) -> Result<(), Broken> {
        let (mut at, end) = (request.offset, request.end());
        while at < end {
            let bytes = piece_bytes(end - at);
            let piece = piece(room, bytes);
            if let Err(failure) = self.fill(piece, at) {
                return self.fail_at(request, &failure, at);
            }
            let (next, length) = (at + bytes as u64, u32::try_from(bytes).expect("a piece"));
            if next == end {
                self.count(request, false);
            }
            let head = reply::data(request.cookie, at, length, next == end);
            self.outbox.send(&mut [IoSlice::new(&head), IoSlice::new(piece)])?;
            at = next;
        }
        Ok(())
    }

    /// A long read whose reply is one message.
    fn read_long(&self, request: &Request, room: &mut Vec<u8>) -> Result<(), Broken> {
        let (mut at, end) = (request.offset, request.end());
        let first = piece(room, piece_bytes(end - at));
        if let Err(failure) = self.fill(first, at) {
            return self.fail(request, &failure);
        }
        let mut head = [0; HEAD_BYTES_MAX];
        let mut sending = self.outbox.begin();
        if self.agreed.structured {
            head = reply::data(request.cookie, at, request.length, false);
            sending.send(&mut [IoSlice::new(&head), IoSlice::new(first)])?;
        } else {
            let head_bytes = self.head(request, &mut head);
            sending.send(&mut [IoSlice::new(&head[..head_bytes]), IoSlice::new(first)])?;
        }
        at += first.len() as u64;
        let mut failed = None;
        while at < end {
            let piece = piece(room, piece_bytes(end - at));
            if failed.is_none() {
                failed = self.fill(piece, at).err().map(|failure| (failure, at));
            }
            if failed.is_some() {
                if !self.agreed.structured {
                    self.count(request, true);
                    return Err(sending.end());
                }
                piece.fill(0);
            }
            sending.send(&mut [IoSlice::new(piece)])?;
            at += piece.len() as u64;
        }
        drop(sending);
        match failed {
            Some((failure, at)) => self.fail_at(request, &failure, at),
            None if self.agreed.structured => self.done(request),
            None => {
                self.count(request, false);
                Ok(())
            }
        }
    }

    fn fill(&self, piece: &mut [u8], at: u64) -> Result<(), Failure> {
        match self.handle.read_at(piece, at) {
            Ok(count) if count == piece.len() => Ok(()),
            Ok(_) => Err(Failure::new(ErrorCode::Io, "the file has shrunk")),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the bytes of `request` are to be durable before its reply.
    pub(super) fn is_durable(&self, request: &Request) -> bool {
        request.flags.has(Flags::FUA) || self.disk.mode() == Mode::WriteThrough
    }

    /// Writes a part of an export; also durable, with what was written before, where asked for.
    pub(super) fn write(&self, bytes: &[u8], at: u64, durable: bool) -> Result<(), Failure> {
        self.disk.writes(at..at + bytes.len() as u64);
        let written = if durable {
            self.handle.write_durable_at(bytes, at)
        } else {
            self.handle.write_at(bytes, at)
        };
        written.map_err(Failure::from)
    }

    fn write_zeroes(&self, request: &Request) -> Result<(), Failure> {
        let range = request.offset..request.end();
        self.disk.writes(range.clone());
        let how = Zeroing {
            allocated: request.flags.has(Flags::NO_HOLE),
            fast: request.flags.has(Flags::FAST_ZERO),
            durable: self.is_durable(request),
        };
        self.handle.zero(range, how).map_err(Failure::from)
    }

    fn trim(&self, request: &Request) -> Result<(), Failure> {
        self.handle.discard(request.offset..request.end())?;
        if request.flags.has(Flags::FUA) { Ok(self.handle.flush()?) } else { Ok(()) }
    }

    /// Says how a request without a payload in its reply ended.
    pub(super) fn answer(
        &self,
        request: &Request,
        ended: Result<(), Failure>,
    ) -> Result<(), Broken> {
        match ended {
            Ok(()) => self.done(request),
            Err(failure) => self.fail(request, &failure),
        }
    }

    fn block_status(&self, request: &Request) -> Result<(), Broken> {
        let align = self.export.blocks.min.max(SECTOR_BYTES);
        let one = request.flags.has(Flags::REQ_ONE);
        let extents = self.disk.extents(request.offset, request.length, one, align);
        let mut out = Vec::new();
        reply::block_status(&mut out, request.cookie, &extents);
        self.count(request, false);
        self.outbox.send(&mut [IoSlice::new(&out)])
    }

    /// Says: done, no data.
    pub(super) fn done(&self, request: &Request) -> Result<(), Broken> {
        let mut room = [0; DONE_BYTES_MAX];
        let bytes = self.done_reply(request, &mut room);
        self.outbox.send(&mut [IoSlice::new(&room[..bytes])])
    }

    /// The reply that says: done, no data.
    pub(super) fn done_reply(&self, request: &Request, room: &mut [u8]) -> usize {
        self.count(request, false);
        if self.agreed.structured {
            room[..reply::CHUNK_BYTES].copy_from_slice(&reply::none(request.cookie));
            reply::CHUNK_BYTES
        } else {
            room[..reply::SIMPLE_BYTES].copy_from_slice(&reply::simple(request.cookie, None));
            reply::SIMPLE_BYTES
        }
    }

    /// Says: failed.
    pub(super) fn fail(&self, request: &Request, failure: &Failure) -> Result<(), Broken> {
        self.count(request, true);
        if !self.agreed.structured {
            let reply = reply::simple(request.cookie, Some(failure.error));
            return self.outbox.send(&mut [IoSlice::new(&reply)]);
        }
        let mut out = Vec::new();
        reply::error(&mut out, request.cookie, failure.error, &failure.text);
        self.outbox.send(&mut [IoSlice::new(&out)])
    }

    /// Says: failed from `at` on.
    fn fail_at(&self, request: &Request, failure: &Failure, at: u64) -> Result<(), Broken> {
        self.count(request, true);
        let mut out = Vec::new();
        reply::error_at(&mut out, request.cookie, failure.error, &failure.text, at);
        self.outbox.send(&mut [IoSlice::new(&out)])
    }

    /// Counts a request, before its reply can be seen.
    pub(super) fn count(&self, request: &Request, failed: bool) {
        self.counters.add(request.command, failed);
        self.client.requests.add(1);
        match request.command {
            Command::Read if !failed => self.count_read(request.length),
            Command::Write if !failed => {
                let bytes = u64::from(request.length);
                self.counters.bytes_written.add(bytes);
                self.client.bytes_written.add(bytes);
            }
            _ => {}
        }
    }

    /// Counts bytes that go to the client.
    pub(super) fn count_read(&self, bytes: u32) {
        self.counters.bytes_read.add(u64::from(bytes));
        self.client.bytes_read.add(u64::from(bytes));
    }
}

/// Room for `bytes`, at the start of `room`.
pub(super) fn piece(room: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    assert!(bytes <= PIECE_BYTES, "a job holds one piece");
    if room.len() < bytes {
        room.resize(bytes, 0);
    }
    &mut room[..bytes]
}

/// The next piece of `left` bytes.
pub(super) fn piece_bytes(left: u64) -> usize {
    usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES))
}

/// The longest head before data: that of a chunk.
pub(super) const HEAD_BYTES_MAX: usize = reply::CHUNK_BYTES + 8;
/// The longest reply that says: done.
pub(super) const DONE_BYTES_MAX: usize = reply::CHUNK_BYTES;
/// What ends of extents are multiples of at least.
const SECTOR_BYTES: u32 = 512;
