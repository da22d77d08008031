//! Which mappings are followed, when their files are closed, and how often lists are read.
//!
//! # Invariants
//! - A mapping that a test makes itself has a length that no other test's has.

use super::super::access::recording::RecordingSink;
use super::super::cursors::COUNT_MAX;
use super::*;

use std::os::fd::AsFd as _;
use std::ptr::null_mut;

use forerun_testkit::Scratch;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

#[test]
#[expect(unsafe_code, reason = "a mapping of the test itself")]
fn a_mapping_that_gave_way_to_others_before_it_was_touched_is_not_followed() {
    const BYTES: usize = 2 << 20;
    let scratch = Scratch::on_disk("mappings-replaced");
    let file = File::open(scratch.file("library", vec![7; BYTES])).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = open("/proc/self", flags, Mode::empty()).unwrap();
    let mut sink = RecordingSink::default();
    for (why, gives_way) in [("it stays", false), ("as the dynamic loader does", true)] {
        let (read, private) = (ProtFlags::READ, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses a place that nothing is mapped at.
        let start = unsafe { mmap(null_mut(), BYTES, read, private, &file, 0) }.unwrap();
        let mut mappings = Mappings::default();
        mappings.discover(process.as_fd(), Nanos(0), Allowance::endless(), &mut sink).unwrap();
        mappings.mapped.retain(|mapped| mapped.inode == fstat(&file).unwrap().st_ino);
        assert_eq!(mappings.mapped.len(), 1, "{why}");
        if gives_way {
            let (code, fixed) = (read | ProtFlags::EXEC, private | MapFlags::FIXED);
            // SAFETY: the mapping of this test alone is replaced.
            unsafe { mmap(start, BYTES, code, fixed, &file, 0) }.unwrap();
        }
        // SAFETY: the page is mapped for reading.
        assert_eq!(unsafe { start.cast::<u8>().read_volatile() }, 7, "{why}");
        let moved = mappings.poll(process.as_fd(), Nanos(1), Allowance::endless(), &mut sink);
        assert_eq!(moved, !gives_way, "{why}");
        // SAFETY: nothing refers to the mapping of this test.
        unsafe { munmap(start, BYTES) }.unwrap();
    }
}

#[test]
#[expect(unsafe_code, reason = "a mapping of the test itself")]
fn the_file_of_a_mapping_that_is_gone_is_closed_before_the_list_is_read_again() {
    // No other test maps as much at the same place.
    const BYTES: usize = (5 << 20) + 7 * 4096;
    let scratch = Scratch::on_disk("mappings-gone");
    let file = File::open(scratch.file("data", vec![7; BYTES])).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = open("/proc/self", flags, Mode::empty()).unwrap();
    let (mut sink, mut mappings) = (RecordingSink::default(), Mappings::default());
    // SAFETY: the kernel chooses a place that nothing is mapped at.
    let start = unsafe { mmap(null_mut(), BYTES, ProtFlags::READ, MapFlags::PRIVATE, &file, 0) };
    let start = start.unwrap();
    let endless = Allowance::endless();
    mappings.discover(process.as_fd(), Nanos(0), endless, &mut sink).unwrap();
    mappings.mapped.retain(|mapped| mapped.inode == fstat(&file).unwrap().st_ino);
    let end = mappings.mapped[0].addresses.start;
    let cursor = Cursor { start: end, end, used: 0, state: CursorId(7) };
    assert!(mappings.mapped[0].cursors.add(cursor).is_none());
    // Other tests map and unmap: as if there had been more each time.
    mappings.mapped_before = u64::MAX;
    mappings.poll(process.as_fd(), Nanos(2), endless, &mut sink);
    assert_eq!(sink.closed.len(), 0, "it is there");
    // SAFETY: nothing refers to the mapping of this test.
    unsafe { munmap(start, BYTES) }.unwrap();
    mappings.mapped_before = u64::MAX;
    mappings.poll(process.as_fd(), Nanos(3), endless, &mut sink);
    assert_eq!(sink.closed, [CursorId(7)]);
}

/// Mappings with so many cursors each, all of which moved at once.
fn mappings(counts: &[usize]) -> Vec<MappedFile> {
    let mapped = |(at, &count): (usize, &usize)| {
        let line = format!("{at:x}1000-{at:x}2000 r--p 0 fe:00 131 /x");
        let mut mapped = MappedFile::new(&text::mapping(line.as_bytes()).unwrap());
        for which in 0..count {
            let state = CursorId(u32::try_from(at * COUNT_MAX + which).unwrap());
            let gone = mapped.cursors.add(Cursor { start: 0, end: 0, used: 7, state });
            assert!(gone.is_none());
        }
        mapped
    };
    counts.iter().enumerate().map(mapped).collect()
}

#[test]
fn cursors_of_equal_age_give_way_where_they_are_most() {
    let mut sink = RecordingSink::default();
    // The newest mapping has the lowest address, and one reader.
    let mut all = mappings(&[[1].as_slice(), &[COUNT_MAX; 39]].concat());
    keep_few(&mut all, Nanos(8), &mut sink);
    let left: Vec<usize> = all.iter().map(|mapped| mapped.cursors.len()).collect();
    assert_eq!(left.iter().sum::<usize>(), CURSORS_MAX);
    assert!(left.iter().all(|&count| (1..=2).contains(&count)), "{left:?}");
    assert_eq!(sink.closed.len(), 39 * COUNT_MAX + 1 - CURSORS_MAX);
    // Within a mapping the oldest gives way, and of equal ones the mapping with the oldest.
    let mut all = mappings(&[13; 5]);
    let oldest = all[3].cursors.iter_mut().nth(5).unwrap();
    (oldest.used, oldest.state) = (6, CursorId(999));
    keep_few(&mut all, Nanos(8), &mut sink);
    assert_eq!(sink.closed.last(), Some(&CursorId(999)));
}

#[test]
fn the_pause_after_a_scan_has_bounds() {
    let millis = Nanos::from_millis;
    #[rustfmt::skip]
    let rows = [ // cost, pause
        (Nanos(0),          SCAN_INTERVAL_MIN,   "a free one"),
        (millis(1),         millis(50),          "its part of a processor"),
        (millis(600_000),   SCAN_PAUSE_MAX,      "an expensive one"),
        (Nanos(u64::MAX),   SCAN_PAUSE_MAX,      "the largest number"),
    ];
    for (cost, pause, why) in rows {
        assert_eq!(scan_pause(cost), pause, "{why}");
    }
}
