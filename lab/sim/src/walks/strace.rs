//! The text of `strace -f -ttt`, also with `-T` and `-y`, read as calls on a tree.
//!
//! ```text
//!   71  1795417476.093593 newfstatat(3</t>, "a", {...}, AT_SYMLINK_NOFOLLOW) = 0 <0.000011>
//!   71  1795417476.094111 read(5, ""..., 3) = 3
//!   72  1795417476.094112 openat(AT_FDCWD, "b", O_RDONLY <unfinished ...>
//!   72  1795417476.094119 <... openat resumed>) = 6</t/b> <0.000007>
//! ```
//! Calls outside the tree, and those that need no storage (`fstat`, `close`, `lseek`), are left
//! out. Without `-y` descriptors and working directories are followed (`processes`), without `-T`
//! calls take no time.
//!
//! # Invariants
//! - A line that is no call of the list below is passed over: strace writes many other things.
//! # Sources
//! strace 6.1.

mod processes;

use std::collections::BTreeMap;

use super::accesses::{Call, CallKind};
use super::names;
use processes::Processes;

/// The calls in `text` on paths below `top`, of programs of which the first was started in
/// `directory`; both are absolute paths, as [`names::encoded`] gives them.
#[must_use]
pub fn calls(text: &str, top: &str, directory: &str) -> Vec<Call> {
    let mut reading = Reading {
        top: top.trim_end_matches('/').to_owned(),
        unfinished: BTreeMap::new(),
        making: BTreeMap::new(),
        processes: Processes::new(directory),
    };
    let mut calls: Vec<Call> = text.lines().filter_map(|line| reading.line(line)).collect();
    calls.sort_by_key(|call| call.begin);
    let first = calls.first().map_or(0, |call| call.begin);
    for call in &mut calls {
        call.begin -= first;
    }
    calls
}

struct Reading {
    top: String,
    /// Calls of threads that are not finished: when they began, and their text.
    unfinished: BTreeMap<u32, (u64, String)>,
    /// Those of them that make threads and processes; whether these share.
    making: BTreeMap<(u64, u32), bool>,
    processes: Processes,
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
        let (thread, begin, text) = head(line)?;
        self.note_new(thread);
        if text.starts_with("+++ ") {
            self.take_unfinished(thread);
            self.processes.ended(thread);
            return None;
        }
        if let Some(started) = text.strip_suffix("<unfinished ...>") {
            self.take_unfinished(thread);
            if makes(started) {
                self.making.insert((begin, thread), shares(started));
            }
            self.unfinished.insert(thread, (begin, started.trim_end().to_owned()));
            return None;
        }
        if let Some(resumed) = text.strip_prefix("<... ") {
            let (_, rest) = resumed.split_once(" resumed>")?;
            let (begin, started) = self.take_unfinished(thread)?;
            return self.call(thread, begin, &format!("{started}{rest}"));
        }
        self.call(thread, begin, text)
    }

    /// A thread of which there was no line was made by a call that has not returned, if one was.
    fn note_new(&mut self, thread: u32) {
        if self.processes.knows(thread) {
            return;
        }
        if let Some((&(_, parent), &is_shared)) = self.making.last_key_value() {
            self.processes.cloned(parent, thread, is_shared);
        }
    }

    fn take_unfinished(&mut self, thread: u32) -> Option<(u64, String)> {
        let taken = self.unfinished.remove(&thread)?;
        self.making.remove(&(taken.0, thread));
        Some(taken)
    }

    fn call(&mut self, thread: u32, begin: u64, text: &str) -> Option<Call> {
        let parts = Parts::new(text)?;
        let error = parts.error();
        if error.is_none() {
            self.follow(thread, &parts, text);
        }
        let (call, path, offset, bytes) = self.access(thread, &parts)?;
        let path = self.below(&path)?;
        Some(Call { begin, thread, call, path, offset, bytes, error, took: parts.took })
    }

    /// Takes in what a call has opened, closed or moved.
    fn follow(&mut self, thread: u32, parts: &Parts<'_>, text: &str) {
        let at = |nth: usize| parts.at(nth);
        let result = number(parts.result);
        match parts.name {
            "open" | "openat" | "openat2" | "creat" => {
                let path = descriptor(parts.result).or_else(|| self.named(thread, parts));
                if let (Some(number), Some(path)) = (result, path) {
                    self.processes.opened(thread, number, &path);
                }
            }
            "close" => {
                if let Some(number) = number(at(0)) {
                    self.processes.closed(thread, number);
                }
            }
            "dup" | "dup2" | "dup3" | "fcntl" => {
                let copies = parts.name != "fcntl" || at(1).starts_with("F_DUPFD");
                if let (Some(from), Some(to), true) = (number(at(0)), result, copies) {
                    self.processes.copied(thread, from, to);
                }
            }
            "lseek" => {
                let position = parts.result.split([' ', '<']).next();
                let position = position.and_then(|it| it.parse().ok());
                if let (Some(number), Some(position)) = (number(at(0)), position) {
                    self.processes.moved(thread, number, position);
                }
            }
            "chdir" | "fchdir" => {
                let path = match parts.name {
                    "chdir" => self.joined(thread, "", at(0)),
                    _ => self.open_path(thread, at(0)),
                };
                if let Some(path) = path {
                    self.processes.go(thread, &clean(&path));
                }
            }
            "clone" | "clone3" | "fork" | "vfork" => {
                if let Some(child) = result.filter(|&child| child > 0) {
                    self.processes.cloned(thread, child, shares(text));
                }
            }
            _ => {}
        }
    }

    /// What a call uses: how, its path, the place and the bytes in the file.
    fn access(&mut self, thread: u32, parts: &Parts<'_>) -> Option<(CallKind, String, u64, u64)> {
        let at = |nth: usize| parts.at(nth);
        let count = parts.result.split([' ', '<']).next().and_then(|it| it.parse::<u64>().ok());
        Some(match parts.name {
            "openat" | "open" | "openat2" => {
                let path = descriptor(parts.result).or_else(|| self.named(thread, parts))?;
                (CallKind::Open, path, 0, 0)
            }
            "newfstatat" | "statx" | "readlinkat" | "faccessat" | "faccessat2" => {
                if at(1) == "\"\"" {
                    return None;
                }
                (CallKind::Stat, self.joined(thread, at(0), at(1))?, 0, 0)
            }
            "stat" | "lstat" | "access" | "readlink" | "lgetxattr" | "llistxattr" | "getxattr"
            | "listxattr" => (CallKind::Stat, self.joined(thread, "", at(0))?, 0, 0),
            "execve" => (CallKind::Exec, self.joined(thread, "", at(0))?, 0, 0),
            "getdents64" | "getdents" => (CallKind::List, self.open_path(thread, at(0))?, 0, 0),
            "pread64" => {
                (CallKind::Read, self.open_path(thread, at(0))?, at(3).parse().ok()?, count?)
            }
            "read" | "readv" | "copy_file_range" | "sendfile" => {
                let from = if parts.name == "sendfile" { at(1) } else { at(0) };
                let (path, bytes) = (self.open_path(thread, from)?, count?);
                let offset = match number(from) {
                    Some(number) => self.processes.advance(thread, number, &path, bytes),
                    None => 0,
                };
                (CallKind::Read, path, offset, bytes)
            }
            "mmap" => {
                let offset = u64::from_str_radix(at(5).trim_start_matches("0x"), 16).ok()?;
                (CallKind::Map, self.open_path(thread, at(4))?, offset, at(1).parse().ok()?)
            }
            _ => return None,
        })
    }

    /// The path that a call names by which files are opened.
    fn named(&mut self, thread: u32, parts: &Parts<'_>) -> Option<String> {
        match parts.name {
            "open" | "creat" => self.joined(thread, "", parts.at(0)),
            _ => self.joined(thread, parts.at(0), parts.at(1)),
        }
    }

    /// The path of the descriptor `argument`.
    fn open_path(&mut self, thread: u32, argument: &str) -> Option<String> {
        let known = |this: &mut Self| this.processes.path(thread, number(argument)?);
        descriptor(argument).or_else(|| known(self).map(|path| path.to_string()))
    }

    /// The path that a call names, from the directory `dir` on: a descriptor, or where the thread
    /// stands.
    fn joined(&mut self, thread: u32, dir: &str, path: &str) -> Option<String> {
        let path = plain(path);
        if path.starts_with('/') {
            return Some(path);
        }
        let dir = match descriptor(dir) {
            Some(dir) => dir,
            None if dir.is_empty() || dir.starts_with("AT_FDCWD") => {
                self.processes.directory(thread).to_string()
            }
            None => self.open_path(thread, dir)?,
        };
        Some(format!("{dir}/{path}"))
    }

    /// `path` below the top, without `.` and `..`.
    fn below(&self, path: &str) -> Option<String> {
        let path = clean(path);
        let rest = path.strip_prefix(&self.top)?;
        if rest.is_empty() { Some(String::new()) } else { Some(rest.strip_prefix('/')?.to_owned()) }
    }
}

