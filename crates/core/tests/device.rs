//! The device models: against a restatement in plain floating point, against what is known of
//! the real devices, and their contract.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the restatement is in floats on purpose; its numbers are far below 2^52"
)]

use forerun_core::device::{self, Completion, Device, DeviceKind, Request};
use forerun_core::params::ParamError;
use forerun_core::prng::Prng;
use forerun_core::units::Nanos;

const MB: u64 = 1_000_000;
const GB: u64 = 1_000 * MB;

fn make(spec: &str) -> Device {
    device::make(spec, 1).expect("the tests' devices can be")
}

fn read(id: u64, offset: u64, bytes: u64) -> Request {
    Request { id, offset, bytes, write: false }
}

/// Keeps `depth` requests in flight, the next one submitted as each completes.
fn run(
    device: &mut Device,
    depth: u32,
    count: u64,
    mut next: impl FnMut(u64) -> Request,
) -> Vec<Completion> {
    let (mut done, mut issued, mut now) = (Vec::new(), 0, Nanos(0));
    loop {
        while issued < count && device.in_flight() < depth {
            device.submit(now, next(issued));
            issued += 1;
        }
        let Some(due) = device.next() else { return done };
        now = due;
        done.push(device.complete(now).expect("due now"));
    }
}

/// Kilobytes (1000) a second, and requests a second.
fn speed(done: &[Completion]) -> (u64, u64) {
    let bytes: u64 = done.iter().map(|c| c.request.bytes).sum();
    let ns = done.last().expect("something ran").done.0;
    (
        u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(ns)).unwrap(),
        done.len() as u64 * 1_000_000_000 / ns,
    )
}

fn random_reads(spec: &str, depth: u32, count: u64, bytes: u64, within: u64) -> Vec<Completion> {
    let mut prng = Prng::new(7);
    let blocks = within / bytes;
    run(&mut make(spec), depth, count, |id| read(id, prng.below(blocks) * bytes, bytes))
}

fn sequential_reads(spec: &str, depth: u32, count: u64, bytes: u64) -> Vec<Completion> {
    run(&mut make(spec), depth, count, |id| read(id, id * bytes, bytes))
}

#[test]
fn the_models_reproduce_what_is_known_of_their_devices() {
    let random =
        |spec, depth, bytes, within| speed(&random_reads(spec, depth, 3_000, bytes, within));
    let sequential = |spec, bytes| speed(&sequential_reads(spec, 1, 400, bytes));
    let (kib, mib) = (1 << 10, 1 << 20);
    #[rustfmt::skip]
    let rows = [ // why         kB/s (.0) or requests a second (.1)          at least   at most
        ("12.85 ms in theory",  random("t7k250", 1, 4 * kib, 160 * GB).1,    76,        78),
        ("a turn a command",    sequential("t7k250", 512 * kib).0,           28_400,    28_600),
        ("the buffer reads on", sequential("t7k250:cache=on", 512 * kib).0,  51_500,    52_000),
        ("so for small reads",  sequential("t7k250:cache=on", 4 * kib).0,    25_000,    52_000),
        ("a turn each",         sequential("t7k250", 4 * kib).1,             118,       120),
        ("the media's rate",    sequential("hdd", mib).0,                    198_000,   200_000),
        ("short strokes",       random("hdd", 1, 4 * kib, 2 * GB).1,         170,       190),
        ("the nearest of 32",   random("hdd", 32, 4 * kib, 2 * GB).1,        560,       620),
        ("no more than 32",     random("hdd", 64, 4 * kib, 2 * GB).1,        560,       620),
        ("2 ms each",           random("cloud", 1, 4 * kib, GB).1,           480,       510),
        ("operations run out",  random("cloud", 64, 4 * kib, GB).1,          2_980,     3_000),
        ("the pipe is full",    random("cloud", 64, mib, GB).0,              124_000,   125_000),
        ("56.65 ms, 32 times",  random("object", 32, mib, GB).0,             570_000,   600_000),
        ("no more connections", random("object", 64, mib, GB).0,             570_000,   600_000),
        ("one connection",      random("object", 1, mib, GB).0,              18_000,    19_000),
        ("80 us and 8 us",      random("ssd", 1, 4 * kib, GB).1,             11_000,    11_400),
        ("the rate of SATA",    random("ssd", 32, mib, GB).0,                497_000,   500_000),
        ("10 us and 1.6 us",    random("optane", 1, 4 * kib, GB).1,          85_000,    87_000),
        ("the assumed rate",    random("optane", 32, mib, GB).0,             2_490_000, 2_500_000),
    ];
    for (why, measured, least, most) in rows {
        assert!((least..=most).contains(&measured), "{why}: {measured} not in {least}..={most}");
    }
}

