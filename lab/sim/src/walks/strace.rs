//! The text of `strace -f -ttt -T -y`, read as calls on a tree.
//!
//! ```text
//!   71  1795417476.093593 newfstatat(3</t>, "a", {...}, AT_SYMLINK_NOFOLLOW) = 0 <0.000011>
//!   71  1795417476.094111 read(5</t/a/x>, ""..., 3) = 3 <0.000012>
//!   72  1795417476.094112 openat(3</t>, "b", O_RDONLY <unfinished ...>
//!   72  1795417476.094119 <... openat resumed>) = 6</t/b> <0.000007>
//! ```
//! Calls outside the tree, and those that need no storage (`fstat`, `close`, `lseek`), are left
//! out.
//!
//! # Invariants
//! - A line that is no call of the list below is passed over: strace writes many other things.
//! # Sources
//! strace 6.1.

use std::collections::BTreeMap;

use super::accesses::{Call, CallKind};
use super::names;

/// The calls in `text` on paths below `top`, an absolute path.
#[must_use]
pub fn calls(text: &str, top: &str) -> Vec<Call> {
    let mut reading = Reading { top: top.trim_end_matches('/').to_owned(), ..Reading::default() };
    let mut calls: Vec<Call> = text.lines().filter_map(|line| reading.line(line)).collect();
    calls.sort_by_key(|call| call.begin);
    let first = calls.first().map_or(0, |call| call.begin);
    for call in &mut calls {
        call.begin -= first;
    }
    calls
}

#[derive(Default)]
struct Reading {
    top: String,
    /// Calls of threads that are not finished: when they began, and their text.
    unfinished: BTreeMap<u32, (u64, String)>,
    /// Where the next read of a descriptor begins, by its path and number.
    positions: BTreeMap<(String, String), u64>,
}

/// A call, taken apart.
struct Parts<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    result: &'a str,
    took: u64,
}

impl Reading {
    fn line(&mut self, line: &str) -> Option<Call> {
        let (thread, rest) = line.trim_start().split_once(char::is_whitespace)?;
        let thread: u32 = thread.parse().ok()?;
        let (time, text) = rest.trim_start().split_once(' ')?;
        let begin = nanos(time)?;
        if let Some(started) = text.strip_suffix(" <unfinished ...>") {
            self.unfinished.insert(thread, (begin, started.to_owned()));
            return None;
        }
        if let Some(resumed) = text.strip_prefix("<... ") {
            let (_, rest) = resumed.split_once(" resumed>")?;
            let (begin, started) = self.unfinished.remove(&thread)?;
            return self.call(thread, begin, &format!("{started}{rest}"));
        }
        self.call(thread, begin, text)
    }

    fn call(&mut self, thread: u32, begin: u64, text: &str) -> Option<Call> {
        let Parts { name, arguments, result, took } = Parts::new(text)?;
        let at = |nth: usize| arguments.get(nth).copied().unwrap_or_default();
        let error = result
            .strip_prefix("-1 ")
            .map(|rest| rest.split(' ').next().unwrap_or(rest).to_owned());
        let count = result.split([' ', '<']).next().and_then(|count| count.parse::<u64>().ok());
        let (call, path, offset, bytes) = match name {
            "openat" | "open" => {
                let (dir, path) = if name == "open" { ("", at(0)) } else { (at(0), at(1)) };
                let path = descriptor(result).unwrap_or_else(|| joined(dir, path));
                if let Some((number, _)) = result.split_once('<') {
                    self.positions.insert((path.clone(), number.to_owned()), 0);
                }
                (CallKind::Open, path, 0, 0)
            }
            "newfstatat" | "statx" | "readlinkat" | "faccessat" | "faccessat2" => {
                if at(1) == "\"\"" {
                    return None;
                }
                (CallKind::Stat, joined(at(0), at(1)), 0, 0)
            }
            "stat" | "lstat" | "access" | "readlink" | "lgetxattr" | "llistxattr" | "getxattr"
            | "listxattr" => (CallKind::Stat, joined("", at(0)), 0, 0),
            "execve" => (CallKind::Exec, joined("", at(0)), 0, 0),
            "getdents64" | "getdents" => (CallKind::List, descriptor(at(0))?, 0, 0),
            "read" | "readv" => {
                let (path, bytes) = (descriptor(at(0))?, count?);
                (CallKind::Read, path.clone(), self.advance(path, at(0), bytes), bytes)
            }
            "pread64" => (CallKind::Read, descriptor(at(0))?, at(3).parse().ok()?, count?),
            "copy_file_range" | "sendfile" => {
                let from = if name == "sendfile" { at(1) } else { at(0) };
                let (path, bytes) = (descriptor(from)?, count?);
                (CallKind::Read, path.clone(), self.advance(path, from, bytes), bytes)
            }
            "mmap" => {
                let offset = u64::from_str_radix(at(5).trim_start_matches("0x"), 16).ok()?;
                (CallKind::Map, descriptor(at(4))?, offset, at(1).parse().ok()?)
            }
            _ => return None,
        };
        let path = self.below(&path)?;
        Some(Call { begin, thread, call, path, offset, bytes, error, took })
    }

