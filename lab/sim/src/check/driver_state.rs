//! The state of the driver in a check: a store, frames, readers, and the shadow file.
//!
//! This driver executes the core's actions. Each action is checked on execution; the first
//! difference is kept and ends the run.

use std::collections::BTreeMap;
use std::ops::Range;

use forerun_core::drive::Driver;
use forerun_core::event::{Error, Event, FetchKind, Hit, codec};
use forerun_core::prng::Prng;
use forerun_core::units::{FileId, FrameId, Nanos, PageId, RequestId};

use super::store::{
    Changing, ClientRequest, Content, Fill, FrameView, Operation, Store, is_older, keep_newest,
};

/// The state of everything but the core.
pub(super) struct DriverState {
    pub(super) random: Prng,
    pub(super) store: Store,
    pub(super) frames: Vec<FrameView>,
    pub(super) index: BTreeMap<PageId, FrameId>,
    pub(super) operations: Vec<Operation>,
    /// What fetches in flight have read before the store changed the page.
    pub(super) read_before: BTreeMap<FrameId, Content>,
    /// Copies in progress by writers.
    pub(super) fills: Vec<Fill>,
    /// Frames that readers have pinned.
    pub(super) held: Vec<FrameId>,
    pub(super) hits: Vec<Hit>,
    pub(super) asked: BTreeMap<RequestId, ClientRequest>,
    /// The shadow file, which readers must see: each copy by a writer updates it.
    pub(super) shadow: BTreeMap<PageId, Content>,
    /// The writes that the core has acknowledged.
    pub(super) acknowledged: BTreeMap<PageId, Content>,
    /// What a power cut must not take: contents that the core has called durable, or newer ones.
    kept: BTreeMap<PageId, Content>,
    pub(super) pages: [u64; 2],
    pub(super) values: u64,
    pub(super) journal: Vec<u8>,
    pub(super) seen: BTreeMap<&'static str, u64>,
    pub(super) wrong: Option<String>,
}

impl DriverState {
    pub(super) fn new(random: Prng, frames: u32) -> Self {
        Self {
            random,
            store: Store::default(),
            frames: vec![FrameView::default(); frames as usize],
            index: BTreeMap::new(),
            operations: Vec::new(),
            read_before: BTreeMap::new(),
            fills: Vec::new(),
            held: Vec::new(),
            hits: Vec::new(),
            asked: BTreeMap::new(),
            shadow: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            kept: BTreeMap::new(),
            pages: [0; 2],
            values: 0,
            journal: Vec::new(),
            seen: BTreeMap::new(),
            wrong: None,
        }
    }

    pub(super) fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(super) fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    pub(super) fn frame(&mut self, frame: FrameId) -> &mut FrameView {
        &mut self.frames[frame.0 as usize]
    }

    pub(super) fn shadow(&self, page: PageId) -> Content {
        self.shadow.get(&page).copied().unwrap_or_default()
    }

    /// A reader reads the page in `frame` and pins the frame.
    pub(super) fn look(&mut self, page: PageId, frame: FrameId) {
        let (seen, due) = (self.frame(frame).content, self.shadow(page));
        if seen != due {
            self.wrong(format!("{page:?} in {frame:?} reads {seen:?}, should be {due:?}"));
        }
        self.frame(frame).pins += 1;
        self.held.push(frame);
    }

    /// The lower and upper bound of absent pages in `pages` at a prefetch. They differ by pages
    /// that an operation or a writer may hold, and pages past an end that a write may have moved.
    pub(super) fn prefetchable(&self, file: FileId, pages: Range<u64>) -> (u64, u64) {
        let fetched = |page: PageId| {
            self.operations.iter().any(|operation| match operation {
                Operation::Fetch { page: first, frames } => {
                    let pages = first.index..first.index + frames.len() as u64;
                    first.file == page.file && pages.contains(&page.index)
                }
                Operation::Write { .. } | Operation::Sync { .. } | Operation::Change { .. } => {
                    false
                }
            })
        };
        let (mut least, mut most) = (0, 0);
        for index in pages {
            let page = PageId { file, index };
            if !self.index.contains_key(&page) {
                most += 1;
                let calm = self.fills.is_empty() && index < self.pages[file.0 as usize];
                least += u64::from(calm && !fetched(page));
            }
        }
        (least, most)
    }

    /// A frame that receives new bytes must be unused.
    fn take(&mut self, frame: FrameId, what: &str) {
        let view = *self.frame(frame);
        if view.pins > 0 || view.busy || view.published.is_some() {
            self.wrong(format!("{frame:?} is {what} while in use: {view:?}"));
        }
    }

    /// These contents, or newer ones, must be durable.
    fn promise(&mut self, request: RequestId, contents: &BTreeMap<PageId, Content>) {
        for (&page, &content) in contents {
            let durable = self.store.durable(page);
            if is_older(durable, content) {
                self.wrong(format!("{request:?}: {page:?} is {durable:?}, promised {content:?}"));
            }
            keep_newest(&mut self.kept, page, content);
        }
    }

