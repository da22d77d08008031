//! Requests as files of other formats.
//!
//! ```text
//!   Writer::new("lis:unit=512", facts)   ->   begin, add, add, ...   ->   end
//! ```
//! Block requests keep what the format can express: `fio` and `csv` all, `lis` whole units of one
//! device; `keys` and `oracleGeneral` become one object a page of 4 KiB.
//!
//! # Invariants
//! - The format's reader reads the written requests as the same pages in the same order.
//! - A request that the format cannot express is an error, not left out.

mod next_uses;

use std::io::{self, Write};

use forerun_core::params;
use forerun_core::params::{Param, ParamError, by_name, choice};

use super::request::{Addresses, BLOCK_BYTES, Facts, Op, Request};
use super::tables::{Blocks, unit};
pub use next_uses::{LinkError, link_next_uses};

params! {
    /// What may be set for `fio`.
    struct FioParams {
        /// The version of the format. 3 has times, and what replays it honours them.
        version: Version = Version::Three,
    }
}

choice! {
    /// Versions of fio's iolog.
    enum Version ("2 or 3") {
        /// Without times, but for waits.
        Two = "2",
        /// With times.
        Three = "3",
    }
}

/// The reason why a request cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The system refused. The error is a source as well, so that a closed pipe is known by it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The format has no way to say it.
    #[error("{0}")]
    Unsayable(&'static str),
}

/// One request after the other, in one format.
#[derive(Debug)]
pub struct Writer {
    kind: Kind,
    facts: Facts,
    /// The time of the first request, the base of the others.
    begins: Option<u64>,
    /// Requests written.
    count: u64,
    /// Of fio: devices that were opened.
    opened: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Keys,
    Csv,
    Lis { unit: u64 },
    Fio { version: Version },
    OracleGeneral,
}

/// The formats that can be written, and one line on each.
pub const FORMATS: &[(&str, &str)] = &[
    ("keys", "text, a key a line: the pages one by one"),
    ("csv", "text in columns under a heading"),
    ("lis", "text, lines of \"start count 0 number\"; unit=512 or unit=4K bytes"),
    ("fio", "text of fio's iolog; version=3 or version=2"),
    ("oracleGeneral", "binary of libCacheSim, with the next use of each page"),
];

impl Writer {
    /// A writer of `spec` (`NAME:key=value,...`) for requests of which `facts` are known.
    ///
    /// # Errors
    /// The format is unknown, cannot be written, or has no such parameter.
    pub fn new(spec: &str, facts: Facts) -> Result<Self, ParamError> {
        Ok(Self { kind: Kind::of(spec)?, facts, begins: None, count: 0, opened: Vec::new() })
    }

    /// Refuses a format that cannot be written.
    ///
    /// # Errors
    /// As said.
    pub fn check(spec: &str) -> Result<(), ParamError> {
        Kind::of(spec).map(drop)
    }

    /// Whether the file is done only when [`link_next_uses`] has gone over it.
    #[must_use]
    pub fn needs_next_uses(&self) -> bool {
        matches!(self.kind, Kind::OracleGeneral)
    }

    /// Writes the heading before the first request.
    ///
    /// # Errors
    /// The system's, or the format has no way to say such requests.
    pub fn begin(&self, out: &mut impl Write) -> Result<(), WriteError> {
        match (self.kind, self.facts.addresses) {
            (Kind::Csv, Addresses::Blocks) => writeln!(out, "time_ns,device,offset,size,op")?,
            (Kind::Csv, Addresses::Keys) => writeln!(out, "time_ns,key,size,op")?,
            (Kind::Fio { version }, Addresses::Blocks) => {
                writeln!(out, "fio version {} iolog", version.show())?;
            }
            (Kind::Lis { .. } | Kind::Fio { .. }, Addresses::Keys) => {
                return Err(WriteError::Unsayable(
                    "the trace has keys of objects, and this format places on a device: \
                     --to csv, keys or oracleGeneral",
                ));
            }
            (Kind::Keys | Kind::OracleGeneral | Kind::Lis { .. }, _) => {}
        }
        Ok(())
    }

