//! Readahead: which pages to fetch before a read wants them.
//!
//! A policy is shown *demands*: a page that was missing, a page that carried the marker, or (where
//! it must look at all of them) every page of every request. It answers with a [`Decision`], or
//! none.
//!
//! ```text
//!        start          marker               end
//!   ...----+==============#===================+----> file
//!          |<-- demand -->|<--- async_size -->|
//!          |<-------------- size ------------>|
//! ```
//!
//! Facts first: what a policy has to know of the cache is an argument ([`Demand::cached_before`],
//! [`Demand::cached_after`]; each one bounded probe, taken only where [`Readahead::probes`] asks
//! for it). What a window turned out to fetch comes back by [`Readahead::submitted`].
//!
//! To add a policy: write `readahead/NAME.rs` and add its line to `readaheads!` below. The
//! command line, the simulator and the contract tests read that list. What several policies share
//! lies in [`window`] and [`handles`].
//!
//! # Invariants
//! - A window is never empty, and `async_size <= size`.
//! - The cache clips a window to its file and skips pages that are resident or in flight.
//! # Sources
//! Linux `mm/readahead.c` of several ages; each policy's file names its own.

use alloc::{boxed::Box, string::String, vec::Vec};

use crate::device::estimate::DeviceProfile;
use crate::params::{ParamError, Params, by_name, join};
use crate::units::{FileId, HandleId, Nanos, PageIndex};

/// The pages of one readahead, and where the next one is triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first page.
    pub start: PageIndex,
    /// Pages in the window; at least 1.
    pub size: u32,
    /// Pages in its tail, for which no reader waits; the marker is on the first. 0: no marker.
    pub async_size: u32,
}

impl Window {
    /// The page after the last one.
    #[must_use]
    pub fn end(self) -> PageIndex {
        self.start + u64::from(self.size)
    }

    /// The page whose use triggers the next window, if one does.
    #[must_use]
    pub fn marker(self) -> Option<PageIndex> {
        (self.async_size > 0).then(|| self.end() - u64::from(self.async_size))
    }
}

/// Why a policy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A request looks at this page; only for policies with [`Readahead::sees_requests`].
    Request,
    /// The page was not resident: a reader waits.
    Miss,
    /// The page carried the marker: no reader waits yet.
    Marker,
}

/// What one read asks for, and what the cache knew when it did.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state")]
pub struct Demand {
    /// The handle that reads.
    pub handle: HandleId,
    /// What is read.
    pub file: FileId,
    /// Why the policy is asked.
    pub trigger: Trigger,
    /// The page that triggered.
    pub first: PageIndex,
    /// Pages from `first` to the end of the request; at least 1.
    pub count: u32,
    /// Whether `first` is the request's first page.
    pub opens_request: bool,
    /// The byte after the previous read through this handle; `None` before its first read.
    pub previous_end: Option<u64>,
    /// Resident pages just before `first` without a hole, at most [`Probes::before`].
    /// Taken on a miss; else 0.
    pub cached_before: u32,
    /// Resident or in-flight pages just after `first` without a hole, at most [`Probes::after`].
    /// Taken on a marker; else 0.
    pub cached_after: u32,
    /// Where windows end at the latest: the pages in the file, or in the part of it that is the
    /// reader's.
    pub file_pages: u64,
    /// Pages among which chance chooses: those in the file, or in the partition's part of it.
    pub all_pages: u64,
    /// Whether the device has more to do than it should be given ahead of need.
    pub congested: bool,
    /// The stream that brought the marker, or on a miss the page before `first`, if one did.
    pub stream: Option<StreamId>,
    /// On a miss: whether the page after the request is resident or in flight.
    pub follows_cached: bool,
    /// Requests under way at the store; 0 unless the policy [sees the
    /// device](Readahead::sees_device).
    pub in_flight: u32,
    /// Pages that may still be read ahead before some are used.
    pub ahead_room: u32,
    /// What the device can do, as far as it was measured.
    pub device: DeviceProfile,
    /// Whether it was seen how much the device delivers; if not, it may be more.
    pub rate_known: bool,
    /// The time.
    pub now: Nanos,
}

