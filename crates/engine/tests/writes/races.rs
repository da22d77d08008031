//! Writers, readers and changes that meet in one page, and handles that close together.

use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
    time::Duration,
};

use forerun_engine::{Access, Cache, Settings, WriteError, Zeroing};
use forerun_io::{
    store::memory::Memory,
    wrap::fault::{Faults, Rule, When},
};
use forerun_testkit::{until, within};

use crate::rig::{faulty, memory, settings};

/// The races are met once in some hundred rounds.
const ROUNDS: u32 = 4_000;

/// What a round writes.
fn byte(round: u32) -> u8 {
    u8::try_from(round % 250 + 1).unwrap()
}

#[test]
fn of_handles_that_close_at_a_time_the_last_one_flushes() {
    let cache = Cache::new(settings(32)).unwrap();
    for round in 0..ROUNDS {
        let (store, file) = memory(&cache, 1_000);
        file.write_at(&[byte(round); 100], 0).unwrap();
        let start = Barrier::new(2);
        let other = file.try_clone().unwrap();
        thread::scope(|scope| {
            for file in [file, other] {
                scope.spawn(|| {
                    start.wait();
                    drop(file);
                });
            }
        });
        assert_eq!(store.contents()[0], byte(round), "round {round}");
    }
}

#[test]
fn what_is_appended_beside_zeros_and_discards_to_the_end_stays() {
    /// No multiple of a page, and more than a request.
    const END: u64 = 5_000;
    let cache = Cache::new(settings(64)).unwrap();
    for round in 0..ROUNDS {
        let (store, file) = memory(&cache, 5_000);
        file.write_at(&[9; 5_000], 0).unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                match round % 2 {
                    0 => file.discard(0..END).unwrap(),
                    _ => file.zero(0..END, Zeroing::default()).unwrap(),
                }
            });
            start.wait();
            file.write_at(&[byte(round); 100], END).unwrap();
        });
        let mut buf = [0; 100];
        assert_eq!(file.read_at(&mut buf, END), Ok(100));
        assert_eq!(buf, [byte(round); 100], "round {round}");
        file.flush().unwrap();
        assert_eq!(store.contents()[5_000..], [byte(round); 100], "round {round}");
    }
}

#[test]
fn a_writer_waits_for_a_slow_store_as_long_as_that_takes() {
    overwrites_what_is_written(Duration::from_millis(40));
}

#[test]
fn so_it_does_where_it_may_wait_for_no_reader() {
    overwrites_what_is_written(Duration::ZERO);
}

fn overwrites_what_is_written(wait_max: Duration) {
    within(move || {
        let cache = Cache::new(Settings { wait_max, ..settings(32) }).unwrap();
        let (memory, fault, file) = faulty(&cache, 1_000);
        let delay = Some((When::Every(1), Duration::from_millis(400)));
        fault.set(Faults { writes: Rule { delay, ..Rule::default() }, ..Faults::default() });
        file.write_at(&[1; 100], 0).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| file.flush().unwrap());
            until(|| fault.counts().writes == 1);
            assert_eq!(file.write_at(&[2; 100], 0), Ok(()), "the store has the page");
        });
        assert_eq!(memory.contents()[0], 1);
        file.flush().unwrap();
        assert_eq!(memory.contents()[0], 2);
    });
}

/// The second writer sleeps while the first one copies, and is blocked by a reader's pin as that
/// ends: nothing else tells it of a deadline.
#[test]
fn a_writer_that_a_pin_blocks_while_it_sleeps_gives_up_in_time() {
    const BYTES: usize = 1 << 20;
    within(|| {
        let wait_max = Duration::from_millis(30);
        let cache = Settings { cache_bytes: 64 << 20, page_bytes: 4_096, wait_max, ..settings(32) };
        let cache = Cache::new(cache).unwrap();
        let store = Arc::new(Memory::new(vec![0; BYTES], 1 << 24));
        let file = cache.open_store_with(store, Access::ReadWrite).unwrap();
        let (large, last) = (vec![1; BYTES], BYTES as u64 - 1);
        file.write_at(&large, 0).unwrap();
        for _ in 0..200 {
            let start = Barrier::new(3);
            let (ended, has_ended) = mpsc::channel();
            thread::scope(|scope| {
                let (start, file) = (&start, &file);
                scope.spawn(|| {
                    start.wait();
                    file.write_at(&large, 0)
                });
                scope.spawn(move || {
                    start.wait();
                    let pin = file.pin(last).unwrap();
                    has_ended.recv().unwrap();
                    drop(pin);
                });
                start.wait();
                let written = file.write_at(&[2], last);
                ended.send(()).unwrap();
                assert!(matches!(written, Ok(()) | Err(WriteError::Pinned)), "{written:?}");
            });
        }
    });
}