/// The disk once more, as a textbook would write it: seconds and bytes in floating point.
struct FloatDisk {
    rate: f64,
    link: f64,
    capacity: f64,
    command: f64,
    ncq: bool,
    sptf: bool,
    segments: Vec<(f64, f64, u64)>,
    segment: f64,
    active: Option<usize>,
    limit: f64,
    media: f64,
    head: f64,
    free: f64,
    uses: u64,
}

const TURN: f64 = 60.0 / 7_200.0;

impl FloatDisk {
    fn seek(&self, to: f64) -> f64 {
        let track = self.rate * TURN;
        if (self.head / track).floor().total_cmp(&(to / track).floor()).is_eq() {
            return 0.0;
        }
        let (min, average, max) = (1.1e-3, 8.5e-3, 15.1e-3);
        let distance = (to - self.head).abs() / self.capacity;
        let b = (average - min - (max - min) / 3.0) * 5.0;
        min + b * distance.sqrt() + (max - min - b) * distance
    }

    fn rotation(&self, now: f64, byte: f64) -> f64 {
        let wait = (byte / self.rate - now).rem_euclid(TURN);
        if wait > TURN - 1e-9 { 0.0 } else { wait }
    }

    fn position(&self, now: f64, to: f64) -> f64 {
        let seek = self.seek(to);
        seek + self.rotation(now + seek, to)
    }

    fn holds(&self, byte: f64) -> Option<usize> {
        self.segments.iter().position(|s| s.2 > 0 && s.0 <= byte && byte <= s.1)
    }

    fn pick(&self, waiting: &[(f64, Request)]) -> usize {
        let mut best = (f64::INFINITY, 0);
        if !self.sptf {
            return 0;
        }
        for (index, (_, request)) in waiting.iter().enumerate().take(32) {
            let to = request.offset as f64;
            let command = if self.ncq { 0.0 } else { self.command };
            let cost = match self.holds(to) {
                Some(_) => 0.0,
                None => self.position(self.free + command, to),
            };
            if cost < best.0 - 1e-9 {
                best = (cost, index);
            }
        }
        best.1
    }

    fn read_on(&mut self, now: f64) {
        let Some(active) = self.active else { return };
        let (_, end, _) = self.segments[active];
        let reached = (end + self.rate * (now - self.media)).min(self.limit);
        if reached > end {
            self.media += (reached - end) / self.rate;
            self.segments[active].1 = reached;
        }
        let end = self.segments[active].1;
        self.segments[active].0 = self.segments[active].0.max(end - self.segment);
        self.head = end;
    }

    fn serve(&mut self, arrived: f64, request: &Request) -> f64 {
        let mut now = arrived.max(self.free);
        now = if self.ncq { now.max(arrived + self.command) } else { now + self.command };
        self.free = self.transfer(now, request);
        self.free
    }