    /// The power may fail at this moment. Each page is then as of the last sync, as it was written
    /// since, or as a write in flight has it: none of these may be older than what was called
    /// durable.
    pub(super) fn cut_power(&mut self) {
        let mut in_flight: BTreeMap<PageId, Vec<Content>> = BTreeMap::new();
        for operation in &self.operations {
            let Operation::Write { page, contents, .. } = operation else { continue };
            for (index, &content) in (page.index..).zip(contents) {
                in_flight.entry(PageId { index, ..*page }).or_default().push(content);
            }
        }
        let stale = self.kept.iter().find_map(|(&page, &kept)| {
            let on_its_way = in_flight.get(&page).into_iter().flatten().copied();
            let all = [self.store.durable(page), self.store.read(page)].into_iter();
            let found = all.chain(on_its_way).find(|&content| is_older(content, kept));
            found.map(|found| (page, found, kept))
        });
        if let Some((page, found, kept)) = stale {
            self.wrong(format!("a power cut leaves {found:?} of {page:?}, promised {kept:?}"));
        }
        if !self.kept.is_empty() {
            self.saw("power cut");
        }
    }

    /// Truncates the file: the shadow, the store and the copies drop all bytes beyond its end.
    pub(super) fn cut(&mut self, file: FileId, pages: u64) {
        self.store.truncate(file, pages);
        self.pages[file.0 as usize] = pages;
        let stays = |page: &PageId| page.file != file || page.index < pages;
        self.shadow.retain(|page, _| stays(page));
        self.acknowledged.retain(|page, _| stays(page));
        self.kept.retain(|page, _| stays(page));
        for operation in &mut self.operations {
            if let Operation::Sync { covered, .. } = operation {
                covered.retain(|page, _| stays(page));
            }
        }
        for asked in self.asked.values_mut() {
            match asked {
                ClientRequest::Read { .. } => {}
                ClientRequest::Write(write) => write.filled.retain(|page, _| stays(page)),
                ClientRequest::Flush { acknowledged } => acknowledged.retain(|page, _| stays(page)),
                ClientRequest::Change { made, .. } => made.retain(|page, _| stays(page)),
            }
        }
    }
}

impl DriverState {
    /// Has fetches of `file` in flight, some of them, read their pages now.
    fn read_in_flight(&mut self, file: FileId) {
        for operation in &self.operations {
            let Operation::Fetch { page, frames } = operation else { continue };
            for (index, &frame) in (page.index..).zip(frames).filter(|_| page.file == file) {
                if self.random.below(2) == 0 {
                    let content = self.store.read(PageId { index, ..*page });
                    self.read_before.entry(frame).or_insert(content);
                }
            }
        }
    }

    /// The store makes a change: the shadow sees it from now on.
    pub(super) fn make(&mut self, request: RequestId, changing: Changing) {
        let Changing { file, first, count, keeps_first, file_pages, .. } = changing;
        self.read_in_flight(file);
        if let Some(pages) = file_pages {
            self.cut(file, pages);
        }
        self.values += 1;
        let (value, mut contents) = (self.values, BTreeMap::new());
        let end = first.saturating_add(count).min(self.pages[file.0 as usize]);
        for index in first..end {
            let page = PageId { file, index };
            let kept = self.store.read(page)[0];
            let content = [if keeps_first && index == first { kept } else { value }, value];
            self.store.alter(page, content);
            self.shadow.insert(page, content);
            // What was written before is overwritten, and is promised no longer.
            self.acknowledged.remove(&page);
            for asked in self.asked.values_mut() {
                match asked {
                    ClientRequest::Flush { acknowledged } => _ = acknowledged.remove(&page),
                    ClientRequest::Write(write) => _ = write.filled.remove(&page),
                    ClientRequest::Read { .. } | ClientRequest::Change { .. } => {}
                }
            }
            contents.insert(page, content);
        }
        match self.asked.get_mut(&request) {
            Some(ClientRequest::Change { made, .. }) => *made = contents,
            _ => self.wrong(format!("{request:?} is no change under way")),
        }
    }
}

