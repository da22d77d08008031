//! What one lock guards: the core, and all that its actions are carried out on.
//!
//! ```text
//!   send(event) -> drive: core -> Serve    pins the frame, notes it in the reader's slot
//!                                 Fetch    a demand to a reader that waits for it,
//!                                          readahead to the background
//!                                 Done     the reader's answer, and wakes it
//!                                 Retract  false while a reader has the frame pinned
//! ```
//!
//! # Invariants
//! - Time is read under the lock, so events come to the core in the order of their times.
//! - A frame is pinned from its `Serve` until its reader has copied it.
//! - A demand that nobody waits for any more fails before the lock is let go of, so no later read
//!   joins it: who reads after an error has been told reads anew.
//! - Whoever sends an event takes the background fetches that came of it ([`State::take_ahead`])
//!   before it lets go of the lock for good, and submits them.
//! # Locking
//! The order is: state, then a journal's. The locks of `queues.rs`, `background.rs`, single frames
//! and stores are taken under no other. A reader sleeps on its slot's condition with this lock.

use std::sync::Arc;

use forerun_core::{
    cache::Cache,
    drive::{Driver, drive},
    event::{Action, Actions, Event, FetchKind},
    units::{FileId, FrameId, HandleId, Nanos, PageIndex},
};

use forerun_io::store::ECANCELED;

use crate::{
    clock::Clock,
    error::OpenError,
    fetch::{Fetch, File},
    journal::Recorder,
    stats::Stats,
    waiters::{SlotId, Slots},
};

/// See the module.
pub(crate) struct State {
    pub(crate) core: Cache,
    actions: Actions,
    clock: Clock,
    pub(crate) live: Live,
    /// The engine's own counts; the core's are its own.
    pub(crate) stats: Stats,
    pub(crate) closed: bool,
    handles_made: u32,
    handles_free: Vec<HandleId>,
}

/// What actions are carried out on.
pub(crate) struct Live {
    /// Readers that hold each frame.
    pins: Vec<u32>,
    pub(crate) slots: Slots,
    /// Open files by number.
    pub(crate) files: Vec<Option<Row>>,
    /// Fetches of the event under way.
    fetched: Vec<Fetch>,
    /// Readahead that nobody has submitted yet.
    ahead: Vec<Fetch>,
    /// Readahead in the background, or about to be.
    ahead_count: u32,
    recorder: Option<Box<dyn Recorder>>,
}

/// An open file and how many handles it has.
pub(crate) struct Row {
    pub(crate) file: Arc<File>,
    pub(crate) handles: u32,
}

