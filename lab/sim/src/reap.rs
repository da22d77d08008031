//! Reaping in virtual time: the policies of `core::reap` on a device and a processor whose costs
//! are stated.
//!
//! ```text
//!   client   submit n | plan: block, spin, or sleep and spin | reap | learn | submit ...
//!   device   each I/O waits for one of its channels, is served for a time that is drawn, and its
//!            bytes pass the one pipe that all channels share
//! ```
//! Clients take turns by time: the client with the earliest submission goes next. Each has a
//! processor of its own: only a real machine shows the cost of spinning to other threads.
//!
//! # Invariants
//! - The same seed gives the same run; each policy meets the same draws of the device.
//! - Processor time: each submission, each interrupt, each wake-up, each sleep, and all time that
//!   is spun. Polling pays for interrupts too: the device raises them in any case.
//! # Sources
//! Liao et al. 2022, section 4; each profile says where its figures are from.

mod costs;

use forerun_core::device::{ChannelModel, DeviceServer};
use forerun_core::prng::Prng;
use forerun_core::reap::{self, AnyReap, Calibration, Key, Latency, Op, Outcome, Plan, Way};
use forerun_core::units::Nanos;

pub use costs::{COSTS, Costs, costs};

/// The load of a run: phases in order, under the same policy.
#[derive(Clone, Debug)]
pub struct Load {
    /// The phases.
    pub phases: Vec<Phase>,
}

/// Clients that submit groups, each the next one when the last is reaped.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Clients at the same time.
    pub clients: u32,
    /// I/Os of a group.
    pub group: u32,
    /// Sizes, of which each I/O draws one.
    pub sizes: Vec<u64>,
    /// The operation of the I/Os.
    pub op: Op,
    /// Groups of all clients.
    pub groups: u32,
}

/// The cost of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupCost {
    /// From its submission to its reaping.
    pub latency: Nanos,
    /// Processor time.
    pub cpu: Nanos,
    /// The way of waiting for it.
    pub way: Way,
    /// Whether a sleeper woke after the completion.
    pub late: bool,
}

/// The cost of a phase.
#[derive(Clone, Debug)]
pub struct PhaseCost {
    /// Each group, in the order of submission.
    pub reaped: Vec<GroupCost>,
    /// From the first submission to the last reaping.
    pub elapsed: Nanos,
}

/// Runs `load` under `policy`; a result a phase.
#[must_use]
pub fn run(
    policy: &mut dyn AnyReap,
    device: &ChannelModel,
    costs: &Costs,
    load: &Load,
    seed: u64,
) -> Vec<PhaseCost> {
    let mut bench = Bench {
        server: DeviceServer::new(*device, seed),
        costs,
        host: Prng::new(seed ^ HOST_SEED),
        began: Nanos(0),
    };
    load.phases.iter().map(|phase| bench.phase(policy, phase)).collect()
}

/// The latencies of each class by spinning, alone on the device: the policies' estimates.
#[must_use]
pub fn calibrate(device: &ChannelModel, costs: &Costs, seed: u64) -> Calibration {
    let mut known = Calibration::default();
    for (class, bytes) in reap::CLASS_BYTES.into_iter().enumerate() {
        let phase = Phase { clients: 1, group: 1, sizes: vec![bytes], op: Op::Read, groups: 500 };
        let load = Load { phases: vec![phase] };
        let ran = run(&mut reap::spin::Spin, device, costs, &load, seed ^ bytes);
        let latencies: Vec<u64> = ran[0].reaped.iter().map(|reaped| reaped.latency.0).collect();
        let latency = trimmed(latencies);
        (known.reads[class], known.writes[class]) = (Some(latency), Some(latency));
    }
    known
}

/// Mean and standard deviation without the slowest hundredth.
fn trimmed(mut values: Vec<u64>) -> Latency {
    values.sort_unstable();
    values.truncate(values.len() * 99 / 100);
    let count = values.len().max(1) as u64;
    let mean = values.iter().sum::<u64>() / count;
    let variance = values.iter().map(|value| value.abs_diff(mean).pow(2)).sum::<u64>() / count;
    Latency { mean: Nanos(mean), stdev: Nanos(variance.isqrt()) }
}

struct Bench<'a> {
    /// Its draws are the same for each policy.
    server: DeviceServer,
    costs: &'a Costs,
    /// Draws of timers and wake-ups.
    host: Prng,
    began: Nanos,
}