    fn transfer(&mut self, now: f64, request: &Request) -> f64 {
        let (mut from, bytes) = (request.offset as f64, request.bytes as f64);
        let end = from + bytes;
        self.read_on(now);
        if let Some(index) = self.holds(from).filter(|_| !request.write) {
            self.uses += 1;
            self.segments[index].2 = self.uses;
            let held = self.segments[index].1;
            let (active, limit) = (self.active == Some(index), end + self.segment / 2.0);
            if end <= held {
                if active && self.limit < limit {
                    if self.limit <= held {
                        self.media = now + self.rotation(now, held);
                    }
                    self.limit = limit;
                }
                return now + bytes / self.link;
            }
            if active {
                let wait = if held < self.limit { 0.0 } else { self.rotation(now, held) };
                let done = now + wait + (end - held) / self.rate;
                self.segments[index].1 = end;
                (self.head, self.media, self.limit) = (end, done, limit);
                return done;
            }
            from = held;
        }
        let done = now + self.position(now, from) + (end - from) / self.rate;
        (self.head, self.active) = (end, None);
        if !self.segments.is_empty() && !request.write {
            let oldest = (0..self.segments.len()).min_by_key(|&i| self.segments[i].2).unwrap();
            self.uses += 1;
            self.segments[oldest] = (from, end, self.uses);
            (self.active, self.limit) = (Some(oldest), end + self.segment / 2.0);
            self.media = done;
        }
        done
    }

    /// Runs `arrivals` through and returns the time of each, by number.
    fn run(&mut self, arrivals: &[(Nanos, Request)]) -> Vec<f64> {
        let mut done = vec![0.0; arrivals.len()];
        let (mut coming, mut waiting) = (arrivals.iter().peekable(), Vec::new());
        loop {
            if waiting.is_empty() {
                let Some(&(at, request)) = coming.next() else { return done };
                waiting.push((at.0 as f64 / 1e9, request));
            }
            while let Some(&(at, request)) =
                coming.next_if(|(at, _)| at.0 as f64 / 1e9 <= self.free)
            {
                waiting.push((at.0 as f64 / 1e9, request));
            }
            let (arrived, request) = waiting.remove(self.pick(&waiting));
            done[request.id as usize] = self.serve(arrived, &request);
        }
    }
}

/// Single random requests, streams that go on, bursts and pauses, some writes.
fn mixed_arrivals(seed: u64, count: u64, within: u64) -> Vec<(Nanos, Request)> {
    let mut prng = Prng::new(seed);
    let (mut now, mut streams) = (0, [0_u64; 4]);
    let arrival = |id| {
        let stream = prng.below(4) as usize;
        if prng.chance(10) {
            streams[stream] = prng.below(within / 4_096 - 512) * 4_096 / 2;
        }
        let bytes = (1 + prng.below(64)) * 4_096;
        let request = Request { id, offset: streams[stream], bytes, write: prng.chance(8) };
        streams[stream] += bytes;
        now += if prng.chance(60) { 1 + prng.below(100_000) } else { prng.below(35_000_000) };
        (Nanos(now), request)
    };
    (0..count).map(arrival).collect()
}

#[test]
fn a_disk_is_its_restatement_in_floats_within_a_microsecond() {
    let old = |cache: usize, ncq, sptf| FloatDisk {
        rate: 52e6,
        link: 250e6,
        capacity: 160e9,
        command: 1e-4,
        ncq,
        sptf,
        segments: vec![(0.0, 0.0, 0); cache],
        segment: 524_288.0,
        active: None,
        limit: 0.0,
        media: 0.0,
        head: 0.0,
        free: 0.0,
        uses: 0,
    };
    let new = || FloatDisk {
        rate: 200e6,
        link: 550e6,
        capacity: 4e12,
        segment: 2_097_152.0,
        ..old(32, true, true)
    };
    let rows = [
        ("t7k250", old(0, false, false), 160 * GB),
        ("t7k250:cache=on", old(16, false, false), 160 * GB),
        ("t7k250:cache=on,segments=3", old(3, false, false), 50 * MB),
        ("t7k250:sptf=on", old(0, false, true), 160 * GB),
        ("t7k250:sptf=on,cache=on", old(16, false, true), 100 * MB),
        ("t7k250:ncq=on,command=100us", old(0, true, false), GB),
        ("hdd", new(), 4_000 * GB),
        ("hdd", new(), 30 * MB),
    ];
    for (seed, (spec, mut twin, within)) in rows.into_iter().enumerate() {
        let arrivals = mixed_arrivals(seed as u64, 1_500, within);
        let expected = twin.run(&arrivals);
        let mut device = make(spec);
        let compare = |completion: Completion| {
            let twin = (expected[completion.request.id as usize] * 1e9) as u64;
            let apart = twin.abs_diff(completion.done.0);
            assert!(apart < 1_000, "{spec} within {within}: {completion:?}, restated {twin}");
        };
        for &(at, request) in &arrivals {
            device.submit(at, request);
            while let Some(completion) = device.complete(at) {
                compare(completion);
            }
        }
        while let Some(due) = device.next() {
            compare(device.complete(due).expect("due now"));
        }
    }
}

