//! `forerun doctor`: what this machine lets forerun do, and what to do about the rest.
//!
//! # Invariants
//! - Each row was tried in this process; nothing is changed but that the folder of learned lists is
//!   made.

use std::env;
use std::path::PathBuf;

use anyhow::Result;
use forerun_console::form::Output;
use forerun_console::{machine, output};
use forerun_io::files::{Files, FilesSettings};
use forerun_report::quantity;
use forerun_steer::abilities::{self, Abilities, CachedPages};
use forerun_steer::learn::store::Store;
use forerun_steer::memory::{Bound, Memory};
use forerun_steer::shim;
use rustix::process::{Resource, geteuid, getrlimit};
use serde::Serialize;

use crate::learned;

/// What `doctor` takes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  forerun doctor --json")]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
}

/// Something that forerun uses where it can.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    /// Whether forerun can do all that it could anywhere.
    is_good: bool,
    here: String,
    /// What it costs to be without, and how to get it; empty where all is well.
    without: &'static str,
    remedy: &'static str,
}

/// Prints what there is.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.output.check()?;
    let machine = machine::machine();
    let findings = findings(abilities::abilities());
    let kernel = machine.kernel;
    let json = serde_json::json!({ "kernel": kernel, "findings": findings });
    args.output.print(&json, &["findings"], || text(&kernel, &findings))
}

fn text(kernel: &str, findings: &[Finding]) -> String {
    let mut text = format!("{kernel}\n\n");
    let rows: Vec<Vec<String>> = findings
        .iter()
        .map(|it| {
            vec![
                if it.is_good { "ok" } else { "--" }.to_owned(),
                it.what.to_owned(),
                it.here.clone(),
            ]
        })
        .collect();
    text += &output::table(&["", "what", "here"], &rows, 3);
    for finding in findings.iter().filter(|it| !it.is_good) {
        let Finding { what, without, remedy, .. } = finding;
        text += &["\n", what, ": ", without, ".\n  ", remedy, "\n"].concat();
    }
    text
}

fn findings(can: Abilities) -> Vec<Finding> {
    let said = |is_good| if is_good { "yes" } else { "no" }.to_owned();
    let mut findings = vec![
        Finding {
            what: "blocked calls",
            is_good: can.sees_calls,
            here: said(can.sees_calls),
            without: "walks over many small files are not seen, and run gains nothing on them; \
                      explain cannot tell reads from other waits",
            remedy: "run as root, or set /proc/sys/kernel/yama/ptrace_scope to 0",
        },
        Finding {
            what: "cached pages of files",
            is_good: can.cached != CachedPages::Hidden,
            here: match can.cached {
                CachedPages::Counted => "by cachestat",
                CachedPages::Told => "by mincore",
                CachedPages::Hidden => "no",
            }
            .to_owned(),
            without: "what is cached already is requested again, which costs time and no reads",
            remedy: "every kernel tells of files that this user owns or may write",
        },
        Finding {
            what: "pages of mappings",
            is_good: can.scans_pages,
            here: if can.scans_pages { "by PAGEMAP_SCAN" } else { "a page at a time" }.to_owned(),
            without: "a program that maps large files costs more to follow",
            remedy: "Linux 6.7 or later has PAGEMAP_SCAN",
        },
    ];
    let groups = [processor(can.processor), threads(can.threads), memory()];
    findings.extend(groups);
    findings.extend([reads(), locked(), preload(), lists()]);
    findings
}

/// How files are read past the kernel's page cache.
fn reads() -> Finding {
    let chosen = Files::new(FilesSettings::default()).map(|files| files.chosen());
    let is_good = chosen.as_ref().is_ok_and(|chosen| chosen.backend == "io_uring");
    Finding {
        what: "reads of the engine",
        is_good,
        here: chosen.map_or_else(|error| error.to_string(), |chosen| chosen.to_string()),
        without: "the engine and the crates read by threads; run is as ever",
        remedy: "allow io_uring: /proc/sys/kernel/io_uring_disabled, the container's seccomp rules",
    }
}

