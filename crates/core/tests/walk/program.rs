//! A tree of names, a program that uses it, and a driver that carries out what core requests.

use std::collections::BTreeMap;

use forerun_core::units::Nanos;
use forerun_core::walk::{
    DirectoryId, Entry, EntryKind, Use, WalkOutcome, WalkRequest, WalkSettings, Walks, Want,
};

/// What the use of each entry saves.
pub(crate) const SAVES: Nanos = Nanos(7);

/// All bytes of a file.
pub(crate) const READ: Use = Use::Read { to_end: true };

/// Directories by their paths (`""` is the top), each with its entries in the order of readdir. A
/// name with `/` at its end is a directory, one with `@` another thing, any other a file.
pub(crate) type Tree<'a> = &'a [(&'a str, &'a [&'a str])];

pub(crate) struct Program {
    pub(crate) walks: Walks,
    tree: BTreeMap<String, Vec<String>>,
    pub(crate) ids: BTreeMap<String, DirectoryId>,
    /// Bytes of every file.
    pub(crate) bytes: u64,
    /// Whether requests are completed as they come.
    pub(crate) completes: bool,
    pub(crate) waiting: Vec<WalkRequest>,
}

impl Program {
    pub(crate) fn new(tree: Tree<'_>) -> Self {
        Self::with(tree, WalkSettings { sees_all: true, ..WalkSettings::default() })
    }

    pub(crate) fn with(tree: Tree<'_>, settings: WalkSettings) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let tree = tree.iter().map(|&(path, names)| (path.to_owned(), owned(names))).collect();
        let (walks, ids) = (Walks::new(settings), BTreeMap::new());
        Self { walks, tree, ids, bytes: 1_000, completes: true, waiting: Vec::new() }
    }

    /// The directory at `path`, registered with all above it.
    pub(crate) fn dir(&mut self, path: &str) -> DirectoryId {
        if let Some(&id) = self.ids.get(path) {
            return id;
        }
        let id = match path.rsplit_once('/') {
            _ if path.is_empty() => self.walks.directory(None),
            Some((above, name)) => {
                let above = self.dir(above);
                self.walks.directory(Some((above, name.as_bytes())))
            }
            None => {
                let top = self.dir("");
                self.walks.directory(Some((top, path.as_bytes())))
            }
        };
        self.ids.retain(|_, &mut other| other != id);
        self.ids.insert(path.to_owned(), id);
        id
    }

    /// Gives the listing of the directory at `path`; inodes count down from 1,000 by every third
    /// name, so that their order is none of the others.
    pub(crate) fn give(&mut self, path: &str) {
        let id = self.dir(path);
        let names = self.tree.get(path).cloned().unwrap_or_default();
        let entries: Vec<Entry<'_>> = (0..)
            .zip(&names)
            .map(|(at, name)| {
                let kind = match name.as_bytes().last() {
                    Some(b'/') => EntryKind::Directory,
                    Some(b'@') => EntryKind::Other,
                    _ => EntryKind::File,
                };
                let name = name.trim_end_matches('/').as_bytes();
                Entry { name, inode: 1_000 - (at * 7) % 11, kind }
            })
            .collect();
        let mut dropped = Vec::new();
        self.walks.listed(id, &entries, &mut dropped);
    }

    /// The program lists the directory at `path`; what core requests is carried out.
    pub(crate) fn list(&mut self, path: &str) -> Vec<String> {
        let id = self.dir(path);
        self.walks.list(id);
        self.work()
    }

    /// The program uses the entry at `path`. Returns what is requested, as `WANT path`.
    pub(crate) fn touch(&mut self, path: &str, usage: Use) -> Vec<String> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let id = self.dir(above);
        self.walks.touch(id, name.as_bytes(), usage);
        self.work()
    }

    /// Uses of several entries, one after the other: what is requested with the last.
    pub(crate) fn touch_all(&mut self, paths: &[&str], usage: Use) -> Vec<String> {
        paths.iter().map(|path| self.touch(path, usage)).last().unwrap_or_default()
    }

    /// Carries out requests until there are no more.
    pub(crate) fn work(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        loop {
            let mut requests = Vec::new();
            self.walks.issue(1_000, &mut requests);
            if requests.is_empty() {
                let _balanced = self.walks.stats();
                return shown;
            }
            for request in requests {
                let path = self.path(&request);
                if request.index.is_some() {
                    shown.push(format!("{:?} {path}", request.want));
                }
                if self.completes {
                    self.complete(request);
                } else {
                    self.waiting.push(request);
                }
            }
        }
    }

    pub(crate) fn path(&self, request: &WalkRequest) -> String {
        let found = self.ids.iter().find(|&(_, &id)| id == request.dir);
        let above = found.expect("a request is in a registered directory").0;
        let Some(index) = request.index else { return above.clone() };
        let index = usize::try_from(index).unwrap();
        let name = self.tree[above][index].trim_end_matches('/');
        if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") }
    }

    pub(crate) fn complete(&mut self, request: WalkRequest) {
        if request.want == Want::Listing {
            let path = self.path(&request);
            self.give(&path);
        }
        let bytes = match request.want {
            Want::Inode | Want::Listing => 0,
            Want::Head => self.bytes.min(128 << 10),
            Want::Whole => self.bytes.min(256 << 10),
        };
        self.walks.complete(request.id, WalkOutcome::Fetched { bytes, saves: SAVES });
    }
}