#[test]
fn what_a_device_does_does_not_depend_on_when_it_is_asked() {
    for spec in ["t7k250:cache=on,sptf=on", "hdd", "cloud", "object", "optane:latency_max=9us"] {
        let arrivals = mixed_arrivals(3, 400, GB);
        let (mut eager, mut lazy) = (make(spec), make(spec));
        let mut seen = Vec::new();
        for &(at, request) in &arrivals {
            while let Some(due) = eager.next().filter(|&due| due < at) {
                assert_eq!(eager.complete(Nanos(due.0 - 1)), None, "{spec}: too early");
                seen.push(eager.complete(due).expect("due now"));
            }
            eager.submit(at, request);
            lazy.submit(at, request);
            assert_eq!(u64::from(lazy.in_flight()), request.id + 1);
        }
        while let Some(due) = eager.next() {
            seen.push(eager.complete(due).expect("due now"));
        }
        let end = seen.last().expect("something ran").done;
        let late: Vec<_> = core::iter::from_fn(|| lazy.complete(end)).collect();
        assert_eq!(seen, late, "{spec}");
        assert_eq!((eager.in_flight(), lazy.in_flight(), lazy.next()), (0, 0, None), "{spec}");
        assert!(seen.is_sorted_by_key(|completion| completion.done), "{spec}");
        for completion in &seen {
            let (arrived, request) = arrivals[completion.request.id as usize];
            assert_eq!((completion.arrived, completion.request), (arrived, request), "{spec}");
            let first_byte = completion.started + completion.positioning;
            assert!(completion.arrived <= completion.started && first_byte <= completion.done);
        }
    }
}

#[test]
fn a_disk_serves_one_request_at_a_time_and_a_parallel_device_many() {
    for (spec, kind) in [
        ("t7k250", DeviceKind::SeekBound),
        ("hdd", DeviceKind::SeekBound),
        ("cloud", DeviceKind::Parallel),
        ("object", DeviceKind::Parallel),
        ("ssd", DeviceKind::Parallel),
        ("optane", DeviceKind::Parallel),
    ] {
        assert_eq!(make(spec).kind(), kind);
        let done = random_reads(spec, 4, 100, 4_096, GB);
        let overlap = done.windows(2).any(|pair| pair[1].started.0 + 1 < pair[0].done.0);
        assert_eq!(overlap, kind == DeviceKind::Parallel, "{spec}");
    }
}

#[test]
fn what_was_submitted_first_comes_first_among_equals() {
    let mut device = make("object:latency_min=1ms,latency_max=1ms,rate=1G,connections=2");
    for id in [5, 3, 9, 1] {
        device.submit(Nanos(7), read(id, 0, 4_096));
    }
    let all: Vec<_> = core::iter::from_fn(|| device.complete(Nanos(1 << 40))).collect();
    let order: Vec<_> = all.iter().map(|completion| completion.request.id).collect();
    assert_eq!(order, [5, 3, 9, 1]);
    let took = 1_000_000 + 3_815; // 4096 bytes at 2^30 a second take 3814.7 ns.
    let times: Vec<_> = all.iter().map(|c| (c.started.0, c.done.0, c.positioning.0)).collect();
    let second = (7 + took, 7 + 2 * took, 1_000_000);
    assert_eq!(times, [(7, 7 + took, 1_000_000), (7, 7 + took, 1_000_000), second, second]);
}

