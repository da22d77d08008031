//! The prefetcher on files of its own, without programs: what is requested, and that all ends.

use std::os::unix::fs::FileExt as _;

use forerun_core::device::DeviceKind;
use forerun_core::planner::pace::PaceRule;
use forerun_core::planner::{REQUEST_BYTES_MAX, device::DeviceEstimate};
use forerun_core::prng::Prng;
use forerun_testkit::{Scratch, until};
use rustix::fs::{Advice, FileType, fadvise, fsync};

use super::*;

const LIMIT: u64 = 2 << 20;
const BYTES: u64 = 16 << 20;

/// A file on a disk.
struct Place(Scratch);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(Scratch::on_disk(name));
        place.0.file("data", vec![7; usize::try_from(BYTES).unwrap()]);
        fsync(place.open().0).unwrap();
        place
    }

    fn open(&self) -> (File, Stat) {
        let file = File::open(self.0.join("data")).unwrap();
        let stat = kernel::stat(&file).unwrap();
        (file, stat)
    }

    fn forget(&self) {
        fadvise(&self.open().0, 0, None, Advice::DontNeed).unwrap();
    }
}

fn prefetcher_of(limit_bytes: u64, budget_bytes: u64) -> Prefetcher {
    let pace = PaceRule::make(&format!("adaptive:burst=16M,limit={limit_bytes}")).unwrap();
    let readahead = "streams:first=1M,through=4K".into();
    let (kind, latency) = (DeviceKind::Parallel, Nanos::from_millis(10));
    let device = DeviceEstimate { kind, latency, bytes_per_second: u64::MAX, depth: 32 };
    let settings = PlannerSettings { pace, budget_bytes, readahead, device };
    let mut prefetcher = Prefetcher::new(settings, limit_bytes).unwrap();
    prefetcher.set_memory(1 << 30);
    prefetcher
}

/// All that was fetched is answered: nothing is left, and the core's counts balance.
fn assert_settled(prefetcher: &Prefetcher) {
    let stats = prefetcher.core_stats();
    assert!(stats.balanced(), "{stats:?}");
    assert!(!prefetcher.is_busy(), "{stats:?}");
    assert!(prefetcher.files.all_closed());
}

#[test]
fn a_reader_in_order_is_led_up_to_the_limit_and_all_is_settled_at_its_end() {
    let place = Place::new("order");
    place.forget();
    let mut prefetcher = prefetcher_of(LIMIT, 64 << 20);
    let (file, stat) = place.open();
    let cursor = prefetcher.open(Nanos(0), file, &stat, 0).unwrap();
    let mut now = Nanos(0);
    let mut asked = 0;
    for at in (0..BYTES).step_by(64 << 10) {
        now += Nanos::from_millis(1);
        prefetcher.read(now, cursor, &(at..at + (64 << 10)), true);
        prefetcher.advance(now, Allowance::endless());
        assert!(prefetcher.stats().distance_bytes_max <= LIMIT + REQUEST_BYTES_MAX);
        let requests = (0..).map_while(|nth| prefetcher.planner.in_flight(nth));
        let ahead = requests.map(|request| request.range().end).max();
        assert!(ahead.unwrap_or(0) <= at + (64 << 10) + LIMIT + REQUEST_BYTES_MAX);
        asked = asked.max(prefetcher.stats().bytes_requested);
    }
    assert!(asked > 0 || prefetcher.stats().bytes_cached > 0, "nothing was read ahead");
    assert!(prefetcher.stats().bytes_requested <= BYTES);
    prefetcher.close(now, cursor);
    assert_settled(&prefetcher);
}

#[test]
fn a_reader_that_goes_back_is_led_whatever_is_cached_behind_it() {
    let place = Place::new("back");
    place.forget();
    let mut prefetcher = prefetcher_of(LIMIT, 64 << 20);
    let (file, stat) = place.open();
    let mut bytes = vec![0; 64 << 10];
    let reader = place.open().0;
    let cursor = prefetcher.open(Nanos(0), file, &stat, BYTES).unwrap();
    let mut now = Nanos(0);
    for back in 1..=BYTES / bytes.len() as u64 {
        let at = BYTES - back * bytes.len() as u64;
        now += Nanos::from_millis(1);
        reader.read_exact_at(&mut bytes, at).unwrap();
        prefetcher.read(now, cursor, &(at..at + bytes.len() as u64), false);
        prefetcher.advance(now, Allowance::endless());
        assert!(prefetcher.stats().distance_bytes_max <= LIMIT + REQUEST_BYTES_MAX);
    }
    let led = prefetcher.stats().bytes_requested + prefetcher.stats().bytes_cached;
    assert!(led > BYTES / 2, "{led} of {BYTES}");
    prefetcher.close(now, cursor);
    assert_settled(&prefetcher);
}

