//! A connection: its handshake within a deadline, then its requests until it ends.
//!
//! ```text
//!   inbox: requests --check--> refused           ----+
//!                      |----> in the cache: copied --+--> batch --one send--> client
//!                      |      (of a long read the chunks up to the first miss)
//!                      |----> a lone miss: carried out here
//!                      +----> a miss among others: a worker ------send------> client
//! ```
//! A request that finds nothing else in flight is carried out by the thread that received it: to
//! wake a worker costs more than many devices do. Once requests were found waiting behind such a
//! one, the client is known to have several in flight, and misses go to workers for a while.
//!
//! # Invariants
//! - A connection takes one thread and a fixed amount of memory, and workers up to its depth.
//! - Replies to earlier requests are on their way before the thread waits for a device or a client.
//! - `DISC` and the end of the client's sending end a connection after what was received is
//!   answered; anything that is no request ends it at once.

use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
    thread::Scope,
    time::Duration,
};

use forerun_io::reaper::Spinner;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use super::{
    PIECE_BYTES, ServerSettings,
    inbox::{INBOX_BYTES, Inbox},
    job::{DONE_BYTES_MAX, Failure, HEAD_BYTES_MAX, Session, piece, piece_bytes},
    outbox::{Batch, Broken},
    socket::Socket,
    workers::Workers,
};
use crate::{
    error::ErrorCode,
    export::Exports,
    handshake::{Agreed, Ended, Handshake, MESSAGE_BYTES_MAX, Step, Tls},
    reply,
    request::{Command, Request},
};

/// Why a connection has no export.
pub(super) enum NoExport {
    /// The client broke the protocol.
    Violation,
    /// It ended the handshake, or its time was up.
    Ended,
}

/// Carries a handshake out; what was agreed on, and what was received beyond it.
pub(super) fn shake_hands(
    socket: &Socket,
    exports: &Exports,
    settings: &ServerSettings,
) -> Result<(Agreed, Vec<u8>), NoExport> {
    let ended = |_: io::Error| NoExport::Ended;
    let timer = deadline(settings.handshake_max).map_err(ended)?;
    socket.wait_to_send(settings.handshake_max).map_err(ended)?;
    let (mut kept, mut out) = (Vec::new(), Vec::new());
    let tls = if socket.requires_tls() { Tls::Required } else { Tls::Off };
    let mut handshake = Handshake::new(tls, &mut out);
    loop {
        socket.send(&mut [IoSlice::new(&out)]).map_err(ended)?;
        out.clear();
        loop {
            match handshake.step(&kept, exports, &mut out) {
                Step::Wants => break,
                Step::Took(count) => {
                    kept.drain(..count);
                }
                Step::Done(count, agreed) => {
                    kept.drain(..count);
                    socket.send(&mut [IoSlice::new(&out)]).map_err(ended)?;
                    socket.wait_to_send(settings.send_max).map_err(ended)?;
                    return Ok((agreed, kept));
                }
                Step::Over(count, Ended::StartTls) => {
                    // What is sent before TLS would be taken for a part of what it protects.
                    if count != kept.len() {
                        return Err(NoExport::Violation);
                    }
                    kept.clear();
                    socket.send(&mut [IoSlice::new(&out)]).map_err(ended)?;
                    out.clear();
                    begin_tls(socket, &timer)?;
                    handshake = handshake.secured();
                }
                Step::Over(_, end) => {
                    let _ = socket.send(&mut [IoSlice::new(&out)]);
                    return Err(match end {
                        Ended::Violation(_) => NoExport::Violation,
                        _ => NoExport::Ended,
                    });
                }
            }
            if out.len() > MESSAGE_BYTES_MAX {
                break; // A client that asks for much gets it before it asks for more.
            }
        }
        if out.is_empty() {
            receive_by(socket, &timer, &mut kept)?;
        }
    }
}

/// Has the client begin TLS before `timer` ends.
fn begin_tls(socket: &Socket, timer: &OwnedFd) -> Result<(), NoExport> {
    let secure = socket.begin_tls().map_err(|_| NoExport::Ended)?;
    while secure.is_shaking_hands() {
        match secure.shake_hands(&mut socket.raw()) {
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_by(socket, timer)?,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(NoExport::Violation);
            }
            Ok(false) | Err(_) => return Err(NoExport::Ended),
        }
    }
    Ok(())
}

/// Appends what the client sends before `timer` ends.
fn receive_by(socket: &Socket, timer: &OwnedFd, kept: &mut Vec<u8>) -> Result<(), NoExport> {
    assert!(kept.len() < MESSAGE_BYTES_MAX, "a whole message was taken");
    let mut room = [0; 4096];
    let room_max = room.len().min(MESSAGE_BYTES_MAX - kept.len());
    loop {
        match socket.receive_now(&mut room[..room_max]) {
            Ok(None) => wait_by(socket, timer)?,
            Ok(Some(0)) | Err(_) => return Err(NoExport::Ended),
            Ok(Some(count)) => {
                kept.extend(&room[..count]);
                return Ok(());
            }
        }
    }
}

