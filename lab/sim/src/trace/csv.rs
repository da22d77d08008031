//! Text in columns of any order, which the heading or parameters name.
//!
//! ```text
//!   time,device,offset,size,op          known names: nothing need be said
//!   1.5,0,8192,4096,R
//!   17 4001 68 x                        csv:time=1,key=2,size=3,delimiter=blanks
//! ```
//! A column is given by its name in the heading or by its number, from 1 on. Objects have `key`,
//! requests on devices `offset` and `size`. The comma, or what else parts fields, is seen in the
//! first line. Units of offsets and sizes follow from the names: sectors are 512 bytes.
//!
//! # Invariants
//! - A file whose columns cannot be recognised is refused at its first line; nothing is guessed
//!   from the values.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError};

use super::Facts;
use super::columns::{Column, Columns, Delimiter, Fields, Heading, Table};
use super::records::{Format, Step, is_comment, line};
use super::scan::{number, shown};
use super::tables::unit;
use forerun_core::params::choice;

params! {
    /// The parameters of the columns; the heading supplies each empty name.
    pub(super) struct CsvParams {
        /// The time's column.
        time: Label = Label(String::new()),
        /// Its unit.
        time_unit: TimeUnit = TimeUnit::Auto,
        /// The column of keys.
        key: Label = Label(String::new()),
        /// The kind of keys.
        keys: KeyKind = KeyKind::Numbers,
        /// The column of the device.
        device: Label = Label(String::new()),
        /// The column where requests begin.
        offset: Label = Label(String::new()),
        /// Bytes of what it counts; 0: by its name.
        unit: Bytes = Bytes(0),
        /// The column of sizes.
        size: Label = Label(String::new()),
        /// Bytes of what it counts; 0: by its name.
        size_unit: Bytes = Bytes(0),
        /// The column that says whether it reads.
        op: Label = Label(String::new()),
        /// What a read is in that column, if it holds numbers; 0 in most.
        read: u64 = 0,
        /// The delimiter between fields.
        delimiter: Separator = Separator::Auto,
        /// Whether the first line names the columns.
        heading: Heading = Heading::Auto,
    }
}

/// A column's name, or its number from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label(String);

impl Param for Label {
    const FORM: &'static str = "a column's name, or its number from 1 on";