/// A stream of a policy that names them: what its windows bring carries its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// What became of a page that a stream's window brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFeedback {
    /// The first use. `late`: while it was in flight.
    Used {
        /// Whether they had to wait.
        late: bool,
    },
    /// It left without a use.
    Wasted,
    /// It carries the stream's marker now.
    Marked,
    /// It carried the marker, or was to, and is gone or was never fetched: no reader will meet it.
    MarkerLost,
}

/// The far end of what a stream has ahead: pages that it will need last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimRange {
    /// Whose windows brought them.
    pub stream: StreamId,
    /// The file.
    pub file: FileId,
    /// The first page.
    pub first: PageIndex,
    /// Pages; at least 1.
    pub count: u32,
    /// Whether the stream goes backward: then the first page is its farthest.
    pub backward: bool,
}

impl ReclaimRange {
    /// The page that is `nth` from the far end, also beyond the near one; `None` before the file.
    #[must_use]
    pub fn page(self, nth: u64) -> Option<PageIndex> {
        if self.backward {
            return self.first.checked_add(nth);
        }
        (self.first + u64::from(self.count) - 1).checked_sub(nth)
    }
}

/// How much a policy may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Pages read ahead and not used yet, in all.
    pub ahead_pages_max: u32,
    /// Pages of the device's largest request.
    pub request_pages_max: u32,
    /// Pages that the cache holds.
    pub cache_pages: u32,
}

/// How far the cache looks on a policy's behalf, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Before a missing page.
    pub before: u32,
    /// After a marker page.
    pub after: u32,
}

/// What kind of readahead a window is, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Just what was asked.
    #[default]
    Random,
    /// A new window at a miss.
    Sync,
    /// The next window, at a marker.
    Async,
    /// The next window, at a marker that the policy did not expect: its size is from the cache.
    Recovered,
    /// Legacy: the first (current) window.
    Initial,
    /// Legacy: the window ahead of the current one.
    Ahead,
    /// Legacy: a page that no window brought, read by itself.
    Page,
}

impl Cause {
    /// All, in the order of legends.
    pub const ALL: [Self; 7] = [
        Self::Random,
        Self::Sync,
        Self::Async,
        Self::Recovered,
        Self::Initial,
        Self::Ahead,
        Self::Page,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Recovered => "async-recovered",
            Self::Initial => "initial",
            Self::Ahead => "ahead",
            Self::Page => "readpage",
        }
    }
}

/// A window to fetch, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What kind of readahead this is.
    pub cause: Cause,
    /// The pages.
    pub window: Window,
    /// Whose they are, where a policy names its streams.
    pub stream: Option<StreamId>,
}

impl Decision {
    /// A window of no named stream.
    #[must_use]
    pub const fn new(cause: Cause, window: Window) -> Self {
        Self { cause, window, stream: None }
    }
}

/// Decides windows. Owns what it remembers of handles; no pages, bytes, clocks or I/O.
pub trait Readahead {
    /// Whether the policy wants to see every page of every request. Such a policy cannot be run
    /// behind lock-free hits: the driver sends every read to the core.
    fn sees_requests(&self) -> bool {
        false
    }

    /// Whether it puts a window off by itself where the device is congested. For other policies a
    /// marker that is met then triggers nothing.
    fn sees_congestion(&self) -> bool {
        false
    }

    /// Whether it looks at [`Demand::device`]; for other policies nothing is learnt.
    fn sees_device(&self) -> bool {
        false
    }

    /// Whether a planner's detector of strides in bytes works beside it. Other policies have none:
    /// they are there to be compared.
    fn wants_byte_strides(&self) -> bool {
        false
    }

    /// Which facts it needs.
    fn probes(&self) -> Probes {
        Probes::default()
    }

    /// The largest window that it will ever ask for, in pages.
    fn window_pages_max(&self) -> u32;

    /// Frames that it cannot do without, in pages: a smaller cache is refused.
    fn window_pages_min(&self) -> u32 {
        self.window_pages_max()
    }

    /// How much it may ask for from now on; told before anything else.
    fn bounds(&mut self, _bounds: Bounds) {}

    /// `handle` was opened on `file`: what was known of an earlier use of the number is forgotten.
    fn open(&mut self, _handle: HandleId, _file: FileId) {}

