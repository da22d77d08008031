//! A file system on a device model behind a page cache: what a call or a request needs, object by
//! object.
//!
//! ```text
//!   a/b/f:  Entries(top) > Inodes(a) > Entries(a) > Inodes(b) > Entries(b) > Inodes(f) > Data(f)
//! ```
//! Each step needs the one before. Inodes lie 16 to a block, by their number; the entries of a
//! directory are one request; data comes in chunks of the kernel's window.
//!
//! # Invariants
//! - An object is fetched once, and stays; all tasks that need one in flight wait for that fetch.

use std::collections::{BTreeMap, VecDeque};

use forerun_core::device::{Device, Request};
use forerun_core::units::Nanos;

use super::tree::Tree;

/// What is fetched at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    /// A block of inodes.
    Inodes(u64),
    /// The entries of a directory.
    Entries(usize),
    /// A chunk of a file.
    Data(usize, u64),
}

/// Objects that are needed one after the other; those of a stage side by side.
pub(super) type Stages = VecDeque<Vec<Object>>;

#[derive(Debug, Default)]
struct Cached {
    is_present: bool,
    /// Whether the program asked for it.
    is_demanded: bool,
    bytes: u64,
    waiting: Vec<usize>,
}

/// See the module.
pub(super) struct Storage {
    device: Device,
    places: Vec<u64>,
    cached: BTreeMap<Object, Cached>,
    /// Requests that the device has no room for yet.
    queued: VecDeque<Request>,
    requested: Vec<Object>,
    pub(super) requests: u64,
}

impl Storage {
    pub(super) fn new(tree: &Tree, device: Device) -> Self {
        let (mut places, mut end) = (vec![0; tree.count()], DATA_BEGIN);
        let mut by_inode: Vec<usize> = (0..tree.count()).collect();
        by_inode.sort_by_key(|&node| tree.node(node).inode);
        for node in by_inode {
            places[node] = end;
            end = end.saturating_add(tree.node(node).bytes).next_multiple_of(BLOCK_BYTES)
                % PLACES_MAX;
        }
        let (cached, queued, requested) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        Self { device, places, cached, queued, requested, requests: 0 }
    }

    /// Whether `object` is there. If not it is fetched, and its arrival wakes `task`.
    pub(super) fn need(
        &mut self,
        now: Nanos,
        tree: &Tree,
        object: Object,
        task: usize,
        demanded: bool,
    ) -> bool {
        let is_new = !self.cached.contains_key(&object);
        let cached = self.cached.entry(object).or_default();
        cached.is_demanded |= demanded;
        if cached.is_present {
            return true;
        }
        cached.waiting.push(task);
        if is_new {
            let (offset, bytes) = self.place(tree, object);
            // What a device has no room for lies where other things lie.
            let room = (self.device.capacity_bytes() - bytes) / BLOCK_BYTES + 1;
            let offset = offset / BLOCK_BYTES % room * BLOCK_BYTES;
            self.cached.entry(object).or_default().bytes = bytes;
            let id = self.requested.len() as u64;
            self.requested.push(object);
            self.queued.push_back(Request { id, offset, bytes, write: false });
            self.requests += 1;
            self.submit(now);
        }
        false
    }

    fn place(&self, tree: &Tree, object: Object) -> (u64, u64) {
        match object {
            Object::Inodes(block) => (block % INODE_BLOCKS * BLOCK_BYTES, BLOCK_BYTES),
            Object::Entries(node) => {
                let bytes = tree.node(node).bytes.clamp(1, self.device.request_bytes_max());
                (self.places[node], bytes)
            }
            Object::Data(node, chunk) => {
                let rest = tree.node(node).bytes - chunk * CHUNK_BYTES;
                (self.places[node] + chunk * CHUNK_BYTES, rest.min(CHUNK_BYTES))
            }
        }
    }

    fn submit(&mut self, now: Nanos) {
        while self.device.in_flight() < DEPTH_MAX
            && let Some(request) = self.queued.pop_front()
        {
            self.device.submit(now, request);
        }
    }

    /// When the next object comes.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.device.next()
    }

    /// The tasks that waited for an object that has come.
    pub(super) fn complete(&mut self, now: Nanos) -> Option<Vec<usize>> {
        let completion = self.device.complete(now)?;
        self.submit(now);
        let number = usize::try_from(completion.request.id).expect("a number of an object");
        let cached = self.cached.get_mut(&self.requested[number]).expect("it was requested");
        assert!(!cached.is_present, "an object comes once");
        cached.is_present = true;
        Some(std::mem::take(&mut cached.waiting))
    }

    /// Bytes of files that were fetched, and those among them that the program never asked for.
    pub(super) fn data_bytes(&self) -> (u64, u64) {
        let data = || self.cached.iter().filter(|(object, _)| matches!(object, Object::Data(..)));
        let all = data().map(|(_, cached)| cached.bytes).sum();
        let unused = data().filter(|(_, cached)| !cached.is_demanded);
        (all, unused.map(|(_, cached)| cached.bytes).sum())
    }
}

/// What it takes to know the inode of `node`.
pub(super) fn inode(tree: &Tree, node: usize) -> Stages {
    let mut stages = Stages::new();
    let mut at = node;
    while at != 0 {
        stages.push_front(vec![Object::Inodes(tree.node(at).inode / INODES_A_BLOCK)]);
        at = tree.node(at).parent;
        stages.push_front(vec![Object::Entries(at)]);
    }
    stages
}

/// What it takes to list the directory `node`.
pub(super) fn entries(tree: &Tree, node: usize) -> Stages {
    let mut stages = inode(tree, node);
    stages.push_back(vec![Object::Entries(node)]);
    stages
}

/// The chunks of a range of the file `node`, [`CHUNKS_MAX`] at most: the rest is for streams.
pub(super) fn data(tree: &Tree, node: usize, offset: u64, bytes: u64) -> Vec<Object> {
    let end = offset.saturating_add(bytes).min(tree.node(node).bytes);
    let first = offset / CHUNK_BYTES;
    let chunks = first..end.div_ceil(CHUNK_BYTES).min(first + CHUNKS_MAX);
    chunks.map(|chunk| Object::Data(node, chunk)).collect()
}

/// The kernel's window.
const CHUNK_BYTES: u64 = 128 << 10;
/// Chunks of a call.
const CHUNKS_MAX: u64 = 4_096;
const BLOCK_BYTES: u64 = 4_096;
/// Inodes of 256 bytes.
const INODES_A_BLOCK: u64 = 16;
/// Blocks of inodes in front of the data.
const INODE_BLOCKS: u64 = 1 << 18;
/// Places are no larger.
const PLACES_MAX: u64 = 1 << 61;
const DATA_BEGIN: u64 = INODE_BLOCKS * BLOCK_BYTES;
/// Requests that the kernel has at the device at a time.
const DEPTH_MAX: u32 = 256;