impl Driver for DriverState {
    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        codec::encode(now, event, &mut self.journal);
    }

    fn fetch(&mut self, _: FetchKind, page: PageId, frames: &[FrameId]) {
        for &frame in frames {
            self.take(frame, "fetched into");
            self.frame(frame).busy = true;
        }
        self.operations.push(Operation::Fetch { page, frames: frames.to_vec() });
    }

    fn fill(&mut self, request: RequestId, index: u64, frame: FrameId, fresh: bool) {
        if fresh {
            self.take(frame, "filled");
            self.frame(frame).content = [0; 2];
            self.saw("fresh page");
        }
        self.values += 1;
        let value = self.values;
        let content = &mut self.frames[frame.0 as usize].content;
        let Some(ClientRequest::Write(write)) = self.asked.get_mut(&request) else {
            return self.wrong(format!("{request:?} is no write under way"));
        };
        // A write in part covers the second half of its first page, the first of its last.
        let head = index == write.first && write.partial.0;
        let tail = index + 1 == write.first + u64::from(write.count) && write.partial.1;
        if !head {
            content[0] = value;
        }
        if !tail {
            content[1] = value;
        }
        let (page, content) = (PageId { file: write.file, index }, *content);
        write.filled.insert(page, content);
        if head || tail {
            self.saw("write in part");
        }
        self.shadow.insert(page, content);
        let pages = &mut self.pages[page.file.0 as usize];
        *pages = (*pages).max(index + 1);
        self.fills.push(Fill { request, frame });
    }

    fn write(&mut self, page: PageId, frames: &[FrameId]) {
        // The store takes the bytes as they are now; writers may go on in the frame.
        let contents = frames.iter().map(|&frame| self.frame(frame).content).collect();
        let frames = frames.to_vec();
        self.operations.push(Operation::Write { page, frames, contents });
    }

    fn sync(&mut self, file: FileId) {
        let covered = self.store.to_sync(file);
        self.operations.push(Operation::Sync { file, covered });
    }

    fn change(&mut self, request: RequestId) {
        let Some(&ClientRequest::Change { changing, .. }) = self.asked.get(&request) else {
            return self.wrong(format!("{request:?} is no change under way"));
        };
        let writes = |operation: &Operation| match operation {
            Operation::Write { page, .. } => page.file == changing.file,
            _ => false,
        };
        if self.operations.iter().any(writes) {
            self.wrong(format!("{request:?} changes a file that is being written"));
        }
        self.operations.push(Operation::Change { request, changing });
    }

    fn serve(&mut self, request: RequestId, index: u64, frame: FrameId) {
        let Some(ClientRequest::Read { file, left }) = self.asked.get_mut(&request) else {
            return self.wrong(format!("{request:?} is served, but reads nothing"));
        };
        let page = PageId { file: *file, index };
        let Some(at) = left.iter().position(|&want| want == index) else {
            return self.wrong(format!("{request:?} is served page {index} unasked"));
        };
        left.remove(at);
        self.look(page, frame);
    }

    fn done(&mut self, request: RequestId) {
        match self.asked.remove(&request) {
            None => self.wrong(format!("{request:?} is answered twice")),
            Some(ClientRequest::Read { left, .. }) => {
                if !left.is_empty() {
                    self.wrong(format!("{request:?} is done without pages {left:?}"));
                }
            }
            Some(ClientRequest::Write(write)) => {
                for (&page, &content) in &write.filled {
                    keep_newest(&mut self.acknowledged, page, content);
                }
                if write.durable {
                    self.saw("durable write");
                    self.promise(request, &write.filled);
                }
            }
            Some(ClientRequest::Flush { acknowledged }) => {
                self.saw("flush done");
                self.promise(request, &acknowledged);
            }
            Some(ClientRequest::Change { changing, made }) => {
                self.saw("changed in the store");
                if changing.durable {
                    self.saw("durable change");
                    self.promise(request, &made);
                }
                for (page, content) in made {
                    keep_newest(&mut self.acknowledged, page, content);
                }
            }
        }
    }

    fn fail(&mut self, request: RequestId, error: Error) {
        if self.asked.remove(&request).is_none() {
            self.wrong(format!("{request:?} failed after it was answered: {error}"));
        }
        self.saw(match error {
            Error::Store { .. } => "store error",
            Error::Writeback { .. } => "write-back error",
            Error::PastEnd { .. } => "past the end",
            Error::Changed { .. } => "changed",
            Error::NoFrames { .. } => "no frames",
            Error::Busy { .. } => "busy",
            Error::TooLarge { .. } => "too large",
            Error::Cancelled => "cancelled",
            Error::DirtyFull { .. } => "dirty pages full",
            _ => "an error of a kind that this check does not know",
        });
    }

    fn publish(&mut self, page: PageId, frame: FrameId, generation: u32, marker: bool) {
        self.frame(frame).published = Some((page, generation, marker));
        let other = self.index.insert(page, frame);
        if other.is_some_and(|other| other != frame) {
            self.wrong(format!("{page:?} is published in {other:?} and {frame:?}"));
        }
    }

    fn retract(&mut self, frame: FrameId, gone: bool) -> bool {
        let loose = self.frame(frame).pins == 0;
        if !loose {
            self.saw("pinned victim");
        }
        let listed = self.frame(frame).published.filter(|_| loose || gone);
        if let Some((page, ..)) = listed {
            self.frame(frame).published = None;
            self.index.remove(&page);
        }
        loose
    }
}