#[test]
fn an_operation_is_counted_for_each_part_of_a_request() {
    let each = |bytes| {
        let spec = "cloud:iops=1000,operation=4K,rate=1000GB,latency_min=0ns,latency_max=0ns";
        let done = run(&mut make(spec), 2, 2, |id| read(id, 0, bytes));
        done[1].done.0 / 1_000
    };
    assert_eq!([each(1), each(4_096), each(4_097), each(16_384)], [1_000, 1_000, 2_000, 4_000]);
}

#[test]
fn latency_is_drawn_from_the_seed_between_its_bounds() {
    let latencies = |seed| {
        let mut device = device::make("object", seed).expect("listed");
        let done = run(&mut device, 1, 500, |id| read(id, 0, 4_096));
        done.iter().map(|completion| completion.positioning).collect::<Vec<_>>()
    };
    let drawn = latencies(1);
    assert_eq!(drawn, latencies(1));
    assert_ne!(drawn, latencies(2));
    let (least, most) = (drawn.iter().min().unwrap().0, drawn.iter().max().unwrap().0);
    assert!((30_000_000..30_500_000).contains(&least) && (59_500_000..=60_000_000).contains(&most));
}

#[test]
fn every_listed_device_shows_what_it_is_made_of() {
    assert_eq!(device::NAMES.len(), device::SUMMARIES.len());
    let facts = |name: &str| {
        let device = make(name);
        let has = |key| device.params().iter().any(|&(known, _)| known == key);
        assert!(has("rate") && has("max") && device.name() == name);
        (device.request_bytes_max() >> 10, device.capacity_bytes())
    };
    #[rustfmt::skip]
    assert_eq!(device::NAMES.iter().map(|name| facts(name)).collect::<Vec<_>>(), [
        (512, 160 * GB), (1_024, 4_000 * GB), // t7k250, hdd
        (1_024, u64::MAX), (1_024, u64::MAX), (1_024, u64::MAX), (1_024, u64::MAX),
    ]);
    let changed = make("t7k250:cache=on,max=1M,rate=60MB,seek_avg=9.25ms");
    let shown: Vec<_> = changed.params().iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        shown.join(","),
        "rate=60MB,link=250MB,rpm=7200,seek_min=1.1ms,seek_avg=9.25ms,seek_max=15.1ms,\
         command=100us,capacity=156250000K,cache=on,segments=16,segment=512K,ncq=off,sptf=off,\
         max=1M"
    );
    let again = make(&format!("t7k250:{}", shown.join(",")));
    assert_eq!(again.params(), changed.params());
    let hdd = make("hdd");
    let rate = hdd.params().iter().find(|(key, _)| *key == "rate").expect("shown");
    assert_eq!(rate.1, "200MB");
}

