//! The driver of `core::walk` in virtual time: calls become uses, requests become tasks.
//!
//! # Invariants
//! - Core sees the names of a directory when their listing has been fetched, not before.

use std::collections::BTreeMap;

use forerun_core::units::Nanos;
use forerun_core::walk::{
    DirectoryId, Entry, EntryKind, Use, WalkOutcome, WalkRequest, WalkRequestId, WalkSettings,
    WalkStats, Walks, Want,
};

use super::accesses::{Call, CallKind};
use super::storage::{self, Stages};
use super::tree::{Node, Tree};

/// See the module.
pub(super) struct WalkDriver {
    walks: Walks,
    settings: WalkSettings,
    nodes: BTreeMap<DirectoryId, usize>,
    directories: BTreeMap<usize, DirectoryId>,
}

/// A request that is carried out.
#[derive(Clone, Copy)]
pub(super) struct Fetch {
    id: WalkRequestId,
    node: usize,
    want: Want,
    /// Not of a directory for itself.
    is_of_walk: bool,
}

impl Fetch {
    /// The entry that a walk requested.
    pub(super) fn entry(&self) -> Option<usize> {
        self.is_of_walk.then_some(self.node)
    }
}

impl WalkDriver {
    pub(super) fn new(settings: WalkSettings) -> Self {
        let walks = Walks::new(settings.clone());
        Self { walks, settings, nodes: BTreeMap::new(), directories: BTreeMap::new() }
    }

    fn directory(&mut self, tree: &Tree, node: usize) -> DirectoryId {
        if let Some(&dir) = self.directories.get(&node) {
            return dir;
        }
        let dir = if node == 0 {
            self.walks.directory(None)
        } else {
            let parent = self.directory(tree, tree.node(node).parent);
            self.walks.directory(Some((parent, &tree.name(node))))
        };
        if let Some(former) = self.nodes.insert(dir, node) {
            self.directories.remove(&former);
        }
        self.directories.insert(node, dir);
        dir
    }

    /// The program begins `call` on `node`.
    pub(super) fn observe(&mut self, tree: &Tree, call: &Call, node: usize) {
        if call.error.is_some() {
            return;
        }
        let file = tree.node(node);
        let to_end = call.offset.saturating_add(call.bytes) >= file.bytes;
        let usage = match call.call {
            CallKind::List => {
                let dir = self.directory(tree, node);
                return self.walks.list(dir);
            }
            CallKind::Stat | CallKind::Open => Use::Stat,
            CallKind::Read | CallKind::Map => Use::Read { to_end },
            CallKind::Exec => Use::Read { to_end: true },
        };
        if node != 0 {
            let dir = self.directory(tree, file.parent);
            self.walks.touch(dir, &tree.name(node), usage);
        }
    }

    /// Up to `room` requests, and what each needs.
    pub(super) fn issue(&mut self, tree: &Tree, room: usize) -> Vec<(Fetch, Stages)> {
        let mut requests = Vec::new();
        self.walks.issue(room, &mut requests);
        requests.iter().map(|request| self.fetch(tree, request)).collect()
    }

    fn fetch(&self, tree: &Tree, request: &WalkRequest) -> (Fetch, Stages) {
        let &WalkRequest { id, dir, index, want } = request;
        let dir = self.nodes[&dir];
        let node = index.map_or(dir, |index| tree.node(dir).entries[index as usize]);
        let mut stages = match want {
            Want::Listing => storage::entries(tree, node),
            Want::Inode | Want::Head | Want::Whole => storage::inode(tree, node),
        };
        let bytes = self.bytes(tree, node, want);
        if bytes > 0 {
            stages.push_back(storage::data(tree, node, 0, bytes));
        }
        (Fetch { id, node, want, is_of_walk: index.is_some() }, stages)
    }

    fn bytes(&self, tree: &Tree, node: usize, want: Want) -> u64 {
        let most = match want {
            Want::Inode | Want::Listing => 0,
            Want::Head => self.settings.head_bytes,
            Want::Whole => self.settings.whole_bytes,
        };
        tree.node(node).bytes.min(most)
    }

    /// A request has been carried out.
    pub(super) fn complete(&mut self, tree: &Tree, fetch: Fetch) {
        let Fetch { id, node, want, .. } = fetch;
        if want == Want::Listing && tree.node(node).kind == EntryKind::Directory {
            let dir = self.directory(tree, node);
            let row = |&entry: &usize| {
                let Node { inode, kind, .. } = *tree.node(entry);
                (tree.name(entry), inode, kind)
            };
            let rows: Vec<(Vec<u8>, u64, EntryKind)> =
                tree.node(node).entries.iter().map(row).collect();
            let entries: Vec<Entry<'_>> =
                rows.iter().map(|&(ref name, inode, kind)| Entry { name, inode, kind }).collect();
            self.walks.listed(dir, &entries, &mut Vec::new());
        }
        let (bytes, saves) = (self.bytes(tree, node, want), Nanos(0));
        self.walks.complete(id, WalkOutcome::Fetched { bytes, saves });
    }

    pub(super) fn stats(&self) -> WalkStats {
        self.walks.stats()
    }
}