#[test]
fn the_budget_bounds_all_readers_together() {
    let places: Vec<Place> = (0..4).map(|at| Place::new(&format!("budget-{at}"))).collect();
    let budget = 4 << 20;
    let mut prefetcher = prefetcher_of(64 << 20, budget);
    let cursors: Vec<CursorId> = places
        .iter()
        .map(|place| {
            place.forget();
            let (file, stat) = place.open();
            prefetcher.open(Nanos(0), file, &stat, 0).unwrap()
        })
        .collect();
    let mut now = Nanos(0);
    for at in (0..BYTES / 2).step_by(64 << 10) {
        now += Nanos::from_millis(1);
        for &cursor in &cursors {
            prefetcher.read(now, cursor, &(at..at + (64 << 10)), true);
        }
        prefetcher.advance(now, Allowance::endless());
        let ahead = prefetcher.planner.ahead_bytes();
        assert!(ahead <= budget, "{ahead} at {at}");
    }
    for cursor in cursors {
        prefetcher.close(now, cursor);
    }
    assert_settled(&prefetcher);
}

#[test]
fn whatever_readers_do_all_is_settled() {
    let place = Place::new("any");
    for seed in 0..20 {
        place.forget();
        let mut random = Prng::new(seed);
        let mut prefetcher = prefetcher_of(LIMIT, 8 << 20);
        let mut cursors: Vec<(CursorId, u64)> = Vec::new();
        let mut now = Nanos(0);
        for _ in 0..400 {
            now += Nanos::from_micros(random.below(5_000));
            let which = usize::try_from(random.below(cursors.len().max(1) as u64)).unwrap();
            match (random.below(12), cursors.get_mut(which)) {
                (0, _) | (_, None) => {
                    let (file, stat) = place.open();
                    let cursor = prefetcher.open(now, file, &stat, 0).unwrap();
                    cursors.push((cursor, 0));
                }
                (1, Some(_)) => {
                    let (cursor, _) = cursors.swap_remove(which);
                    prefetcher.close(now, cursor);
                }
                (2, Some((cursor, at))) => {
                    *at = random.below(BYTES + 9_999);
                    prefetcher.seek(now, *cursor, *at);
                }
                (3, Some(_)) => {
                    let bytes = BYTES - random.below(BYTES / 2);
                    File::options()
                        .write(true)
                        .open(place.0.join("data"))
                        .unwrap()
                        .set_len(bytes)
                        .unwrap();
                }
                (4, Some((cursor, at))) => {
                    let start = at.saturating_sub(random.below(300_000));
                    prefetcher.read(now, *cursor, &(start..*at), false);
                    *at = start;
                }
                (_, Some((cursor, at))) => {
                    let end = *at + random.below(300_000);
                    prefetcher.read(now, *cursor, &(*at..end), true);
                    *at = end;
                }
            }
            prefetcher.advance(now, Allowance::endless());
            assert!(prefetcher.core_stats().balanced());
        }
        for (cursor, _) in cursors {
            prefetcher.close(now, cursor);
        }
        assert_settled(&prefetcher);
    }
}

/// A process that sleeps until it is ended.
pub(super) struct Sleeping(std::process::Child);

impl Sleeping {
    pub(super) fn start() -> Self {
        Self(std::process::Command::new("sleep").arg("1000").spawn().unwrap())
    }

    pub(super) fn pid(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }

    pub(super) fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_files_of_a_process_are_closed_at_its_end_without_a_poll() {
    let (shared, alone) = (Place::new("shared"), Place::new("alone"));
    let mut prefetcher = prefetcher_of(LIMIT, 64 << 20);
    let mut processes = [(); 3].map(|()| Sleeping::start());
    let open = |process: &Sleeping, place: &Place, prefetcher: &mut Prefetcher| {
        prefetcher.process(process.pid(), None);
        let (file, stat) = place.open();
        prefetcher.open(Nanos(0), file, &stat, 0).unwrap()
    };
    let is_open = |prefetcher: &Prefetcher, cursor| {
        kernel::stat(prefetcher.file(cursor).unwrap()).unwrap().kind() == FileType::RegularFile
    };
    let [first, second] = [0, 1].map(|nth| open(&processes[nth], &shared, &mut prefetcher));
    let other = open(&processes[2], &alone, &mut prefetcher);
    prefetcher.process(processes[2].pid(), None);
    let again = prefetcher.open_again(other, 4096).unwrap();
    // Ends are taken in one after the other: when the third is, the first has been.
    processes[0].end();
    processes[2].end();
    until(|| !is_open(&prefetcher, other));
    assert!(!is_open(&prefetcher, again), "a file has one descriptor");
    assert!(is_open(&prefetcher, first), "it has a reader in another process");
    assert_eq!(prefetcher.open_again(other, 8192), None, "there is nothing to open again");
    processes[1].end();
    until(|| !is_open(&prefetcher, second));
    // Another process reads it before the next poll.
    let process = Sleeping::start();
    let third = open(&process, &shared, &mut prefetcher);
    assert!(is_open(&prefetcher, third));
    for cursor in [first, second, third, other, again] {
        prefetcher.read(Nanos(1), cursor, &(0..4096), true);
        prefetcher.advance(Nanos(1), Allowance::endless());
        prefetcher.close(Nanos(1), cursor);
    }
    assert_settled(&prefetcher);
}
