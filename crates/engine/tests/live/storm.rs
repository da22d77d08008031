//! Seeds: tight bounds drawn at random, and threads that open, share, read and drop files of
//! stores that fail, fall short and come late; some caches are closed meanwhile.

use std::{sync::Arc, time::Duration};

use forerun_core::{device, eviction, prng::Prng};
use forerun_engine::{Cache, Handle, OpenError, ReadError, Settings};
use forerun_io::{
    store::{Store, pattern::Pattern},
    wrap::{
        fault::{Fault, Faults, Rule, When},
        latency::Latency,
    },
};
use forerun_testkit::{on_threads, within};

use crate::rig::{PAGE, PAGE_BYTES, WINDOW, read, readaheads, settings};

fn draw(random: &mut Prng, below: usize) -> usize {
    usize::try_from(random.below(below as u64)).unwrap()
}

/// Bounds that are met all the time.
fn tight(random: &mut Prng) -> Settings {
    let readaheads = readaheads();
    let readahead = &readaheads[draw(random, readaheads.len())];
    let policy = eviction::NAMES[draw(random, eviction::NAMES.len())];
    let mut from = |least: u32, more: u64| least + u32::try_from(random.below(more)).unwrap();
    let page_bytes = PAGE_BYTES << from(0, 3);
    Settings {
        policy: policy.into(),
        page_bytes,
        request_bytes_max: page_bytes * from(1, 8),
        background_depth: from(1, 3),
        congested_requests: from(1, 8),
        demand_queues_max: from(1, 3),
        readers_max: from(3, 4),
        waiters_max: from(1, 40),
        handles_max: from(3, 6),
        files_max: from(1, 4),
        wait_max: Duration::from_nanos(from(0, 2_000_000).into()),
        ahead_bytes_max: u64::from(from(0, 30)) * PAGE,
        ..settings(from(WINDOW, 60), readahead)
    }
}

/// Stores that threads share, with faults above and below a device.
fn stores(random: &mut Prng) -> Vec<Arc<dyn Store>> {
    let late = Duration::from_micros(random.below(200));
    let reads = Rule {
        fail: Some((When::Chance(50_000), EIO)),
        delay: Some((When::Chance(100_000), late)),
        cut: Some(When::Chance(50_000)),
    };
    let faults = Faults { reads, ..Faults::default() };
    let seed = random.below(1 << 20);
    let fault = |inner| Arc::new(Fault::new(inner, faults.clone(), seed));
    let device = |inner| Arc::new(Latency::new(inner, device::make("optane", seed).unwrap()));
    let mut pattern = || Arc::new(Pattern::new(random.below(90 * PAGE)));
    vec![fault(pattern()), fault(device(pattern())), device(fault(pattern()))]
}

/// One random operation of a program on files.
fn step(cache: &Cache, stores: &[Arc<dyn Store>], random: &mut Prng, handles: &mut Vec<Handle>) {
    let what = random.below(16);
    let opened = if what == 0 || handles.is_empty() {
        cache.open_store(Arc::clone(&stores[draw(random, stores.len())]))
    } else {
        let at = draw(random, handles.len());
        match what {
            1 => handles[at].try_clone(),
            2 => return drop(handles.swap_remove(at)),
            _ => {
                let offset = random.below(handles[at].len() + PAGE);
                return match read(&handles[at], offset, draw(random, 15_000)) {
                    Ok(_)
                    | Err(
                        ReadError::Store { errno: EIO, .. }
                        | ReadError::NoFrames { .. }
                        | ReadError::Busy { .. }
                        | ReadError::Closed,
                    ) => {}
                    Err(error) => panic!("{error}"),
                };
            }
        }
    };
    match opened {
        Ok(handle) => handles.push(handle),
        Err(OpenError::Files { .. } | OpenError::Handles { .. } | OpenError::Closed) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn whatever_the_bounds_threads_get_right_bytes_or_a_clear_error_and_nothing_leaks() {
    for seed in 0..60 {
        within(move || {
            let mut random = Prng::new(seed);
            let settings = tight(&mut random);
            let cache = Cache::new(settings).unwrap();
            let stores = stores(&mut random);
            let closes = random.below(4) == 0;
            on_threads(6, |thread| {
                let (mut random, mut handles) = (Prng::new(seed * 10 + thread), Vec::new());
                for _ in 0..40 {
                    step(&cache, &stores, &mut random, &mut handles);
                }
                if closes && thread == 0 {
                    cache.close().unwrap();
                }
            });
            let stats = cache.stats();
            assert!(stats.core.balanced(), "{seed}: {stats:?}");
            assert_eq!(stats.latency.count(), stats.requests - stats.unlocked, "{seed}");
            assert_eq!(cache.frames().0, cache.frames().1, "{seed}: all files are closed");
        });
    }
}

const EIO: i32 = 5;
