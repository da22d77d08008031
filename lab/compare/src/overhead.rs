//! `forerun-compare overhead`: large files read and written in order, by the engine with several
//! policies and through the kernel's cache.
//!
//! ```text
//!   request x op:   2q-star   lru   arc   kernel      in turns; two files, a thread for each
//!                   |-- the same memory for pages --|
//! ```
//! The kernel has its memory by a memory cgroup (v1), whose limit is that of the engine's pages.
//!
//! # Invariants
//! - No file fits into the memory, and none is used twice in a run.
//! - Where the system has no such groups the kernel has all memory, and each of its rows says so.
//! # Sources
//! Paper 3, Fig. 9.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use forerun_report::Target;
use serde_json::Value;

use crate::args::{Places, chosen, in_turns};
use crate::forerun::{self, folder, machine, output_of, put, release};
use crate::table::{self, Row};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroUsize,
    /// Requests of this size alone; may be repeated
    #[arg(long = "request", value_name = "SIZE")]
    requests: Vec<String>,
    /// Small files: to see that all works
    #[arg(long)]
    quick: bool,
}

/// The policy that is measured, then the others with the target of our rate over theirs.
const OURS: &str = "2q-star";
const PEERS: [(&str, f64); 3] = [("lru", 0.95), ("arc", 0.95), (KERNEL, 1.0)];
const KERNEL: &str = "kernel";
const REQUESTS: [&str; 5] = ["4K", "16K", "64K", "256K", "1M"];

/// Measures everything and writes the table.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let bench = folder(forerun::target(root).join("bench"))?;
    let out = folder(args.places.out.clone().unwrap_or_else(|| bench.join("overhead")))?;
    let forerun = release(root, args.places.forerun.as_deref())?;
    let (size, cache, mib) = if args.quick { ("64M", "32M", 32) } else { ("1G", "256M", 256) };
    let files = [0, 1].map(|at| out.join(format!("volume-{at}-{size}")));
    let group = MemoryGroup::new(mib)?;
    let mut rows = Vec::new();
    for request in chosen(&REQUESTS, &args.requests, |request| request) {
        for op in ["read", "write"] {
            let ways: Vec<&str> = [OURS].into_iter().chain(PEERS.map(|peer| peer.0)).collect();
            let taken = in_turns(args.rounds, ways.len(), |round, at| {
                let mut command = match group.as_ref().filter(|_| ways[at] == KERNEL) {
                    Some(group) => group.command(&forerun),
                    None => Command::new(&forerun),
                };
                command.args(["bench", "overhead"]).args(&files);
                command.args(["--make", size, "--op", op, "--request", request, "--json"]);
                match ways[at] {
                    KERNEL => command.arg("--kernel"),
                    policy => command.args(["--policy", policy, "--cache", cache]),
                };
                let taken = Taken::of(&output_of(&mut command)?)?;
                println!("round {}: {op} {request}: {}: {taken:?}", round + 1, ways[at]);
                Ok(taken)
            })?;
            rows.extend(compared(&format!("{op} {request}"), &taken, group.is_some()));
        }
    }
    let [version, machine] = machine(&forerun)?;
    let text = format!(
        "# Reads and writes in order: policies beside the kernel's cache\n\n\
         - {version}\n- {machine}\n- two files of {size}, {cache} of memory; {} rounds, in turns; \
         ratios are within a round\n{}",
        args.rounds,
        table::table(&rows)
    );
    put(&out.join("summary.md"), &text)?;
    files.iter().try_for_each(fs::remove_file).context("cannot remove the files")?;
    println!("\n{text}\nthe table: {}", out.display());
    Ok(())
}

/// The figures of one run.
#[derive(Debug)]
struct Taken {
    mb_per_second: f64,
    cpu_seconds_per_gb: f64,
}

impl Taken {
    fn of(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text).context("no JSON")?;
        let field = |name: &str| json["runs"][0][name].as_f64().with_context(|| name.to_owned());
        let [mb_per_second, cpu_seconds_per_gb] =
            ["mb_per_second", "cpu_seconds_per_gb"].map(field);
        Ok(Self { mb_per_second: mb_per_second?, cpu_seconds_per_gb: cpu_seconds_per_gb? })
    }
}

/// Our rate beside each of the others.
fn compared(what: &str, taken: &[Vec<Taken>], has_group: bool) -> Vec<Row> {
    let rates = |at: usize| taken[at].iter().map(|run| run.mb_per_second).collect::<Vec<_>>();
    let cpu = |at: usize| taken[at].iter().map(|run| run.cpu_seconds_per_gb);
    let median = |at: usize| forerun_report::Summary::of(cpu(at)).median;
    let row = |(at, (peer, least)): (usize, (&str, f64))| {
        let at = at + 1;
        let mut note = format!("cpu s/GB {:.2}, its {:.2}", median(0), median(at));
        if peer == KERNEL && !has_group {
            note += ", in all memory";
        }
        let target = Some(Target::AtLeast(least));
        Row::new(format!("{what}: MB/s"), peer, [&rates(0), &rates(at)], target, &note)
    };
    PEERS.into_iter().enumerate().map(row).collect()
}

/// A memory cgroup (v1) of this bench, which leaves with it.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// One of `mib`; `None` where the system has none.
    fn new(mib: u64) -> Result<Option<Self>> {
        let all = Path::new("/sys/fs/cgroup/memory");
        if !all.join("memory.limit_in_bytes").exists() {
            return Ok(None);
        }
        let group = Self(all.join(format!("forerun-overhead-{}", std::process::id())));
        fs::create_dir(&group.0).with_context(|| group.0.display().to_string())?;
        put(&group.0.join("memory.limit_in_bytes"), &(mib << 20).to_string())?;
        Ok(Some(group))
    }

    /// `program` in the group.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let script = r#"echo $$ >"$0" && exec "$@""#;
        command.args(["-c", script]).arg(self.0.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_compared_round_by_round() {
        let run = |rate: f64| {
            let text =
                format!(r#"{{"runs":[{{"mb_per_second":{rate},"cpu_seconds_per_gb":0.5}}]}}"#);
            Taken::of(&text).unwrap()
        };
        let taken: Vec<Vec<Taken>> = [[100.0, 90.0], [100.0, 100.0], [50.0, 45.0], [200.0, 90.0]]
            .map(|rates| rates.map(run).into())
            .into();
        let rows = compared("read 4K", &taken, false);
        let ratios: Vec<f64> = rows.iter().map(|row| row.ratio.median).collect();
        assert_eq!(ratios, [0.95, 2.0, 0.75]);
        assert!(rows[2].note.contains("all memory") && !rows[0].note.contains("all memory"));
        assert!(Taken::of("{}").is_err() && Taken::of("no").is_err());
    }
}
