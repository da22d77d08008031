//! One connection: requests in, answers out, one after the other.
//!
//! ```text
//!   request --> latency --> source --> answer, faulty on its turn --> head --> body in pieces
//!     |                                                                          |
//!     +- counted, in flight                                  no longer in flight +- before the
//!                                                                                   last piece
//! ```
//!
//! # Invariants
//! - A piece is at most `PIECE_BYTES`, so memory does not grow with a body; but what is encoded is
//!   held as a whole.
//! - Requests under `/-/` are never slowed or faulty.
//! # Sources
//! RFC 9112, sections 6 (length of a body), 7.1 (chunks) and 9 (connections).

use std::io::{self, BufReader, BufWriter, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::thread;
#[expect(clippy::disallowed_types, reason = "an answer is late by real time")]
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::answer::{Answer, Framing};
use super::content::{Content, Source};
use super::fault::Fault;
use super::pace::Pace;
use super::request::{self, Request};
use super::state::{InFlight, Shared, State};

/// The content of the server, and its state.
pub(super) struct Server {
    content: Content,
    shared: Shared,
}

impl Server {
    pub(super) fn new(content: Content, state: State) -> Self {
        Self { content, shared: Shared::new(state) }
    }

    /// Answers the requests of `stream` until either side ends it.
    pub(super) fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let to = BufWriter::new(stream);
        let mut connection =
            Connection { server: self, to, piece: vec![0; PIECE_BYTES], epoch: None };
        let mut from = BufReader::new(stream);
        loop {
            let request = match request::read(&mut from) {
                Ok(Some(request)) => request,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return connection.refuse(400);
                }
                Err(error) => return Err(error),
            };
            let goes_on = connection.answer(&request)?;
            connection.to.flush()?;
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// The answer to `range` of the content at `path`.
    fn find(&self, path: &str, range: Option<&str>, fault: Option<Fault>) -> (Answer, Source) {
        let status = match self.content.open(path) {
            Ok(source) => return (Answer::new(range, source.bytes, fault), source),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => 404,
                _ => 500,
            },
        };
        (Answer::empty(status), Source::memory(Vec::new()))
    }
}

struct Connection<'a> {
    server: &'a Server,
    to: BufWriter<&'a TcpStream>,
    piece: Vec<u8>,
    /// The epoch of its last count.
    epoch: Option<u64>,
}

