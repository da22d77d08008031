//! Reaping in virtual time: the policies' invariants under random costs.
//!
//! # Invariants
//! - What is asserted is virtual time: the same on each machine.

use forerun_core::device::{CHANNEL_MODELS as DEVICES, ChannelModel, Spread};
use forerun_core::prng::Prng;
use forerun_core::reap::{self, Op};
use forerun_core::units::Nanos;
use forerun_sim::reap::{COSTS, Costs, Load, Phase, PhaseCost, calibrate, run};

fn alone(group: u32, sizes: &[u64], groups: u32) -> Load {
    let sizes = sizes.to_vec();
    Load { phases: vec![Phase { clients: 1, group, sizes, op: Op::Read, groups }] }
}

fn reap(policy: &str, device: &ChannelModel, costs: &Costs, load: &Load) -> PhaseCost {
    let known = calibrate(device, costs, 7);
    let mut policy = reap::make(policy, &known).unwrap();
    run(policy.as_mut(), device, costs, load, 7).remove(0)
}

/// Mean latency, mean processor time, and late wake-ups of a thousand.
fn means(ran: &PhaseCost) -> (u64, u64, u64) {
    let count = ran.reaped.len() as u64;
    let latency: u64 = ran.reaped.iter().map(|reaped| reaped.latency.0).sum();
    let cpu: u64 = ran.reaped.iter().map(|reaped| reaped.cpu.0).sum();
    let late = ran.reaped.iter().filter(|reaped| reaped.late).count() as u64;
    (latency / count, cpu / count, late * 1_000 / count)
}

/// From `least` to `most`, as often in each octave.
fn between(prng: &mut Prng, least: u64, most: u64) -> u64 {
    let octaves = u64::from((most / least).ilog2());
    let octave = least << prng.below(octaves);
    octave + prng.below(octave)
}

fn spread(prng: &mut Prng, least: u64, most: u64, percent_max: u64) -> Spread {
    let mean = between(prng, least, most);
    Spread::new(mean, mean * prng.below(percent_max) / 100)
}

#[test]
fn under_any_costs_nio_is_nearly_as_fast_as_polling_and_no_dearer() {
    for seed in 0..1_000 {
        let mut prng = Prng::new(seed);
        let wake = spread(&mut prng, 250, 32_000, 33);
        let costs = Costs {
            name: "drawn",
            submit: Nanos(prng.below(10_000)),
            interrupt: Nanos(prng.below(4_000)),
            wake,
            wake_cpu: Nanos(between(&mut prng, 250, 16_000)),
            overshoot: spread(&mut prng, 250, 32_000, 33),
            sleep_cpu: Nanos(between(&mut prng, 250, 32_000)),
            look: Nanos(prng.below(200)),
        };
        let device = ChannelModel {
            name: "drawn",
            first: spread(&mut prng, 2_000, 256_000, 60),
            bytes_per_second: 1_000_000_000 + prng.below(6_000_000_000),
            channels: 1 + u32::try_from(prng.below(16)).unwrap(),
        };
        let sizes = [4_096 << prng.below(6)];
        let load = alone(1, &sizes, 15_000);
        let [interrupt, spin, nio] =
            ["interrupt", "spin", "nio"].map(|policy| means(&reap(policy, &device, &costs, &load)));
        let why = format!("seed {seed}: {interrupt:?} {spin:?} {nio:?}\n{costs:?}\n{device:?}");
        assert!(nio.2 <= 130, "late: {why}");
        assert!(nio.0 * 100 <= spin.0 * 110, "slower than polling: {why}");
        assert!(nio.0 * 100 <= interrupt.0 * 102, "slower than interrupts: {why}");
        assert!(nio.1 * 100 <= spin.1 * 101, "dearer than polling: {why}");
    }
}

#[test]
fn the_published_rule_runs_away_where_timers_are_late() {
    let load = alone(1, &[4_096], 20_000);
    let run = |policy, costs: &Costs| means(&reap(policy, &DEVICES[0], costs, &load));
    let [paper, metal, vm] = &COSTS;
    let polled = run("spin", vm).0;
    let (literal, ours) = (run("nio-paper", vm).0, run("nio", vm).0);
    assert!(literal > 10 * polled, "{literal} to {polled}");
    assert!(ours * 10 <= polled * 11, "{ours} to {polled}");
    for costs in [paper, metal] {
        println!("{}: {:?} {:?}", costs.name, run("nio-paper", costs), run("spin", costs));
    }
    assert!(run("nio-paper", paper).0 * 10 <= run("spin", paper).0 * 11, "as published");
}

#[test]
fn a_seed_is_a_run() {
    let load = alone(4, &[4_096, 65_536], 500);
    let [_, metal, _] = &COSTS;
    let take = || format!("{:?}", reap("nio", &DEVICES[1], metal, &load).reaped);
    assert_eq!(take(), take());
}
