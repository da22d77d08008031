//! The estimator against the device models: each way to read gives the facts that it shows, and
//! says of the others that they are not known.
//!
//! ```text
//!   reader --> estimator.issued --> host's queue --(at most host depth)--> model
//!          <-- estimator.arrived <-------------------------------------------+
//! ```
//! The truth comes from the model itself: lone random reads for the access time, requests in order
//! with 64 in flight for the rate.

use std::collections::{BTreeMap, VecDeque};

use forerun_core::device::estimate::{DeviceProfile, Estimator, Evidence, Ticket};
use forerun_core::device::{self, Device, DeviceKind, Request};
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, Nanos};

/// Seeds of each row.
const SEEDS: std::ops::Range<u64> = 1..6;
const PAGE: u64 = 4096;
/// Between arrivals that are reported together.
const TOLD_NS: u64 = 500;
const MIB: u64 = 1 << 20;
/// Bytes that are read from, at most: a short stroke of the disks.
const WITHIN: u64 = 64 << 30;

/// A reader, a queue and a device, in virtual time.
struct Rig {
    device: Device,
    estimator: Estimator,
    now: Nanos,
    host_depth: u32,
    waiting: VecDeque<Request>,
    tickets: BTreeMap<u64, Ticket>,
    issued: u64,
    prng: Prng,
    /// Arrivals are reported only when so many have come.
    batch: usize,
    come: Vec<u64>,
}

impl Rig {
    fn new(spec: &str, seed: u64) -> Self {
        let device = device::make(spec, seed).expect("a model");
        let max = u32::try_from(device.request_bytes_max()).expect("small");
        // As the live cache does: a disk without a queue of its own takes one.
        let host_depth = if spec.starts_with("t7k250") { 1 } else { 64 };
        Self {
            estimator: Estimator::new(max),
            device,
            now: Nanos(0),
            host_depth,
            waiting: VecDeque::new(),
            tickets: BTreeMap::new(),
            issued: 0,
            prng: Prng::new(seed),
            batch: 1,
            come: Vec::new(),
        }
    }

    fn max(&self) -> u64 {
        self.device.request_bytes_max()
    }

    /// A place for `bytes` that continues nothing.
    fn place(&mut self, bytes: u64) -> u64 {
        self.prng.below((WITHIN - bytes) / PAGE) * PAGE
    }

    /// Issues `bytes` at `offset`, in requests of the largest size.
    fn issue(&mut self, offset: u64, bytes: u64) {
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let bytes = self.max().min(end - at);
            let size = u32::try_from(bytes).expect("small");
            let ticket = self.estimator.issued(self.now, FileId(0), at, size);
            self.tickets.insert(self.issued, ticket);
            self.waiting.push_back(Request { id: self.issued, offset: at, bytes, write: false });
            self.issued += 1;
            at += bytes;
        }
        self.feed();
    }

    /// Issues `count` requests of `bytes` from `offset` on.
    fn issue_each(&mut self, offset: u64, count: u64, bytes: u64) {
        for index in 0..count {
            self.issue(offset + index * bytes, bytes);
        }
    }

    fn feed(&mut self) {
        while self.device.in_flight() < self.host_depth
            && let Some(request) = self.waiting.pop_front()
        {
            self.device.submit(self.now, request);
        }
    }

    /// Lets the next request arrive; whether there was one.
    fn arrive(&mut self) -> bool {
        let Some(due) = self.device.next() else { return false };
        self.now = self.now.max(due);
        let done = self.device.complete(self.now).expect("due");
        self.feed();
        self.come.push(done.request.id);
        if self.come.len() >= self.batch || self.device.in_flight() == 0 {
            for id in self.come.drain(..) {
                let ticket = self.tickets.remove(&id).expect("issued");
                self.estimator.arrived(self.now, ticket);
                if self.batch > 1 {
                    self.now += Nanos(TOLD_NS);
                }
            }
        }
        true
    }

    fn drain(&mut self) {
        while self.arrive() {}
    }
}

