//! What changes between two runs of a program: the versions of its files, and where they lie.
//!
//! # Invariants
//! - The calls stay those of the trace; the tree stays one.

use forerun_core::walk::EntryKind;

use super::accesses::AccessTrace;
use super::tree::{Node, Tree};

impl AccessTrace {
    /// The same program after all files below `folder` were replaced: they have other inodes,
    /// behind all others. None where there is no such folder.
    #[must_use]
    pub fn upgraded(&self, folder: &str) -> Option<Self> {
        let old = &self.tree;
        let top = old.find(folder).filter(|&node| old.node(node).kind == EntryKind::Directory)?;
        let mut next = (0..old.count()).map(|node| old.node(node).inode).max()?;
        let mut is_below = vec![false; old.count()];
        is_below[top] = true;
        let tree = copied(old, Tree::new(), 0, &mut |node| {
            let file = old.node(node);
            is_below[node] |= is_below[file.parent];
            if is_below[node] && file.kind == EntryKind::File {
                next = next.wrapping_add(1);
                return next;
            }
            file.inode
        });
        Some(Self { tree, ..self.clone() })
    }

    /// The same program where all of its files lie in the folder `path`, which is a new one.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        let (mut tree, mut node) = (Tree::new(), 0);
        for name in path.split('/') {
            let Node { inode, bytes, .. } = *self.tree.node(0);
            node = tree.add(node, name.to_owned(), EntryKind::Directory, inode, bytes);
        }
        let tree = copied(&self.tree, tree, node, &mut |node| self.tree.node(node).inode);
        let mut calls = self.calls.clone();
        for call in &mut calls {
            let separator = if call.path.is_empty() { "" } else { "/" };
            call.path = format!("{path}{separator}{}", call.path);
        }
        Self { program: self.program.clone(), tree, calls }
    }
}

/// The entries of `from`, with these inodes, below the node `top` of `to`.
fn copied(from: &Tree, mut to: Tree, top: usize, inode: &mut dyn FnMut(usize) -> u64) -> Tree {
    let mut places = vec![top; from.count()];
    for node in 1..from.count() {
        let Node { name, parent, kind, bytes, .. } = from.node(node);
        places[node] = to.add(places[*parent], name.clone(), *kind, inode(node), *bytes);
    }
    assert!(to.count() >= from.count(), "each entry is copied");
    to
}
