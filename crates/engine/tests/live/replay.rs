//! Replay: what eight threads did, sent to a fresh core, gives the same actions byte for byte.

use std::{sync::Arc, time::Duration};

use forerun_core::{
    cache,
    event::{Actions, codec},
    prng::Prng,
};
use forerun_engine::{Cache, Journal, Record, Settings};
use forerun_io::{
    store::pattern::Pattern,
    wrap::fault::{Fault, Faults, Rule, When},
};

use crate::rig::{
    PAGE, WINDOW, check_quiet, next_read, on_threads, read, readaheads, settings, within,
};

/// The actions of a fresh core, and how many events there were.
fn replay(settings: &Settings, record: &Record) -> (Vec<u8>, u32) {
    let mut core = cache::Cache::new(settings.core().unwrap()).unwrap();
    let (mut at, mut events, mut hits) = (0, 0, Vec::new());
    let (mut actions, mut bytes) = (Actions::new(), Vec::new());
    while at < record.events.len() {
        let (now, event, used) = codec::decode(&record.events[at..], &mut hits).unwrap();
        actions.clear();
        core.handle(now, event, &mut actions);
        codec::encode_actions(&actions, &mut bytes);
        at += used;
        events += 1;
    }
    (bytes, events)
}

#[test]
fn the_journal_of_eight_threads_under_faults_gives_the_same_actions() {
    for readahead in readaheads() {
        within(move || {
            let settings = settings(2 * WINDOW, &readahead);
            let journal = Journal::new(16 << 20);
            let cache = Cache::recorded(settings.clone(), Box::new(journal.clone())).unwrap();
            let rule = Rule {
                fail: Some((When::Chance(100_000), 5)),
                delay: Some((When::Chance(50_000), Duration::from_micros(20))),
                cut: Some(When::Chance(100_000)),
            };
            let faults = Faults { reads: rule, ..Faults::default() };
            let store = Arc::new(Fault::new(Arc::new(Pattern::new(90 * PAGE + 1)), faults, 1));
            on_threads(8, |thread| {
                let mut random = Prng::new(thread);
                let file = cache.open_store(store.clone()).unwrap();
                let second = file.again().unwrap();
                let mut at = 0;
                for turn in 0..40 {
                    let file = if turn % 8 == 0 { &second } else { &file };
                    let (offset, bytes) = next_read(&mut random, file.file_bytes(), &mut at);
                    let _ = read(file, offset, bytes);
                }
            });
            check_quiet(&cache, &settings);
            drop(cache);
            let record = journal.take();
            let (actions, events) = replay(&settings, &record);
            assert_eq!(record.dropped, 0);
            assert!(events > 8 * 40, "{events} events");
            assert!(actions == record.actions, "the replay differs");
        });
    }
}