impl Bench<'_> {
    fn phase(&mut self, policy: &mut dyn AnyReap, phase: &Phase) -> PhaseCost {
        let began = self.began;
        let mut clients = vec![began; phase.clients as usize];
        let mut in_flight: Vec<(Nanos, u32)> = Vec::new();
        let mut ran =
            PhaseCost { reaped: Vec::with_capacity(phase.groups as usize), elapsed: Nanos(0) };
        for _ in 0..phase.groups {
            let (client, now) = earliest(&clients);
            in_flight.retain(|&(reaped, _)| reaped > now);
            let others: u32 = in_flight.iter().map(|&(_, count)| count).sum();
            let (submitted, done, bytes) = self.submit(phase, now);
            let key = Key::new(phase.op, bytes, others + phase.group);
            let reaped = self.wait(policy.plan(key, now, true), now, submitted, done, phase.group);
            let outcome = Outcome {
                way: reaped.way,
                real: reaped.latency,
                late: reaped.late,
                cpu: Some(reaped.cpu),
            };
            policy.learn(key, &outcome);
            clients[client] = now + reaped.latency;
            in_flight.push((clients[client], phase.group));
            ran.reaped.push(reaped);
        }
        self.began = clients.into_iter().max().unwrap_or(began);
        ran.elapsed = self.began.since(began);
        ran
    }

    /// Submits a group at `now`: when that is done, when the last of it is complete, and the size
    /// of its largest member.
    fn submit(&mut self, phase: &Phase, now: Nanos) -> (Nanos, Nanos, u64) {
        let (mut submitted, mut done, mut largest) = (now, now, 0);
        for _ in 0..phase.group {
            submitted += self.costs.submit;
            let size = self.server.draws().below(phase.sizes.len() as u64);
            let bytes = phase.sizes[usize::try_from(size).expect("an index of a list")];
            let complete = self.server.serve(submitted, bytes);
            (done, largest) = (done.max(complete), largest.max(bytes));
        }
        (submitted, done, largest)
    }

    /// Waits as planned for a group that is complete at `done`.
    fn wait(
        &mut self,
        plan: Plan,
        now: Nanos,
        submitted: Nanos,
        done: Nanos,
        group: u32,
    ) -> GroupCost {
        let costs = self.costs;
        let done = done.max(submitted);
        let woken = costs.wake.draw(&mut self.host);
        let overshot = costs.overshoot.draw(&mut self.host);
        let mut cpu = submitted.since(now) + Nanos(costs.interrupt.0 * u64::from(group));
        let reaped =
            |at: Nanos, cpu, way, late| GroupCost { latency: at.since(now), cpu, way, late };
        let spun = |from: Nanos| done.max(from) + costs.look;
        match plan {
            Plan::Interrupt => {
                cpu += costs.wake_cpu;
                reaped(done + woken, cpu, Way::Interrupt, false)
            }
            Plan::Spin { budget } => {
                let (end, way) = (spun(submitted), Way::Spin);
                if end.since(submitted) <= budget {
                    return reaped(end, cpu + end.since(submitted), way, false);
                }
                reaped(done + woken, cpu + budget + costs.wake_cpu, way, false)
            }
            Plan::SleepSpin { until, roused, budget } => {
                let way = Way::SleepSpin;
                if until <= submitted {
                    let end = spun(submitted);
                    return reaped(end, cpu + end.since(submitted), way, false);
                }
                cpu += costs.sleep_cpu;
                if roused && done <= until {
                    // The completion ends the sleep.
                    return reaped(done + woken, cpu, way, true);
                }
                let awake = until + overshot;
                let end = spun(awake);
                let late = done <= awake;
                if end.since(awake) <= budget {
                    return reaped(end, cpu + end.since(awake), way, late);
                }
                reaped(done + woken, cpu + budget + costs.wake_cpu, way, late)
            }
        }
    }
}

/// The place and the value of the least one.
fn earliest(times: &[Nanos]) -> (usize, Nanos) {
    let least = times.iter().enumerate().min_by_key(|&(_, time)| *time);
    let (place, time) = least.expect("there is at least one channel, and one client");
    (place, *time)
}

/// Sets the host's draws apart from the device's.
const HOST_SEED: u64 = 0x5eed_4057;
