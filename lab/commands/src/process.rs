//! What the kernel tells of this process.
//!
//! # Sources
//! `proc_pid_io(5)`: `read_bytes` also counts reads past the page cache. No other count shows
//! whether a read was cold: the page cache serves reads silently.

use std::fs;

use forerun_core::units::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Processor time so far, by the clock of this process or of this thread.
pub(crate) fn cpu(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    let part = |value: i64| u64::try_from(value).expect("processor time is not negative");
    Nanos(part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec))
}

/// Bytes that this process has read from devices; 0 where the kernel does not count.
pub(crate) fn device_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    field(&text, "read_bytes:").unwrap_or(0)
}

/// The number after `name` at the start of a line.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn numbers_are_found_by_their_names() {
        #[rustfmt::skip]
        let rows = [
            ("rchar: 5\nread_bytes: 4096\nwrite_bytes: 7\n", "read_bytes:", Some(4_096)),
            ("cancelled_read_bytes: 4\n",                    "read_bytes:", None),
            ("",                                             "read_bytes:", None),
            ("VmRSS:\t  12 kB\nThreads:\t3\n",              "Threads:",    Some(3)),
            ("VmRSS:\t  x kB\n",                             "VmRSS:",      None),
        ];
        for (text, name, number) in rows {
            assert_eq!(field(text, name), number, "{text}");
        }
    }
}