/// Waits until the client has sent something, until `timer` ends at most.
fn wait_by(socket: &Socket, timer: &OwnedFd) -> Result<(), NoExport> {
    let mut events = [PollFd::new(socket, PollFlags::IN), PollFd::new(timer, PollFlags::IN)];
    match poll(&mut events, None) {
        Ok(_) if events[1].revents().is_empty() => Ok(()),
        Err(Errno::INTR) => Ok(()),
        Ok(_) | Err(_) => Err(NoExport::Ended),
    }
}

/// A descriptor that is readable once `time` has passed.
fn deadline(time: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = Timespec::try_from(time).map_err(io::Error::other)?;
    let spec = Itimerspec { it_interval: zero, it_value };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
    Ok(timer)
}

/// The requests of one connection.
pub(super) struct Requests<'scope, 'env> {
    pub(super) scope: &'scope Scope<'scope, 'env>,
    pub(super) session: &'scope Session<'scope>,
    pub(super) workers: &'scope Workers,
    pub(super) socket: &'scope Socket,
    inbox: Inbox,
    batch: Batch,
    room: Vec<u8>,
    /// How many more misses go to workers, as requests were found waiting.
    deep: u32,
}

/// How the requests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestsEnd {
    /// By the client, or by the server's end.
    Orderly,
    /// A send failed, or the client went in the middle of a payload.
    Broken,
    /// The client broke the protocol.
    Violation,
}

