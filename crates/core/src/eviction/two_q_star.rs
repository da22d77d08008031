//! 2Q*: 2Q whose A1in is managed as LRU.
//!
//! While a cache fills, every page enters A1in. In a large one nearly all hits fall there, and
//! moving what is hit to the head spares active pages the second miss that 2Q asks of them: it
//! behaves like LRU. In a small one the limit on A1in still keeps scans away from Am.
//!
//! The queues, eviction of a count and pages read ahead are described in `probation.rs`.
//!
//! # Sources
//! Meng et al., the article on 2Q* and FlexiCache (2009), sections 3 (the algorithm) and 4
//! (batches and readahead).

use super::probation::{Probation, Variant};
use crate::params::Share;

/// See the module.
pub type TwoQStar = Probation<Star>;

/// The rule of A1in.
pub struct Star;

crate::params! {
    /// The shares of A1in and A1out.
    pub struct TwoQStarParams {
        /// The share of the resident pages that A1in keeps. A tenth: Meng
        /// et al. 2009, section 3.
        kin: Share = Share::percent(10),
        /// Names in A1out, as a share of the capacity. As many as frames: Meng et al. 2009,
        /// section 3.
        kout: Share = Share::percent(100),
    }
}

impl Variant for Star {
    const NAME: &'static str = "2q-star";
    const RENEWS_A1IN: bool = true;
    type Params = TwoQStarParams;

    fn shares(params: &TwoQStarParams) -> (Share, Share) {
        (params.kin, params.kout)
    }
}
