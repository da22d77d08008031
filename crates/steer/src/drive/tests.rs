//! The drive on files of its own, without programs: what is asked for whom, and that all ends.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use forerun_core::prng::Prng;
use rustix::fs::{Advice, fadvise, fstat, fsync};

use super::*;
use crate::lanes::index;

const LIMIT: u64 = 2 << 20;
const BYTES: u64 = 16 << 20;

/// A file that is deleted with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let name = format!("forerun-drive-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![7; index(BYTES)]).unwrap();
        fsync(&file).unwrap();
        Self(path)
    }

    /// A file without data.
    fn of_holes(name: &str, bytes: u64) -> Self {
        let name = format!("forerun-drive-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        Self(path)
    }

    fn open(&self) -> (File, Stat) {
        let file = File::open(&self.0).unwrap();
        let stat = fstat(&file).unwrap();
        (file, stat)
    }

    fn forget(&self) {
        fadvise(&self.open().0, 0, None, Advice::DontNeed).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn drive_of(limit_bytes: u64, budget_bytes: u64) -> Drive {
    let rule = Rule::make(&format!("ours:burst=16M,limit={limit_bytes}")).unwrap();
    let readahead = "streams:first=1M".into();
    let bounds = Bounds { rule, limit_bytes, budget_bytes, readahead };
    let mut drive = Drive::new(bounds).unwrap();
    drive.set_memory(1 << 30);
    drive
}

/// All that was fetched is answered: nothing is left, and the core's counts balance.
fn assert_settled(drive: &Drive) {
    let stats = drive.core_stats();
    assert!(stats.balanced(), "{stats:?}");
    assert!(drive.lanes.iter().all(Option::is_none));
    assert_eq!((drive.asked.len(), drive.pending_pages), (0, 0), "{stats:?}");
    assert!(drive.files.values().all(|file| file.lanes == 0 && file.source.is_none()));
}

#[test]
fn a_reader_in_order_is_led_up_to_the_limit_and_all_is_settled_at_its_end() {
    let place = Place::new("order");
    place.forget();
    let mut drive = drive_of(LIMIT, 64 << 20);
    let (file, stat) = place.open();
    let lane = drive.open(Nanos(0), file, &stat, 0).unwrap();
    let mut now = Nanos(0);
    let mut asked = 0;
    for at in (0..BYTES).step_by(64 << 10) {
        now += Nanos::from_millis(1);
        drive.read(now, lane, &(at..at + (64 << 10)), true);
        drive.go_on(now);
        assert!(drive.counts.lead_bytes_max <= LIMIT + CHUNK_BYTES_MAX);
        let ahead = drive.asked.iter().map(|asked| asked.piece.pages().end * PAGE).max();
        assert!(ahead.unwrap_or(0) <= at + (64 << 10) + LIMIT + CHUNK_BYTES_MAX);
        asked = asked.max(drive.counts.bytes_asked);
    }
    assert!(asked > 0 || drive.counts.bytes_cached > 0, "nothing was read ahead");
    assert!(drive.counts.bytes_asked <= BYTES);
    drive.close(now, lane);
    assert_settled(&drive);
}

#[test]
fn a_reader_that_goes_back_is_led_whatever_is_cached_behind_it() {
    let place = Place::new("back");
    place.forget();
    let mut drive = drive_of(LIMIT, 64 << 20);
    let (file, stat) = place.open();
    let mut bytes = vec![0; 64 << 10];
    let reader = place.open().0;
    let lane = drive.open(Nanos(0), file, &stat, BYTES).unwrap();
    let mut now = Nanos(0);
    for back in 1..=BYTES / bytes.len() as u64 {
        let at = BYTES - back * bytes.len() as u64;
        now += Nanos::from_millis(1);
        reader.read_exact_at(&mut bytes, at).unwrap();
        drive.read(now, lane, &(at..at + bytes.len() as u64), false);
        drive.go_on(now);
        assert!(drive.counts.lead_bytes_max <= LIMIT + CHUNK_BYTES_MAX);
        let pending = pending(&drive, lane);
        assert!(pending.is_sorted_by(|near, far| near.start >= far.end), "{pending:?}");
    }
    let led = drive.counts.bytes_asked + drive.counts.bytes_cached;
    assert!(led > BYTES / 2, "{led} of {BYTES}");
    drive.close(now, lane);
    assert_settled(&drive);
}

#[test]
fn a_reader_that_is_seen_between_seek_and_read_is_no_stream() {
    let place = Place::new("between");
    place.forget();
    let mut drive = drive_of(LIMIT, 64 << 20);
    let (file, stat) = place.open();
    let lane = drive.open(Nanos(0), file, &stat, 0).unwrap();
    let now = Nanos::from_millis(1);
    for page in [901, 17, 3000, 44, 2222, 1500, 700] {
        drive.seek(now, lane, page * PAGE);
        drive.read(now, lane, &(page * PAGE..(page + 1) * PAGE), true);
        drive.go_on(now);
    }
    assert_eq!((drive.counts.asks, drive.pending_pages), (0, 0));
    drive.close(now, lane);
    assert_settled(&drive);
}

#[test]
fn the_budget_bounds_all_readers_together() {
    let places: Vec<Place> = (0..4).map(|at| Place::new(&format!("budget-{at}"))).collect();
    let budget = 4 << 20;
    let mut drive = drive_of(64 << 20, budget);
    let lanes: Vec<LaneId> = places
        .iter()
        .map(|place| {
            place.forget();
            let (file, stat) = place.open();
            drive.open(Nanos(0), file, &stat, 0).unwrap()
        })
        .collect();
    let mut now = Nanos(0);
    for at in (0..BYTES / 2).step_by(64 << 10) {
        now += Nanos::from_millis(1);
        for &lane in &lanes {
            drive.read(now, lane, &(at..at + (64 << 10)), true);
        }
        drive.go_on(now);
        let unread = drive.core_stats().ahead_unread * PAGE;
        assert!(unread - drive.pending_pages * PAGE <= budget, "{unread} at {at}");
    }
    for lane in lanes {
        drive.close(now, lane);
    }
    assert_settled(&drive);
}

/// What is pending of `lane`.
fn pending(drive: &Drive, lane: LaneId) -> Vec<Range<u64>> {
    drive.lanes[lane.0 as usize].as_ref().unwrap().pending.iter().map(Piece::pages).collect()
}

#[test]
fn what_lies_beyond_a_jump_is_still_to_come() {
    let place = Place::new("jump");
    let to = 2 << 20;
    #[rustfmt::skip]
    let rows = [ // why                          by a seek  to    pieces that stay
        ("a seek forward",                       true,      to,   true),
        ("a seek back",                          true,      4096, false),
        ("a read at a place farther on",         false,     to,   true),
    ];
    for (why, seeks, to, stays) in rows {
        place.forget();
        // Little may be asked for at a time: the rest of a window is pending.
        let mut drive = drive_of(LIMIT, 64 << 20);
        let (file, stat) = place.open();
        let lane = drive.open(Nanos(0), file, &stat, 0).unwrap();
        let read = 1 << 20;
        for at in (0..read).step_by(64 << 10) {
            drive.read(Nanos(at), lane, &(at..at + (64 << 10)), true);
        }
        let last = pending(&drive, lane).last().expect("a window is pending").end * PAGE;
        assert!(last > (2 << 20) + (64 << 10), "{why}: to {last}");
        let now = Nanos(read);
        let next = if seeks {
            drive.seek(now, lane, to);
            lane
        } else {
            drive.again(lane, to).unwrap()
        };
        drive.read(now, next, &(to..to + (64 << 10)), false);
        let left = pending(&drive, next);
        assert!(left.iter().all(|piece| piece.start * PAGE >= to), "{why}: {left:?}");
        let is_same = left.iter().any(|piece| piece.end * PAGE == last);
        assert_eq!(is_same, stays, "{why}: {left:?}");
        if next != lane {
            let left = pending(&drive, lane);
            assert!(left.iter().all(|piece| piece.end * PAGE <= to), "{why}: {left:?}");
            drive.close(now, next);
        }
        drive.close(now, lane);
        assert_settled(&drive);
    }
}

#[test]
fn a_device_is_as_fast_as_its_fastest_whole_piece() {
    let millis = Nanos::from_millis;
    let mut access = Access::of(millis(10));
    for (waited, slowdown, why) in [
        (10, 1, "nothing waits"),
        (40, 1, "once is not usual"),
        (40, 1, "twice"),
        (40, 1, "three times"),
        (40, 2, "half of the time"),
        (2, 9, "a faster one is what it can do"),
    ] {
        access.learn(millis(waited));
        assert_eq!(access.slowdown(), slowdown, "{why}");
    }
    access.is_idle = true;
    assert_eq!(access.slowdown(), 1, "nothing is there to wait for");
    assert_eq!(Access::of(Nanos(0)).slowdown(), 1);
}

#[test]
fn what_was_cached_in_part_tells_nothing_of_the_device() {
    let place = Place::new("part");
    for (is_cold, known) in [(true, 1), (false, 0)] {
        let mut drive = drive_of(LIMIT, 64 << 20);
        let (file, stat) = place.open();
        let lane = drive.open(Nanos(0), file, &stat, 0).unwrap();
        let file = drive.lanes[lane.0 as usize].as_ref().unwrap().file;
        let piece = Piece { first: 0, frames: (0..256).map(FrameId).collect() };
        let asked = Asked { file, piece, since: Nanos(0), is_cold };
        drive.learn(&asked, Nanos::from_millis(1));
        assert_eq!(drive.access.len(), known);
        drive.close(Nanos(0), lane);
    }
}

#[test]
fn whatever_readers_do_all_is_settled() {
    let place = Place::new("any");
    for seed in 0..20 {
        place.forget();
        let mut random = Prng::new(seed);
        let mut drive = drive_of(LIMIT, 8 << 20);
        let mut lanes: Vec<(LaneId, u64)> = Vec::new();
        let mut now = Nanos(0);
        for _ in 0..400 {
            now += Nanos::from_micros(random.below(5_000));
            let which = index(random.below(lanes.len().max(1) as u64));
            match (random.below(12), lanes.get_mut(which)) {
                (0, _) | (_, None) => {
                    let (file, stat) = place.open();
                    let lane = drive.open(now, file, &stat, 0).unwrap();
                    lanes.push((lane, 0));
                }
                (1, Some(_)) => {
                    let (lane, _) = lanes.swap_remove(which);
                    drive.close(now, lane);
                }
                (2, Some((lane, at))) => {
                    *at = random.below(BYTES + 9_999);
                    drive.seek(now, *lane, *at);
                }
                (3, Some(_)) => {
                    let bytes = BYTES - random.below(BYTES / 2);
                    File::options().write(true).open(&place.0).unwrap().set_len(bytes).unwrap();
                }
                (4, Some((lane, at))) => {
                    let start = at.saturating_sub(random.below(300_000));
                    drive.read(now, *lane, &(start..*at), false);
                    *at = start;
                }
                (_, Some((lane, at))) => {
                    let end = *at + random.below(300_000);
                    drive.read(now, *lane, &(*at..end), true);
                    *at = end;
                }
            }
            drive.go_on(now);
            assert!(drive.core.as_ref().is_none_or(|core| core.stats().balanced()));
        }
        for (lane, _) in lanes {
            drive.close(now, lane);
        }
        assert_settled(&drive);
    }
}

#[test]
fn one_read_far_ahead_takes_nothing_from_who_comes_there_in_order() {
    let bytes = 64 << 20;
    let place = Place::of_holes("once", bytes);
    let mut drive = drive_of(64 << 20, 256 << 20);
    let (file, stat) = place.open();
    let lane = drive.open(Nanos(0), file, &stat, 0).unwrap();
    let step = 256 << 10;
    let mut once = None;
    let mut now = Nanos(0);
    for at in (0..bytes).step_by(index(step)) {
        now += Nanos::from_millis(1);
        drive.read(now, lane, &(at..at + step), true);
        if once.is_none() && !pending(&drive, lane).is_empty() && at >= 4 * step {
            let from = at + 2 * step;
            once = drive.again(lane, from);
            drive.read(now, once.unwrap(), &(from..from + PAGE), false);
        }
        if once.is_some() {
            drive.go_on(now);
        }
    }
    let once = once.expect("something was pending");
    assert_eq!(pending(&drive, once), []);
    let led = drive.counts.bytes_asked + drive.counts.bytes_cached;
    assert!(led >= bytes / 2, "{led} of {bytes}");
    drive.close(now, once);
    drive.close(now, lane);
    assert_settled(&drive);
}

#[test]
fn a_reader_that_turns_is_led_the_other_way() {
    let bytes = 256 << 20;
    let (middle, step) = (bytes / 2, 256 << 10);
    let place = Place::of_holes("turns", bytes);
    for forward in [true, false] {
        place.forget();
        let mut drive = drive_of(64 << 20, 256 << 20);
        let (file, stat) = place.open();
        let lane = drive.open(Nanos(0), file, &stat, middle).unwrap();
        let mut now = Nanos(0);
        let mut go = |drive: &mut Drive, forward: bool, steps: u64, is_led: bool| {
            for at in 0..steps {
                now += Nanos::from_millis(1);
                let at = if forward { middle + at * step } else { middle - (at + 1) * step };
                drive.read(now, lane, &(at..at + step), forward);
                let main = drive.lanes[lane.0 as usize].as_ref().unwrap().main / PAGE;
                let far =
                    |piece: &Range<u64>| piece.start.abs_diff(main).min(piece.end.abs_diff(main));
                let pending = pending(drive, lane);
                assert!(pending.is_sorted_by_key(far), "{main}: {pending:?}");
                if is_led {
                    drive.go_on(now);
                }
            }
            drive.counts.bytes_asked + drive.counts.bytes_cached
        };
        assert_eq!(go(&mut drive, forward, 64, false), 0);
        assert!(!pending(&drive, lane).is_empty(), "what is left behind");
        let led = go(&mut drive, !forward, 256, true);
        assert!(led >= 128 * step, "{led} after a turn");
        drive.close(now, lane);
        assert_settled(&drive);
    }
}

#[test]
fn who_has_read_once_is_looked_at_closely() {
    let place = Place::new("near");
    let mut drive = drive_of(LIMIT, 64 << 20);
    let (file, stat) = place.open();
    let at = BYTES / 2;
    let lane = drive.open(Nanos(0), file, &stat, at).unwrap();
    drive.read(Nanos(1), lane, &(at..at + PAGE), false);
    let warm = |drive: &Drive| drive.lanes[lane.0 as usize].as_ref().unwrap().warm.clone();
    assert_eq!(warm(&drive), at - NEAR_BYTES..at + PAGE + NEAR_BYTES);
    drive.read(Nanos(2), lane, &(at + PAGE..at + 2 * PAGE), true);
    assert_eq!(warm(&drive), at + 2 * PAGE..BYTES);
    drive.close(Nanos(3), lane);
    assert_settled(&drive);
}