/// Lone reads of 4 KiB anywhere.
fn lone(rig: &mut Rig) {
    for _ in 0..64 {
        let at = rig.place(PAGE);
        rig.issue(at, PAGE);
        rig.drain();
    }
}

/// One stream: windows grow to 1 MiB, and the next is issued as the first part of one is there.
fn stream(rig: &mut Rig) {
    let (mut at, mut window) = (rig.place(256 * MIB), 128 << 10);
    rig.issue(at, window);
    for _ in 0..200 {
        at += window;
        window = (window * 2).min(MIB);
        rig.arrive();
        rig.issue(at, window);
    }
    rig.drain();
}

/// 1 to 64 MiB at one moment each, anywhere.
fn bursts(rig: &mut Rig) {
    for round in 0..42 {
        let bytes = MIB << (round % 7);
        let at = rig.place(bytes);
        rig.issue(at, bytes);
        rig.drain();
    }
}

/// Ten streams in turn, windows of 1 MiB, each waited for.
fn ten_streams(rig: &mut Rig) {
    let starts: Vec<u64> = (0..10).map(|_| rig.place(256 * MIB)).collect();
    for round in 0..30 {
        for start in &starts {
            rig.issue(start + round * MIB, MIB);
            rig.drain();
        }
    }
}

/// 4 KiB anywhere, 16 in flight.
fn random_16(rig: &mut Rig) {
    let issue = |rig: &mut Rig| {
        let at = rig.place(PAGE);
        rig.issue(at, PAGE);
    };
    for _ in 0..16 {
        issue(rig);
    }
    for _ in 0..600 {
        rig.arrive();
        issue(rig);
    }
    rig.drain();
}

/// A program of several habits.
fn mixed(rig: &mut Rig) {
    lone(rig);
    random_16(rig);
    bursts(rig);
}

/// The mean latency of lone random reads, and the rate in order with 64 requests waiting.
fn truth(spec: &str) -> (DeviceKind, u64, u64) {
    let mut rig = Rig::new(spec, 99);
    let begun = rig.now;
    for _ in 0..2_000 {
        let at = rig.place(PAGE);
        rig.issue(at, PAGE);
        rig.drain();
    }
    let access = rig.now.since(begun).0 / 2_000;
    let mut rig = Rig::new(spec, 99);
    let max = rig.max();
    rig.issue(0, 64 * max);
    for next in 64..1_064 {
        rig.arrive();
        rig.issue(next * max, max);
    }
    let rate = u128::from(1_000 * max) * 1_000_000_000 / u128::from(rig.now.0);
    (rig.device.kind(), access, u64::try_from(rate).expect("small"))
}

fn near(value: u64, truth: u64, percent: u64) -> bool {
    value.abs_diff(truth) * 100 <= truth * percent
}

/// What an estimate says of one fact, beside the truth: known, near it or neither.
fn letter(letter: char, is_known: bool, is_near: bool) -> char {
    match (is_known, is_near) {
        (true, true) => letter.to_ascii_uppercase(),
        (false, true) => letter,
        (true, false) => '!',
        (false, false) => '-',
    }
}

/// How `read` leaves the estimator: kind, access, rate.
fn shown(rig: &Rig, truth: (DeviceKind, u64, u64)) -> [char; 3] {
    let (facts, known) = (rig.estimator.profile(), rig.estimator.known());
    let (kind, access, rate) = truth;
    [
        letter('k', known.kind, facts.kind == kind),
        letter('a', known.access, near(facts.access.0, access, 30)),
        letter('r', known.rate, near(facts.bytes_per_second, rate, 30)),
    ]
}

/// A capital is a fact that must be known and right, a small letter one that must be right, `-`
/// one that must not be claimed.
fn holds(expected: char, shown: char) -> bool {
    match expected {
        '-' => shown.is_ascii_lowercase() || shown == '-',
        _ if expected.is_ascii_lowercase() => shown.eq_ignore_ascii_case(&expected),
        _ => shown == expected,
    }
}