    /// Writes `request`.
    ///
    /// # Errors
    /// The system's, or the format has no way to say it.
    pub fn add(&mut self, request: &Request, out: &mut impl Write) -> Result<(), WriteError> {
        let begins = *self.begins.get_or_insert(request.time.0);
        let time = request.time.0.saturating_sub(begins);
        match self.kind {
            Kind::Keys => {
                for page in request.pages() {
                    writeln!(out, "{page}")?;
                }
            }
            Kind::Csv => self.csv(request, out)?,
            Kind::Lis { unit } => self.lis(request, unit, out)?,
            Kind::Fio { version } => self.fio(request, version, time, out)?,
            Kind::OracleGeneral => {
                let seconds = u32::try_from(time / 1_000_000_000).unwrap_or(u32::MAX);
                let size = match self.facts.addresses {
                    Addresses::Blocks => BLOCK_BYTES,
                    // An object without a size counts as one unit; 0 would be no object.
                    Addresses::Keys => request.bytes.max(1),
                };
                let size = u32::try_from(size).unwrap_or(u32::MAX);
                for page in request.pages() {
                    out.write_all(&next_uses::record(seconds, page, size))?;
                }
            }
        }
        self.count += 1;
        Ok(())
    }

    fn csv(&self, request: &Request, out: &mut impl Write) -> Result<(), WriteError> {
        let op = match request.op {
            Op::Read => "R",
            Op::Write => "W",
            Op::Unknown => "",
        };
        let (time, bytes) = (request.time.0, request.bytes);
        match self.facts.addresses {
            Addresses::Blocks => {
                let (device, offset) = (request.device(), request.offset());
                writeln!(out, "{time},{device},{offset},{bytes},{op}")?;
            }
            Addresses::Keys => writeln!(out, "{time},{},{bytes},{op}", request.first)?,
        }
        Ok(())
    }

    fn lis(&self, request: &Request, unit: u64, out: &mut impl Write) -> Result<(), WriteError> {
        if request.device() != 0 {
            return Err(WriteError::Unsayable(
                "the trace has several devices, and this format one: --to fio or csv",
            ));
        }
        let begins = request.offset() / unit;
        let ends = (request.offset() + request.bytes).div_ceil(unit);
        writeln!(out, "{begins} {} 0 {}", ends - begins, self.count)?;
        Ok(())
    }

    fn fio(
        &mut self,
        request: &Request,
        version: Version,
        time: u64,
        out: &mut impl Write,
    ) -> Result<(), WriteError> {
        let device = request.device();
        let at = match version {
            Version::Two => String::new(),
            Version::Three => format!("{} ", time / 1_000),
        };
        if self.opened.last() != Some(&device) {
            if let Some(known) = self.opened.iter().position(|&known| known == device) {
                let last = self.opened.len() - 1;
                self.opened.swap(known, last);
            } else {
                self.opened.push(device);
                writeln!(out, "{at}/dev/trace{device} add")?;
                writeln!(out, "{at}/dev/trace{device} open")?;
            }
        }
        let op = if request.op == Op::Write { "write" } else { "read" };
        writeln!(out, "{at}/dev/trace{device} {op} {} {}", request.offset(), request.bytes)?;
        Ok(())
    }
}

