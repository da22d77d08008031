//! The protocol between the core and whoever drives it, in one place.
//!
//! ```text
//!   event -> Cache::handle -> actions, one after the other -> Driver::carry_out
//!               ^                                                | a Retract met a reader
//!               +------------ Pinned, at the end Settled <-------+
//! ```
//!
//! The live cache and the simulator both go through [`drive`], so that both send the same events
//! in the same order, and a journal of what was sent is enough to send it again.

use crate::cache::Cache;
use crate::event::{Action, Actions, Event};
use crate::units::{FrameId, Nanos};

/// Carries actions out.
pub trait Driver {
    /// Carries `action` out; `frames` are those of a fetch or a write, else none. The answer
    /// matters for a `Retract` alone: whether no reader holds the frame.
    fn carry_out(&mut self, action: Action, frames: &[FrameId]) -> bool;

    /// `event` is about to be sent: what a journal records.
    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        let _ = (now, event);
    }
}

/// Sends `event` to `cache`, has `driver` carry out what follows, and sees retractions through.
/// `actions` is a buffer to work in; it holds all that was carried out afterwards.
pub fn drive(
    cache: &mut Cache,
    now: Nanos,
    event: Event<'_>,
    actions: &mut Actions,
    driver: &mut impl Driver,
) {
    actions.clear();
    driver.sent(now, &event);
    cache.handle(now, event, actions);
    let mut at = 0;
    loop {
        let mut open = false;
        while let Some(&action) = actions.list.get(at) {
            at += 1;
            let frames = match action {
                Action::Fetch { count, frames_at, .. } | Action::Write { count, frames_at, .. } => {
                    actions.run(frames_at, count)
                }
                Action::Serve { .. }
                | Action::Fill { .. }
                | Action::Sync { .. }
                | Action::Done { .. }
                | Action::Fail { .. }
                | Action::Publish { .. }
                | Action::Retract { .. }
                | Action::Explain { .. }
                | Action::Fate { .. } => &[],
            };
            let loose = driver.carry_out(action, frames);
            if let Action::Retract { frame, .. } = action {
                open = true;
                if !loose {
                    driver.sent(now, &Event::Pinned { frame });
                    cache.handle(now, Event::Pinned { frame }, actions);
                }
            }
        }
        if !open {
            return;
        }
        driver.sent(now, &Event::Settled);
        cache.handle(now, Event::Settled, actions);
    }
}