    fn parse(text: &str) -> Option<Self> {
        (text != "0").then(|| Self(text.to_owned()))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

choice! {
    /// The unit of times.
    pub(super) enum TimeUnit ("auto, s, ms, us or ns") {
        /// By the column's name; else seconds.
        Auto = "auto",
        /// Seconds.
        Seconds = "s",
        /// Milliseconds.
        Millis = "ms",
        /// Microseconds.
        Micros = "us",
        /// Nanoseconds.
        Nanos = "ns",
    }
}

choice! {
    /// The kind of keys.
    pub(super) enum KeyKind ("numbers or text") {
        /// Numbers below 2^64.
        Numbers = "numbers",
        /// Any text: its hash is the key.
        Text = "text",
    }
}

choice! {
    /// The delimiter between fields.
    pub(super) enum Separator ("auto, comma, tab, semicolon, bar or blanks") {
        /// The first of these in the first line.
        Auto = "auto",
        /// A comma.
        Comma = "comma",
        /// A tab.
        Tab = "tab",
        /// A semicolon.
        Semicolon = "semicolon",
        /// A vertical bar.
        Bar = "bar",
        /// Spaces and tabs.
        Blanks = "blanks",
    }
}

/// See the module.
pub(super) struct Csv {
    given: CsvParams,
    /// Known from the first line on.
    columns: Option<Columns>,
}

impl Csv {
    pub(super) fn new(given: CsvParams) -> Result<Self, ParamError> {
        for (key, size) in [("unit", given.unit), ("size_unit", given.size_unit)] {
            if size != Bytes(0) {
                unit(key, size)?;
            }
        }
        Ok(Self { given, columns: None })
    }
}

impl Format for Csv {
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        if let Some(columns) = &mut self.columns {
            return columns.parse(bytes, is_last);
        }
        let Some((first, used)) = line(bytes, is_last) else { return Step::More };
        if is_comment(first) {
            return Step::Other(used);
        }
        match table(&self.given, first) {
            Ok(table) => self.columns.insert(Columns::new(table)).parse(bytes, is_last),
            Err(what) => Step::Broken(used, format!("{} {what}", shown(first.trim_ascii()))),
        }
    }

    fn facts(&self) -> Facts {
        self.columns.as_ref().map_or(Facts::KEYS, Format::facts)
    }
}

/// Whether `first`, a heading, says by itself what the columns are.
pub(super) fn is_known_heading(first: &[u8]) -> bool {
    Heading::Auto.is(first) && table(&CsvParams::default(), first).is_ok()
}

/// The columns, from the parameters and the first line.
fn table(given: &CsvParams, first: &[u8]) -> Result<Table, String> {
    let delimiter = given.delimiter.of(first);
    let is_heading = given.heading.is(first);
    let fields: Vec<String> = Fields::new(first, delimiter)
        .map(|field| String::from_utf8_lossy(field).to_ascii_lowercase())
        .collect();
    let find = |label: &Label, known: &[&str]| -> Result<Option<usize>, String> {
        if let Some(column) = number(label.0.as_bytes()) {
            let place = usize::try_from(column).ok().filter(|&place| place <= fields.len());
            return place.map(|place| Some(place - 1)).ok_or("has fewer columns".into());
        }
        let at = |name: &str| is_heading.then(|| fields.iter().position(|f| f == name)).flatten();
        if label.0.is_empty() {
            return Ok(known.iter().find_map(|name| at(name)));
        }
        let found = at(&label.0.to_ascii_lowercase());
        found.map(Some).ok_or_else(|| format!("has no column `{}`", label.0))
    };
    let name = |at: usize| if is_heading { fields[at].as_str() } else { "" };
    let mut columns = vec![Column::Ignored; fields.len()];
    let mut put = |at: usize, column: Column| match columns[at] {
        Column::Ignored => {
            columns[at] = column;
            Ok(())
        }
        _ => Err(format!("has two names for column {}", at + 1)),
    };
    let key = find(&given.key, KEYS)?;
    let offset = if key.is_some() && given.offset.0.is_empty() {
        None
    } else {
        find(&given.offset, OFFSETS)?
    };
    if let Some(at) = find(&given.time, TIMES)? {
        put(at, Column::Time(given.time_unit.nanos(name(at))))?;
    }
    match (key, offset) {
        (_, Some(at)) => {
            put(at, Column::Offset(unit_of(given.unit, name(at))))?;
            if let Some(at) = find(&given.device, DEVICES)? {
                put(at, Column::Device)?;
            }
        }
        (Some(at), None) => {
            let is_text = given.keys == KeyKind::Text;
            put(at, if is_text { Column::Name } else { Column::Key })?;
        }
        (None, None) => {
            return Err("names neither a key nor an offset: \
                        --format csv:key=COLUMN or csv:offset=COLUMN,size=COLUMN says which"
                .into());
        }
    }
    if let Some(at) = find(&given.size, SIZES)? {
        put(at, Column::Size(unit_of(given.size_unit, name(at))))?;
    }
    if let Some(at) = find(&given.op, OPS)? {
        put(at, Column::OpOrReadIf(given.read))?;
    }
    let heading = if is_heading { Heading::Yes } else { Heading::No };
    let used = columns.iter().rposition(|column| *column != Column::Ignored).map_or(0, |at| at + 1);
    columns.truncate(used);
    Ok(Table { columns, delimiter, open: true, heading })
}

impl Separator {
    fn of(self, first: &[u8]) -> Delimiter {
        match self {
            Self::Auto => {
                let parts = b",\t;|".iter().find(|byte| first.contains(byte));
                parts.map_or(Delimiter::Blanks, |&byte| Delimiter::Byte(byte))
            }
            Self::Comma => Delimiter::Byte(b','),
            Self::Tab => Delimiter::Byte(b'\t'),
            Self::Semicolon => Delimiter::Byte(b';'),
            Self::Bar => Delimiter::Byte(b'|'),
            Self::Blanks => Delimiter::Blanks,
        }
    }
}

impl TimeUnit {
    /// Nanoseconds of one, in a column called `name`.
    fn nanos(self, name: &str) -> u64 {
        match self {
            Self::Auto if name.ends_with("_ns") => 1,
            Self::Auto if name.ends_with("_us") => 1_000,
            Self::Auto if name.ends_with("_ms") => 1_000_000,
            Self::Auto | Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }
}

/// Bytes of what a column called `name` counts, unless that was given.
fn unit_of(given: Bytes, name: &str) -> u64 {
    match name {
        _ if given != Bytes(0) => given.0,
        "lba" | "lbn" | "sector" | "sectors" => 512,
        "block" | "blocks" | "page" | "pages" => 4096,
        _ => 1,
    }
}

/// The names to search for, in this order.
const TIMES: &[&str] =
    &["time", "timestamp", "ts", "time_ns", "time_us", "time_ms", "time_s", "clock_time"];
const KEYS: &[&str] = &["key", "id", "obj_id", "object_id", "object", "obj"];
const DEVICES: &[&str] = &["device", "device_id", "dev", "disk", "volume", "volume_id", "asu"];
const OFFSETS: &[&str] = &["offset", "offset_bytes", "lba", "lbn", "sector", "block", "page"];
const SIZES: &[&str] =
    &["size", "length", "len", "bytes", "obj_size", "object_size", "sectors", "blocks", "pages"];
const OPS: &[&str] = &["op", "opcode", "operation", "rw", "type"];

#[cfg(test)]
mod tests {
    use crate::trace::tests::{broken, key_facts, keys, requests};
    use crate::trace::{Op, Request, check_format};

