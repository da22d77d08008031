//! The log of the emulated device as the requests of a run.
//!
//! ```text
//!   arrived  started  done  R|W  offset  bytes  pid  depth  positioning
//!   1200.0   1210.5   9800.2  R  4096    131072 ...                       times in us
//! ```
//! The log has every request to the device, of the kernel's readahead and of the engine alike. It
//! does not say whether a reader waited.
//!
//! # Invariants
//! - Times are since the first request; requests are in order of arrival.
//! # Sources
//! `lab/testbed/slowdisk.c`, `dispatch`.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The first `count_max` requests in `text`, and how many more there are.
pub(super) fn requests(text: &str, count_max: usize) -> Result<(Vec<Value>, usize)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut all: Vec<Request> = lines
        .map(|line| parsed(line).with_context(|| format!("slowdisk logged {line:?}")))
        .collect::<Result<_>>()?;
    all.sort_by(|a, b| a.arrived_us.total_cmp(&b.arrived_us));
    let begun = all.first().map_or(0.0, |first| first.arrived_us);
    let left_out = all.len().saturating_sub(count_max);
    all.truncate(count_max);
    Ok((all.iter().map(|request| request.json(begun)).collect(), left_out))
}

struct Request {
    arrived_us: f64,
    done_us: f64,
    is_write: bool,
    offset: u64,
    bytes: u64,
}

impl Request {
    fn json(&self, begun: f64) -> Value {
        json!({ "at_us": whole(self.arrived_us - begun), "done_us": whole(self.done_us - begun),
            "offset": self.offset, "bytes": self.bytes,
            "kind": if self.is_write { "write" } else { "read" } })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time since a start")]
fn whole(micros: f64) -> u64 {
    micros.round() as u64
}

fn parsed(line: &str) -> Option<Request> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [arrived, _, done, kind, offset, bytes, ..] = words[..] else { return None };
    Some(Request {
        arrived_us: arrived.parse().ok()?,
        done_us: done.parse().ok()?,
        is_write: kind == "W",
        offset: offset.parse().ok()?,
        bytes: bytes.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_in_order_of_arrival_and_cut() {
        let text = "# mark\n200.4 201.0 900.0 R 4096 8192 7 2 0.5\n\
                    100.0 100.0 150.2 W 0 512 7 1 0.1\n300 300 310 R 1 2 3 4 5\n";
        let (requests, left_out) = requests(text, 2).unwrap();
        let write =
            json!({ "at_us": 0, "done_us": 50, "offset": 0, "bytes": 512, "kind": "write" });
        let read =
            json!({ "at_us": 100, "done_us": 800, "offset": 4096, "bytes": 8192, "kind": "read" });
        assert_eq!((requests, left_out), (vec![write, read], 1));
        assert!(super::requests("1 2 3 R x 5", 1).is_err());
        assert_eq!(super::requests("", 1).unwrap(), (vec![], 0));
    }
}