    /// Where a read of `bytes` through a descriptor begins.
    fn advance(&mut self, path: String, argument: &str, bytes: u64) -> u64 {
        let number = argument.split('<').next().unwrap_or_default().to_owned();
        let position = self.positions.entry((path, number)).or_default();
        let offset = *position;
        *position = position.saturating_add(bytes);
        offset
    }

    /// `path` below the top, without `.` and `..`.
    fn below(&self, path: &str) -> Option<String> {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        let path = format!("/{}", parts.join("/"));
        let rest = path.strip_prefix(&self.top)?;
        if rest.is_empty() { Some(String::new()) } else { Some(rest.strip_prefix('/')?.to_owned()) }
    }
}

impl<'a> Parts<'a> {
    fn new(text: &'a str) -> Option<Self> {
        let (name, rest) = text.split_once('(')?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return None;
        }
        let (rest, took) = match rest.strip_suffix('>').and_then(|rest| rest.rsplit_once(" <")) {
            Some((rest, took)) if nanos(took).is_some() => (rest, nanos(took)?),
            _ => (rest, 0),
        };
        let (inside, result) = rest.rsplit_once(" = ")?;
        let inside = inside.trim_end().strip_suffix(')')?;
        Some(Self { name, arguments: arguments(inside), result, took })
    }
}

/// The arguments in `text`: commas in quotes, braces and brackets part nothing.
fn arguments(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'{' | b'[' | b'<' => depth += 1,
            b'}' | b']' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[start..].trim());
    found
}

/// The path of `3</path>` or `AT_FDCWD</path>`, as a name.
fn descriptor(argument: &str) -> Option<String> {
    let (_, path) = argument.split_once('<')?;
    path.strip_suffix('>').filter(|path| path.starts_with('/')).map(plain)
}

/// The path that a call names, from the directory's descriptor on.
fn joined(dir: &str, path: &str) -> String {
    let path = plain(path);
    if path.starts_with('/') {
        return path;
    }
    format!("{}/{path}", descriptor(dir).unwrap_or_default())
}

/// A quoted string as it was, as a name.
fn plain(quoted: &str) -> String {
    let quoted = quoted.strip_prefix('"').unwrap_or(quoted);
    let quoted = quoted.strip_suffix('"').unwrap_or(quoted);
    let (mut bytes, mut rest) = (Vec::new(), quoted.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
        if digits > 0 {
            let value = rest[..digits]
                .iter()
                .fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(u8::try_from(value & 0xff).expect("a byte"));
            rest = &rest[digits..];
        } else if let Some((&escaped, after)) = rest.split_first() {
            bytes.push(match escaped {
                b'n' => b'\n',
                b't' => b'\t',
                other => other,
            });
            rest = after;
        }
    }
    names::encoded(&bytes)
}

/// Seconds with a fraction, in nanoseconds.
fn nanos(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = fraction.len();
    if !(1..=9).contains(&digits) {
        return None;
    }
    let scale = 10_u64.pow(9 - u32::try_from(digits).ok()?);
    let seconds: u64 = seconds.parse().ok()?;
    let fraction = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}
