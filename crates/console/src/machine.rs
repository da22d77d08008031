//! The origin of a record: time, commit, machine.
//!
//! Only this module of the commands reads the clock. Values that the system lacks stay empty: a
//! record without a processor's name is still a record.

use std::fs;
use std::sync::OnceLock;
use std::thread;

use forerun_core::units::Nanos;
use forerun_report::Machine;

/// The commit that was built, as the command's build names it; else the version.
#[must_use]
pub fn commit() -> &'static str {
    COMMIT.get().copied().unwrap_or(concat!("v", env!("CARGO_PKG_VERSION")))
}

/// Names the commit that was built, once a process. It is the command that knows it: a crate with
/// the commit in it is built anew for each, with all that depends on it.
pub fn set_commit(commit: &'static str) {
    COMMIT.get_or_init(|| commit);
}

static COMMIT: OnceLock<&str> = OnceLock::new();

/// The time since the first call.
#[expect(clippy::disallowed_types, reason = "the time of a simulation is shown to people")]
pub fn now() -> Nanos {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let passed = START.get_or_init(std::time::Instant::now).elapsed();
    Nanos(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
}

/// Seconds since 1970, UTC.
#[expect(clippy::disallowed_types, reason = "the date of a record")]
#[must_use]
pub fn date() -> u64 {
    let passed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    passed.map_or(0, |passed| passed.as_secs())
}

/// The command line, a word each; words that are not text are marked.
#[must_use]
pub fn command() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Processors there are.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// This machine.
#[must_use]
pub fn machine() -> Machine {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = field(&text("/proc/cpuinfo"), "model name");
    let memory = field(&text("/proc/meminfo"), "MemTotal");
    let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    let release = text("/proc/sys/kernel/osrelease");
    Machine {
        cpu,
        cores: u32::try_from(cores()).unwrap_or(u32::MAX),
        memory_bytes: kib << 10,
        kernel: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or(String::new(), |(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t: 7\nmodel name\t: A: B\nMemTotal:   12 kB\n";
        assert_eq!(field(text, "model name"), "A: B");
        assert_eq!(field(text, "MemTotal"), "12 kB");
        assert_eq!(field(text, "Mem"), "");
    }

    #[test]
    fn a_machine_has_cores_and_time_goes_on() {
        assert!(machine().cores > 0);
        assert!(date() > 1_700_000_000);
        let first = now();
        forerun_testkit::until(|| now() > first);
    }
}
