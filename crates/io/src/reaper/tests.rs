//! Every way of waiting on devices that do as devices do: complete out of order, fail, stall.
//! What depends on time is shown on a port that completes at a certain call instead.
//!
//! # Invariants
//! - Each read comes back once, with its own result, whatever the policy and the port.

use forerun_core::reap::Latency;
use forerun_testkit::ScratchFile;

use super::{
    model::{Model, ModelCompletion},
    port::{PortFeatures, QueuePort},
    *,
};
use crate::{
    files::{Backend, Files, FilesSettings},
    frames::Frame,
    store::pattern,
};

/// A read of a page.
fn read(token: u64) -> Op {
    let frames = vec![Frame::new(4096).unwrap()];
    Op { token, kind: OpKind::Read, offset: token * 4096, bytes: 4096, frames }
}

fn group(tokens: std::ops::Range<u64>) -> Group {
    Group::new(Purpose::Demand, tokens.map(read).collect())
}

/// As if 4 KiB had been measured to take so long.
fn known(mean: Nanos) -> Calibration {
    let latency = Some(Latency { mean, stdev: Nanos(mean.0 / 10) });
    Calibration { reads: [latency; reap::CLASS_BYTES.len()], ..Calibration::default() }
}

fn settings(policy: &str) -> ReaperSettings {
    ReaperSettings {
        policy: policy.to_owned(),
        calibration: known(Nanos::from_micros(40)),
        spin_share: Share::percent(100),
    }
}

/// Reaps `groups` groups of `count` and checks that what came is what was asked for, with the
/// results that `fails` says.
fn reap_all(reaper: &mut Reaper, groups: u64, count: u64, fails: impl Fn(u64) -> Option<i32>) {
    for round in 0..groups {
        let tokens = round * count..(round + 1) * count;
        let mut out = Vec::new();
        reaper.reap(group(tokens.clone()), &mut out);
        out.sort_by_key(|done| done.op.token);
        assert!(out.iter().map(|done| done.op.token).eq(tokens), "round {round}");
        for done in &out {
            let expected = fails(done.op.token).map_or(Ok(4096), Err);
            assert_eq!(done.result, expected, "{}", done.op.token);
            assert_eq!(done.op.frames.len(), 1);
        }
    }
    let counts = reaper.counts();
    assert_eq!((counts.all(), counts.operations), (groups, groups * count));
    let failed = (0..groups * count).filter(|&token| fails(token).is_some()).count() as u64;
    assert_eq!(counts.failed, failed);
}

/// How long the read of this token takes.
type Time = fn(u64) -> Nanos;

#[test]
fn what_completes_out_of_order_fails_or_stalls_comes_back_once() {
    let eio = |token: u64| token.is_multiple_of(7).then_some(5);
    #[rustfmt::skip]
    let devices: [(&str, Time); 4] = [
        ("at once",           |_| Nanos(0)),
        ("the last first",    |token| Nanos(50_000 - token % 64 * 500)),
        ("all together",      |_| Nanos(30_000)),
        ("some stall",        |token| Nanos(if token % 50 == 0 { 5_000_000 } else { 20_000 })),
    ];
    for (device, time) in devices {
        let model = Model::new(Box::new(move |now, op| ModelCompletion {
            at: now + time(op.token),
            fails: eio(op.token),
        }));
        for policy in reap::NAMES {
            for count in [1, 4, 64] {
                let mut reaper = Reaper::new(model.port(64), &settings(policy)).unwrap();
                reap_all(&mut reaper, 12, count, eio);
                assert_eq!(reaper.fallback(), None, "{device}, {policy}");
            }
        }
        assert!(model.lateness().reads > 0, "{device}");
    }
}

/// Always plans the same.
struct Fixed(fn(Nanos) -> Plan);

impl AnyReap for Fixed {
    fn plan(&self, _: Key, now: Nanos, _: bool) -> Plan {
        (self.0)(now)
    }

    fn learn(&mut self, _: Key, _: &Outcome) {}
}

/// A port whose reads are complete at a certain call: time plays no part.
struct Script {
    flying: Vec<Op>,
    /// Polls until then.
    looks: u32,
    /// Whether a wait that is timed ends by completion; else it comes back with nothing at once.
    rouses: bool,
    features: PortFeatures,
}

const ALL: PortFeatures = PortFeatures { poll: true, timed: true };

impl Script {
    fn land(&mut self, out: &mut Vec<Completion>) {
        out.extend(self.flying.drain(..).map(|op| Completion { result: Ok(op.bytes), op }));
    }
}

impl Port for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn features(&self) -> PortFeatures {
        self.features
    }

    fn capacity(&self) -> usize {
        64
    }

    fn submit(&mut self, group: Vec<Op>, _: &mut Vec<Completion>) {
        self.flying = group;
    }

    fn in_flight(&self) -> usize {
        self.flying.len()
    }

    fn poll(&mut self, out: &mut Vec<Completion>) {
        match self.looks {
            0 => self.land(out),
            _ => self.looks -= 1,
        }
    }

    fn wait(&mut self, time: Option<Duration>, out: &mut Vec<Completion>) {
        if time.is_none() || self.rouses {
            self.land(out);
        }
    }
}

