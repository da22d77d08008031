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

use forerun_core::readahead::Cause;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

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
    #[serde(with = "cause")]
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

/// A cause in a record: its name in the core.
mod cause {
    use super::{Cause, Deserialize, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
    pub(super) fn serialize<S: Serializer>(cause: &Cause, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(cause.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cause, D::Error> {
        let name = String::deserialize(from)?;
        let known = Cause::ALL.into_iter().find(|cause| cause.name() == name);
        known.ok_or_else(|| de::Error::custom(format_args!("no cause {name:?} of a window")))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_read_back_by_its_name_and_no_other_is_one() {
        for cause in Cause::ALL {
            let json = serde_json::to_value(Window { cause, ..Window::default() }).unwrap();
            assert_eq!(json["cause"], cause.name());
            assert_eq!(serde_json::from_value::<Window>(json).unwrap().cause, cause);
        }
        let json = serde_json::to_string(&Window::default()).unwrap().replace("random", "Random");
        assert!(serde_json::from_str::<Window>(&json).is_err(), "{json}");
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
