//! No readahead: each request fetches just the pages it asks for.
//!
//! The floor that every other policy has to beat, and what random readers want.

use super::{Decision, Demand, Named, Readahead, Trigger, window};

/// See the module.
pub struct Off;

impl Named for Off {
    const NAME: &'static str = "off";
    type Params = ();

    fn new((): (), _: u32) -> Self {
        Self
    }
}

impl Readahead for Off {
    fn window_pages_max(&self) -> u32 {
        1
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        (demand.trigger == Trigger::Miss).then(|| window::as_asked(demand))
    }
}