    /// `handle` was closed.
    fn close(&mut self, _handle: HandleId) {}

    /// The window for `demand`. On a [`Trigger::Miss`], `None` fetches the page by itself.
    fn decide(&mut self, demand: &Demand) -> Option<Decision>;

    /// Pages that may go unread so that there is room for the window of `demand`. It is asked again
    /// with more room, a bounded number of times, and then decides. What leaves is told by
    /// [`Readahead::note`], the farthest page first; it may be less than what was named.
    fn reclaim(&mut self, _demand: &Demand) -> Option<ReclaimRange> {
        None
    }

    /// The page that gets the marker when the window of `decision` is fetched in a file of
    /// `file_pages`. It may differ from [`Window::marker`] where the file's end clips the
    /// window.
    fn marker(&self, decision: Decision, file_pages: u64) -> Option<PageIndex> {
        decision.window.marker().filter(|&page| page < file_pages)
    }

    /// Whether `page` is only carried along by the window of `decision`, between pages that are
    /// wanted. Such a page is discarded as it arrives, unless a read wants it meanwhile.
    fn carried(&self, _decision: Decision, _page: PageIndex) -> bool {
        false
    }

    /// The window of the last decision was carried out: `fresh` of its pages were neither
    /// resident nor in flight. May open another window at once.
    fn submitted(&mut self, _: &Demand, _decision: Decision, _fresh: u32) -> Option<Decision> {
        None
    }

    /// What became of `page`, which a window of `stream` brought.
    fn note(&mut self, _stream: StreamId, _page: PageIndex, _feedback: StreamFeedback) {}
}

/// What the list needs to know of a policy beside its decisions.
pub trait Named: Readahead + Sized + 'static {
    /// The name in reports and on the command line. Never changed once released.
    const NAME: &'static str;
    /// What may be set; each default names its source.
    type Params: Params;
    /// The text that names this policy with `params`: what settings hold.
    #[must_use]
    fn spec(params: &Self::Params) -> String {
        join(Self::NAME, params)
    }
    /// A policy for pages of `page_bytes`, with no handle open.
    fn new(params: Self::Params, page_bytes: u32) -> Self;
}

/// A policy made from its name, with what it was made of.
pub struct NamedReadahead {
    /// The policy.
    pub policy: Box<dyn Readahead + Send>,
    /// Its name.
    pub name: &'static str,
    /// Its parameters as they are in force.
    pub params: Vec<(&'static str, String)>,
}

macro_rules! readaheads {
    ($($module:ident::$policy:ident $(as $name:ident $doc:literal)?),+ $(,)?) => {
        $(pub mod $module;)+
        $($(#[doc = $doc] pub const $name: &str = <$module::$policy as Named>::NAME;)?)+

        /// Every policy's name, in the order of reports.
        pub const NAMES: &[&str] = &[$(<$module::$policy as Named>::NAME),+];

        /// The policy that `spec` (`NAME:key=value,..`) describes, for pages of `page_bytes`.
        ///
        /// # Errors
        /// The name or a parameter is unknown, or a value does not parse.
        pub fn make(spec: &str, page_bytes: u32) -> Result<NamedReadahead, ParamError> {
            by_name! { spec, NAMES, params:
                $(<$module::$policy as Named>::NAME, <$module::$policy as Named>::Params
                    => NamedReadahead {
                        name: <$module::$policy as Named>::NAME,
                        params: params.show(),
                        policy: Box::new(<$module::$policy as Named>::new(params, page_bytes)),
                    };)+
            }
        }
    };
}

pub mod handles;
pub mod ondemand;
pub mod window;

readaheads! {
    off::Off,
    fixed::Fixed,
    linux_2_6_22::Linux2622,
    ondemand_2007::Ondemand2007,
    linux_2_6_24::Linux2624,
    linux_6::Linux6,
    zfs::Zfs,
    amp::Amp,
    streams::Streams as DEFAULT "The policy of drivers that are given none.",
}

/// Bandwidth-delay products in flight, over all streams of a parallel device: one, as much again
/// for what is late, and as long as not all is known of the device the double.
pub(crate) const BANDWIDTH_DELAY_PRODUCTS: u64 = 4;