/// The thread of a line, when its call began, and the call. Of one thread alone strace names none,
/// and to a terminal it writes `[pid 71]`.
fn head(line: &str) -> Option<(u32, u64, &str)> {
    let line = line.trim_start();
    let (thread, rest) = match line.strip_prefix("[pid") {
        Some(rest) => rest.split_once(']')?,
        None => line.split_once(char::is_whitespace)?,
    };
    if let Some(begin) = nanos(thread) {
        return Some((0, begin, rest.trim_start()));
    }
    let (time, text) = rest.trim_start().split_once(' ')?;
    Some((thread.trim().parse().ok()?, nanos(time)?, text.trim_start()))
}

/// Whether a call, of which the end is not there yet, makes a thread or process.
fn makes(text: &str) -> bool {
    ["clone(", "clone3(", "fork(", "vfork("].iter().any(|name| text.starts_with(name))
}

/// Whether what `text` makes shares descriptors and the working directory.
fn shares(text: &str) -> bool {
    text.contains("CLONE_THREAD") || (text.contains("CLONE_FILES") && text.contains("CLONE_FS"))
}

/// The number that a descriptor, process or result begins with.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

/// An absolute path without `.` and `..`.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
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

    /// An argument, or nothing.
    fn at(&self, nth: usize) -> &'a str {
        self.arguments.get(nth).copied().unwrap_or_default()
    }

    fn error(&self) -> Option<String> {
        let rest = self.result.strip_prefix("-1 ")?;
        Some(rest.split(' ').next().unwrap_or(rest).to_owned())
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

/// The path of `3</path>` or `AT_FDCWD</path>`, as `-y` has it.
fn descriptor(argument: &str) -> Option<String> {
    let (_, path) = argument.split_once('<')?;
    path.strip_suffix('>').filter(|path| path.starts_with('/')).map(plain)
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