#[test]
fn impossible_devices_are_refused_with_the_parameter_and_its_bounds() {
    #[rustfmt::skip]
    let rows = [ // device   refused            accepted
        ("t7k250", "rate=0",                    "rate=1"),
        ("t7k250", "rate=1025G",                "rate=1024G"),
        ("t7k250", "link=0",                    "link=1"),
        ("t7k250", "rpm=0",                     "rpm=1"),
        ("t7k250", "rpm=100001",                "rpm=100000"),
        ("t7k250", "seek_max=1001ms",           "seek_max=16ms"),
        ("t7k250", "seek_min=16ms",             "seek_min=0ns"),
        ("t7k250", "seek_avg=1ms",              "seek_avg=8ms"),
        ("t7k250", "seek_avg=5.766ms",          "seek_avg=5.767ms"),
        ("t7k250", "seek_avg=11.367ms",         "seek_avg=11.366ms"),
        ("t7k250", "command=1.1s",              "command=1s"),
        ("t7k250", "capacity=0",                "capacity=1M"),
        ("t7k250", "capacity=1025T",            "capacity=1024T"),
        ("t7k250", "segments=0",                "segments=1"),
        ("t7k250", "segments=1025",             "segments=1024"),
        ("t7k250", "segment=1",                 "segment=2"),
        ("t7k250", "segment=1T",                "segment=100G"),
        ("t7k250", "max=0",                     "max=1"),
        ("t7k250", "max=2G",                    "max=1G"),
        ("hdd",    "cache=yes",                 "cache=off"),
        ("cloud",  "latency_max=1.5s",          "latency_max=1s"),
        ("cloud",  "latency_min=4ms",           "latency_min=3ms"),
        ("cloud",  "rate=0",                    "rate=1"),
        ("cloud",  "rate=2000GB",               "rate=1000GB"),
        ("cloud",  "iops=0",                    "iops=1"),
        ("cloud",  "operation=0",               "operation=1"),
        ("cloud",  "connections=0",             "connections=1"),
        ("cloud",  "connections=4097",          "connections=4096"),
        ("object", "rate=0",                    "rate=1"),
        ("object", "rate=2000GB",               "rate=1000GB"),
        ("object", "latency_min=61ms",          "latency_min=60ms"),
        ("object", "connections=0",             "connections=1"),
        ("object", "max=0",                     "max=1G"),
    ];
    for (name, refused, accepted) in rows {
        let key_asked = refused.split_once('=').expect("a pair").0;
        match device::make(&format!("{name}:{refused}"), 1) {
            Err(ParamError::BadValue { key, form, .. }) => {
                assert_eq!(key, key_asked);
                assert!(!form.is_empty());
            }
            other => panic!("{name}:{refused} gave {other:?}"),
        }
        let made = device::make(&format!("{name}:{accepted}"), 1);
        assert!(made.is_ok(), "{name}:{accepted} gave {made:?}");
    }
    assert!(matches!(
        device::make("t7k250:capacity=256K", 1),
        Err(ParamError::BadValue { key, .. }) if key == "segment"
    ));
    assert!(matches!(device::make("hdd:spin=1", 1), Err(ParamError::UnknownKey { .. })));
    let unknown = device::make("drum", 1).expect_err("no such device");
    let says = "no `drum`; there are: t7k250 hdd cloud object ssd optane";
    assert_eq!(unknown.to_string(), says);
}

#[test]
fn extreme_disks_and_positions_stay_within_128_bits() {
    for spec in [
        "t7k250:capacity=1024T,rate=1,rpm=100000,seek_max=1s,seek_avg=500ms,seek_min=0ns",
        "t7k250:capacity=1024T,rate=1024G,link=1024G,rpm=1,cache=on,segment=1024T",
        "t7k250:capacity=1M,rate=1024G,link=1,rpm=100000,cache=on,max=512K",
    ] {
        let mut device = make(spec);
        let end = device.capacity_bytes();
        device.submit(Nanos(1 << 60), read(0, 0, 1));
        device.submit(Nanos(1 << 60), read(1, end - 1, 1));
        device.submit(Nanos(1 << 60), read(2, end - 512, 512));
        let due = device.next().expect("in service");
        assert!(device.complete(due).is_some_and(|completion| completion.request.id == 0));
        assert_eq!(device.in_flight(), 2);
    }
}

type Misuse<'a> = &'a dyn Fn(&mut Device);

#[test]
fn misuse_is_caught() {
    let at = |nanos, offset, bytes| {
        move |device: &mut Device| {
            device.submit(Nanos(nanos), read(0, offset, bytes));
        }
    };
    let misuses: [(&str, Misuse, bool); 8] = [
        ("time stands still", &at(10, 0, 1), true),
        ("time runs backwards", &at(9, 0, 1), false),
        ("asked of the past", &|device| assert_eq!(device.complete(Nanos(9)), None), false),
        ("nothing", &at(10, 0, 0), false),
        ("the largest", &at(10, 0, 512 << 10), true),
        ("larger", &at(10, 0, (512 << 10) + 1), false),
        ("the last byte", &at(10, 160 * GB - 1, 1), true),
        ("past the end", &at(10, 160 * GB, 1), false),
    ];
    for (why, misuse, fine) in misuses {
        let mut device = make("t7k250");
        device.submit(Nanos(10), read(0, 0, 1));
        let run = std::panic::AssertUnwindSafe(|| misuse(&mut device));
        assert_eq!(std::panic::catch_unwind(run).is_ok(), fine, "{why}");
    }
}
