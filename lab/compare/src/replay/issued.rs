//! Positioned reads of one file, from what strace wrote: when each was issued, and of which bytes.
//!
//! ```text
//!   71 1700000000.000100 pread64(3</f>, ""..., 4096, 8192) = 4096
//!   72 1700000000.000200 preadv2(4</f>,  <unfinished ...>
//!   72 1700000000.000300 <... preadv2 resumed>[{iov_base=""..., iov_len=4096}], 1, 0, 0) = 4096
//! ```
//! # Invariants
//! - The order is that of the issue, also of calls that strace wrote in two parts.

use std::collections::BTreeMap;

/// A read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Issued {
    /// When, in seconds.
    pub(super) at: f64,
    pub(super) offset: u64,
    /// Bytes that it gave.
    pub(super) bytes: u64,
}

/// The positioned reads of `file` in `text`.
pub(super) fn reads(text: &str, file: &str) -> Vec<Issued> {
    let of_file = format!("<{file}>, ");
    let mut begun: BTreeMap<&str, (f64, String)> = BTreeMap::new();
    let mut reads = Vec::new();
    for line in text.lines() {
        let Some((pid, rest)) = line.trim_start().split_once(' ') else { continue };
        let Some((at, call)) = rest.trim_start().split_once(' ') else { continue };
        let Ok(at) = at.parse::<f64>() else { continue };
        if let Some(start) = call.strip_suffix("<unfinished ...>") {
            begun.insert(pid, (at, start.trim_end().to_owned() + " "));
            continue;
        }
        let (at, call) = match (call.split_once(" resumed>"), begun.remove(pid)) {
            (Some((_, end)), Some((at, start))) => (at, start + end),
            (Some(_), None) => continue,
            (None, _) => (at, call.to_owned()),
        };
        reads.extend(read(&call, &of_file).map(|(offset, bytes)| Issued { at, offset, bytes }));
    }
    reads.sort_by(|a, b| a.at.total_cmp(&b.at));
    reads
}

/// The offset and the bytes of a call, if it is a positioned read of the file and gave some.
fn read(call: &str, of_file: &str) -> Option<(u64, u64)> {
    let (name, rest) = call.split_once('(')?;
    let (_, arguments) = rest.split_once(of_file)?;
    let (arguments, result) = arguments.rsplit_once(") = ")?;
    let bytes = result.split_whitespace().next()?.parse().ok().filter(|&bytes| bytes > 0)?;
    // Behind the buffers; `preadv2` has flags after the offset.
    let arguments = arguments.rsplit_once(']').map_or(arguments, |(_, behind)| behind);
    let mut last = arguments.rsplit(", ");
    let offset = match name {
        "pread64" | "preadv" => last.next()?,
        "preadv2" => last.nth(1)?,
        _ => return None,
    };
    Some((offset.trim().parse().ok()?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_in_the_order_of_their_issue() {
        let text = "\
71 7.000100 pread64(3</f>, \"\"..., 4096, 8192) = 4096
72 7.000200 preadv2(4</f>,  <unfinished ...>
71 7.000250 pread64(3</other>, \"\"..., 4096, 8192) = 4096
71 7.000260 read(3</f>, \"\"..., 4096) = 4096
71 7.000270 preadv(3</f>, [{iov_base=\"\"..., iov_len=4096}, {iov_base=\"\"..., iov_len=4096}], 2, \
12288) = 8192
72 7.000300 <... preadv2 resumed>[{iov_base=\"\"..., iov_len=4096}], 1, 4096, RWF_HIPRI) = 4096
71 7.000400 pread64(3</f>, \"\", 4096, 1048576) = 0
71 7.000500 +++ exited with 0 +++
";
        let found: Vec<(u64, u64)> =
            reads(text, "/f").iter().map(|read| (read.offset, read.bytes)).collect();
        assert_eq!(found, [(8_192, 4_096), (4_096, 4_096), (12_288, 8_192)]);
    }
}