    /// Why, the format, the text, and nanoseconds, first page, bytes and op of its request.
    type Row<'a> = (&'a str, &'a str, &'a str, (u64, u64, u64, Op));

    #[test]
    fn columns_are_found_by_heading_name_or_number() {
        use Op::{Read, Unknown, Write};
        const HALF: u64 = 500_000_000; // A second's.
        #[rustfmt::skip]
        let rows: &[Row] = &[
            // why  format  text  nanoseconds, first, bytes, op
            ("a heading", "csv", "time,offset,size,op\n1.5,8192,512,R\n", (3 * HALF, 2, 512, Read)),
            ("an object", "csv", "ts\tobj_id\tsize\n2\t77\t9\n", (2_000_000_000, 77, 9, Unknown)),
            ("sectors", "csv", "op;lba;sectors\nwrite;8;16\n", (0, 1, 8192, Write)),
            ("numbers", "csv:time=1,key=2,size=3", "17 4001 68\n", (34 * HALF, 4001, 68, Unknown)),
            ("a name of its own", "csv:key=who,op=what", "what,who\n1,5\n", (0, 5, 0, Write)),
            ("reads are 1", "csv:key=2,op=1,read=1", "1,5\n", (0, 5, 0, Read)),
            ("units", "csv:offset=1,unit=512,size=2,size_unit=4K", "8,2\n", (0, 1, 8192, Unknown)),
            ("the time's unit", "csv:key=2,time=1,time_unit=us", "3|4\n", (3_000, 4, 0, Unknown)),
            ("its name tells", "csv", "time_ns,key\n3,4\n", (3, 4, 0, Unknown)),
            ("quotes", "csv:key=3", "1,\"a, \"\"b\"\"\",\"7\"\n", (0, 7, 0, Unknown)),
            ("no size: a block", "csv:offset=1", "5000\n", (0, 1, 4096, Unknown)),
        ];
        for (why, format, text, expected) in rows {
            let found = requests(format, text);
            assert_eq!(key_facts(&found), [*expected], "{why}");
        }
    }

    #[test]
    fn text_may_be_a_key() {
        let found = keys("csv:keys=text", "key\n/a\n/b\n/a\n\n");
        assert!(found.len() == 3 && found[0] == found[2] && found[0] != found[1]);
        let rows = [("auto", 2), ("yes", 2), ("no", 3)];
        for (heading, count) in rows {
            let format = format!("csv:key=1,keys=text,heading={heading}");
            assert_eq!(keys(&format, "a\nb\na\n").len(), count, "{format}");
        }
    }

    #[test]
    fn devices_may_have_names_and_other_ops_ask_for_nothing() {
        let text = "dev,offset,size,op\nsda,0,1,r\nsdb,0,1,r\nsda,0,1,discard\n3,0,1,r\n";
        let devices: Vec<u32> = requests("csv", text).iter().map(Request::device).collect();
        assert!(devices.len() == 3 && devices[0] != devices[1] && devices[2] == 3, "{devices:?}");
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        #[rustfmt::skip]
        let rows = [ // format  text  record  byte  what
            ("csv",            "1,2\n3,4\n",       1, 0, "names neither a key nor an offset"),
            ("csv",            "a,b\n1,2\n",       1, 0, "names neither a key nor an offset"),
            ("csv:key=c",      "a,b\n1,2\n",       1, 0, "has no column `c`"),
            ("csv:key=3",      "1,2\n",            1, 0, "has fewer columns"),
            ("csv",            "key,x\n1,2\n-,3\n", 2, 10, "has `-` where a key below 2^64 is"),
            ("csv",            "x,key\n1,2\n1\n",  2, 10, "has 1 fields, not 2 or more"),
            ("csv:key=1,op=2", "1,?\n",            1, 0, "where reading or writing is"),
        ];
        for (format, text, record, offset, what) in rows {
            broken(format, text, record, offset, what);
        }
        for refused in ["csv:unit=3", "csv:key=0", "csv:delimiter=x", "csv:time_unit=h", "csv:a=1"]
        {
            assert!(check_format(refused).is_err(), "{refused}");
        }
    }
}