impl From<Broken> for RequestsEnd {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

impl<'scope, 'env> Requests<'scope, 'env> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        session: &'scope Session<'scope>,
        workers: &'scope Workers,
        socket: &'scope Socket,
        received: &[u8],
    ) -> Self {
        const { assert!(MESSAGE_BYTES_MAX <= INBOX_BYTES, "the rest of a handshake fits") };
        let (inbox, batch) = (Inbox::after(received), Batch::new());
        Self { scope, session, workers, socket, inbox, batch, room: Vec::new(), deep: 0 }
    }

    /// Carries requests out until they end.
    pub(super) fn run(mut self) -> RequestsEnd {
        let mut spinner = Spinner::default();
        let end = loop {
            if let Err(end) = self.received() {
                break end;
            }
            match self.inbox.receive_soon(self.socket, &mut spinner) {
                Ok(true) => {}
                Ok(false) => break RequestsEnd::Orderly,
                Err(_) => break RequestsEnd::Broken,
            }
        };
        let _ = self.batch.send(&self.session.outbox);
        self.workers.finish();
        end
    }

    /// Carries out what was received, and sends the replies.
    fn received(&mut self) -> Result<(), RequestsEnd> {
        while let Some(bytes) = self.inbox.request() {
            let Ok(request) = Request::decode(&bytes) else {
                return Err(RequestsEnd::Violation);
            };
            if request.command == Command::Disconnect {
                return Err(RequestsEnd::Orderly);
            }
            self.request(&request)?;
        }
        Ok(self.batch.send(&self.session.outbox)?)
    }

    fn request(&mut self, request: &Request) -> Result<(), RequestsEnd> {
        let session = self.session;
        if request.floods(session.export) {
            return Err(RequestsEnd::Violation);
        }
        if let Err(error) = request.check(session.export, &session.agreed) {
            self.batch.send(&session.outbox)?;
            session.fail(request, &Failure::new(error, refusal(request, error)))?;
            return self.skip_payload(request);
        }
        let mut rest = *request;
        match request.command {
            Command::Read if session.is_chunked(request) => {
                let Some(left) = self.read_cached_chunks(request)? else { return Ok(()) };
                rest = left;
            }
            Command::Read if self.read_cached(request)? => return Ok(()),
            Command::Write if request.length as usize > PIECE_BYTES => {
                return self.write_long(request);
            }
            Command::Write => {
                self.payload(request.length as usize)?;
                if self.is_quick(request) {
                    return self.write_now(request);
                }
            }
            _ => {}
        }
        self.batch.send(&session.outbox)?;
        let waits = matches!(
            request.command,
            Command::Read | Command::Write | Command::Flush | Command::WriteZeroes | Command::Trim
        );
        if waits
            && self.goes_to_worker()
            && self.workers.take(self.scope, session, rest, &mut self.room)
        {
            return Ok(());
        }
        session.carry_out(&rest, &mut self.room)?;
        self.look_for_company()
    }

    /// Looks whether requests came while one was carried out.
    fn look_for_company(&mut self) -> Result<(), RequestsEnd> {
        if !self.inbox.is_empty() {
            self.deep = DEEP_MISSES;
            return Ok(());
        }
        match self.inbox.receive_now(self.socket) {
            Ok(Some(true)) => self.deep = DEEP_MISSES,
            // The end is found again by the next receive.
            Ok(Some(false) | None) => {}
            Err(_) => return Err(RequestsEnd::Broken),
        }
        Ok(())
    }

    /// Whether a write is a copy into the cache: of whole pages, durable later.
    fn is_quick(&self, request: &Request) -> bool {
        let pages = u64::from(self.session.export.blocks.preferred);
        let whole = request.offset.is_multiple_of(pages) && request.end().is_multiple_of(pages);
        whole && !self.session.is_durable(request)
    }

    /// Writes the payload that the room begins with; the reply goes with the batch.
    fn write_now(&mut self, request: &Request) -> Result<(), RequestsEnd> {
        let session = self.session;
        let payload = &self.room[..request.length as usize];
        if let Err(failure) = session.write(payload, request.offset, false) {
            self.batch.send(&session.outbox)?;
            return Ok(session.fail(request, &failure)?);
        }
        if !self.batch.has_room(DONE_BYTES_MAX) {
            self.batch.send(&session.outbox)?;
        }
        let bytes = session.done_reply(request, self.batch.room(DONE_BYTES_MAX));
        self.batch.keep(bytes);
        Ok(())
    }

    /// Writes piece by piece, as the payload comes.
    fn write_long(&mut self, request: &Request) -> Result<(), RequestsEnd> {
        let (session, durable) = (self.session, self.session.is_durable(request));
        let (mut at, end) = (request.offset, request.end());
        let mut written = Ok(());
        while at < end {
            let bytes = piece_bytes(end - at);
            self.payload(bytes)?;
            let next = at + bytes as u64;
            if written.is_ok() {
                written = session.write(&self.room[..bytes], at, durable && next == end);
            }
            at = next;
        }
        Ok(session.answer(request, written)?)
    }

    /// Has the room begin with the next `bytes` of a payload.
    fn payload(&mut self, bytes: usize) -> Result<(), RequestsEnd> {
        if !self.inbox.has(bytes) {
            self.batch.send(&self.session.outbox)?;
        }
        match self.inbox.payload(self.socket, piece(&mut self.room, bytes)) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(RequestsEnd::Broken),
        }
    }

    /// Whether this miss is one of several in flight.
    fn goes_to_worker(&mut self) -> bool {
        if !self.inbox.is_empty() || !self.workers.are_idle() {
            self.deep = DEEP_MISSES;
            return true;
        }
        let deep = self.deep > 0;
        self.deep = self.deep.saturating_sub(1);
        deep
    }

    /// Appends the reply to a read whose bytes are all in the cache; `false` where they are not.
    fn read_cached(&mut self, request: &Request) -> Result<bool, RequestsEnd> {
        let (session, bytes) = (self.session, request.length as usize);
        if bytes == 0 || bytes > PIECE_BYTES {
            return Ok(false);
        }
        let mut head = [0; HEAD_BYTES_MAX];
        let head_bytes = session.head(request, &mut head);
        let is_cached = self.append_cached(&head[..head_bytes], request.offset, bytes)?;
        if is_cached {
            session.count(request, false);
        }
        Ok(is_cached)
    }

    /// Appends the chunks of a long read, from its first byte to the first that is not in the
    /// cache; what is left of it.
    fn read_cached_chunks(&mut self, request: &Request) -> Result<Option<Request>, RequestsEnd> {
        let (session, mut left) = (self.session, *request);
        loop {
            let bytes = piece_bytes(left.length.into());
            let length = u32::try_from(bytes).expect("a piece");
            let is_last = length == left.length;
            let head = reply::data(left.cookie, left.offset, length, is_last);
            if !self.append_cached(&head, left.offset, bytes)? {
                session.count_read(request.length - left.length);
                return Ok(Some(left));
            }
            if is_last {
                session.count(request, false);
                return Ok(None);
            }
            left.offset += u64::from(length);
            left.length -= length;
        }
    }

    /// Appends `head` and `bytes` from `offset` on, if these are in the cache.
    fn append_cached(&mut self, head: &[u8], offset: u64, bytes: usize) -> Result<bool, Broken> {
        let session = self.session;
        if !self.batch.has_room(head.len() + bytes) {
            self.batch.send(&session.outbox)?;
        }
        let room = self.batch.room(head.len() + bytes);
        // An error is found again, and told, by the read that follows.
        if session.handle.read_at_cached(&mut room[head.len()..], offset) != Ok(Some(bytes)) {
            return Ok(false);
        }
        room[..head.len()].copy_from_slice(head);
        self.batch.keep(head.len() + bytes);
        Ok(true)
    }

    fn skip_payload(&mut self, request: &Request) -> Result<(), RequestsEnd> {
        let bytes = request.payload_bytes() as usize;
        match self.inbox.skip(self.socket, bytes) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(RequestsEnd::Broken),
        }
    }
}

/// Why a request is refused, in words.
fn refusal(request: &Request, error: ErrorCode) -> String {
    let Request { command, offset, length, flags, .. } = request;
    format!("{error}: {command:?} of {length} bytes at {offset}, flags {:#x}", flags.0)
}

/// Misses that go to workers after the last sign of several in flight.
const DEEP_MISSES: u32 = 32;