impl State {
    pub(crate) fn new(
        core: Cache,
        clock: Clock,
        readers_max: u32,
        recorder: Option<Box<dyn Recorder>>,
    ) -> Self {
        let frames = core.settings().frames as usize;
        let live = Live {
            pins: vec![0; frames],
            slots: Slots::new(readers_max),
            files: Vec::new(),
            fetched: Vec::new(),
            ahead: Vec::new(),
            ahead_count: 0,
            recorder,
        };
        Self {
            core,
            actions: Actions::new(),
            clock,
            live,
            stats: Stats::default(),
            closed: false,
            handles_made: 0,
            handles_free: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Sends `event` and carries out what comes of it; `me` is the reader that sends it.
    pub(crate) fn send(&mut self, me: Option<SlotId>, event: Event<'_>) {
        self.drive(event);
        let mut orphans = self.live.route(me);
        while let Some(fetch) = orphans.pop() {
            let (first, count) = (fetch.frames[0], fetch.count());
            self.drive(Event::Failed { first, count, errno: ECANCELED });
            orphans.append(&mut self.live.route(me));
        }
    }

    fn drive(&mut self, event: Event<'_>) {
        let now = self.clock.now();
        drive(&mut self.core, now, event, &mut self.actions, &mut self.live);
        if let Some(recorder) = &mut self.live.recorder {
            recorder.came_back(&self.actions);
        }
    }

    /// The background fetches that came of events so far; the caller submits them.
    pub(crate) fn take_ahead(&mut self) -> Vec<Fetch> {
        std::mem::take(&mut self.live.ahead)
    }

    /// Readahead requests in the background.
    pub(crate) fn ahead_count(&self) -> u32 {
        self.live.ahead_count
    }

    /// A fetch has come back or was refused.
    pub(crate) fn ended(&mut self, fetch: &Fetch) {
        self.live.ahead_count -= u32::from(fetch.background);
    }

    /// Lets go of frames that were copied. Who waits for a frame may have one of them now.
    pub(crate) fn unpin(&mut self, me: SlotId, copied: &[(PageIndex, FrameId)]) {
        for &(_, frame) in copied {
            let pins = &mut self.live.pins[frame.0 as usize];
            assert!(*pins > 0, "{frame:?} was pinned by its Serve");
            *pins -= 1;
        }
        if !copied.is_empty() && self.core.deadline().is_some() {
            self.send(Some(me), Event::Tick);
        }
    }

    /// A number for a file that is not open yet.
    pub(crate) fn free_file(&self) -> Result<FileId, OpenError> {
        let (files, bound) = (&self.live.files, self.core.settings().files_max);
        let free = files.iter().position(Option::is_none).unwrap_or(files.len());
        let free = u32::try_from(free).ok().filter(|&free| free < bound);
        free.map(FileId).ok_or(OpenError::Files { bound })
    }

    /// A number for another handle.
    pub(crate) fn free_handle(&mut self) -> Result<HandleId, OpenError> {
        if let Some(handle) = self.handles_free.pop() {
            return Ok(handle);
        }
        let bound = self.core.settings().handles_max;
        if self.handles_made == bound {
            return Err(OpenError::Handles { bound });
        }
        self.handles_made += 1;
        Ok(HandleId(self.handles_made - 1))
    }

    /// The handle's number may be used again.
    pub(crate) fn handle_closed(&mut self, handle: HandleId) {
        self.handles_free.push(handle);
    }
}

impl Live {
    /// Gives the fetches of the last event to those who carry them out. Returns the demands whose
    /// readers have all left: the second try of a page that failed, where another page of the
    /// same reads failed before.
    fn route(&mut self, me: Option<SlotId>) -> Vec<Fetch> {
        let mut orphans = Vec::new();
        for fetch in self.fetched.drain(..) {
            if fetch.background {
                self.ahead_count += 1;
                self.ahead.push(fetch);
            } else {
                orphans.extend(self.slots.give(me, fetch));
            }
        }
        orphans
    }

    fn file(&self, file: FileId) -> Arc<File> {
        let row = self.files.get(file.0 as usize).and_then(Option::as_ref);
        Arc::clone(&row.expect("a file stays until its last fetch has ended").file)
    }
}

impl Driver for Live {
    fn carry_out(&mut self, action: Action, frames: &[FrameId]) -> bool {
        match action {
            Action::Serve { request, page, frame } => {
                self.pins[frame.0 as usize] += 1;
                self.slots.wake(request).served.push((page, frame));
            }
            Action::Fetch { kind, page, .. } => {
                let background = kind == FetchKind::Readahead;
                let (file, frames) = (self.file(page.file), frames.to_vec());
                self.fetched.push(Fetch { file, first: page.index, frames, background });
            }
            Action::Done { request } => self.slots.wake(request).answer = Some(Ok(())),
            Action::Fail { request, error } => {
                self.slots.wake(request).answer = Some(Err(error));
            }
            Action::Retract { frame, .. } => return self.pins[frame.0 as usize] == 0,
            Action::Publish { .. } | Action::Explain { .. } => {}
            Action::Fill { .. } | Action::Write { .. } | Action::Sync { .. } => {
                unreachable!("nothing is written through this cache: {action:?}")
            }
        }
        true
    }

    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.sent(now, event);
        }
    }
}