type Reader = fn(&mut Rig);
const READERS: [(&str, Reader); 6] = [
    ("lone", lone),
    ("stream", stream),
    ("bursts", bursts),
    ("ten streams", ten_streams),
    ("random, 16", random_16),
    ("mixed", mixed),
];

#[test]
fn each_way_to_read_shows_its_facts_and_claims_no_other() {
    #[rustfmt::skip]
    let rows = [ // kind, access, rate
        //          lone   stream bursts ten    random mixed
        ("t7k250", ["kA-", "k-R", "k-R", "k-R", "k--", "KAR"]),
        ("hdd",    ["kA-", "k-r", "kAR", "---", "k--", "KAR"]),
        ("cloud",  ["kA-", "--r", "kaR", "k-r", "K--", "KAR"]),
        ("object", ["kA-", "---", "KAR", "---", "k--", "KAR"]),
        ("ssd",    ["KA-", "kar", "kaR", "k-r", "Ka-", "KAR"]),
        ("optane", ["KA-", "K-r", "KaR", "K-r", "Ka-", "KAR"]),
    ];
    for (spec, expected) in rows {
        let truth = truth(spec);
        for ((name, read), expected) in READERS.into_iter().zip(expected) {
            for seed in SEEDS {
                let mut rig = Rig::new(spec, seed);
                read(&mut rig);
                let shown = shown(&rig, truth);
                let facts = rig.estimator.profile();
                let good =
                    expected.chars().zip(shown).all(|(expected, shown)| holds(expected, shown));
                assert!(
                    good,
                    "{spec}, {name}, {seed}: {shown:?} for {expected}: {facts:?}, {truth:?}"
                );
                let is_all = shown.iter().all(char::is_ascii_uppercase);
                let known = rig.estimator.known();
                let confident = known.kind && known.access && known.rate;
                assert_eq!(confident, is_all, "{spec}, {name}, {seed}");
                assert!((1..=256).contains(&facts.depth), "{facts:?}");
                assert!((1..=rig.max()).contains(&u64::from(facts.request_bytes)), "{facts:?}");
            }
        }
    }
}

#[test]
fn what_few_requests_in_flight_deliver_is_not_taken_for_all_there_is() {
    for depth in [1, 2, 4, 8] {
        for seed in SEEDS {
            let mut rig = Rig::new("object", seed);
            lone(&mut rig);
            for alone in [true, false] {
                for _ in 0..depth {
                    let at = rig.place(MIB);
                    rig.issue(at, MIB);
                }
                for _ in 0..300 {
                    rig.arrive();
                    if alone {
                        rig.drain();
                    }
                    let at = rig.place(MIB);
                    rig.issue(at, MIB);
                }
                rig.drain();
            }
            let (facts, known) = (rig.estimator.profile(), rig.estimator.known());
            assert!(!known.rate, "{depth}, {seed}: {facts:?}");
        }
    }
}

#[test]
fn depth_and_size_of_requests_reach_the_rate_and_ask_for_little_more() {
    for spec in ["t7k250", "hdd", "cloud", "object", "ssd", "optane"] {
        let (_, _, most) = truth(spec);
        let mut rig = Rig::new(spec, 1);
        mixed(&mut rig);
        let DeviceProfile { depth, request_bytes, .. } = rig.estimator.profile();
        let rate = |depth: u64| {
            let mut rig = Rig::new(spec, 7);
            let bytes = u64::from(request_bytes);
            rig.issue_each(0, depth, bytes);
            for next in depth..depth + 600 {
                rig.arrive();
                rig.issue_each(next * bytes, 1, bytes);
            }
            let moved = u128::from(600 * bytes) * 1_000_000_000 / u128::from(rig.now.0);
            u64::try_from(moved).expect("small")
        };
        let (reached, half) = (rate(depth.into()), rate(u64::from(depth / 2).max(1)));
        assert!(reached * 10 >= most * 7, "{spec}: {reached} of {most} at {depth}");
        assert!(depth < 4 || half * 10 <= most * 8, "{spec}: {half} of {most} at half of {depth}");
    }
}