impl Connection<'_> {
    /// Answers `request`; returns whether the connection continues.
    fn answer(&mut self, request: &Request) -> io::Result<bool> {
        match (request.path.strip_prefix("/-/"), request.method.as_str()) {
            (Some(words), "GET" | "POST") => self.control(words, request),
            (None, "GET") => self.get(request),
            (None, "HEAD") => self.head(request),
            _ => self.refuse(405).map(|()| false),
        }
    }

    #[expect(clippy::disallowed_types, reason = "an answer is late by real time")]
    fn get(&mut self, request: &Request) -> io::Result<bool> {
        let arrived = Instant::now();
        let (turn, in_flight) = self.server.shared.get(&mut self.epoch);
        thread::sleep((arrived + turn.latency).saturating_duration_since(Instant::now()));
        let range = request.range.as_deref();
        let (answer, source) = self.server.find(&request.path, range, turn.fault);
        let encoded = answer.gzip.then(|| encoded(&source, &answer.span)).transpose()?;
        let (body, span) = match &encoded {
            Some(file) => (file, 0..file.bytes),
            None => (&source, answer.span.clone()),
        };
        self.write_head(request, &answer, &source, span.end - span.start)?;
        self.write_body(body, span, answer.framing, Pace::new(turn.rate), Some(in_flight))?;
        Ok(request.keep_alive && answer.framing != Framing::Cut)
    }

    fn head(&mut self, request: &Request) -> io::Result<bool> {
        let turn = self.server.shared.head();
        thread::sleep(turn.latency);
        let (answer, source) = self.server.find(&request.path, None, turn.fault);
        self.write_head(request, &answer, &source, answer.span.end)?;
        Ok(request.keep_alive)
    }

    fn control(&mut self, words: &str, request: &Request) -> io::Result<bool> {
        let (status, text) = match self.server.shared.control(words) {
            Ok(json) => (200, json),
            Err(error) => (400, format!("{error}\n")),
        };
        let source = Source::memory(text.into_bytes());
        self.write_head(request, &Answer::empty(status), &source, source.bytes)?;
        self.write_body(&source, 0..source.bytes, Framing::Length, None, None)?;
        Ok(request.keep_alive)
    }

    /// Answers a request that is not for bytes; the connection ends with it.
    fn refuse(&mut self, status: u16) -> io::Result<()> {
        write!(self.to, "HTTP/1.1 {} {}\r\n", status, reason(status))?;
        self.to.write_all(b"Connection: close\r\nContent-Length: 0\r\n\r\n")?;
        self.to.flush()
    }

    /// The head of `answer`, with a body of `body_bytes` from `source`.
    fn write_head(
        &mut self,
        request: &Request,
        answer: &Answer,
        source: &Source,
        body_bytes: u64,
    ) -> io::Result<()> {
        let (to, status, total) = (&mut self.to, answer.status, source.bytes);
        write!(to, "HTTP/1.1 {status} {}\r\nAccept-Ranges: bytes\r\n", reason(status))?;
        match answer.framing {
            Framing::Length | Framing::Cut => write!(to, "Content-Length: {body_bytes}\r\n")?,
            Framing::Chunked => to.write_all(b"Transfer-Encoding: chunked\r\n")?,
        }
        if status == 206 {
            let (first, last) = (answer.span.start, answer.span.end - 1);
            write!(to, "Content-Range: bytes {first}-{last}/{total}\r\n")?;
        }
        if status == 416 {
            write!(to, "Content-Range: bytes */{total}\r\n")?;
        }
        if answer.gzip {
            to.write_all(b"Content-Encoding: gzip\r\n")?;
        }
        if !source.etag.is_empty() {
            write!(to, "ETag: {}\r\n", source.etag)?;
        }
        if !request.keep_alive || answer.framing == Framing::Cut {
            to.write_all(b"Connection: close\r\n")?;
        }
        to.write_all(b"\r\n")
    }

    /// The bytes `span` of `source`, as fast as `pace` lets them pass.
    fn write_body(
        &mut self,
        source: &Source,
        span: Range<u64>,
        framing: Framing,
        mut pace: Option<Pace>,
        mut in_flight: Option<InFlight<'_>>,
    ) -> io::Result<()> {
        let Range { start: mut at, mut end } = span;
        if framing == Framing::Cut {
            end -= (end - at).div_ceil(2);
        }
        if let Some(get) = &in_flight {
            get.count(end - at);
        }
        while at < end {
            let rest = usize::try_from(end - at).unwrap_or(PIECE_BYTES);
            let piece = &mut self.piece[..rest.min(PIECE_BYTES)];
            source.fill(at, piece)?;
            at += piece.len() as u64;
            if let Some(pace) = &mut pace {
                self.to.flush()?;
                pace.wait(piece.len() as u64);
            }
            if at == end {
                in_flight.take();
            }
            match framing {
                Framing::Length | Framing::Cut => self.to.write_all(piece)?,
                Framing::Chunked => {
                    write!(self.to, "{:x}\r\n", piece.len())?;
                    self.to.write_all(piece)?;
                    self.to.write_all(b"\r\n")?;
                }
            }
        }
        drop(in_flight);
        if framing == Framing::Chunked {
            self.to.write_all(b"0\r\n\r\n")?;
        }
        Ok(())
    }
}

/// The bytes `span` of `source` as a gzip file.
fn encoded(source: &Source, span: &Range<u64>) -> io::Result<Source> {
    let bytes = usize::try_from(span.end - span.start).map_err(io::Error::other)?;
    let mut plain = vec![0; bytes];
    source.fill(span.start, &mut plain)?;
    // Stored, not compressed: the fault is the encoding, and the answer is quick.
    let mut file = GzEncoder::new(Vec::new(), Compression::none());
    file.write_all(&plain)?;
    Ok(Source::memory(file.finish()?))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        416 => "Range Not Satisfiable",
        _ => "Internal Server Error",
    }
}

const PIECE_BYTES: usize = 64 << 10;
