//! What a run learns of a file that was prefetched further than it was read.

use std::fs;

use forerun_testkit::{Scratch, installed};
use serde_json::Value;

use crate::rig::{Data, folder, python, run};

const MIB: u64 = 1 << 20;

/// The ranges of `data` in the only list of `state`.
fn learned(state: &Scratch, data: &Data) -> Vec<[u64; 2]> {
    let text = fs::read_to_string(state.join("forerun/learned/one.jsonl")).expect("it is saved");
    let path = data.path.to_str().expect("a plain path");
    let row = text.lines().find(|row| row.contains(path)).expect(&text);
    let row: Value = serde_json::from_str(row).expect("a row is JSON");
    serde_json::from_value(row["ranges"].clone()).expect("ranges have two ends")
}

#[test]
fn what_was_prefetched_in_vain_is_not_learned() {
    let test = "what_was_prefetched_in_vain_is_not_learned";
    let (folder, state) = (folder("learn-vain"), Scratch::in_memory("learn-vain"));
    let Some(data) = Data::new(test, &folder, 64 * MIB) else { return };
    if !installed(test, "python3") {
        return;
    }
    let mut command = run("--quiet --learn one --stats-json /dev/null");
    let mut reader = python(&data, command.env("XDG_STATE_HOME", &*state));
    assert!(reader.is_prefetched(&data, 65_536, 65 * MIB), "nothing was prefetched");
    let read = reader.position;
    assert_eq!(reader.end(), Some(0));
    assert!(data.cached(read, data.bytes) > Some(0), "nothing is there that was not read");
    let ranges = learned(&state, &data);
    assert!(ranges.iter().all(|&[_, end]| end <= read), "{ranges:?} of {read} bytes");
    assert_eq!(ranges.first().map(|&[start, _]| start), Some(0), "{ranges:?}");
}
