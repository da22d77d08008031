//! How the store answers, and when a client has its page.
//!
//! In any order, in parts, with errors: a fetch that fails leaves no page of the file in its
//! frames, a write that fails may have reached the store, a sync that fails may lose what it was to
//! keep.

use forerun_core::event::Event;
use forerun_core::units::{FrameId, PageId};

use super::Run;
use crate::check::driver_state::DriverState;
use crate::check::store::{Fill, Operation};

impl Run {
    /// The store completes one of its operations, in whole or in part; the power may fail then.
    pub(super) fn answer(&mut self) -> Result<(), String> {
        self.complete()?;
        self.driver.cut_power();
        self.told_wrong()
    }

    fn complete(&mut self) -> Result<(), String> {
        if self.driver.operations.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(self.draw(self.driver.operations.len() as u64)).expect("small");
        let operation = self.driver.operations.swap_remove(at);
        let fails = self.faults && self.draw(8) == 0;
        match operation {
            Operation::Fetch { page, mut frames } => {
                let later = frames.split_off(1 + self.count(frames.len() as u64) as usize);
                self.rest_of(Operation::Fetch { page: after(page, &frames), frames: later });
                let (first, count) = (frames[0], u32::try_from(frames.len()).expect("small"));
                for (index, &frame) in (page.index..).zip(&frames) {
                    let read = self.driver.store.read(PageId { index, ..page });
                    let content = self.driver.read_before.remove(&frame).unwrap_or(read);
                    let view = self.driver.frame(frame);
                    view.busy = false;
                    view.content = if fails { [u64::MAX; 2] } else { content };
                }
                if fails {
                    return self.send(Event::Failed { first, count, errno: 5 });
                }
                self.send(Event::Arrived { first, count })
            }
            Operation::Write { page, mut frames, mut contents } => {
                let now = 1 + self.count(frames.len() as u64) as usize;
                let (later, left) = (frames.split_off(now), contents.split_off(now));
                let rest = after(page, &frames);
                self.rest_of(Operation::Write { page: rest, frames: later, contents: left });
                let (first, count) = (frames[0], u32::try_from(frames.len()).expect("small"));
                for (index, &content) in (page.index..).zip(&contents) {
                    // A failed write may have reached the store all the same.
                    if !fails || self.draw(2) == 0 {
                        self.driver.store.write(PageId { index, ..page }, content);
                    }
                }
                if fails {
                    self.driver.saw("write failed");
                    return self.send(Event::WriteFailed { first, count, errno: 28 });
                }
                self.send(Event::Written { first, count })
            }
            Operation::Change { request, changing } => {
                if fails {
                    self.driver.saw("change failed");
                    return self.send(Event::Changed { request, errno: 95 });
                }
                if changing.keeps_first {
                    self.driver.saw("cut within a page");
                }
                self.driver.make(request, changing);
                self.send(Event::Changed { request, errno: 0 })
            }
            Operation::Sync { file, covered } => {
                if fails {
                    self.driver.saw("sync failed");
                    let DriverState { store, random, .. } = &mut self.driver;
                    store.lose(file, || random.below(2) == 0);
                    return self.send(Event::Synced { file, errno: 5 });
                }
                self.driver.store.sync(&covered);
                self.send(Event::Synced { file, errno: 0 })
            }
        }
    }

    fn rest_of(&mut self, operation: Operation) {
        let frames = match &operation {
            Operation::Fetch { frames, .. } | Operation::Write { frames, .. } => frames.len(),
            Operation::Sync { .. } | Operation::Change { .. } => 0,
        };
        if frames > 0 {
            self.driver.operations.push(operation);
        }
    }

    pub(super) fn end_fill(&mut self) -> Result<(), String> {
        if self.driver.fills.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(self.draw(self.driver.fills.len() as u64)).expect("small");
        let Fill { request, frame } = self.driver.fills.swap_remove(at);
        self.send(Event::Filled { request, frame })
    }
}

fn after(page: PageId, frames: &[FrameId]) -> PageId {
    PageId { index: page.index + frames.len() as u64, ..page }
}
