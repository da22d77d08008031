//! The kernel's counts for this process: bytes read from devices.
//!
//! No other count shows whether a read was cold: the page cache serves reads silently.
//! # Sources
//! `proc_pid_io(5)`, `read_bytes`: also counts reads past the page cache.

use std::fs;

/// Bytes that this process has read from devices; 0 where the kernel does not count.
pub(super) fn device_bytes() -> u64 {
    read_bytes(&fs::read_to_string("/proc/self/io").unwrap_or_default())
}

fn read_bytes(text: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::read_bytes;

    #[test]
    fn bytes_from_devices_are_found_by_their_name() {
        #[rustfmt::skip]
        let rows = [
            ("rchar: 5\nread_bytes: 4096\nwrite_bytes: 7\n", 4_096),
            ("cancelled_read_bytes: 4\n",                    0),
            ("",                                             0),
        ];
        for (text, bytes) in rows {
            assert_eq!(read_bytes(text), bytes);
        }
    }
}
