//! What the processes in strace's text have open, and where they stand: a line names a descriptor,
//! or a path from the working directory on, and no more.
//!
//! # Invariants
//! - Threads share with their process; a child has a copy of what its parent had.
//! - Descriptors are bounded in all, and paths in length: what is beyond is not known.

use std::collections::BTreeMap;
use std::rc::Rc;

/// What is known of a descriptor.
#[derive(Clone, Debug)]
struct Open {
    path: Rc<str>,
    /// Where the next read begins.
    position: u64,
}

/// A process: all threads that share descriptors and the working directory.
#[derive(Clone, Debug, Default)]
struct Process {
    directory: Rc<str>,
    files: BTreeMap<u32, Open>,
    threads: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Processes {
    rows: Vec<Process>,
    /// The row of each thread.
    threads: BTreeMap<u32, usize>,
    /// Descriptors of all rows.
    open: usize,
}

impl Processes {
    /// Processes of which the first stands in `directory`.
    pub(super) fn new(directory: &str) -> Self {
        let first = Process { directory: directory.into(), ..Process::default() };
        Self { rows: vec![first], threads: BTreeMap::new(), open: 0 }
    }

    /// The row of `thread`: the first one where nothing is known of it.
    fn number(&mut self, thread: u32) -> usize {
        let rows = &mut self.rows;
        *self.threads.entry(thread).or_insert_with(|| {
            rows[0].threads += 1;
            0
        })
    }

    fn row(&mut self, thread: u32) -> &mut Process {
        let row = self.number(thread);
        &mut self.rows[row]
    }

    /// Whether something is known of `thread`.
    pub(super) fn knows(&self, thread: u32) -> bool {
        self.threads.contains_key(&thread)
    }

    /// `parent` has made `child`, with which it shares all that is kept here if `is_shared`.
    pub(super) fn cloned(&mut self, parent: u32, child: u32, is_shared: bool) {
        if self.knows(child) {
            return;
        }
        let mut row = self.number(parent);
        if !is_shared && self.rows.len() < PROCESSES_MAX {
            let mut copy = self.rows[row].clone();
            if self.open + copy.files.len() > FILES_MAX {
                copy.files.clear();
            }
            self.open += copy.files.len();
            self.rows.push(Process { threads: 0, ..copy });
            row = self.rows.len() - 1;
        }
        self.rows[row].threads += 1;
        self.threads.insert(child, row);
    }

    /// `thread` has ended; its number may be another's soon.
    pub(super) fn ended(&mut self, thread: u32) {
        let Some(row) = self.threads.remove(&thread) else { return };
        self.rows[row].threads -= 1;
        // The first one is that of threads of which nothing is known.
        if row > 0 && self.rows[row].threads == 0 {
            self.open -= self.rows[row].files.len();
            self.rows[row] = Process::default();
        }
    }

    /// The working directory of `thread`.
    pub(super) fn directory(&mut self, thread: u32) -> Rc<str> {
        Rc::clone(&self.row(thread).directory)
    }

    /// `thread` goes to the directory `path`.
    pub(super) fn go(&mut self, thread: u32, path: &str) {
        if path.len() <= PATH_BYTES_MAX {
            self.row(thread).directory = path.into();
        }
    }

    /// `thread` has opened `path`.
    pub(super) fn opened(&mut self, thread: u32, number: u32, path: &str) {
        let (is_known, is_full) =
            (self.row(thread).files.contains_key(&number), self.open >= FILES_MAX);
        if path.len() > PATH_BYTES_MAX || (is_full && !is_known) {
            return self.closed(thread, number);
        }
        self.open += usize::from(!is_known);
        self.row(thread).files.insert(number, Open { path: path.into(), position: 0 });
    }

    /// `thread` has closed the descriptor.
    pub(super) fn closed(&mut self, thread: u32, number: u32) {
        let was_open = self.row(thread).files.remove(&number).is_some();
        self.open -= usize::from(was_open);
    }

    /// `thread` has made `copy` of the descriptor `number`.
    pub(super) fn copied(&mut self, thread: u32, number: u32, copy: u32) {
        match self.path(thread, number) {
            Some(path) => {
                let position = self.row(thread).files[&number].position;
                self.opened(thread, copy, &path);
                self.moved(thread, copy, position);
            }
            None => self.closed(thread, copy),
        }
    }

    /// The path of a descriptor, if it is known.
    pub(super) fn path(&mut self, thread: u32, number: u32) -> Option<Rc<str>> {
        self.row(thread).files.get(&number).map(|open| Rc::clone(&open.path))
    }

    /// The descriptor stands at `position` now.
    pub(super) fn moved(&mut self, thread: u32, number: u32, position: u64) {
        if let Some(open) = self.row(thread).files.get_mut(&number) {
            open.position = position;
        }
    }

    /// Where a read of `bytes` of `path` through the descriptor begins.
    pub(super) fn advance(&mut self, thread: u32, number: u32, path: &str, bytes: u64) -> u64 {
        if self.path(thread, number).as_deref() != Some(path) {
            self.opened(thread, number, path);
        }
        let Some(open) = self.row(thread).files.get_mut(&number) else { return 0 };
        let offset = open.position;
        open.position = offset.saturating_add(bytes);
        offset
    }
}

/// More are taken for their parents.
const PROCESSES_MAX: usize = 1 << 18;
const FILES_MAX: usize = 1 << 20;
/// As text: a byte of a path may take four.
const PATH_BYTES_MAX: usize = 4 * 4_096;
