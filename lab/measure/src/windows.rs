//! Readahead windows as a record holds them: `--explain-readahead`.
//!
//! ```text
//!   core: pages of a file, since the cache was made --> record: bytes of the device, since the
//!                                                       run began
//! ```
//!
//! # Invariants
//! - A record holds the first [`WINDOWS_MAX`] windows of a run, and the count of the others.
//! - A window that was opened before the run began has the time 0.

use forerun_core::units::Nanos;
use forerun_core::windows::WindowRecord;
use forerun_report::Window;

/// `opened` in bytes, of a file that begins at byte `base` of the device; `begun` is when the run
/// began.
#[must_use]
pub fn window(opened: &WindowRecord, page_bytes: u32, base: u64, begun: Nanos) -> Window {
    let WindowRecord { at, last_use, handle, decision, fresh, outcomes, unread } = *opened;
    let bytes = |pages: u32| u64::from(pages) * u64::from(page_bytes);
    let micros = |at: Nanos| at.0.saturating_sub(begun.0) / 1_000;
    Window {
        at_us: micros(at),
        last_use_us: micros(last_use),
        handle: handle.0,
        stream: decision.stream.map(|stream| stream.0),
        cause: decision.cause,
        offset: base + decision.window.start * u64::from(page_bytes),
        bytes: bytes(decision.window.size),
        tail_bytes: bytes(decision.window.async_size),
        fresh_bytes: bytes(fresh),
        used_bytes: bytes(outcomes.used),
        late_bytes: bytes(outcomes.late),
        wasted_bytes: bytes(outcomes.wasted),
        failed_bytes: bytes(outcomes.failed),
        unread_bytes: bytes(unread),
    }
}

/// Windows that a record keeps of each run.
pub const WINDOWS_MAX: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::event::PrefetchOutcomes;
    use forerun_core::readahead::{self, Cause, Decision, StreamId};
    use forerun_core::units::HandleId;

    #[test]
    fn pages_become_bytes_of_the_device_and_times_those_of_the_run() {
        let window = readahead::Window { start: 10, size: 8, async_size: 4 };
        let stream = Some(StreamId(7));
        let opened = WindowRecord {
            at: Nanos(5_000),
            last_use: Nanos(9_999),
            handle: HandleId(3),
            decision: Decision { cause: Cause::Async, window, stream },
            fresh: 6,
            outcomes: PrefetchOutcomes { used: 1, late: 2, wasted: 1, failed: 1 },
            unread: 1,
        };
        let told = super::window(&opened, 512, 1 << 20, Nanos(6_000));
        let expected = Window {
            at_us: 0,
            last_use_us: 3,
            handle: 3,
            stream: Some(7),
            cause: Cause::Async,
            offset: (1 << 20) + 5_120,
            bytes: 4_096,
            tail_bytes: 2_048,
            fresh_bytes: 3_072,
            used_bytes: 512,
            late_bytes: 1_024,
            wasted_bytes: 512,
            failed_bytes: 512,
            unread_bytes: 512,
        };
        assert_eq!(told, expected);
    }
}