#[test]
fn arrivals_told_of_late_and_together_mislead_nobody() {
    for spec in ["hdd", "cloud", "object", "ssd"] {
        let truth = truth(spec);
        for seed in SEEDS {
            let mut rig = Rig::new(spec, seed);
            rig.batch = 8;
            mixed(&mut rig);
            let shown = shown(&rig, truth);
            assert!(
                !shown.contains(&'!'),
                "{spec}, {seed}: {shown:?} {:?}",
                rig.estimator.profile()
            );
        }
    }
}

#[test]
fn some_reads_from_memory_do_not_hide_the_device() {
    for spec in ["hdd", "cloud", "object"] {
        let truth = truth(spec);
        let mut rig = Rig::new(spec, 1);
        lone(&mut rig);
        random_16(&mut rig);
        for round in 0..42 {
            let bytes = MIB << (round % 7);
            let at = rig.place(bytes);
            rig.issue(at, bytes);
            rig.drain();
            if round % 7 == 0 {
                // A window that the drive or the host held.
                let tickets: Vec<_> = (0..8_u64)
                    .map(|part| rig.estimator.issued(rig.now, FileId(1), part * MIB, 1 << 19))
                    .collect();
                rig.now += Nanos(20_000);
                for ticket in tickets {
                    rig.now += Nanos(50_000);
                    rig.estimator.arrived(rig.now, ticket);
                }
            }
        }
        let shown = shown(&rig, truth);
        assert_eq!(shown, ['K', 'A', 'R'], "{spec}: {:?}", rig.estimator.profile());
    }
}

#[test]
fn a_device_that_changes_is_followed() {
    for (first, second) in [("hdd", "object"), ("object", "hdd"), ("hdd", "ssd"), ("cloud", "hdd")]
    {
        let mut rig = Rig::new(first, 1);
        mixed(&mut rig);
        let mut after = Rig::new(second, 2);
        // Time goes on, on another device.
        after.estimator = rig.estimator;
        for _ in 0..3 {
            mixed(&mut after);
        }
        let truth = truth(second);
        assert_eq!(shown(&after, truth), ['K', 'A', 'R'], "{first}, then {second}");
    }
}

#[test]
fn nothing_is_known_before_anything_came_and_failures_are_no_evidence() {
    let mut estimator = Estimator::new(1 << 20);
    let assumed = estimator.profile();
    let nothing = Evidence { kind: false, access: false, rate: false };
    assert_eq!(estimator.known(), nothing);
    assert!(assumed.access > Nanos(0) && assumed.bytes_per_second > 0 && assumed.depth > 0);
    for round in 0..100 {
        let now = Nanos::from_millis(round * 100);
        let tickets = [0, 1, 2]
            .map(|part| estimator.issued(now, FileId(0), (round * 3 + part) << 20, 1 << 20));
        for ticket in tickets {
            estimator.failed(ticket);
        }
    }
    assert_eq!((estimator.profile(), estimator.known()), (assumed, nothing));
    // What came at once with a failure may have been waiting for it.
    let tickets = [0, 1].map(|part| estimator.issued(Nanos(0), FileId(9), part << 20, 1 << 20));
    estimator.failed(tickets[0]);
    estimator.arrived(Nanos::from_millis(50), tickets[1]);
    assert_eq!((estimator.profile(), estimator.known()), (assumed, nothing));
}

#[test]
fn no_time_and_no_end_of_it_break_anything() {
    for step in [0, 1, u64::MAX / 64] {
        let mut estimator = Estimator::new(u32::MAX);
        let mut now = Nanos(0);
        for round in 0..40_u64 {
            let tickets =
                [0, 1, 2].map(|_| estimator.issued(now, FileId(0), u64::MAX - round, u32::MAX));
            now += Nanos(step);
            for ticket in tickets {
                estimator.arrived(now, ticket);
            }
            let facts = estimator.profile();
            assert!(facts.depth > 0 && facts.request_bytes > 0, "{facts:?}");
        }
    }
}
