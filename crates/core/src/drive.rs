//! The protocol between the core and the driver that carries its actions out.
//!
//! ```text
//!   event -> Cache::handle -> actions, one after the other -> Driver: serve, fetch, ...
//!               ^                                                | a Retract met a reader
//!               +------------ Pinned, at the end Settled <-------+
//! ```
//!
//! The live cache and the simulator both go through [`drive`], so that both send the same events
//! in the same order, and a journal of what was sent is enough to send it again.
//!
//! # Invariants
//! - A driver implements the actions that concern it. Those that only inform do nothing by
//!   default; a write of bytes that the driver never accepted is a bug, and panics.

use crate::cache::Cache;
use crate::event::{Action, Actions, Error, Event, FetchKind, PrefetchOutcomes};
use crate::readahead::Decision;
use crate::units::{FileId, FrameId, HandleId, Nanos, PageId, PageIndex, RequestId};

/// Carries actions out: a method for each [`Action`], with the same fields.
pub trait Driver {
    /// [`Action::Fetch`] into `frames`.
    fn fetch(&mut self, kind: FetchKind, page: PageId, frames: &[FrameId]);

    /// [`Action::Serve`].
    fn serve(&mut self, _request: RequestId, _page: PageIndex, _frame: FrameId) {}

    /// [`Action::Done`].
    fn done(&mut self, _request: RequestId) {}

    /// [`Action::Fail`].
    fn fail(&mut self, _request: RequestId, _error: Error) {}

    /// [`Action::Publish`].
    fn publish(&mut self, _page: PageId, _frame: FrameId, _generation: u32, _marker: bool) {}

    /// [`Action::Retract`]. Returns whether no reader holds the frame.
    fn retract(&mut self, _frame: FrameId, _gone: bool) -> bool {
        true
    }

    /// [`Action::Explain`].
    fn explain(&mut self, _handle: HandleId, _page: PageIndex, _decision: Decision, _fresh: u32) {}

    /// [`Action::Outcomes`].
    fn outcomes(&mut self, _window: u32, _outcomes: PrefetchOutcomes) {}

    /// [`Action::Fill`].
    fn fill(&mut self, request: RequestId, page: PageIndex, _frame: FrameId, _fresh: bool) {
        unreachable!("{request:?} writes page {page}, and this driver sends no writes");
    }

    /// [`Action::Write`] from `frames`.
    fn write(&mut self, page: PageId, _frames: &[FrameId]) {
        unreachable!("{page:?} is dirty, and this driver sends no writes");
    }

    /// [`Action::Sync`].
    fn sync(&mut self, file: FileId) {
        unreachable!("{file:?} is to be synced, and this driver sends no writes");
    }

    /// [`Action::Change`].
    fn change(&mut self, request: RequestId) {
        unreachable!("{request:?} changes a store, and this driver sends no changes");
    }

    /// `event` is about to be sent: what a journal records.
    fn sent(&mut self, _now: Nanos, _event: &Event<'_>) {}
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
            let unpinned = carry_out(driver, action, actions.frames_of(action));
            if let Action::Retract { frame, .. } = action {
                open = true;
                if !unpinned {
                    driver.sent(now, &Event::Pinned { frame });
                    cache.handle(now, Event::Pinned { frame }, actions);
                }
            }
        }
        assert!(at == actions.list.len(), "every action is carried out");
        if !open {
            return;
        }
        driver.sent(now, &Event::Settled);
        cache.handle(now, Event::Settled, actions);
    }
}

/// Has `driver` carry `action` out; `frames` are those of a fetch or a write, else none. Returns
/// what [`Driver::retract`] returned, and `true` for any other action.
fn carry_out(driver: &mut impl Driver, action: Action, frames: &[FrameId]) -> bool {
    match action {
        Action::Serve { request, page, frame } => driver.serve(request, page, frame),
        Action::Fill { request, page, frame, fresh } => driver.fill(request, page, frame, fresh),
        Action::Fetch { kind, page, .. } => driver.fetch(kind, page, frames),
        Action::Write { page, .. } => driver.write(page, frames),
        Action::Sync { file } => driver.sync(file),
        Action::Change { request } => driver.change(request),
        Action::Done { request } => driver.done(request),
        Action::Fail { request, error } => driver.fail(request, error),
        Action::Publish { page, frame, generation, marker } => {
            driver.publish(page, frame, generation, marker);
        }
        Action::Retract { frame, gone } => return driver.retract(frame, gone),
        Action::Explain { handle, page, cause, window, fresh, stream } => {
            driver.explain(handle, page, Decision { cause, window, stream }, fresh);
        }
        Action::Outcomes { window, outcomes } => driver.outcomes(window, outcomes),
    }
    true
}
