//! The resources that children of this process have used, as the kernel counts them at their end.
//!
//! # Invariants
//! - Counts never fall. A child counts from the moment it was waited for, with those of its own
//!   children that it waited for.
//! # Sources
//! getrusage(2); Linux `include/linux/task_io_accounting_ops.h`: `ru_inblock` is bytes, by 512.

#![expect(unsafe_code, reason = "getrusage has no safe wrapper")]

use std::mem::MaybeUninit;

use forerun_core::units::Nanos;

/// Resources that were used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Processor time, in user mode and in the kernel.
    pub(crate) processor: Nanos,
    /// Of that, in the kernel.
    pub(crate) system: Nanos,
    /// Bytes that were read from devices.
    pub(crate) device_bytes: u64,
}

impl Usage {
    /// The use of all children that were waited for.
    pub(crate) fn of_children() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: a call that succeeded has written all of the structure that it was given.
        let usage = unsafe {
            if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
                return Self::default();
            }
            usage.assume_init()
        };
        let nanos = |time: libc::timeval| {
            let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
            Nanos(seconds.unwrap_or(0) * 1_000_000_000 + micros.unwrap_or(0) * 1_000)
        };
        Self {
            processor: nanos(usage.ru_utime) + nanos(usage.ru_stime),
            system: nanos(usage.ru_stime),
            device_bytes: u64::try_from(usage.ru_inblock).unwrap_or(0) * BLOCK_BYTES,
        }
    }

    /// The use since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            processor: self.processor.since(before.processor),
            system: self.system.since(before.system),
            device_bytes: self.device_bytes.saturating_sub(before.device_bytes),
        }
    }
}

const BLOCK_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_used_is_counted_at_its_end() {
        let before = Usage::of_children();
        let work = "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done";
        assert!(std::process::Command::new("sh").args(["-c", work]).status().unwrap().success());
        assert!(Usage::of_children().since(before).processor > Nanos(0));
    }
}
