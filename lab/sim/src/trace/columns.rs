//! Text in columns: what most block traces are, each with its own order and units.
//!
//! ```text
//!   128166372003061629,hm,0,Read,8192,4096,153       a line
//!   Time     (100 ns)  Host Device Op  Offset Bytes -  a table of what its columns are
//! ```
//! A format is a table; the loop over a line's fields is the same for all.
//!
//! # Invariants
//! - A line has as many fields as its table allows, and each is what its column says.
//! - Zero bytes are no request; discards, deletions and flushes neither.

use std::fmt;
use std::hash::BuildHasher as _;

use forerun_core::hash::FixedState;
use forerun_core::units::Nanos;

use super::devices::Devices;
use super::records::{Format, Step, is_comment, line};
use super::request::{Addresses, BLOCK_BYTES, Facts, Op, Request};
use super::scan::{number, shown, time};
use forerun_core::params::choice;

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// A field that the reader ignores.
    Ignored,
    /// A number that the reader ignores.
    Number,
    /// The time, in units of so many nanoseconds.
    Time(u64),
    /// The time: milliseconds where it has a fraction, else nanoseconds.
    TimeMillisOrNanos,
    /// The device: a number, or a name.
    Device,
    /// The host of the device.
    Host,
    /// Where the request begins, in units of so many bytes.
    Offset(u64),
    /// How long it is, in units of so many bytes.
    Size(u64),
    /// The key of an object, a number.
    Key,
    /// The name of an object; its hash is the key.
    Name,
    /// The operation, as a word (`R`, `Write`, `get`...).
    Op,
    /// The operation, as a number: this one is a read, every other a write.
    ReadIf(u64),
    /// The operation, as a word or a number.
    OpOrReadIf(u64),
}

/// The delimiter between fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delimiter {
    /// Any run of spaces and tabs.
    Blanks,
    /// One such byte; blanks around a field do not count, and a field may stand in quotes.
    Byte(u8),
}

/// The columns of a format.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) delimiter: Delimiter,
    /// Whether a line may have more fields than the table.
    pub(super) open: bool,
    /// Whether the first line names the columns.
    pub(super) heading: Heading,
}

choice! {
    /// Whether the first line names the columns.
    pub(super) enum Heading ("auto, yes or no") {
        /// If it begins with a letter or a quote.
        Auto = "auto",
        /// It does.
        Yes = "yes",
        /// It is a record.
        No = "no",
    }
}

/// Text in columns.
pub(super) struct Columns {
    table: Table,
    is_begun: bool,
    devices: Devices,
    /// The first host, whose devices keep their numbers.
    host: Vec<u8>,
}

/// The values of a line's fields.
struct Line<'a> {
    time: Nanos,
    device: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    offset: Option<u64>,
    bytes: Option<u64>,
    key: Option<u64>,
    op: Op,
    /// The operation neither reads nor writes.
    is_other: bool,
}

/// The reason why a line is no record.
enum Wrong<'a> {
    Count { fields: usize },
    Field { field: &'a [u8], column: Column },
    Request(String),
}

impl Columns {
    pub(super) fn new(table: Table) -> Self {
        Self { table, is_begun: false, devices: Devices::default(), host: Vec::new() }
    }

    fn request<'a>(&mut self, line: &'a [u8]) -> Result<Option<Request>, Wrong<'a>> {
        let found = self.table.read(line)?;
        if found.is_other {
            return Ok(None);
        }
        let request = if let Some(key) = found.key {
            Some(Request::key(key, found.bytes.unwrap_or(0)))
        } else {
            let device = self.device(&found)?;
            let offset = found.offset.unwrap_or(0);
            let bytes = found.bytes.unwrap_or(BLOCK_BYTES);
            Request::blocks(device, offset, bytes).map_err(Wrong::of)?
        };
        Ok(request.map(|request| request.at(found.time, found.op)))
    }

    fn device<'a>(&mut self, line: &Line<'a>) -> Result<u32, Wrong<'a>> {
        let device = line.device.unwrap_or(b"0");
        if let Some(host) = line.host {
            if self.host.is_empty() {
                self.host = host.to_vec();
            } else if self.host != host {
                let name = [host, b":", device].concat();
                return self.devices.named(&name).map_err(Wrong::of);
            }
        }
        let numbered = match number(device) {
            Some(id) => self.devices.number(id),
            None => self.devices.named(device),
        };
        numbered.map_err(Wrong::of)
    }
}

impl Format for Columns {
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        let Some((line, used)) = line(bytes, is_last) else { return Step::More };
        if is_comment(line) {
            return Step::Other(used);
        }
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if is_first && self.table.heading.is(line) {
            return Step::Other(used);
        }
        let request = self.request(line);
        Step::of_line(used, line, request.map_err(|wrong| wrong.told(&self.table)))
    }

    fn facts(&self) -> Facts {
        let has = |is: fn(&Column) -> bool| self.table.columns.iter().any(is);
        let is_keys = has(|column| matches!(column, Column::Key | Column::Name));
        Facts {
            addresses: if is_keys { Addresses::Keys } else { Addresses::Blocks },
            times: has(|c| matches!(c, Column::Time(_) | Column::TimeMillisOrNanos)),
            ops: has(|c| matches!(c, Column::Op | Column::ReadIf(_) | Column::OpOrReadIf(_))),
            sizes: has(|c| matches!(c, Column::Size(_))),
        }
    }
}

impl Heading {
    pub(super) fn is(self, line: &[u8]) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Auto => line
                .trim_ascii_start()
                .first()
                .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'"'),
        }
    }
}

