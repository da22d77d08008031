//! The values that a planner is built from, and what the core is built from then.
//!
//! # Invariants
//! - The core's frames have room for the budget, within fixed bounds, and for used pages beside it.

use alloc::string::String;

use super::device::DeviceEstimate;
use super::pace::PaceRule;
use super::{CURSORS_MAX, FILES_MAX, PAGE_BYTES, REQUEST_BYTES_MAX};
use crate::cache;
use crate::eviction;
use crate::units::Nanos;

/// The values that a planner is built from.
#[derive(Clone, Debug)]
pub struct PlannerSettings {
    /// How far one reader may be led.
    pub pace: PaceRule,
    /// Bytes that may be ahead of all readers together.
    pub budget_bytes: u64,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// What is known of the devices before they are measured.
    pub device: DeviceEstimate,
}

impl PlannerSettings {
    /// What the core is built from, with room for `budget_bytes` ahead.
    pub(super) fn core(&self, budget_bytes: u64) -> cache::Settings {
        const { assert!(FRAMES_MIN <= FRAMES_MAX && REQUEST_BYTES_MAX.is_multiple_of(PAGE_BYTES)) };
        let budget = u32::try_from(budget_bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let ahead = budget.clamp(FRAMES_MIN, FRAMES_MAX);
        // Used pages have room beside those that are not used yet.
        let frames = ahead + ahead / 4;
        let mut core = cache::Settings::new(frames, eviction::DEFAULT, &self.readahead);
        core.page_bytes = u32::try_from(PAGE_BYTES).expect("a page");
        core.request_pages_max = u32::try_from(REQUEST_BYTES_MAX / PAGE_BYTES).expect("a request");
        core.ahead_pages_max = ahead;
        core.handles_max = u32::try_from(CURSORS_MAX).expect("a bound");
        core.files_max = frames + u32::try_from(FILES_MAX + CURSORS_MAX).expect("a bound");
        core.wait_max = Nanos(u64::MAX);
        core.explain = true;
        // A lone stream wants half of the limit in a window. How much of it is requested, and
        // when, the pace decides.
        let window = (self.pace.bounds().limit.0 / 2).max(PAGE_BYTES);
        let request = u32::try_from(REQUEST_BYTES_MAX / 2).expect("a request");
        // Of what is assumed of a device, nothing is to change a request (decision 0046).
        let device = DeviceEstimate { depth: DEPTH, ..self.device };
        core.device = Some(device.profile(window, request));
        core
    }
}

/// As many requests as most devices take at a time.
const DEPTH: u32 = 32;
/// The core's pages.
const FRAMES_MIN: u32 = 1 << 10;
const FRAMES_MAX: u32 = 1 << 20;
