//! Reads that watches tell: which of them are the program's, and teach.
//!
//! ```text
//!   watches of the list ------ path, process --.
//!   watches of walks -- file, process, fetched? --> the program's? --> used, learned
//! ```
//! A poll meets a program where it waits. What walks have fetched, and what came with its
//! neighbours from the device, is read without a wait: of that watches alone tell.
//!
//! # Invariants
//! - A read teaches where the system tells that a process of the program has made it, as a poll has
//!   met that; where the system tells no process, one of what a walk of the program has fetched.
//! - A read of an entry of the list is a use of it, whichever process has made it.

use forerun_core::learned::LearnedKind;
use forerun_core::units::Nanos;

use super::Learner;
use super::watches::Notes;
use crate::prefetch::FileRead;

impl Learner {
    /// Takes in `files` of walks that were read, what workers have done, and then the reads that
    /// were told since the last call: what was there by then was not waited for.
    pub(crate) fn take_told(&mut self, now: Nanos, files: &[FileRead]) {
        self.views.turn();
        for file in files {
            self.file_read(now, file);
        }
        self.take_done(now);
        let notes = self.tools.watches.take();
        self.take_notes(now, notes);
    }

    pub(super) fn take_notes(&mut self, now: Nanos, notes: Notes) {
        for (path, process) in notes.paths {
            if self.places.contains_key(&path[..]) || self.is_program(process) {
                self.note(now, &path, LearnedKind::Read);
            }
        }
        for directory in notes.left {
            let below = |path: &[u8]| {
                path.strip_prefix(&directory[..]).is_some_and(|rest| rest.starts_with(b"/"))
            };
            for (entry, is_watched) in self.entries.iter().zip(&mut self.watched) {
                *is_watched &= !below(&entry.path);
            }
        }
    }

    /// `file`, in a directory of a walk, was read. Of a long walk the first files are enough, as it
    /// will be found to be one again.
    fn file_read(&mut self, now: Nanos, file: &FileRead) {
        if self.files_read >= FILES_READ_MAX {
            return;
        }
        let is_program = match file.process {
            Some(_) => self.is_program(file.process),
            None => file.is_fetched,
        };
        if let Some(path) = file.path().filter(|_| is_program) {
            assert!(path.starts_with(b"/"), "a file lies below a root");
            if self.note(now, &path, LearnedKind::Read) {
                self.files_read += 1;
                self.seen.was_read(&path);
            }
        }
    }

    /// The reports that follow are of the process `pid`.
    pub(crate) fn process(&mut self, pid: i32) {
        self.views.process(pid);
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        self.processes.insert(pid);
        assert!(self.processes.len() <= PROCESSES_MAX, "processes have a bound");
    }

    /// Some of the program's processes have ended: their numbers may be those of others before
    /// long. Those that are left are met again.
    pub(crate) fn some_ended(&mut self) {
        self.processes.clear();
        self.views.forget();
    }

    /// Whether this is one of the program's processes, with the view of this one.
    fn is_program(&mut self, process: Option<i32>) -> bool {
        let known = process.filter(|pid| self.processes.contains(pid));
        known.is_some_and(|pid| self.views.is_own(pid))
    }
}

/// A list is for a start; a walk through more files than these is none.
const FILES_READ_MAX: usize = 4_096;
/// Processes of the program that are known.
const PROCESSES_MAX: usize = 4_096;