impl Kind {
    fn of(spec: &str) -> Result<Self, ParamError> {
        let names = FORMATS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        by_name! { spec, names, params:
            "keys", () => Self::Keys;
            "csv", () => Self::Csv;
            "lis", Blocks => Self::Lis { unit: unit("unit", params.unit)? };
            "fio", FioParams => Self::Fio { version: params.version };
            "oracleGeneral", () => Self::OracleGeneral;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::requests;
    use super::*;
    use forerun_core::units::Nanos;

    const BLOCKS: Facts =
        Facts { addresses: Addresses::Blocks, times: true, ops: true, sizes: true };
    const KEYS: Facts = Facts { addresses: Addresses::Keys, times: true, ops: true, sizes: true };

    fn written(spec: &str, facts: Facts, all: &[Request]) -> Result<Vec<u8>, String> {
        let mut writer = Writer::new(spec, facts).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        writer.begin(&mut out).map_err(|error| error.to_string())?;
        for request in all {
            writer.add(request, &mut out).map_err(|error| error.to_string())?;
        }
        Ok(out)
    }

    fn block(device: u32, offset: u64, bytes: u64, time: u64, op: Op) -> Request {
        Request::blocks(device, offset, bytes).unwrap().unwrap().at(Nanos(time), op)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all = [
            block(0, 512, 512, 7_000_000, Op::Read),
            block(0, 8_192, 65_536, 9_000_000, Op::Write),
            block(0, 1 << 50, 4_096, 9_001_000, Op::Read),
        ];
        assert_eq!(requests("csv", written("csv", BLOCKS, &all).unwrap()), all);
        let pages: Vec<u64> = all.iter().flat_map(Request::pages).collect();
        for (to, from) in [
            ("keys", "keys"),
            ("lis", "lis"),
            ("lis:unit=512", "lis:unit=512"),
            ("fio", "fio"),
            ("fio:version=2", "fio"),
            ("oracleGeneral", "oracleGeneral"),
        ] {
            let again = requests(from, written(to, BLOCKS, &all).unwrap());
            // Names of files get numbers of their own.
            let block = |page: u64| page & ((1 << 44) - 1);
            let found: Vec<u64> = again.iter().flat_map(Request::pages).map(block).collect();
            assert_eq!(found, pages, "{to}");
        }
        let fio = requests("fio", written("fio", BLOCKS, &all).unwrap());
        let facts: Vec<_> = fio.iter().map(|r| (r.time.0, r.offset(), r.bytes, r.op)).collect();
        let expected: Vec<_> =
            all.iter().map(|r| (r.time.0 - 7_000_000, r.offset(), r.bytes, r.op)).collect();
        assert_eq!(facts, expected, "times count from the first request");
    }

    #[test]
    fn objects_keep_their_names_and_sizes() {
        let all = [
            Request::key(u64::MAX, 70).at(Nanos(1_000_000_000), Op::Write),
            Request::key(3, 0).at(Nanos(3_000_000_000), Op::Unknown),
        ];
        assert_eq!(requests("csv", written("csv", KEYS, &all).unwrap()), all);
        let found = requests("oracleGeneral", written("oracleGeneral", KEYS, &all).unwrap());
        let facts: Vec<_> = found.iter().map(|r| (r.time.0, r.first, r.bytes)).collect();
        assert_eq!(facts, [(0, u64::MAX, 70), (2_000_000_000, 3, 1)]);
    }

    #[test]
    fn what_a_format_cannot_say_is_refused() {
        let two = [block(0, 0, 1, 0, Op::Read), block(1, 0, 1, 0, Op::Read)];
        #[rustfmt::skip]
        let rows: [(&str, Facts, &[Request], &str); 6] = [
            ("lis",        BLOCKS, &two, "several devices"),
            ("lis",        KEYS,   &[],  "keys of objects"),
            ("fio",        KEYS,   &[],  "keys of objects"),
            ("lis:unit=3", BLOCKS, &[],  "power of two"),
            ("srt",        BLOCKS, &[],  "there are: keys csv lis fio oracleGeneral"),
            ("keys:a=1",   KEYS,   &[],  "no parameter `a`"),
        ];
        for (spec, facts, all, says) in rows {
            let error = written(spec, facts, all).expect_err(spec);
            assert!(error.contains(says), "{spec}: {error}");
        }
        assert!(written("fio", BLOCKS, &two).is_ok());
    }
}
