//! `forerun sim reap`: policies of reaping in virtual time, under stated costs.
//!
//! ```text
//!   --sizes 4K,..   one thread, one group after the other: a row a policy and size
//!   --phases        one policy state over three loads, as NIO was measured: a row a policy and
//!                   phase
//! ```
//!
//! # Invariants
//! - The same arguments print the same results on each machine.
//! # Sources
//! The three phases: Liao et al. 2022, section 4.4, with fewer bytes a phase.

use anyhow::Result;
use forerun_console::form::Output;
use forerun_console::{names, output};
use forerun_core::params::{Bytes, Param as _};
use forerun_core::reap::{self, Op};
use forerun_core::units::Nanos;
use forerun_report::Distribution;
use forerun_report::quantity::{float, micros, seconds};
use forerun_sim::reap::{Load, Phase, PhaseCost, calibrate, run};
use serde::Serialize;

use crate::specs;

/// What `sim reap` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forerun sim reap\n  \
    forerun sim reap --device gen4 --costs metal --policy interrupt,spin,nio --json\n  \
    forerun sim reap --phases")]
pub(super) struct Args {
    /// The device: optane, gen4 or sata
    #[arg(long, value_name = "MODEL", default_value = "optane")]
    device: String,
    /// What waiting costs: paper, metal or vm
    #[arg(long, value_name = "COSTS", default_value = "paper")]
    costs: String,
    /// Policies, NAME[:key=value,...] [default: all]
    #[arg(long, value_name = "NAME,...")]
    policy: Option<String>,
    /// I/O sizes: a run for each
    #[arg(long, value_name = "SIZE,...", default_value = "4K,8K,16K,32K,64K,128K")]
    sizes: String,
    /// I/Os that must all complete; above 1 their sizes are drawn from --sizes
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=GROUP_MAX))]
    group: u32,
    /// Groups of a run
    #[arg(long, value_name = "N", default_value_t = 50_000,
          value_parser = clap::value_parser!(u32).range(1..=GROUPS_MAX))]
    count: u32,
    /// 2 writers of 4K-8K, then 4 of 128K-1M, then 13 of 4K-8K, instead of sizes
    #[arg(long, conflicts_with_all = ["sizes", "group"])]
    phases: bool,
    /// The seed of the device's and the host's draws
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// The results of a policy under one load.
#[derive(Serialize)]
struct Row {
    policy: String,
    /// Bytes of an I/O; 0 where they are drawn.
    size: u64,
    group: u32,
    phase: usize,
    mean_us: f64,
    trimmed_mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    stdev_us: f64,
    cpu_us_per_io: f64,
    late_share: f64,
    seconds: f64,
}

/// Runs each policy on each load.
pub(super) fn run_all(args: &Args) -> Result<()> {
    args.output.check()?;
    let device = named(forerun_core::device::channel_model(&args.device), "--device")?;
    let costs = named(forerun_sim::reap::costs(&args.costs), "--costs")?;
    let policies = specs::reapers(args.policy.as_deref(), LISTER)?;
    let sizes = specs::io_sizes(&args.sizes, 1, "size from 1 to 1M")?;
    let known = calibrate(&device, &costs, args.seed);
    let mut rows = Vec::new();
    for (size, load) in loads(args, &sizes) {
        for policy in &policies {
            let mut policy_now = named(reap::make(policy, &known), "--policy")?;
            let ran = run(policy_now.as_mut(), &device, &costs, &load, args.seed);
            for (phase, (ran, shape)) in ran.iter().zip(&load.phases).enumerate() {
                rows.push(row(policy, size, phase, shape, ran));
            }
        }
    }
    let json = serde_json::json!({ "device": device.name, "costs": costs.name,
        "seed": args.seed, "runs": rows });
    args.output.print(&json, &["runs"], || shown(&rows, args.phases))
}

fn named<T>(made: Result<T, forerun_core::params::ParamError>, flag: &str) -> Result<T> {
    made.map_err(|error| names::refused(flag, &error, LISTER))
}

const LISTER: &str = "forerun sim reap --help";

/// The loads, each with the size of its I/Os, or 0.
fn loads(args: &Args, sizes: &[u64]) -> Vec<(u64, Load)> {
    let groups = args.count;
    if args.phases {
        let phase = |clients, least: u32, most: u32| {
            let sizes = (least..=most).map(|doublings| 4_096 << doublings).collect();
            Phase { clients, group: 1, sizes, op: Op::Write, groups }
        };
        return vec![(0, Load { phases: vec![phase(2, 0, 1), phase(4, 5, 8), phase(13, 0, 1)] })];
    }
    let load = |sizes: Vec<u64>| Load {
        phases: vec![Phase { clients: 1, group: args.group, sizes, op: Op::Read, groups }],
    };
    if args.group > 1 {
        return vec![(0, load(sizes.to_vec()))];
    }
    sizes.iter().map(|&size| (size, load(vec![size]))).collect()
}

fn row(policy: &str, size: u64, phase: usize, shape: &Phase, ran: &PhaseCost) -> Row {
    let latencies = Distribution::of(ran.reaped.iter().map(|reaped| micros(reaped.latency)));
    let count = float(ran.reaped.len() as u64);
    let cpu: u64 = ran.reaped.iter().map(|reaped| reaped.cpu.0).sum();
    let late = ran.reaped.iter().filter(|reaped| reaped.late).count();
    Row {
        policy: policy.to_owned(),
        size,
        group: shape.group,
        phase: phase + 1,
        mean_us: latencies.mean(),
        trimmed_mean_us: latencies.trimmed_mean(),
        p50_us: latencies.at(500),
        p99_us: latencies.at(990),
        stdev_us: latencies.stdev(),
        cpu_us_per_io: micros(Nanos(cpu)) / count / f64::from(shape.group),
        late_share: float(late as u64) / count,
        seconds: seconds(ran.elapsed),
    }
}

fn shown(rows: &[Row], phases: bool) -> String {
    let first = if phases { "phase" } else { "size" };
    let header = ["policy", first, "mean us", "p50", "p99", "stdev", "cpu us/IO", "late %", "s"];
    let cells = |row: &Row| {
        let shape = match (phases, row.size) {
            (true, _) => row.phase.to_string(),
            (false, 0) => format!("x{}", row.group),
            (false, size) => Bytes(size).show(),
        };
        let mut cells = vec![row.policy.clone(), shape];
        let figures = [row.mean_us, row.p50_us, row.p99_us, row.stdev_us, row.cpu_us_per_io];
        cells.extend(figures.map(|figure| format!("{figure:.2}")));
        cells.push(format!("{:.1}", row.late_share * 100.0));
        cells.push(format!("{:.3}", row.seconds));
        cells
    };
    output::table(&header, &rows.iter().map(cells).collect::<Vec<_>>(), 1)
}

const GROUP_MAX: i64 = 1_024;
const GROUPS_MAX: i64 = 10_000_000;