impl Table {
    fn read<'a>(&self, line: &'a [u8]) -> Result<Line<'a>, Wrong<'a>> {
        let mut found = Line {
            time: Nanos(0),
            device: None,
            host: None,
            offset: None,
            bytes: None,
            key: None,
            op: Op::Unknown,
            is_other: false,
        };
        let mut fields = Fields { rest: line, delimiter: self.delimiter, is_over: false };
        for (at, &column) in self.columns.iter().enumerate() {
            let field = fields.next().ok_or(Wrong::Count { fields: at })?;
            found.set(column, field).ok_or(Wrong::Field { field, column })?;
        }
        let more = if self.open { 0 } else { fields.count() };
        if more > 0 {
            return Err(Wrong::Count { fields: self.columns.len() + more });
        }
        Ok(found)
    }
}

impl<'a> Line<'a> {
    /// Parses `field` as `column`; none where it does not match.
    fn set(&mut self, column: Column, field: &'a [u8]) -> Option<()> {
        match column {
            Column::Ignored => {}
            Column::Number => drop(number(field)?),
            Column::Time(unit) => self.time = time(field, unit)?,
            Column::TimeMillisOrNanos => {
                let unit = if field.contains(&b'.') { 1_000_000 } else { 1 };
                self.time = time(field, unit)?;
            }
            Column::Device => self.device = Some(field),
            Column::Host => self.host = Some(field),
            Column::Offset(unit) => self.offset = Some(number(field)?.checked_mul(unit)?),
            Column::Size(unit) => self.bytes = Some(number(field)?.checked_mul(unit)?),
            Column::Key => self.key = Some(number(field)?),
            Column::Name => self.key = Some(FixedState.hash_one(field)),
            Column::Op => (self.op, self.is_other) = word_op(field)?,
            Column::ReadIf(read) => self.op = number_op(field, read)?,
            // A trace in columns may leave it open.
            Column::OpOrReadIf(_) if field.is_empty() => {}
            Column::OpOrReadIf(read) => {
                let numbered = number_op(field, read).map(|op| (op, false));
                (self.op, self.is_other) = numbered.or_else(|| word_op(field))?;
            }
        }
        Some(())
    }
}

/// The operation that a word names, and whether it neither reads nor writes.
fn word_op(word: &[u8]) -> Option<(Op, bool)> {
    let is = |known: &[&str]| known.iter().any(|k| word.eq_ignore_ascii_case(k.as_bytes()));
    if is(&["r", "read", "get", "gets", "rs", "ra"]) {
        Some((Op::Read, false))
    } else if is(&["w", "write", "set", "put", "add", "update", "ws"]) {
        Some((Op::Write, false))
    } else {
        is(&["d", "discard", "del", "delete", "t", "trim", "unmap", "f", "flush", "sync"])
            .then_some((Op::Unknown, true))
    }
}

fn number_op(field: &[u8], read: u64) -> Option<Op> {
    number(field).map(|number| if number == read { Op::Read } else { Op::Write })
}

impl Wrong<'_> {
    fn of(why: impl fmt::Display) -> Self {
        Self::Request(why.to_string())
    }

    fn told(&self, table: &Table) -> String {
        match self {
            Self::Count { fields } => {
                let more = if table.open { " or more" } else { "" };
                format!("has {fields} fields, not {}{more}", table.columns.len())
            }
            Self::Field { field, column } => format!("has {} where {column} is", shown(field)),
            Self::Request(why) => why.clone(),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignored => "anything",
            Self::Number => "a number",
            Self::Time(_) | Self::TimeMillisOrNanos => "a time",
            Self::Device => "a device",
            Self::Host => "a host",
            Self::Offset(_) => "an offset",
            Self::Size(_) => "a size",
            Self::Key => "a key below 2^64",
            Self::Name => "a name",
            Self::Op | Self::OpOrReadIf(_) => "reading or writing",
            Self::ReadIf(_) => "a number that says reading or writing",
        })
    }
}

/// The fields of a line.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    delimiter: Delimiter,
    is_over: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn new(line: &'a [u8], delimiter: Delimiter) -> Self {
        Self { rest: line, delimiter, is_over: false }
    }

    /// A field that stands in quotes: what is between them.
    fn quoted(&mut self, delimiter: u8) -> &'a [u8] {
        let inside = &self.rest[1..];
        let mut end = 0;
        // Two quotes stand for one quote in the field.
        while end < inside.len() && (inside[end] != b'"' || inside.get(end + 1) == Some(&b'"')) {
            end += if inside[end] == b'"' { 2 } else { 1 };
        }
        let field = &inside[..end.min(inside.len())];
        let behind = &inside[inside.len().min(end + 1)..];
        self.skip(behind, memchr::memchr(delimiter, behind));
        field
    }

    /// Goes on behind the delimiter at `end` of `rest`.
    fn skip(&mut self, rest: &'a [u8], end: Option<usize>) {
        self.is_over = end.is_none();
        self.rest = end.map_or(&[], |end| &rest[end + 1..]);
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.delimiter {
            Delimiter::Blanks => {
                let start = self.rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
                let word = &self.rest[start..];
                let length = word.iter().position(u8::is_ascii_whitespace).unwrap_or(word.len());
                self.rest = &word[length..];
                Some(&word[..length])
            }
            Delimiter::Byte(delimiter) => {
                if self.is_over {
                    return None;
                }
                self.rest = self.rest.trim_ascii_start();
                if self.rest.first() == Some(&b'"') {
                    return Some(self.quoted(delimiter));
                }
                let end = self.rest.iter().position(|&byte| byte == delimiter);
                let field = &self.rest[..end.unwrap_or(self.rest.len())];
                self.skip(self.rest, end);
                Some(field.trim_ascii_end())
            }
        }
    }
}
