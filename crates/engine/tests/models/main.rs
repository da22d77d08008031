//! The engine under a model checker: a seeded scheduler interleaves its lock, conditions, hit
//! buffer, pins and threads at every step.
//!
//! ```text
//!   cargo test -p forerun-engine --features shuttle --test models
//! ```
//!
//! Each model runs under a scheduler that chooses at random and under one that preempts only a few
//! times (PCT). Both begin with the same seed in every run; a
//! failure prints the schedule to replay. Caches have a few frames and stores come in steps, so
//! that short runs meet late hits, evictions, full stripes and a want of frames; a model fails if
//! no run of it meets its subject.
//!
//! # Invariants
//! - No time passes in a model: a thread that sleeps for ever is a deadlock, which fails it.
//! - The models see one order of all operations; io's `frames/header.rs` argues for
//!   relaxed orders, which the models do not check.
//! # Sources
//! Burckhardt et al., A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, 2010.

mod reads;
mod writes;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as Plain},
    time::Duration,
};

use forerun_engine::Settings;
use forerun_io::sync::{AtomicBool, Ordering, thread};
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
};

const PAGE_BYTES: u32 = 512;
const PAGE: u64 = PAGE_BYTES as u64;
const EIO: i32 = 5;

/// Counts of the situations that a run met, by name.
type Met = Vec<(&'static str, u64)>;

/// Runs `model` many times, half of them under each scheduler; together the runs meet `about`.
fn check(runs: usize, about: &[&str], model: impl Fn() -> Met + Send + Sync + 'static) {
    let met = Arc::new(Plain::new(BTreeMap::<&str, u64>::new()));
    let sum = Arc::clone(&met);
    let model = Arc::new(move || {
        let met = model();
        let mut sum = sum.lock().unwrap();
        for (what, count) in met {
            *sum.entry(what).or_default() += count;
        }
    });
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    let (again, runs) = (Arc::clone(&model), runs / 2);
    let random = RandomScheduler::new_from_seed(SEED, runs);
    Runner::new(random, config.clone()).run(move || again());
    Runner::new(PctScheduler::new_from_seed(SEED, 3, runs), config).run(move || model());
    let met = met.lock().unwrap();
    for what in about {
        assert!(met.get(what).is_some_and(|&count| count > 0), "no run met {what}: {met:?}");
    }
}

const SEED: u64 = 20_070_630;

/// A cache of so many frames, and few of all else.
fn small(frames: u64, request_pages: u32) -> Settings {
    Settings {
        cache_bytes: frames * PAGE,
        page_bytes: PAGE_BYTES,
        readahead: "off".into(),
        request_bytes_max: request_pages * PAGE_BYTES,
        demand_queues_max: 1,
        readers_max: 4,
        waiters_max: 8,
        handles_max: 2,
        files_max: 2,
        wait_max: Duration::from_millis(1 << 40), // No model takes as long.
        ..Settings::default()
    }
}

/// Lets the scheduler switch threads.
fn step() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

fn join<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().unwrap();
    }
}
