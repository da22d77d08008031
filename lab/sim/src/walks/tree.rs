//! A directory tree as it was when a program went over it: names, kinds, inodes, sizes, and the
//! order of readdir.
//!
//! # Invariants
//! - Node 0 is the top; the entries of a directory are in the order of readdir.
//! - A path has no empty part, no `.` and no `..`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use forerun_core::walk::EntryKind;
use serde::{Deserialize, Serialize};

use super::names;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: Vec<Node>,
    children: BTreeMap<(usize, String), usize>,
}

/// An entry of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, as `names` writes it.
    pub name: String,
    /// The directory that it lies in; the top lies in itself.
    pub parent: usize,
    /// What it is.
    pub kind: EntryKind,
    /// Its inode's number.
    pub inode: u64,
    /// Its bytes; those of a directory are its blocks.
    pub bytes: u64,
    /// The entries of a directory.
    pub entries: Vec<usize>,
}

/// A line of a trace: a directory and its entries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DirectoryLine {
    /// Its path below the top; empty for the top.
    pub(super) directory: String,
    /// Name, kind (`f`, `d`, `o`), inode, bytes of each.
    pub(super) entries: Vec<(String, char, u64, u64)>,
}

impl Tree {
    /// A tree of a top without entries.
    #[must_use]
    pub fn new() -> Self {
        let name = String::new();
        let top = Node {
            name,
            parent: 0,
            kind: EntryKind::Directory,
            inode: 2,
            bytes: 4_096,
            entries: Vec::new(),
        };
        Self { nodes: vec![top], children: BTreeMap::new() }
    }

    /// The tree below `top`, as it is on disk.
    ///
    /// # Errors
    /// `top` cannot be read.
    pub fn read(top: &Path) -> io::Result<Self> {
        Self::read_on_the_way(top, |_| true)
    }

    /// The same, with the entries of directories that `is_wanted`, by their paths below the top,
    /// and of the top. A directory that cannot be read, or has gone, is one without entries.
    ///
    /// # Errors
    /// `top` cannot be read.
    pub fn read_on_the_way(top: &Path, is_wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        let mut tree = Self::new();
        (tree.nodes[0].inode, tree.nodes[0].bytes) = facts(&fs::symlink_metadata(top)?);
        let mut directories = vec![(0, String::new(), top.to_path_buf())];
        while let Some((parent, below, path)) = directories.pop() {
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(_) if parent > 0 => continue,
                Err(error) => return Err(error),
            };
            for entry in entries.flatten() {
                let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
                let kind = match metadata.file_type() {
                    kind if kind.is_dir() => EntryKind::Directory,
                    kind if kind.is_file() => EntryKind::File,
                    _ => EntryKind::Other,
                };
                let (inode, bytes) = facts(&metadata);
                let name = names::encoded(entry.file_name().as_bytes());
                let separator = if below.is_empty() { "" } else { "/" };
                let path = format!("{below}{separator}{name}");
                let node = tree.add(parent, name, kind, inode, bytes);
                if kind == EntryKind::Directory && is_wanted(&path) {
                    directories.push((node, path, entry.path()));
                }
            }
        }
        Ok(tree)
    }

    /// Adds an entry behind those that its directory has.
    pub fn add(
        &mut self,
        parent: usize,
        name: String,
        kind: EntryKind,
        inode: u64,
        bytes: u64,
    ) -> usize {
        let node = self.nodes.len();
        assert!(parent < node, "a directory comes before its entries");
        self.children.insert((parent, name.clone()), node);
        self.nodes[parent].entries.push(node);
        self.nodes.push(Node { name, parent, kind, inode, bytes, entries: Vec::new() });
        node
    }

    /// The entry of this number.
    #[must_use]
    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// The number of entries, the top included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The entry at `path` below the top.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<usize> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        parts.try_fold(0, |node, part| self.children.get(&(node, part.to_owned())).copied())
    }

    /// The deepest directory of `path` that is there.
    #[must_use]
    pub fn deepest(&self, path: &str) -> usize {
        let mut node = 0;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match self.children.get(&(node, part.to_owned())) {
                Some(&next) if self.nodes[next].kind == EntryKind::Directory => node = next,
                Some(_) | None => break,
            }
        }
        node
    }

    /// The path of an entry below the top.
    #[must_use]
    pub fn path(&self, node: usize) -> String {
        if node == 0 {
            return String::new();
        }
        let above = self.path(self.nodes[node].parent);
        let name = &self.nodes[node].name;
        if above.is_empty() { name.clone() } else { format!("{above}/{name}") }
    }

    /// The name of `node`, as it is on disk.
    pub(super) fn name(&self, node: usize) -> Vec<u8> {
        names::decoded(&self.nodes[node].name).expect("it was encoded, or checked")
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = DirectoryLine> + '_ {
        let directories =
            (0..self.nodes.len()).filter(|&node| !self.nodes[node].entries.is_empty());
        directories.map(|node| {
            let entry = |&entry: &usize| {
                let Node { name, kind, inode, bytes, .. } = &self.nodes[entry];
                (name.clone(), letter(*kind), *inode, *bytes)
            };
            let entries = self.nodes[node].entries.iter().map(entry).collect();
            DirectoryLine { directory: self.path(node), entries }
        })
    }

    pub(super) fn add_line(&mut self, line: DirectoryLine) -> Result<(), String> {
        let parent = self.find(&line.directory);
        let parent = parent.ok_or_else(|| format!("no directory `{}` before", line.directory))?;
        for (name, kind, inode, bytes) in line.entries {
            let kind = kind_of(kind).ok_or_else(|| format!("no kind `{kind}` of an entry"))?;
            if self.nodes.len() == NODES_MAX || bytes > BYTES_MAX {
                return Err(format!("more than {NODES_MAX} entries, or {BYTES_MAX} bytes of one"));
            }
            if name.is_empty()
                || name.contains('/')
                || name == "."
                || name == ".."
                || self.children.contains_key(&(parent, name.clone()))
            {
                return Err(format!("no name of one more entry: `{name}`"));
            }
            self.add(parent, name, kind, inode, bytes);
        }
        Ok(())
    }
}

impl DirectoryLine {
    /// Replaces every name and path.
    pub(super) fn rename(
        &mut self,
        to: impl Fn(String) -> Result<String, String>,
    ) -> Result<(), String> {
        self.directory = to(std::mem::take(&mut self.directory))?;
        for (name, ..) in &mut self.entries {
            *name = to(std::mem::take(name))?;
        }
        Ok(())
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

fn facts(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.ino(), metadata.size())
}

const fn letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => 'f',
        EntryKind::Directory => 'd',
        EntryKind::Other => 'o',
    }
}

const fn kind_of(letter: char) -> Option<EntryKind> {
    match letter {
        'f' => Some(EntryKind::File),
        'd' => Some(EntryKind::Directory),
        'o' => Some(EntryKind::Other),
        _ => None,
    }
}

/// Entries of a tree that is read.
const NODES_MAX: usize = 8 << 20;
/// The largest file that there can be.
const BYTES_MAX: u64 = 1 << 60;
