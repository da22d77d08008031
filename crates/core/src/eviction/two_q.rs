//! 2Q: a page is active once it is missed a second time while its name is remembered.
//!
//! A hit in A1in moves nothing: uses that follow each other closely count as one. So a scan passes
//! through A1in and leaves Am alone; but in a large cache every active page costs a second miss
//! before it is known.
//!
//! The queues, eviction of a count and pages read ahead are described in `probation.rs`.
//!
//! # Sources
//! Johnson and Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
//! Algorithm" (VLDB 1994), the full version.

use super::probation::{Probation, Variant};
use crate::params::Share;

/// See the module.
pub type TwoQ = Probation<Classic>;

/// The rule of A1in.
pub struct Classic;

crate::params! {
    /// The shares of A1in and A1out.
    pub struct TwoQParams {
        /// The share of the resident pages that A1in keeps. A quarter: Johnson
        /// and Shasha, section 3.
        kin: Share = Share::percent(25),
        /// Names in A1out, as a share of the capacity. Half: Johnson
        /// and Shasha, section 3.
        kout: Share = Share::percent(50),
    }
}

impl Variant for Classic {
    const NAME: &'static str = "2q";
    const RENEWS_A1IN: bool = false;
    type Params = TwoQParams;

    fn shares(params: &TwoQParams) -> (Share, Share) {
        (params.kin, params.kout)
    }
}