fn locked() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    Finding {
        what: "locked memory",
        is_good: limit.is_none_or(|bytes| bytes >= LOCKED_ENOUGH) || geteuid().is_root(),
        here: limit.map_or_else(|| "no limit".to_owned(), quantity::bytes),
        without: "buffers are not registered with io_uring: small reads cost some more",
        remedy: "raise it by ulimit -l, or in /etc/security/limits.conf",
    }
}

/// What control groups leave of a processor.
fn processor(thousandths: u64) -> Finding {
    Finding {
        what: "processor time",
        is_good: thousandths >= 1000,
        here: format!("{} of a processor", quantity::percent(quantity::ratio(thousandths, 1000))),
        without: "forerun has a part of less: at a tenth of a processor a program that only \
                  computes takes 4 to 14 % longer under run",
        remedy: "raise cpu.max, or cpu.cfs_quota_us, of the control group",
    }
}

fn threads(threads: usize) -> Finding {
    let all = threads >= abilities::THREADS_MAX;
    Finding {
        what: "threads for requests",
        is_good: threads >= THREADS_ENOUGH,
        here: if all { format!("{threads} or more") } else { threads.to_string() },
        without: "fewer requests are in flight at a time: what waits for a network takes longer",
        remedy: "raise pids.max of the control group, or ulimit -u",
    }
}

fn memory() -> Finding {
    let room = Memory::here().room();
    let free = room.free_bytes.map_or_else(|| "unknown".to_owned(), quantity::bytes);
    let bound = match &room.bound {
        Bound::Machine => "of the machine".to_owned(),
        Bound::Group(folder) => format!("of the group {}", folder.display()),
    };
    Finding {
        what: "free memory",
        is_good: room.bytes_to_use() >= MEMORY_ENOUGH,
        here: format!("{free} {bound}"),
        without: "what is prefetched is evicted before it is read",
        remedy: "raise the group's memory.max, or run where fewer programs wait for memory",
    }
}

/// The shim, for programs that read at positions of their own.
fn preload() -> Finding {
    let chosen = env::var_os("FORERUN_PRELOAD").map(PathBuf::from);
    let found = env::current_exe().map(|own| shim::library(chosen.as_deref(), &own));
    let (is_good, here) = match found {
        Ok(Ok(path)) => (true, path.display().to_string()),
        Ok(Err(why)) => (false, why.to_string()),
        Err(error) => (false, error.to_string()),
    };
    Finding {
        what: "the shim",
        is_good,
        here,
        without: "run --observe preload does not work: positioned reads go unseen while cached",
        remedy: "make install puts it beside the command; FORERUN_PRELOAD may name it",
    }
}

/// The folder of what programs used in their last runs.
fn lists() -> Finding {
    let lists = Store::of_user().and_then(|store| store.lists().map(|lists| lists.len()));
    let is_off = learned::is_off();
    let here = match &lists {
        Ok(count) if is_off => format!("{count}; FORERUN_LEARN=off"),
        Ok(count) => count.to_string(),
        Err(error) => error.to_string(),
    };
    Finding {
        what: "learned lists",
        is_good: lists.is_ok() && !is_off,
        here,
        without: "programs start as slowly every time",
        remedy: "unset FORERUN_LEARN; make $XDG_STATE_HOME/forerun this user's own, mode 0700",
    }
}

/// What a ring with its buffers takes.
const LOCKED_ENOUGH: u64 = 64 << 20;
/// As many as walks begin with.
const THREADS_ENOUGH: usize = 32;
/// A window of the fastest devices.
const MEMORY_ENOUGH: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_that_costs_and_what_to_do() {
        let none = Abilities {
            cached: CachedPages::Hidden,
            scans_pages: false,
            sees_calls: false,
            processor: 200,
            threads: 3,
        };
        let all = Abilities {
            cached: CachedPages::Told,
            scans_pages: true,
            sees_calls: true,
            processor: 1000,
            threads: abilities::THREADS_MAX,
        };
        for (can, bad, here) in [(none, 5, ["20 %", "3"]), (all, 0, ["100 %", "128 or more"])] {
            let findings = findings(can);
            assert_eq!(findings[..5].iter().filter(|it| !it.is_good).count(), bad);
            assert!(findings[3].here.starts_with(here[0]) && findings[4].here == here[1]);
            assert!(findings.iter().all(|it| !it.here.is_empty() && !it.remedy.is_empty()));
        }
    }
}
