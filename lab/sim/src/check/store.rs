//! The store of a check, and its frames, operations and requests.
//!
//! A page's content is two numbers, one a half, so that a write in part is seen. Every copy of a
//! writer's bytes has a number of its own, larger than all before: content is also its age.

use std::collections::{BTreeMap, BTreeSet};

use forerun_core::units::{FileId, FrameId, PageId, RequestId};

/// A page's two halves.
pub(super) type Content = [u64; 2];

/// Keeps the newer of each half of a page.
pub(super) fn keep_newest(known: &mut BTreeMap<PageId, Content>, page: PageId, content: Content) {
    let known = known.entry(page).or_default();
    *known = [known[0].max(content[0]), known[1].max(content[1])];
}

/// Whether a half of `a` is older than that of `b`.
pub(super) fn is_older(a: Content, b: Content) -> bool {
    a[0] < b[0] || a[1] < b[1]
}

/// A store that keeps written contents apart from synced contents.
#[derive(Default)]
pub(super) struct Store {
    written: BTreeMap<PageId, Content>,
    durable: BTreeMap<PageId, Content>,
    /// Pages that the store changed itself since the last sync: a sync that fails loses bytes that
    /// were written, not these.
    changed: BTreeSet<PageId>,
}

impl Store {
    pub(super) fn read(&self, page: PageId) -> Content {
        self.written.get(&page).copied().unwrap_or_default()
    }

    pub(super) fn durable(&self, page: PageId) -> Content {
        self.durable.get(&page).copied().unwrap_or_default()
    }

    pub(super) fn write(&mut self, page: PageId, content: Content) {
        self.changed.remove(&page);
        self.written.insert(page, content);
    }

    /// The store changes a page itself.
    pub(super) fn alter(&mut self, page: PageId, content: Content) {
        self.changed.insert(page);
        self.written.insert(page, content);
    }

    /// What a sync of `file` that begins now covers.
    pub(super) fn to_sync(&self, file: FileId) -> BTreeMap<PageId, Content> {
        let of_file = self.written.iter().filter(|(page, _)| page.file == file);
        of_file.map(|(page, content)| (*page, *content)).collect()
    }

    /// A sync ended that covers no more than this.
    pub(super) fn sync(&mut self, covered: &BTreeMap<PageId, Content>) {
        for (&page, &content) in covered {
            keep_newest(&mut self.durable, page, content);
            if self.written.get(&page) == Some(&content) {
                self.changed.remove(&page);
            }
        }
    }

    /// A failed sync: what was written since the last one may be lost.
    pub(super) fn lose(&mut self, file: FileId, mut lost: impl FnMut() -> bool) {
        let pages: Vec<PageId> = self.written.keys().copied().collect();
        for page in pages.into_iter().filter(|page| page.file == file) {
            if lost() && !self.changed.contains(&page) {
                self.written.insert(page, self.durable(page));
            }
        }
    }

    /// Another program changes the page, durably.
    pub(super) fn change(&mut self, page: PageId, content: Content) {
        self.written.insert(page, content);
        self.durable.insert(page, content);
    }

    pub(super) fn truncate(&mut self, file: FileId, pages: u64) {
        let stays = |page: &PageId| page.file != file || page.index < pages;
        self.written.retain(|page, _| stays(page));
        self.durable.retain(|page, _| stays(page));
        self.changed.retain(stays);
    }
}

/// The driver's view of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameView {
    pub(super) content: Content,
    /// Readers that pin it.
    pub(super) pins: u32,
    /// The page, generation and marker that it is published with.
    pub(super) published: Option<(PageId, u32, bool)>,
    /// A fetch owns it.
    pub(super) busy: bool,
}

/// An operation that the store has not completed.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Fetch { page: PageId, frames: Vec<FrameId> },
    Write { page: PageId, frames: Vec<FrameId>, contents: Vec<Content> },
    Sync { file: FileId, covered: BTreeMap<PageId, Content> },
    Change { request: RequestId, changing: Changing },
}

/// A request that the core has not completed.
#[derive(Clone, Debug)]
pub(super) enum ClientRequest {
    Read {
        file: FileId,
        left: Vec<u64>,
    },
    Write(Writing),
    /// A flush, with the writes acknowledged before it.
    Flush {
        acknowledged: BTreeMap<PageId, Content>,
    },
    /// A change, with the contents that it gave, once it was made.
    Change {
        changing: Changing,
        made: BTreeMap<PageId, Content>,
    },
}

/// A change that the store makes: pages get new contents, and the file perhaps another length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changing {
    pub(super) file: FileId,
    pub(super) first: u64,
    pub(super) count: u64,
    /// The first half of the first page stays.
    pub(super) keeps_first: bool,
    pub(super) file_pages: Option<u64>,
    pub(super) durable: bool,
}

/// A write in flight.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) file: FileId,
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) partial: (bool, bool),
    pub(super) durable: bool,
    /// The contents of its pages at the copy.
    pub(super) filled: BTreeMap<PageId, Content>,
}

/// A copy of a writer's bytes that has not been reported yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) request: RequestId,
    pub(super) frame: FrameId,
}
