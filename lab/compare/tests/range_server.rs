//! The range server from the outside: ranges, counts, settings, and a fault of each kind.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

const BYTES: usize = 300_001;

/// A server of its own; ends with its standard input.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forerun-compare"))
            .arg("range-server")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("stdout was asked to be a pipe");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().strip_prefix("http://").expect("an address").to_owned();
        Self { child, address }
    }

    fn pattern() -> Self {
        Self::start(&["--pattern", &BYTES.to_string()])
    }

    fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(&self.address).expect("it listens")))
    }

    /// One answer on a connection of its own.
    fn get(&self, path: &str, range: &str) -> Answer {
        self.connect().ask("GET", path, range)
    }

    fn control(&self, words: &str) -> Value {
        let answer = self.get(&format!("/-/{words}"), "");
        assert_eq!(answer.status, 200, "{words}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).expect("it is JSON")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends with its input");
    }
}

struct Client(BufReader<TcpStream>);

#[derive(Debug)]
struct Answer {
    status: u16,
    /// In lower case.
    fields: Vec<String>,
    /// All bytes received.
    body: Vec<u8>,
}

impl Client {
    fn ask(&mut self, method: &str, path: &str, range: &str) -> Answer {
        let range = if range.is_empty() { "" } else { &format!("Range: {range}\r\n") };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{range}\r\n");
        self.0.get_mut().write_all(head.as_bytes()).expect("it is read");
        let status = self.line().split(' ').nth(1).expect("a status").parse().expect("a number");
        let mut answer = Answer { status, fields: Vec::new(), body: Vec::new() };
        loop {
            match self.line() {
                line if line.is_empty() => break,
                line => answer.fields.push(line.to_lowercase()),
            }
        }
        if method == "HEAD" {
            return answer;
        }
        if answer.field("transfer-encoding") == Some("chunked") {
            while let bytes @ 1.. = u64::from_str_radix(&self.line(), 16).expect("a chunk") {
                self.take(bytes, &mut answer.body);
                assert_eq!(self.line(), "");
            }
            assert_eq!(self.line(), "");
        } else {
            self.take(answer.number("content-length"), &mut answer.body);
        }
        answer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer is text up to its body");
        line.trim_end().to_owned()
    }

    fn take(&mut self, bytes: u64, body: &mut Vec<u8>) {
        self.0.by_ref().take(bytes).read_to_end(body).expect("a body ends in order");
    }
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        let named = |line: &&String| line.split(':').next() == Some(name);
        self.fields
            .iter()
            .find(named)
            .and_then(|line| line.split_once(": "))
            .map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> u64 {
        self.field(name).expect(name).parse().expect("a number")
    }
}

/// The pattern as documented, a byte at a time.
fn pattern(start: usize, end: usize) -> Vec<u8> {
    let word = |index: usize| (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (start..end).map(|at| word(at / 8)[at % 8]).collect()
}

#[test]
fn ranges_are_answered_on_one_connection() {
    let server = Server::pattern();
    let mut client = server.connect();
    let all = format!("0-{}/{BYTES}", BYTES - 1);
    #[rustfmt::skip]
    let rows = [ // range           status  content-range                   span
        ("",                        200,    None,                           0..BYTES),
        ("bytes=0-",                206,    Some(all),                      0..BYTES),
        ("bytes=3-99999",           206,    Some("3-99999/300001".into()),  3..100_000),
        ("bytes=-5",                206,    Some("299996-300000/300001".into()), 299_996..BYTES),
        ("bytes=300001-",           416,    Some("*/300001".into()),        0..0),
        ("bytes=7-7",               206,    Some("7-7/300001".into()),      7..8),
        ("bytes=0-1,4-5",           200,    None,                           0..BYTES),
    ];
    for (range, status, content_range, span) in rows {
        let answer = client.ask("GET", "/any/path?query", range);
        assert_eq!(answer.status, status, "{range}");
        let content_range: Option<String> = content_range.map(|it: String| format!("bytes {it}"));
        assert_eq!(answer.field("content-range"), content_range.as_deref(), "{range}");
        assert!(answer.body == pattern(span.start, span.end), "{range}: the body");
        assert_eq!(answer.field("accept-ranges"), Some("bytes"), "{range}");
        assert!(answer.field("etag").is_some_and(|tag| tag.starts_with('"')), "{range}");
    }
    let head = client.ask("HEAD", "/", "bytes=0-1");
    assert_eq!((head.status, head.number("content-length")), (200, BYTES as u64));
    assert_eq!(client.ask("PUT", "/", "").status, 405);
}

#[test]
fn files_of_a_folder_are_served_and_no_others() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("range-server");
    fs::create_dir_all(folder.join("served/deeper")).expect("there is room");
    fs::write(folder.join("secret"), "not this").expect("there is room");
    fs::write(folder.join("served/deeper/a b"), "0123456789").expect("there is room");
    let server = Server::start(&["--dir", folder.join("served").to_str().expect("it is text")]);
    let answer = server.get("/deeper/a%20b", "bytes=2-4");
    assert_eq!((answer.status, &answer.body[..]), (206, &b"234"[..]));
    let tag = answer.field("etag").map(str::to_owned);
    fs::write(folder.join("served/deeper/a b"), "another, longer").expect("there is room");
    let changed = server.get("/deeper/./a%20b", "");
    assert_eq!((changed.status, &changed.body[..]), (200, &b"another, longer"[..]));
    assert_ne!(changed.field("etag").map(str::to_owned), tag);
    for path in ["/none", "/deeper", "/", "/../secret", "/deeper/a%20b/c"] {
        let answer = server.get(path, "");
        assert_eq!((answer.status, answer.body.len()), (404, 0), "{path}");
    }
}

