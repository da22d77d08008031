//! How large windows are: what the device can use, and what memory has for the stream.
//!
//! ```text
//!   first window    bandwidth-delay       what the device delivers in the time of an access
//!   next ones       x GROWTH              up to the device's window; less while it is not known
//!   on a disk       sqrt(2 product read)  beyond half of the stream's part of the file, at most
//!   at most         budget * own/total    what is used while all of the budget is used once
//! ```
//! Streams have any length: one that has read `x` is as likely to end before `2 x` as not. A disk
//! pays for what it fetches in vain by what it could have fetched meanwhile, so a window there is
//! no longer than what is worth it by these odds, unless the stream is still in the first half of
//! its part of the file.
//!
//! A stream's share is not one part in so many: it is the part that it had of all uses lately. So
//! a fast stream has more ahead than a slow one, each as long as the other in time; one whose
//! reader has stopped has no share; and the number of streams does not matter. One that begins
//! counts as one of as many as there are records.
//!
//! # Invariants
//! - At its marker a stream on a seek-bound device has at most its share, the next window included.
//! # Sources
//! Little, "A proof for the queuing formula L = lambda W" (1961): what is ahead is a rate times a
//! time. Constants: `docs/decisions/0009-streams.md`, `docs/decisions/0011-reclaim.md`,
//! `docs/decisions/0074-a-window-is-a-bet.md`.

use super::pace::Part;
use super::{
    ASSUMED_RATE, ASYNC_PART, Direction, GROWTH, GROWTH_IN_DOUBT, IN_FLIGHT_TIME, OPENING_MIN,
    SEEK_BOUND_PRODUCTS, Stream, Streams, pages_u32,
};
use crate::device::DeviceKind;
use crate::readahead::{BANDWIDTH_DELAY_PRODUCTS, Demand};

impl Streams {
    /// Pages of the window after the last one.
    pub(super) fn next_size(&self, demand: &Demand, stream: &Stream) -> u32 {
        let device = self.device_window(demand);
        // Its first pages are needed first and come last: a disk does less in one go.
        let slow =
            stream.direction == Direction::Backward && demand.device.kind == DeviceKind::SeekBound;
        let device = if slow { device / 2 } else { device };
        // What a parallel device delivers is seen only by asking for more.
        let free = demand.ahead_room > self.bounds.ahead_pages_max / 2;
        let doubles = free && !demand.rate_known && demand.device.kind == DeviceKind::Parallel;
        let explored = if doubles { stream.size.saturating_mul(2) } else { 0 };
        let growth = if demand.rate_known { GROWTH } else { GROWTH_IN_DOUBT };
        let size = stream.size.saturating_mul(growth).min(device.max(explored));
        let size = size.min(self.likely(demand, stream));
        let pace = stream.pace.until(self.uses, demand.first);
        size.min(self.share(demand, pace)).min(self.window_max).max(1)
    }

    /// Pages of the next window that `stream` is likely enough to use, on a seek-bound device: its
    /// arm has to bring those that are not used as well.
    pub(super) fn likely(&self, demand: &Demand, stream: &Stream) -> u32 {
        // A reader that begins at the head of a file most often reads all of it.
        if demand.device.kind == DeviceKind::Parallel || stream.origin == 0 {
            return u32::MAX;
        }
        let read = stream.origin.abs_diff(demand.first) + 1;
        let bet = bet(self.bandwidth_delay_pages(demand), read);
        // The streams of a file go through a part of it each, and most through half of that.
        let begun = self.files.get(&stream.file).map_or(1, |file| file.begun.max(1));
        let half = demand.all_pages / begun / 2;
        let within = half.saturating_sub(stream.origin.abs_diff(stream.frontier));
        pages_u32(bet.max(within)).max(1)
    }

    /// Pages of a window that the device serves at nearly its full rate.
    pub(super) fn device_window(&self, demand: &Demand) -> u32 {
        let (product, request) = (self.bandwidth_delay_pages(demand), self.request_pages(demand));
        let pages = match demand.device.kind {
            DeviceKind::SeekBound => product.saturating_mul(SEEK_BOUND_PRODUCTS),
            DeviceKind::Parallel => self.in_flight_share(demand).max(2 * request),
        };
        pages_u32(pages).max(self.bounds.request_pages_max).min(self.window_max)
    }

