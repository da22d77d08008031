//! Replay: the events of eight threads, sent to a fresh core, give the same actions byte for byte.

use std::{sync::Arc, time::Duration};

use forerun_core::{
    cache,
    event::{Actions, codec},
    prng::Prng,
};
use forerun_engine::{Cache, Journal, Record, Settings, WindowRecord};
use forerun_io::{
    store::pattern::Pattern,
    wrap::fault::{Fault, Faults, Rule, When},
};
use forerun_testkit::{on_threads, within};

use crate::rig::{PAGE, WINDOW, check_quiet, next_read, read, readaheads, settings};

/// The actions of a fresh core, and how many events there were.
pub(crate) fn replay(settings: &Settings, record: &Record) -> (Vec<u8>, u32) {
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

/// Every page that was read ahead is one of a window's, with the outcome that was counted.
fn check_windows(cache: &Cache) {
    let windows = cache.windows();
    let core = cache.stats().core;
    let sum =
        |of: fn(&WindowRecord) -> u32| windows.rows.iter().map(|row| u64::from(of(row))).sum();
    let counted: [u64; 4] = [
        sum(|row| row.outcomes.used + row.outcomes.late),
        sum(|row| row.outcomes.wasted),
        sum(|row| row.outcomes.failed),
        sum(|row| row.unread),
    ];
    assert_eq!(counted, [core.ahead_used, core.ahead_wasted, core.ahead_failed, core.ahead_unread]);
    assert_eq!(windows.left_out, 0);
    let ordered =
        windows.rows.iter().all(|row| row.at <= row.last_use && row.last_use <= windows.now);
    assert!(ordered, "{:?}", windows.rows);
}

#[test]
fn a_cache_keeps_the_first_windows_and_counts_the_others() {
    let kept = |windows_max| {
        let settings = Settings { windows_max, ..settings(64, "fixed:size=2K") };
        let cache = Cache::new(settings).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(64 * PAGE))).unwrap();
        for page in [0, 16, 32] {
            read(&file, page * PAGE, 1).unwrap();
        }
        let windows = cache.windows();
        (windows.rows.iter().map(|row| row.decision.window.start).collect(), windows.left_out)
    };
    let rows: [(u32, (Vec<u64>, u64)); 3] =
        [(0, (vec![], 0)), (2, (vec![0, 16], 1)), (3, (vec![0, 16, 32], 0))];
    for (windows_max, expected) in rows {
        assert_eq!(kept(windows_max), expected, "{windows_max}");
    }
}

#[test]
fn the_journal_of_eight_threads_under_faults_gives_the_same_actions() {
    for readahead in readaheads() {
        within(move || {
            let settings = Settings { windows_max: 1 << 20, ..settings(2 * WINDOW, &readahead) };
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
                let second = file.try_clone().unwrap();
                let mut at = 0;
                for turn in 0..40 {
                    let file = if turn % 8 == 0 { &second } else { &file };
                    let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
                    let _ = read(file, offset, bytes);
                }
            });
            check_quiet(&cache, &settings);
            check_windows(&cache);
            drop(cache);
            let record = journal.take();
            let (actions, events) = replay(&settings, &record);
            assert_eq!(record.dropped, 0);
            assert!(events > 8 * 40, "{events} events");
            assert!(actions == record.actions, "the replay differs");
        });
    }
}
