//! What a cache takes of memory: a page of memory that is touched first is a fault of the thread
//! that does it, which `minflt` of `/proc/thread-self/stat` counts. Where all memory comes in huge
//! pages a fault is 512 pages, and the bounds say little.

use std::fs;

use forerun_core::{
    cache::{Cache, Settings},
    event::{Action, Actions, Event},
    eviction,
    units::{FileId, HandleId, Nanos, PartitionId, RequestId},
};

/// First touches of this thread so far.
fn touches() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").expect("there is /proc");
    let (_, rest) = stat.rsplit_once(") ").expect("a name in parentheses");
    rest.split_ascii_whitespace().nth(7).expect("minflt").parse().expect("a number")
}

/// A cache of `frames` reads `pages` pages of a file; returns what was touched to make it, and to
/// read.
fn touched(policy: &str, frames: u32, pages: u32) -> (u64, u64) {
    let start = touches();
    let mut cache = Cache::new(Settings::new(frames, policy, "off")).expect("it is valid");
    let made = touches();
    let (handle, file, partition) = (HandleId(0), FileId(0), PartitionId(0));
    let mut actions = Actions::new();
    let open = Event::Open { handle, file, partition, file_pages: u64::from(pages) };
    cache.handle(Nanos(0), open, &mut actions);
    for first in 0..u64::from(pages) {
        let (previous_end, congested) = (first.checked_sub(1), false);
        let request = RequestId(first);
        let read = Event::Read { request, handle, first, count: 1, previous_end, congested };
        cache.handle(Nanos(0), read, &mut actions);
        let is_fetch = |action: &&Action| matches!(action, Action::Fetch { .. });
        let fetch = *actions.list.iter().find(is_fetch).expect("the page is not resident");
        let &[first] = actions.frames_of(fetch) else { panic!("{fetch:?}") };
        actions.clear();
        cache.handle(Nanos(0), Event::Arrived { first, count: 1 }, &mut actions);
        actions.clear();
    }
    (made - start, touches() - made)
}

#[test]
fn a_cache_of_any_size_touches_the_memory_that_it_uses() {
    for policy in eviction::NAMES {
        let (made, read) = touched(policy, 1 << 22, 256);
        assert!(made <= 1_024, "{policy}: {made} pages touched for a cache that holds nothing");
        // Rows, links and table of 256 pages: some are in a page of memory of their own.
        assert!(read <= 1_024, "{policy}: {read} pages touched for 256 that were read");
    }
}
