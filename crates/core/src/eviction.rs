//! Eviction: which resident page leaves when a frame is needed.
//!
//! A policy orders frames. It owns no bytes, locks, clocks or I/O. Its shape is FlexiCache's
//! (Meng et al. 2009): insertion, renewal, eviction of a count.
//!
//! ```text
//!   page is demanded, and not resident -> missed(page)     before a frame is freed for it
//!   page arrives  -> insert(frame, page, prefetched)   frame was unknown to the policy
//!   page is used  -> renew(frame), or renew_all(frames): the same of each in turn
//!   frames needed -> evict(count, evictable, out)      named frames have left the policy
//!   page was refused, and may go now -> may_leave(frame)   clean, or no longer pinned
//!   page is dropped -> forget(frame)                   truncate, invalidate: no ghost
//! ```
//!
//! To add a policy: write `eviction/NAME.rs`, its twin in `tests/twins/`, and add its line to
//! `policies!` below and its row to `tests/twins.rs`. The command line, the simulator's panel and
//! the contract test read that list.
//!
//! # Invariants
//! - A policy knows a frame from `insert` until `evict` names it or `forget` takes it.
//! - `evict` names each frame once and only frames for which `evictable` holds; it names fewer
//!   than `count` only when no other such frame is there.
//! - Of a frame that `evictable` refused it is asked again after `may_leave`, a use, or a move to
//!   another queue alone: what an eviction costs does not grow with what may not leave.
//! - A page lies in one frame at a time. A miss on a full cache evicts before it inserts.
//! # Sources
//! Meng et al. 2009, section 4: FlexiCache's three methods. We add what may not leave (pins, dirty
//! frames) and when it may, `forget`, `resize`, and `missed`: there are policies whose choice of a
//! victim depends on the page that it is for, and FlexiCache evicts before it knows that page.

use alloc::{string::String, vec::Vec};

use crate::params::{ParamError, Params, by_name, join};
use crate::units::{FrameId, PageId};

/// Chooses the pages that leave.
pub trait Eviction: Sized + Send + 'static {
    /// The name in reports, traces and on the command line. Never changed once released.
    const NAME: &'static str;
    /// What a sweep may vary; each default names its source.
    type Params: Params;
    /// The text that names this policy with `params`: what settings hold.
    #[must_use]
    fn spec(params: &Self::Params) -> String {
        join(Self::NAME, params)
    }
    /// A policy for `capacity` frames, all empty. Frame numbers are global: they may exceed it.
    fn new(capacity: u32, params: Self::Params) -> Self;
    /// `page` was demanded and is not resident. An eviction for it may come next; when it arrives,
    /// `insert` follows. Without this call a policy loses precision only.
    fn missed(&mut self, _page: PageId) {}
    /// `page` became resident in `frame`, which was empty; `prefetched` if it was not demanded yet.
    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool);
    /// The page in `frame` was used.
    fn renew(&mut self, frame: FrameId);
    /// The pages in `frames` were used, in this order: as [`Eviction::renew`] of each, but the
    /// policy is found once for all of them.
    fn renew_all(&mut self, frames: &[FrameId]) {
        for &frame in frames {
            self.renew(frame);
        }
    }
    /// Appends up to `count` resident frames for which `evictable` holds, and remembers their
    /// ghosts. A frame that it refuses keeps its place in the order.
    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>);
    /// `evictable` would hold again of the resident `frame`, which it may have refused. Changes no
    /// order: it leaves as if it had never been refused.
    fn may_leave(&mut self, frame: FrameId);
    /// The page in `frame` left for another reason (truncate, invalidate); no ghost.
    fn forget(&mut self, frame: FrameId);
    /// The partition grew or shrank. Frames above the new capacity stay until evicted.
    fn resize(&mut self, _capacity: u32) {}
    /// All pages will be of file 0, and numbered densely from 0: their names can be found by
    /// number. Changes no choice. A replay of a trace calls it before the first page.
    fn number_pages(&mut self) {}
    /// Bytes that its tables take at most, for `frames` that were ever used and the names of
    /// `pages` that are numbered, where no frame was refused.
    fn bytes(frames: u32, pages: u32, params: &Self::Params) -> u64;
}

/// Runs code for the policy named, as if it had been written for that policy alone.
pub trait WithEviction {
    /// What comes back.
    type Output;
    /// Called once, with the policy's type and its parameters.
    fn with<E: Eviction>(self, params: E::Params) -> Self::Output;
}