/// Why, the plan, looks, rouses; the way, late, budget ended.
type Row = (&'static str, fn(Nanos) -> Plan, u32, bool, Way, bool, bool);

#[test]
fn a_plan_is_carried_out_and_counted() {
    const HOUR: Nanos = Nanos::from_millis(3_600_000);
    const SOON: Nanos = Nanos::from_millis(2);
    let interrupt = |_| Plan::Interrupt;
    let spin = |_| Plan::Spin { budget: HOUR };
    let briefly = |_| Plan::Spin { budget: Nanos(0) };
    let roused = |now| Plan::SleepSpin { until: now + HOUR, roused: true, budget: HOUR };
    let timed = |now| Plan::SleepSpin { until: now + SOON, roused: true, budget: HOUR };
    let alone = |now| Plan::SleepSpin { until: now + SOON, roused: false, budget: HOUR };
    let past = |_| Plan::SleepSpin { until: Nanos(0), roused: true, budget: HOUR };
    #[rustfmt::skip]
    let rows: [Row; 9] = [
        // why                         plan   looks rouses  way            late   budget ended
        ("it blocks",                  interrupt, 9, false, Way::Interrupt, false, false),
        ("it looks until it sees",     spin,      9, false, Way::Spin,      false, false),
        ("its budget ends",            briefly, u32::MAX, false, Way::Spin, false, true),
        ("a completion ends a sleep",  roused,    9, true,  Way::SleepSpin, true,  false),
        ("the timer ends it",          timed,     9, false, Way::SleepSpin, false, false),
        ("it had come by then",        timed,     0, false, Way::SleepSpin, true,  false),
        ("no completion ends it",      alone,     9, true,  Way::SleepSpin, false, false),
        ("it came while it slept",     alone,     0, true,  Way::SleepSpin, true,  false),
        ("there is no time to sleep",  past,      0, true,  Way::SleepSpin, false, false),
    ];
    for (why, plan, looks, rouses, way, late, ended) in rows {
        let port = Script { flying: Vec::new(), looks, rouses, features: ALL };
        let mut reaper = Reaper::new(Box::new(port), &settings("interrupt")).unwrap();
        reaper.policy = Box::new(Fixed(plan));
        let mut out = Vec::new();
        let took = reaper.reap(group(0..4), &mut out);
        assert_eq!((took.way, took.late), (way, late), "{why}");
        let counts = reaper.counts();
        assert_eq!((counts.by(way), counts.all(), counts.operations), (1, 1, 4), "{why}");
        assert_eq!((counts.late, counts.budget_ended), (late.into(), ended.into()), "{why}");
        assert_eq!((counts.waited, counts.cpu), (took.real, took.cpu), "{why}");
        let blocks = way == Way::Interrupt || ended;
        assert_eq!(counts.blocked > Nanos(0), blocks, "{why}");
        if counts.timer_ended > 0 {
            assert!(took.real >= SOON, "{why}");
        }
    }
}

#[test]
fn what_is_looked_for_goes_where_it_is_polled() {
    // The port with interrupts completes nothing for a poll.
    let interrupts = || Script { flying: Vec::new(), looks: u32::MAX, rouses: true, features: ALL };
    let blind = PortFeatures { poll: true, timed: false };
    for (policy, way) in [("interrupt", Way::Interrupt), ("spin", Way::Spin), ("nio", Way::Spin)] {
        let polled = Script { flying: Vec::new(), looks: 3, rouses: true, features: blind };
        let reaper = Reaper::new(Box::new(interrupts()), &settings(policy)).unwrap();
        let mut reaper = reaper.with_polled(Some(Box::new(polled)));
        reaper.contention = ContentionMonitor::blind();
        let mut out = Vec::new();
        let seen: Vec<Way> = (0..2).map(|_| reaper.reap(group(0..2), &mut out).way).collect();
        assert_eq!(out.len(), 4, "{policy}");
        assert!(seen.contains(&way), "{policy}: {seen:?}");
        assert_eq!((reaper.counts().unsupported, reaper.fallback()), (0, None), "{policy}");
    }
}

#[test]
fn time_without_a_timed_wait_is_no_sleep_that_is_roused() {
    let features = PortFeatures { poll: true, timed: false };
    let port = Script { flying: Vec::new(), looks: 0, rouses: true, features };
    let mut reaper = Reaper::new(Box::new(port), &settings("interrupt")).unwrap();
    reaper.policy = Box::new(Fixed(|now| Plan::SleepSpin {
        until: now + Nanos(1),
        roused: true,
        budget: Nanos(0),
    }));
    let mut out = Vec::new();
    assert_eq!(reaper.reap(group(0..1), &mut out).way, Way::Interrupt);
    assert_eq!(reaper.counts().unsupported, 1);
    let said = reaper.fallback().expect("it says so");
    assert_eq!(
        said,
        "interrupt waits by interrupt on script, which has no wait that ends at a time"
    );
}

#[test]
fn readahead_blocks_and_teaches_nothing() {
    struct Deaf;
    impl AnyReap for Deaf {
        fn plan(&self, _: Key, _: Nanos, _: bool) -> Plan {
            panic!("nobody asks it")
        }
        fn learn(&mut self, _: Key, _: &Outcome) {
            panic!("nobody tells it")
        }
    }
    let model =
        Model::new(Box::new(|now, _| ModelCompletion { at: now + Nanos(1_000), fails: None }));
    let mut reaper = Reaper::new(model.port(4), &settings("spin")).unwrap();
    reaper.policy = Box::new(Deaf);
    let mut out = Vec::new();
    let group = Group::new(Purpose::Readahead, (0..4).map(read).collect());
    assert_eq!(reaper.reap(group, &mut out).way, Way::Interrupt);
    assert_eq!((out.len(), reaper.counts().readahead), (4, 1));
}

#[test]
fn without_room_there_is_no_spinning_and_it_comes_back() {
    let model =
        Model::new(Box::new(|now, _| ModelCompletion { at: now + Nanos(20_000), fails: None }));
    let mut reaper = Reaper::new(model.port(1), &settings("nio")).unwrap();
    reaper.contention = ContentionMonitor::blind();
    reaper.budget.disturbed(now());
    let mut out = Vec::new();
    assert_eq!(reaper.reap(group(0..1), &mut out).way, Way::Interrupt);
    assert!(reaper.counts().spin_refused > 0);
    let mut spun = false;
    for token in 1..100_000 {
        spun |= reaper.reap(group(token..token + 1), &mut out).way != Way::Interrupt;
        out.clear();
        if spun {
            break;
        }
    }
    assert!(spun, "{:?}", reaper.counts());
}

#[test]
fn what_a_port_has_not_is_an_interrupt_and_is_said() {
    let store = pattern::Pattern::new(1 << 30);
    for (policy, falls) in
        [("interrupt", false), ("spin", true), ("half", true), ("nio-paper", true), ("nio", true)]
    {
        for count in [1, 4, 64] {
            let port = Box::new(QueuePort::new("queue", &store, 64));
            let mut reaper = Reaper::new(port, &settings(policy)).unwrap();
            reaper.contention = ContentionMonitor::blind();
            reap_all(&mut reaper, 5, count, |_| None);
            assert_eq!(reaper.counts().groups, [5, 0, 0], "{policy}");
            let said = reaper.fallback().unwrap_or_default();
            assert_eq!(said.contains("waits by interrupt on"), falls, "{policy}: {said}");
        }
    }
}

/// A file of the pattern.
fn pattern_file(bytes: usize) -> ScratchFile {
    let mut contents = vec![0; bytes];
    pattern::fill(0, &mut contents);
    ScratchFile::holding("reaper", contents)
}

#[test]
fn files_are_read_by_every_policy_on_every_interface() {
    let file = pattern_file(256 << 12);
    for backend in [Backend::Uring, Backend::Threads] {
        let Ok(files) = Files::new(FilesSettings { backend, ..FilesSettings::default() }) else {
            println!("skipped: {backend:?} does not work here");
            continue;
        };
        for policy in reap::NAMES {
            for count in [1, 4, 64_u64] {
                let port = files.port(&file, 64).unwrap();
                let mut reaper = Reaper::new(port, &settings(policy)).unwrap();
                let mut out = Vec::new();
                for first in (0..256).step_by(64) {
                    reaper.reap(group(first..first + count), &mut out);
                }
                assert_eq!(out.len() as u64, 4 * count, "{backend:?}, {policy}");
                for done in &out {
                    assert_eq!(done.result, Ok(4096), "{backend:?}, {policy}");
                    assert_eq!(pattern::verify(done.op.offset, &done.op.frames[0]), Ok(()));
                }
            }
        }
    }
}

#[test]
fn a_file_of_another_length_ends_where_it_ends() {
    let file = pattern_file(5_000);
    let files = Files::new(FilesSettings::default()).unwrap();
    let mut reaper = Reaper::new(files.port(&file, 4).unwrap(), &settings("spin")).unwrap();
    let mut out = Vec::new();
    reaper.reap(group(0..4), &mut out);
    out.sort_by_key(|done| done.op.token);
    let moved: Vec<_> = out.iter().map(|done| done.result).collect();
    assert_eq!(moved, [Ok(4096), Ok(904), Ok(0), Ok(0)]);
}

#[test]
fn what_is_no_policy_is_an_error() {
    let model = Model::new(Box::new(|now, _| ModelCompletion { at: now, fails: None }));
    for policy in ["never", "nio:quantil=0.1"] {
        assert!(Reaper::new(model.port(1), &settings(policy)).is_err(), "{policy}");
    }
}