    /// Pages of a stream's first window.
    pub(super) fn opening(&self, demand: &Demand) -> u32 {
        let product = self.bandwidth_delay_pages(demand);
        let pages = match demand.device.kind {
            DeviceKind::SeekBound => product,
            DeviceKind::Parallel => (product / self.count()).max(self.request_pages(demand)),
        };
        let most = self.device_window(demand).min(self.opening_max).max(OPENING_MIN);
        pages_u32(pages).clamp(OPENING_MIN, most)
    }

    /// Pages from the marker to the end of a window of `size`.
    pub(super) fn async_size(&self, demand: &Demand, size: u32) -> u32 {
        let part = u64::from(size) / ASYNC_PART;
        let pages = match demand.device.kind {
            DeviceKind::SeekBound => part,
            DeviceKind::Parallel => part.max(self.in_flight_share(demand)),
        };
        pages_u32(pages).clamp(1, size)
    }

    /// Each stream's part of what is to be in flight at a parallel device.
    pub(super) fn in_flight_share(&self, demand: &Demand) -> u64 {
        let access = demand.device.access.0.saturating_mul(BANDWIDTH_DELAY_PRODUCTS);
        self.delivered(demand, access.max(IN_FLIGHT_TIME.0)) / self.count()
    }

    /// Pages that the device delivers in the time of one access.
    pub(super) fn bandwidth_delay_pages(&self, demand: &Demand) -> u64 {
        self.delivered(demand, demand.device.access.0)
    }

    /// Pages that the device delivers in `nanos`; at least one.
    fn delivered(&self, demand: &Demand, nanos: u64) -> u64 {
        let bytes = u128::from(rate(demand)) * u128::from(nanos) / 1_000_000_000;
        u64::try_from(bytes / u128::from(self.page_bytes)).unwrap_or(u64::MAX).max(1)
    }

    pub(super) fn pages_per_second(&self, demand: &Demand) -> u64 {
        (rate(demand) / u64::from(self.page_bytes)).max(1)
    }

    pub(super) fn request_pages(&self, demand: &Demand) -> u64 {
        u64::from(demand.device.request_bytes / self.page_bytes).max(1)
    }

    /// The streams that there are, and one more.
    pub(super) fn count(&self) -> u64 {
        self.live.len() as u64 + 1
    }

    /// The largest window that memory has for a stream that used `own` of the `total` pages that
    /// all streams used meanwhile: what it can use while all of the budget is used once.
    pub(super) fn share(&self, demand: &Demand, pace: Part) -> u32 {
        let budget = u64::from(self.bounds.ahead_pages_max);
        let part = budget.saturating_mul(pace.own + 1) / (pace.total + self.count());
        let window = match demand.device.kind {
            DeviceKind::SeekBound => part * ASYNC_PART / (ASYNC_PART + 1),
            DeviceKind::Parallel => part / 2,
        };
        pages_u32(window >> self.pressure.halvings).max(1)
    }

    /// `size` in whole requests, where it is one at least.
    pub(super) fn whole(&self, size: u32) -> u32 {
        let request = self.bounds.request_pages_max;
        if size < request { size } else { size - size % request }
    }
}

/// Pages for which a seek-bound device works best, of a stream that has `read` so many pages and
/// goes on to any `y` with chance `read / y`. A window of `w` pages takes `w + product` of its time
/// and brings `read * ln(1 + w / read)` to use; from a `read` of a tenth of the
/// product on this is within half a per cent of the best `w`.
fn bet(product: u64, read: u64) -> u64 {
    product.saturating_mul(2).saturating_mul(read).isqrt() + product / 3
}

/// Bytes a second. What was seen so far is as little as was requested.
fn rate(demand: &Demand) -> u64 {
    let rate = demand.device.bytes_per_second;
    if demand.rate_known { rate } else { rate.max(ASSUMED_RATE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bet_is_as_good_as_the_best_window() {
        let used = |[product, read]: [u32; 2], window: u32| {
            let [product, read, window] = [product, read, window].map(f64::from);
            read * (window / read).ln_1p() / (window + product)
        };
        for product in [30, 146, 600, 5_000] {
            for read in [product / 10, product, 10 * product, 300 * product] {
                let most = (1..=30 * product).map(|window| used([product, read], window));
                let most = most.fold(0.0, f64::max);
                let window = u32::try_from(bet(product.into(), read.into())).unwrap();
                let found = used([product, read], window);
                assert!(found >= 0.995 * most, "{product}, {read}: {found} of {most}");
            }
        }
    }
}
