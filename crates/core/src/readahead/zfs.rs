//! What `OpenZFS` does for a file: a few streams, each with the page that it expects next.
//!
//! ```text
//!        next         from                     to
//!   =======+------------+-----------------------+----> file
//!    read  |  requested |  to be requested now  |
//!          |<---------- distance -------------->|
//! ```
//!
//! An access that begins where a stream expects it, or on the page before, is that stream's. Its
//! distance begins with the size of the access and doubles with each of them up to `min`; beyond
//! that it grows by an eighth, up to `max`, and only if a page was asked for before it had
//! arrived. The distance never shrinks. An access of no stream begins one, from any place
//! of the file, which reads nothing ahead until a reader goes on there.
//!
//! A file has at most `streams` streams, and no more than `max` goes into its size. A stream that
//! was not met for 2 s is dropped; one of 1 s, or one that was never met, gives way to a new one.
//! If all are younger there is no new one. All handles of a file share its streams.
//!
//! # Invariants
//! - `next <= from <= next + distance`, except before the first hit; `distance <= max`.
//! - No window has a marker: every request is looked at, whether it misses or not.
//! # Sources
//! `OpenZFS` 2.2 `module/zfs/dmu_zfetch.c`, and `dmu_buf_hold_array_by_dnode` for the order: the
//! stream is found, what was asked is fetched, then what is ahead. We differ: a block is a page
//! here and not a record of 128 KiB, and only pages are fetched, no indirect blocks. Where ZFS
//! stops doubling as a sixteenth of its cache is being prefetched, and has a stream with fetches
//! under way stay, the room ahead bounds a window here; what is cut off is fetched with a later
//! access. So it is on a congested device, where ZFS queues its fetches behind demand.

use alloc::vec::Vec;

use hashbrown::HashMap;

use super::handles::Handles;
use super::{
    Cause, Decision, Demand, Named, Readahead, StreamFeedback, StreamId, Trigger, Window, window,
};
use crate::hash::FixedState;
use crate::params::Bytes;
use crate::units::{FileId, HandleId, Nanos, PageIndex};

crate::params! {
    /// What may be set.
    pub struct ZfsParams {
        /// Up to here a distance doubles; `zfetch_min_distance` of a 64-bit system.
        min: Bytes = Bytes(4 << 20),
        /// The largest distance; `zfetch_max_distance` of a 64-bit system.
        max: Bytes = Bytes(64 << 20),
        /// Streams a file; `zfetch_max_streams`. None counts as one.
        streams: u32 = 8,
    }
}

/// See the module.
pub struct Zfs {
    limits: ZfsParams,
    page_bytes: u32,
    files: HashMap<FileId, File, FixedState>,
    /// The file of each stream.
    owners: HashMap<StreamId, FileId, FixedState>,
    handles: Handles<Option<FileId>>,
    /// The stream of the request that is being carried out.
    met: Option<StreamId>,
    next_id: u32,
}

/// What is known of a file.
#[derive(Default)]
struct File {
    /// Handles open on it.
    handles: u32,
    /// The latest last.
    streams: Vec<Stream>,
}

struct Stream {
    id: StreamId,
    /// The page after its last access.
    next: PageIndex,
    /// What is to be requested: from here ..
    from: PageIndex,
    /// .. to here.
    to: PageIndex,
    /// Bytes ahead of `next`.
    distance: u64,
    /// When it was last met, or made.
    touched: Nanos,
    /// Whether it was ever met.
    hit: bool,
    /// Whether one of its accesses ever missed; before, all seems to be cached.
    missed: bool,
    /// Whether a page came late since the last access.
    late: bool,
}

impl Named for Zfs {
    const NAME: &'static str = "zfs";
    type Params = ZfsParams;

    fn new(limits: ZfsParams, page_bytes: u32) -> Self {
        Self {
            limits,
            page_bytes,
            files: HashMap::with_hasher(FixedState),
            owners: HashMap::with_hasher(FixedState),
            handles: Handles::default(),
            met: None,
            next_id: 0,
        }
    }
}

impl Readahead for Zfs {
    fn sees_requests(&self) -> bool {
        true
    }

    fn window_pages_max(&self) -> u32 {
        window::pages(self.limits.max, self.page_bytes)
    }

    fn window_pages_min(&self) -> u32 {
        1
    }

    fn open(&mut self, handle: HandleId, file: FileId) {
        self.close(handle);
        *self.handles.of(handle) = Some(file);
        self.files.entry(file).or_default().handles += 1;
    }

    fn close(&mut self, handle: HandleId) {
        let Some(id) = self.handles.of(handle).take() else { return };
        let Some(file) = self.files.get_mut(&id) else { return };
        file.handles -= 1;
        if file.handles == 0 {
            for stream in file.streams.drain(..) {
                self.owners.remove(&stream.id);
            }
            self.files.remove(&id);
        }
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        match demand.trigger {
            Trigger::Request if demand.opens_request => {
                self.met = self.meet(demand);
                self.met.map(|_| window::as_asked(demand))
            }
            Trigger::Request | Trigger::Marker => None,
            Trigger::Miss => Some(window::as_asked(demand)),
        }
    }

