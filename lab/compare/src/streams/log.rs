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
    let mut all: Vec<(f64, f64, Value)> = lines
        .map(|line| parsed(line).with_context(|| format!("slowdisk logged {line:?}")))
        .collect::<Result<_>>()?;
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let begun = all.first().map_or(0.0, |first| first.0);
    let left_out = all.len().saturating_sub(count_max);
    all.truncate(count_max);
    let since = |(arrived, done, mut request): (f64, f64, Value)| {
        request["at_us"] = json!(whole(arrived - begun));
        request["done_us"] = json!(whole(done - begun));
        request
    };
    Ok((all.into_iter().map(since).collect(), left_out))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time since a start")]
fn whole(micros: f64) -> u64 {
    micros.round() as u64
}

/// When a request arrived and was done, in us, and the rest of it.
fn parsed(line: &str) -> Option<(f64, f64, Value)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [arrived, _, done, kind, offset, bytes, ..] = words[..] else { return None };
    let (offset, bytes): (u64, u64) = (offset.parse().ok()?, bytes.parse().ok()?);
    let kind = if kind == "W" { "write" } else { "read" };
    let request = json!({ "offset": offset, "bytes": bytes, "kind": kind });
    Some((arrived.parse().ok()?, done.parse().ok()?, request))
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
