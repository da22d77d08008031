//! Any bytes, read as a trace of accesses with paths and as strace's text, and run.
//!
//! # Invariants
//! - Reading ends and does not panic; what was read is written and read again as the same, and runs
//!   to its end.
#![no_main]

use std::io::Cursor;

use forerun_core::device;
use forerun_sim::walks::{
    AccessTrace, Ahead, Tree, WalkSettings, WalkSetup, names, run, strace_calls,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let encoded = names::encoded(bytes);
    assert_eq!(names::decoded(&encoded).as_deref(), Some(bytes));
    let text = String::from_utf8_lossy(bytes);
    let _ = names::decoded(&text);
    let mut traces = vec![AccessTrace {
        program: String::new(),
        tree: Tree::new(),
        calls: strace_calls(&text, "/t", "/t/d"),
    }];
    traces.extend(AccessTrace::read(Cursor::new(bytes.to_vec())));
    for trace in traces {
        let mut written = Vec::new();
        trace.write(&mut written).expect("in memory");
        // Times of strace may be years apart, which no trace has.
        let Ok(again) = AccessTrace::read(Cursor::new(written.clone())) else { continue };
        let mut twice = Vec::new();
        again.write(&mut twice).expect("in memory");
        assert!(twice == written, "it is the same trace");
        if again.calls.len() > CALLS_MAX || again.tree.count() > CALLS_MAX {
            continue;
        }
        let setup = WalkSetup {
            device: device::make("cloud", 1).expect("a model"),
            settings: WalkSettings::default(),
            workers: 4,
            poll: None,
            tracing: Default::default(),
        };
        for ahead in [Ahead::Nothing, Ahead::Walks] {
            let _ = run(&again, &setup, ahead);
        }
    }
});

const CALLS_MAX: usize = 256;