    /// The demanded pages are in flight: the rest follows them.
    fn submitted(&mut self, demand: &Demand, _: Decision, fresh: u32) -> Option<Decision> {
        let id = self.met.take()?;
        let stream = self.stream(id)?;
        stream.missed |= fresh > 0;
        if !stream.missed || demand.congested {
            return None;
        }
        let left = stream.to.min(demand.file_pages).saturating_sub(stream.from);
        let size = u32::try_from(left).unwrap_or(u32::MAX).min(demand.ahead_room);
        let window = Window { start: stream.from, size, async_size: 0 };
        stream.from = window.end();
        (size > 0).then_some(Decision { cause: Cause::Ahead, window, stream: Some(id) })
    }

    fn note(&mut self, id: StreamId, _: PageIndex, feedback: StreamFeedback) {
        match feedback {
            StreamFeedback::Used { late: true } => {
                if let Some(stream) = self.stream(id) {
                    stream.late = true;
                }
            }
            StreamFeedback::Used { late: false }
            | StreamFeedback::Wasted
            | StreamFeedback::Marked
            | StreamFeedback::MarkerLost => {}
        }
    }
}

impl Zfs {
    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        let file = self.files.get_mut(self.owners.get(&id)?)?;
        file.streams.iter_mut().find(|stream| stream.id == id)
    }

    /// The stream whose access this is, moved on. If there is none, the access begins one.
    fn meet(&mut self, demand: &Demand) -> Option<StreamId> {
        let file = self.files.entry(demand.file).or_default();
        let end = demand.first + u64::from(demand.count);
        let found = file.streams.iter().rposition(|stream| stream.expects(demand.first));
        // Nothing but the last page is left: too late for a stream.
        if end + 1 >= demand.file_pages {
            if let Some(at) = found {
                self.owners.remove(&file.streams.remove(at).id);
            }
            return None;
        }
        let Some(at) = found else {
            self.begin(demand, end);
            return None;
        };
        let stream = &mut file.streams[at];
        let bytes = end.saturating_sub(stream.next) * u64::from(self.page_bytes);
        if bytes == 0 {
            return None;
        }
        stream.grow(bytes, &self.limits);
        let reach = end + stream.distance / u64::from(self.page_bytes);
        stream.next = end;
        stream.from = stream.from.max(end);
        stream.to = stream.to.max(reach);
        stream.touched = demand.now;
        stream.hit = true;
        Some(stream.id)
    }

    /// A stream that expects `next`, if the file may have one more.
    fn begin(&mut self, demand: &Demand, next: PageIndex) {
        let file = self.files.entry(demand.file).or_default();
        let idle = |stream: &Stream| stream.idle(demand.now);
        file.streams.retain(|stream| {
            let kept = idle(stream) < DROPPED_AFTER;
            if !kept {
                self.owners.remove(&stream.id);
            }
            kept
        });
        let bytes = demand.file_pages.saturating_sub(1) * u64::from(self.page_bytes);
        let room = (bytes / self.limits.max.0.max(1)).clamp(1, self.limits.streams.max(1).into());
        if file.streams.len() as u64 >= room {
            // Of those that were idle equally long the latest.
            let oldest = (0..file.streams.len()).max_by_key(|&at| idle(&file.streams[at]));
            let Some(at) = oldest.filter(|&at| idle(&file.streams[at]) >= REPLACED_AFTER) else {
                return;
            };
            self.owners.remove(&file.streams.remove(at).id);
        }
        let id = StreamId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.owners.insert(id, demand.file);
        file.streams.push(Stream {
            id,
            next,
            from: next,
            to: next,
            distance: 0,
            touched: demand.now,
            hit: false,
            missed: false,
            late: false,
        });
    }
}

impl Stream {
    /// Whether an access to `first` goes on here: reads that share a page both touch it.
    fn expects(&self, first: PageIndex) -> bool {
        first == self.next || first + 1 == self.next
    }

    /// How long it was not met; longer by what protects others while it never was.
    fn idle(&self, now: Nanos) -> Nanos {
        let bonus = if self.hit { Nanos(0) } else { REPLACED_AFTER };
        now.since(self.touched) + bonus
    }

    /// The distance after an access to `bytes`.
    fn grow(&mut self, bytes: u64, limits: &ZfsParams) {
        let late = core::mem::take(&mut self.late);
        if self.distance < bytes {
            self.distance = bytes;
        } else if self.distance < limits.min.0 {
            self.distance *= 2;
        } else if late {
            self.distance += self.distance / 8;
        }
        self.distance = self.distance.min(limits.max.0);
    }
}

/// `zfetch_min_sec_reap`.
const REPLACED_AFTER: Nanos = Nanos::from_millis(1_000);
/// `zfetch_max_sec_reap`.
const DROPPED_AFTER: Nanos = Nanos::from_millis(2_000);