#[test]
fn gets_are_counted_by_size_and_connection() {
    let server = Server::pattern();
    let mut client = server.connect();
    client.ask("GET", "/", "bytes=0-99");
    client.ask("HEAD", "/", "");
    client.ask("GET", "/", "bytes=0-199999");
    server.get("/", "bytes=400000-");
    let expected = json!({
        "requests": 3, "bytes": 200_100, "connections": 2, "in_flight_max": 1,
        "sizes": [100, 200_000, 0],
    });
    assert_eq!(server.control("counts"), expected);
    assert_eq!(client.ask("POST", "/-/reset", "").status, 200);
    let none = json!({
        "requests": 0, "bytes": 0, "connections": 0, "in_flight_max": 0, "sizes": [],
    });
    assert_eq!(server.control("counts"), none);
}

#[test]
fn requests_at_one_time_are_in_flight_together() {
    // No connection buffers so much: a body that is not read does not end.
    let server = Server::start(&["--pattern", "1G"]);
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    let head = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    for client in &mut clients {
        client.0.get_mut().write_all(head).expect("it is read");
    }
    for client in &mut clients {
        assert_eq!(client.line(), "HTTP/1.1 200 OK");
    }
    let counts = server.control("counts");
    assert_eq!((&counts["requests"], &counts["in_flight_max"]), (&json!(4), &json!(4)));
}

#[test]
fn a_body_is_right_at_a_rate_and_after_a_latency() {
    let server = Server::start(&["--pattern", "300001", "--latency", "1ms", "--rate", "30M"]);
    let mut client = server.connect();
    assert!(client.ask("GET", "/", "").body == pattern(0, BYTES));
    server.control("rate/0");
    server.control("latency/0");
    assert!(client.ask("GET", "/", "bytes=5-200000").body == pattern(5, 200_001));
    assert_eq!(server.get("/-/rate/fast", "").status, 400);
}

#[test]
fn sound_answers_come_between_faulty_ones() {
    let server = Server::pattern();
    server.control("fault/error:3");
    let mut client = server.connect();
    let statuses: Vec<u16> = (0..6).map(|_| client.ask("GET", "/", "bytes=0-1").status).collect();
    assert_eq!(statuses, [206, 206, 500, 206, 206, 500]);
    server.control("fault/none");
    let sound = (0..3).all(|_| client.ask("GET", "/", "bytes=0-1").status == 206);
    assert!(sound);
}

#[test]
fn every_fault_is_what_it_says() {
    let server = Server::pattern();
    let range = "bytes=1000-100999";
    #[rustfmt::skip]
    let rows = [ // fault   status  content-range             content-length  body
        ("ignore-range",    200,    None,                     BYTES,          0..BYTES),
        ("no-length",       206,    Some("1000-100999"),      0,              1_000..101_000),
        ("drop",            206,    Some("1000-100999"),      100_000,        1_000..51_000),
        ("short",           206,    Some("1000-50999"),       50_000,         1_000..51_000),
        ("long",            206,    Some("1000-200999"),      200_000,        1_000..201_000),
        ("shifted",         206,    Some("1001-101000"),      100_000,        1_001..101_001),
        ("error",           500,    None,                     0,              0..0),
    ];
    for (fault, status, content_range, content_length, body) in rows {
        server.control(&format!("fault/{fault}"));
        let answer = server.get("/", range);
        assert_eq!(answer.status, status, "{fault}");
        let content_range = content_range.map(|it| format!("bytes {it}/{BYTES}"));
        assert_eq!(answer.field("content-range"), content_range.as_deref(), "{fault}");
        if fault == "no-length" {
            assert_eq!(answer.field("content-length"), None);
            let head = server.connect().ask("HEAD", "/", "");
            assert_eq!((head.status, head.field("content-length")), (200, None));
        } else {
            assert_eq!(answer.number("content-length"), content_length as u64, "{fault}");
        }
        assert!(answer.body == pattern(body.start, body.end), "{fault}: the body");
    }
}

#[test]
fn an_encoded_range_holds_the_bytes_asked_for() {
    let server = Server::start(&["--pattern", "300001", "--fault", "gzip"]);
    let answer = server.get("/", "bytes=1000-100999");
    assert_eq!((answer.status, answer.field("content-encoding")), (206, Some("gzip")));
    assert_eq!(answer.field("content-range"), Some("bytes 1000-100999/300001"));
    // Stored blocks between a head of 10 bytes and a tail of 8.
    let (mut rest, mut plain) = (&answer.body[10..], Vec::<u8>::new());
    loop {
        let length = usize::from(u16::from_le_bytes([rest[1], rest[2]]));
        plain.extend(&rest[5..5 + length]);
        let last = rest[0] == 1;
        rest = &rest[5 + length..];
        if last {
            break;
        }
    }
    assert!(plain == pattern(1_000, 101_000), "the content");
    assert_eq!((rest.len(), &rest[4..]), (8, &100_000_u32.to_le_bytes()[..]));
}
