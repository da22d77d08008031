//! Counts of a process: what it read and wrote by all calls that the kernel counts, beside what its
//! positions have shown. They tell whether a position was moved by reads.
//!
//! ```text
//!   count `before`, positions, count `after`     what is counted between may show at the next poll
//! ```
//! # Invariants
//! - Where writes may have moved a position, and explain it, reads have not: a file that a program
//!   overwrites is fetched for nothing, and keeps the program waiting.
//! # Sources
//! Linux `fs/read_write.c`: bytes are counted before the position moves. `io_uring` and `splice`
//! count nothing.

use super::procfs::text::Counts;

/// The counts of a process from poll to poll.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    read: Count,
    written: Count,
}

/// The bytes of a poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    read: Bytes,
    written: Bytes,
}

/// What may have moved a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedBy {
    /// Reads, all the way.
    pub(crate) reads: bool,
    /// A seek, and a read that ended there. Of what may write that is not known.
    pub(crate) last_read: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// At the last poll at which a position moved.
    counted: u64,
    /// Of that, bytes that no position has shown yet.
    not_shown: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bytes {
    /// Since the last poll at which a position moved.
    new: u64,
    /// Of these and of older ones, bytes that no position has shown yet.
    left: u64,
    /// Of these, bytes that were counted while positions were read, and may show at the next poll.
    late: u64,
    /// Since the start of the process.
    all: u64,
}

impl Counter {
    /// The bytes of a poll, whose counts were `before` and `after` the positions were read.
    pub(crate) fn count(&mut self, before: Counts, after: Counts) -> Counted {
        let read = self.read.count(before.read, after.read);
        Counted { read, written: self.written.count(before.written, after.written) }
    }

    /// Bytes read since the start of the process, up to the last poll at which a position moved.
    pub(crate) fn read(&self) -> u64 {
        self.read.counted
    }

    /// The poll is over, and this is left of it; all of that may show later where it `is_cut`.
    pub(crate) fn end(&mut self, counted: Option<Counted>, is_cut: bool) {
        self.read.end(counted.map(|it| it.read), is_cut);
        self.written.end(counted.map(|it| it.written), is_cut);
    }
}

impl Count {
    fn count(&mut self, before: u64, after: u64) -> Bytes {
        let new = after.saturating_sub(self.counted);
        self.counted = after;
        let left = new.saturating_add(self.not_shown);
        assert!(new <= left, "what is new is left");
        Bytes { new, left, late: after.saturating_sub(before), all: after }
    }

    /// Calls that end as the count is read have counted and not moved a position yet.
    fn end(&mut self, bytes: Option<Bytes>, is_cut: bool) {
        let most = |it: Bytes| it.late.saturating_add(AT_ONCE_BYTES_MAX);
        let kept = |it: Bytes| if is_cut { it.left } else { it.left.min(most(it)) };
        self.not_shown = bytes.map_or(0, kept);
    }
}

impl Counted {
    /// What has moved a position by `bytes`, which are not left any more. Descriptors that only
    /// read are asked about before those that may write, of which is known what the process had
    /// `read_before` they stood there.
    pub(crate) fn moved_by(&mut self, bytes: u64, read_before: Option<u64>) -> MovedBy {
        let may_write = read_before.is_some();
        let read_since = self.read.all.saturating_sub(read_before.unwrap_or(0));
        if may_write && (self.written.takes(bytes) || read_since < bytes) {
            return MovedBy::NOTHING_READ;
        }
        // Some calls are not counted.
        let uncounted = bytes > 0 && self.read.new == 0 && !may_write;
        let reads = self.read.takes(bytes) || uncounted;
        MovedBy { reads, last_read: self.read.new > 0 && !may_write }
    }
}

impl MovedBy {
    pub(crate) const NOTHING_READ: Self = Self { reads: false, last_read: false };

    /// What has moved a position by `bytes`, where nothing is counted.
    pub(crate) fn uncounted(bytes: u64, may_write: bool) -> Self {
        Self { reads: bytes > 0 && !may_write, last_read: !may_write }
    }
}

impl Bytes {
    fn takes(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(bytes).filter(|_| bytes > 0);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// More than the calls move that end at one moment.
const AT_ONCE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A poll: the count before the positions are read and after, and by how much these move.
    type Poll = (u64, u64, u64);

    #[test]
    fn what_is_read_while_a_poll_is_delayed_shows_at_the_next_one() {
        const MIB: u64 = 1 << 20;
        #[rustfmt::skip]
        let rows: [(&str, &[Poll], u64); 4] = [ // why, polls, what is left after them
            ("each poll is at once",
             &[(5, 5, 5), (9, 9, 4)], 0),
            ("one has a delay",
             &[(5, 64 * MIB, 5), (65 * MIB, 65 * MIB, 64 * MIB)], MIB - 5),
            ("a call ends between",
             &[(9, 9, 5), (9, 9, 4)], 0),
            ("a pipe is read beside",
             &[(70 * MIB, 70 * MIB, 5), (70 * MIB, 70 * MIB, 0)], MIB),
        ];
        for (why, polls, expected) in rows {
            let mut count = Count::default();
            for &(before, after, moved) in polls {
                let mut bytes = count.count(before, after);
                assert_eq!(bytes.takes(moved), moved > 0, "{why}");
                count.end(Some(bytes), false);
            }
            assert_eq!(count.not_shown, expected, "{why}");
        }
    }

    #[test]
    fn a_position_that_writes_explain_was_moved_by_no_read() {
        #[rustfmt::skip]
        let rows = [ // why, read, written, (bytes, may write), (by reads, by a last one)
            ("it reads",             10, 0,  (10, false), (true, true)),
            ("no call counts it",    0,  0,  (10, false), (true, false)),
            ("it seeks and reads",   4,  0,  (10, false), (false, true)),
            ("it seeks back",        4,  0,  (0, false),  (false, true)),
            ("it reads what it may write", 10, 1, (10, true), (true, false)),
            ("it writes",            0,  10, (10, true),  (false, false)),
            ("it copies to it",      10, 10, (10, true),  (false, false)),
            ("another process writes", 0, 0, (10, true),  (false, false)),
            ("it seeks and writes",  0,  4,  (10, true),  (false, false)),
            ("it seeks, and reads what it may write", 4, 0, (10, true), (false, false)),
        ];
        for (why, read, written, (bytes, may_write), (reads, last_read)) in rows {
            let all = Counts { read, written };
            let mut counted = Counter::default().count(all, all);
            assert_eq!(
                counted.moved_by(bytes, may_write.then_some(0)),
                MovedBy { reads, last_read },
                "{why}"
            );
        }
        let all = Counts { read: 15, written: 10 };
        let mut counted = Counter::default().count(all, all);
        let by = [10, 5, 10].map(|bytes| counted.moved_by(bytes, Some(0)).reads);
        assert_eq!(by, [false, true, true], "each count explains its bytes once");
    }

    #[test]
    fn what_was_read_before_explains_no_move_of_what_may_write() {
        let all = Counts { read: 15, written: 0 };
        #[rustfmt::skip]
        let rows = [ // read before, bytes, by reads
            (Some(15),     1, false),
            (Some(5),     10, true),
            (Some(6),     10, false),
            (Some(u64::MAX), 1, false),
            (None,        10, true),
        ];
        for (read_before, bytes, reads) in rows {
            let mut counted = Counter::default().count(all, all);
            assert_eq!(counted.moved_by(bytes, read_before).reads, reads, "{read_before:?}");
        }
    }
}
