//! A readahead window in a record: its cause, its size and its outcome.
//!
//! ```text
//!   offset                              offset + bytes
//!   |== cached =========|===== fresh_bytes ======|
//!                         requested, or prefetched, or dropped for lack of room;
//!                         prefetched: used + late + wasted + failed + unread
//! ```
//!
//! # Invariants
//! - Offsets are those of the record's device requests.
//! - A count of bytes that is 0 is left out of the JSON.

use serde::{Deserialize, Serialize};

/// One readahead window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When it was opened, since the run began.
    pub at_us: u64,
    /// The last first use of a byte that it prefetched; `at_us` if there was none.
    pub last_use_us: u64,
    /// The handle of the read that opened it.
    pub handle: u32,
    /// The stream, where the policy names its streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Its cause.
    pub cause: Cause,
    /// Its first byte.
    pub offset: u64,
    /// Its length, as it was decided: the file may end before.
    pub bytes: u64,
    /// Of these, the tail that no reader waits for; its first page triggers the next window.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tail_bytes: u64,
    /// The part of `bytes` that was neither cached nor in flight.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fresh_bytes: u64,
    /// Prefetched, and resident at their first use.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub used_bytes: u64,
    /// Prefetched, and in flight at their first use.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late_bytes: u64,
    /// Prefetched, and evicted before their first use.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wasted_bytes: u64,
    /// Prefetched, but the device failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_bytes: u64,
    /// Prefetched, and without a use when the run ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread_bytes: u64,
}

/// The cause of a window.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A miss without readahead: the window is the request.
    #[default]
    Random,
    /// A miss at the apparent start of a stream.
    Sync,
    /// A marker of the window before was read.
    Async,
    /// A marker that the policy did not expect; the size is from what is in memory.
    AsyncRecovered,
    /// The first window of the policy of Linux before 2.6.23.
    Initial,
    /// The window ahead of the current one, of the same policy.
    Ahead,
    /// A page outside of every window, fetched by itself.
    Readpage,
}

impl Cause {
    /// All, in the order of legends.
    pub const ALL: [Self; 7] = [
        Self::Random,
        Self::Sync,
        Self::Async,
        Self::AsyncRecovered,
        Self::Initial,
        Self::Ahead,
        Self::Readpage,
    ];

    /// Its name on the page, which is also its class there.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sync => "sync",
            Self::Async => "async",
            Self::AsyncRecovered => "async-recovered",
            Self::Initial => "initial",
            Self::Ahead => "ahead",
            Self::Readpage => "readpage",
        }
    }

    /// What it means, in a few words.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Random => "a miss, just what was asked",
            Self::Sync => "a miss that begins a stream",
            Self::Async => "a marker was read",
            Self::AsyncRecovered => "an unexpected marker",
            Self::Initial => "the first window",
            Self::Ahead => "the window after it",
            Self::Readpage => "a page by itself",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_called_the_same_in_records_and_on_pages() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }

    #[test]
    fn what_is_not_there_is_left_out_and_comes_back() {
        let bare = Window { at_us: 7, last_use_us: 7, bytes: 4_096, ..Window::default() };
        let json = serde_json::to_string(&bare).unwrap();
        let told =
            r#"{"at_us":7,"last_use_us":7,"handle":0,"cause":"random","offset":0,"bytes":4096}"#;
        assert_eq!(json, told);
        assert_eq!(serde_json::from_str::<Window>(told).unwrap(), bare);
    }
}
