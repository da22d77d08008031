//! Programs: what `forerun trace record` writes, as requests for bytes of files.
//!
//! ```text
//!   {"forerun_accesses":2,"program":"gzip -k x"}
//!   {"directory":"","entries":[...]}                                       passed over
//!   {"t":9,"thread":7,"call":"open","path":"x","took":1}                   requests no page
//!   {"t":10,"thread":7,"call":"read","path":"x","offset":0,"bytes":32768,"took":5}
//! ```
//! Each file is a device of its own, numbered in the order of its first read; its name is its path.
//! A read through a mapping is a read. Times are nanoseconds since the first call.
//!
//! # Invariants
//! - Lines of directories have any length; those of calls are bounded as all records are.
//! - Names are bounded, in number and in bytes.
//! # Sources
//! [`crate::walks::AccessTrace`] reads the same files, with their trees.

use forerun_core::hash::FixedState;
use forerun_core::units::Nanos;
use hashbrown::HashMap;

use super::records::{Format, Step, line};
use super::scan::shown;
use super::{Op, Request};
use crate::walks::{Call, CallKind};

/// See the module.
#[derive(Default)]
pub(super) struct Accesses {
    has_head: bool,
    /// Within the line of a directory, whose end is not in sight.
    in_directory: bool,
    numbers: HashMap<String, u32, FixedState>,
    /// By their numbers.
    names: Vec<String>,
    name_bytes: usize,
}

/// Whether a file that begins with `start` is one.
pub(super) fn is_head(start: &[u8]) -> bool {
    start.starts_with(HEAD)
}

impl Format for Accesses {
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        let found = line(bytes, is_last);
        if self.in_directory {
            self.in_directory = found.is_none();
            return Step::Other(found.map_or(bytes.len(), |(_, used)| used));
        }
        let Some((line, used)) = found else {
            self.in_directory = bytes.starts_with(DIRECTORY);
            return if self.in_directory { Step::Other(bytes.len()) } else { Step::More };
        };
        if line.trim_ascii().is_empty() || line.starts_with(DIRECTORY) {
            return Step::Other(used);
        }
        if !self.has_head {
            self.has_head = is_head(line);
            let what = "is no head of a trace of accesses";
            return if self.has_head {
                Step::Other(used)
            } else {
                Step::Broken(used, format!("{} {what}", shown(line)))
            };
        }
        Step::of_line(used, line, self.request(line))
    }

    fn device_name(&self, device: u32) -> Option<&str> {
        self.names.get(device as usize).map(String::as_str)
    }
}

impl Accesses {
    fn request(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        let call: Call = serde_json::from_slice(line).map_err(|_| "is no call")?;
        let moves = matches!(call.call, CallKind::Read | CallKind::Map);
        if !moves || call.error.is_some() || call.bytes == 0 {
            return Ok(None);
        }
        let file = self.number(call.path)?;
        let request = Request::blocks(file, call.offset, call.bytes);
        let request = request.map_err(|why| why.to_string())?;
        Ok(request.map(|request| request.at(Nanos(call.begin), Op::Read)))
    }

    fn number(&mut self, path: String) -> Result<u32, String> {
        if let Some(&number) = self.numbers.get(&path) {
            return Ok(number);
        }
        self.name_bytes += path.len();
        if self.names.len() >= FILES_MAX || self.name_bytes > NAME_BYTES_MAX {
            return Err("is of one file more than can be told apart".to_owned());
        }
        let number = u32::try_from(self.names.len()).expect("at most `FILES_MAX`");
        self.names.push(path.clone());
        self.numbers.insert(path, number);
        Ok(number)
    }
}

const HEAD: &[u8] = b"{\"forerun_accesses\":";
const DIRECTORY: &[u8] = b"{\"directory\":";
const FILES_MAX: usize = 1 << 18;
const NAME_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use crate::trace::tests::{broken, facts, requests};
    use crate::trace::{Op, Request, Trace};

    const HEAD: &str = "{\"forerun_accesses\":2,\"program\":\"cat a b\"}\n";

    fn call(at: u64, kind: &str, path: &str, offset: u64, bytes: u64) -> String {
        format!(
            "{{\"t\":{at},\"thread\":1,\"call\":\"{kind}\",\"path\":\"{path}\",\"offset\":{offset},\
             \"bytes\":{bytes},\"took\":1}}\n"
        )
    }

    #[test]
    fn reads_and_mapped_reads_become_requests_of_files_with_names() {
        let long = "x".repeat(300_000);
        let text = [
            HEAD.to_owned(),
            "{\"directory\":\"\",\"entries\":[[\"a\",\"f\",12,9000]]}\n".to_owned(),
            format!("{{\"directory\":\"d\",\"entries\":[[\"{long}\",\"f\",13,1]]}}\n"),
            call(0, "open", "d/b", 0, 0),
            call(5, "read", "d/b", 4_096, 100),
            call(7, "map", "a", 0, 8_192),
            call(9, "read", "d/b", 0, 0),
            call(9, "stat", "a", 0, 0),
            call(11, "read", "d/b", 4_196, 1),
        ]
        .concat();
        let found = requests("accesses", &text);
        let read = Op::Read;
        let expected = [(5, 4_096, 100, read), (7, 0, 8_192, read), (11, 4_196, 1, read)];
        assert_eq!(facts(&found), expected);
        let devices: Vec<u32> = found.iter().map(Request::device).collect();
        assert_eq!(devices, [0, 1, 0]);
        let mut trace = Trace::new("t", std::io::Cursor::new(text), "auto", 0).expect("a trace");
        assert!(trace.by_ref().all(|request| request.is_ok()));
        assert_eq!(trace.guess(), Some("accesses"));
        let names = [0, 1, 2].map(|device| trace.device_name(device));
        assert_eq!(names, [Some("d/b"), Some("a"), None]);
    }

    #[test]
    fn what_is_no_call_is_broken() {
        broken("accesses", "1\n", 1, 0, "no head");
        broken("accesses", format!("{HEAD}{{\"t\":1}}\n"), 1, HEAD.len() as u64, "no call");
        let far = call(1, "read", "a", 1 << 60, 1);
        broken("accesses", format!("{HEAD}{far}"), 1, HEAD.len() as u64, "2^56");
    }
}