macro_rules! policies {
    ($($module:ident::$policy:ident $(as $name:ident $doc:literal)?),+ $(,)?) => {
        $(pub mod $module;)+

        $($(
            #[doc = $doc]
            pub const $name: &str = <$module::$policy as Eviction>::NAME;
        )?)+

        /// Every policy's name, in the order of reports.
        pub const NAMES: &[&str] = &[$(<$module::$policy as Eviction>::NAME),+];

        /// Calls `code` with the policy that `spec` (`NAME:key=value,..`) describes.
        ///
        /// # Errors
        /// The name or a parameter is unknown, or a value does not parse.
        pub fn dispatch<W: WithEviction>(spec: &str, code: W) -> Result<W::Output, ParamError> {
            by_name! { spec, NAMES, params:
                $(<$module::$policy as Eviction>::NAME, <$module::$policy as Eviction>::Params
                    => code.with::<$module::$policy>(params);)+
            }
        }

        /// One of the listed policies, chosen at run time: what a partition holds.
        #[expect(missing_docs, reason = "each variant is the policy of that name")]
        pub enum AnyEviction {
            $($policy($module::$policy),)+
        }

        impl AnyEviction {
            /// The policy that `spec` describes, for `capacity` frames.
            ///
            /// # Errors
            /// As [`dispatch`].
            pub fn make(spec: &str, capacity: u32) -> Result<Self, ParamError> {
                by_name! { spec, NAMES, params:
                    $(<$module::$policy as Eviction>::NAME, <$module::$policy as Eviction>::Params
                        => Self::$policy(<$module::$policy>::new(capacity, params));)+
                }
            }

            /// See [`Eviction::missed`].
            pub fn missed(&mut self, page: PageId) {
                match self { $(Self::$policy(policy) => policy.missed(page),)+ }
            }

            /// See [`Eviction::insert`].
            pub fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
                match self { $(Self::$policy(policy) => policy.insert(frame, page, prefetched),)+ }
            }

            /// See [`Eviction::renew`].
            pub fn renew(&mut self, frame: FrameId) {
                match self { $(Self::$policy(policy) => policy.renew(frame),)+ }
            }

            /// See [`Eviction::renew_all`].
            pub fn renew_all(&mut self, frames: &[FrameId]) {
                match self { $(Self::$policy(policy) => policy.renew_all(frames),)+ }
            }

            /// See [`Eviction::evict`].
            pub fn evict(
                &mut self,
                count: u32,
                evictable: &dyn Fn(FrameId) -> bool,
                out: &mut Vec<FrameId>,
            ) {
                match self { $(Self::$policy(policy) => policy.evict(count, evictable, out),)+ }
            }

            /// See [`Eviction::may_leave`].
            pub fn may_leave(&mut self, frame: FrameId) {
                match self { $(Self::$policy(policy) => policy.may_leave(frame),)+ }
            }

            /// See [`Eviction::forget`].
            pub fn forget(&mut self, frame: FrameId) {
                match self { $(Self::$policy(policy) => policy.forget(frame),)+ }
            }

            /// See [`Eviction::resize`].
            pub fn resize(&mut self, capacity: u32) {
                match self { $(Self::$policy(policy) => policy.resize(capacity),)+ }
            }
        }
    };
}

/// The parameters of the policy that `spec` describes, as they are in force.
///
/// # Errors
/// As [`dispatch`].
pub fn show(spec: &str) -> Result<Vec<(&'static str, String)>, ParamError> {
    struct Show;
    impl WithEviction for Show {
        type Output = Vec<(&'static str, String)>;
        fn with<E: Eviction>(self, params: E::Params) -> Self::Output {
            params.show()
        }
    }
    dispatch(spec, Show)
}

// Shared by policies; not policies themselves.
pub mod ahead;
mod ghosts;
pub mod one_queue;
pub mod probation;

policies! {
    fifo::Fifo,
    lru::Lru as BASELINE "The policy that is nearest to the kernel's page cache.",
    lfu::Lfu,
    clock::Clock,
    arc::Arc,
    lirs::Lirs,
    two_q::TwoQ,
    two_q_star::TwoQStar as DEFAULT "The policy of drivers that are given none.",
    s3_fifo::S3Fifo,
    sieve::Sieve,
    w_tinylfu::WTinyLfu,
}
