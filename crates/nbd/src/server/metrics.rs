//! Metrics: counts of a server in the text format of Prometheus, over HTTP, and a page that shows
//! them.
//!
//! One client at a time, each for a bounded time and a bounded request: metrics are read every few
//! seconds, by one or two programs.
//!
//! # Invariants
//! - Names of exports are escaped.
//! - The page changes nothing, and tells no byte of an export.
//! # Sources
//! Prometheus, *Exposition formats*, text format 0.0.4.

use std::{
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use forerun_engine::PartitionState;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::{Server, Shared, counters::ClientCounters};

/// An address that answers with metrics.
#[derive(Debug)]
pub struct Metrics(TcpListener);

impl Metrics {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self)
    }

    /// The address in use.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
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
            if let Ok((client, _)) = self.0.accept() {
                // A client that fails asks again.
                let _ = answer(client, server);
            }
        }
    }
}

fn answer(mut client: TcpStream, server: &Server) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_MAX))?;
    client.set_write_timeout(Some(CLIENT_MAX))?;
    let mut request = [0; REQUEST_BYTES_MAX];
    let mut used = 0;
    // A request line is enough; a client that sends it byte by byte is cut off by their number.
    for _ in 0..READS_MAX {
        match client.read(&mut request[used..])? {
            0 => break,
            count => used += count,
        }
        if used == request.len() || request[..used].windows(4).any(|end| end == b"\r\n\r\n") {
            break;
        }
    }
    let line = request[..used].split(|&byte| byte == b'\r').next().unwrap_or_default();
    let plain = "text/plain; version=0.0.4; charset=utf-8";
    let (status, kind, text) = if line.starts_with(b"GET /metrics ") {
        ("200 OK", plain, server.metrics())
    } else if line.starts_with(b"GET / ") {
        ("200 OK", "text/html; charset=utf-8", PAGE.to_owned())
    } else {
        ("404 Not Found", plain, "metrics are at /metrics, a page of them at /\n".to_owned())
    };
    let length = text.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    )
}

impl Server {
    /// The counts, as text.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut text = Text(String::new());
        self.0.tell_connections(&mut text);
        self.0.tell_requests(&mut text);
        self.0.tell_clients(&mut text);
        self.0.tell_cache(&mut text);
        text.0
    }
}

impl Shared {
    fn tell_connections(&self, text: &mut Text) {
        let (all, agreed) = self.table.count();
        let counts = &self.connections;
        text.gauge("connections", "Connections, those in a handshake included.", all as u64);
        text.gauge("connections_serving", "Connections that opened an export.", agreed as u64);
        let accepted = counts.accepted.get();
        text.counter("connections_accepted_total", "Connections that came.", accepted);
        let refused = counts.refused.get();
        text.counter("connections_refused_total", "Connections over the bound.", refused);
        let ended = counts.ended_in_handshake.get();
        text.counter("handshakes_ended_total", "Handshakes that ended without an export.", ended);
        let violations = counts.violations.get();
        text.counter("violations_total", "Connections that broke the protocol.", violations);
    }

    fn tell_requests(&self, text: &mut Text) {
        let exports = || self.exports.all().iter().zip(&self.requests);
        text.head("requests_total", "counter", "Requests that were done.");
        for (export, counts) in exports() {
            for (command, count) in counts.done() {
                let labels = format!("export=\"{}\",command=\"{command}\"", escaped(&export.name));
                text.value("requests_total", &labels, count);
            }
        }
        let mut each = |name: &str, help: &str, of: &dyn Fn(usize) -> u64| {
            text.head(name, "counter", help);
            for (at, (export, _)) in exports().enumerate() {
                text.value(name, &format!("export=\"{}\"", escaped(&export.name)), of(at));
            }
        };
        let counts = &self.requests;
        each("requests_failed_total", "Requests that failed.", &|at| counts[at].failed.get());
        each("read_bytes_total", "Bytes that clients read.", &|at| counts[at].bytes_read.get());
        let written = |at: usize| counts[at].bytes_written.get();
        each("written_bytes_total", "Bytes that clients wrote.", &written);
    }

    fn tell_clients(&self, text: &mut Text) {
        let clients = self.table.clients();
        let mut each = |name: &str, help: &str, of: &dyn Fn(&ClientCounters) -> u64| {
            text.head(name, "counter", help);
            for client in &clients {
                let export = escaped(&self.exports.all()[client.export].name);
                let (number, peer) = (client.number, escaped(&client.peer));
                let labels = format!("client=\"{number}\",peer=\"{peer}\",export=\"{export}\"");
                text.value(name, &labels, of(&client.counts));
            }
        };
        each("client_requests_total", "Requests of a client.", &|it| it.requests.get());
        each("client_read_bytes_total", "Bytes that it read.", &|it| it.bytes_read.get());
        each("client_written_bytes_total", "Bytes that it wrote.", &|it| it.bytes_written.get());
    }

    fn tell_cache(&self, text: &mut Text) {
        let stats = self.cache.stats();
        let (frames, free) = self.cache.frames();
        text.gauge("cache_pages", "Pages that the cache can hold.", frames.into());
        text.gauge("cache_pages_free", "Of these, pages that hold nothing.", free.into());
        text.counter("cache_hits_total", "Pages found in the cache.", stats.hits());
        text.counter("cache_late_hits_total", "Pages that were on their way.", stats.late_hits());
        text.counter("cache_misses_total", "Pages that were neither.", stats.misses());
        let partitions = self.cache.partitions();
        let mut each = |name: &str, kind: &str, help: &str, of: &dyn Fn(&PartitionState) -> u64| {
            text.head(name, kind, help);
            for partition in &partitions {
                let labels = format!("partition=\"{}\"", escaped(&partition.name));
                text.value(name, &labels, of(partition));
            }
        };
        each("partition_bytes", "gauge", "What its pages may take.", &|it| it.bytes);
        each("partition_used_bytes", "gauge", "What they take.", &|it| it.used_bytes);
        each("partition_got_bytes_total", "counter", "What sizing gave it.", &|it| it.got_bytes);
        each("partition_gave_bytes_total", "counter", "What it took.", &|it| it.gave_bytes);
        text.gauge("dirty_bytes", "Bytes written and not durable.", self.cache.dirty_bytes());
        text.counter("waits_total", "Reads that waited for a device.", stats.waits);
        let waited = u64::try_from(stats.waited.as_micros()).unwrap_or(u64::MAX);
        text.counter("waited_microseconds_total", "The time of these waits.", waited);
        let p99 = u64::try_from(stats.latency.p99().as_micros()).unwrap_or(u64::MAX);
        text.gauge("read_p99_microseconds", "Of reads that took the lock, 99 in 100.", p99);
        text.counter("device_bytes_total", "Bytes read from files.", stats.store_bytes);
        text.counter("device_requests_total", "Requests to files.", stats.store_requests);
    }
}

/// Metrics in the text format, each with the prefix of this server.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.0, "{PREFIX}{name}{{{labels}}} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.single(name, "gauge", help, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.single(name, "counter", help, value);
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{PREFIX}{name} {value}");
    }
}

/// A label's value between quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const PREFIX: &str = "forerun_serve_";
/// Asks for the metrics each second, and draws them.
const PAGE: &str = include_str!("page.html");
/// How long a client may take to send, and to receive.
const CLIENT_MAX: Duration = Duration::from_secs(2);
const REQUEST_BYTES_MAX: usize = 4096;
const READS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_label_ends_where_it_ends() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
