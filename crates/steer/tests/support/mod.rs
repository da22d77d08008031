//! What the tests on the real page cache share: files that are not cached.
//!
//! # Invariants
//! - Files lie on the disk of the build, as a file system in memory drops no page.

use std::fs::File;

use forerun_steer::kernel;
use forerun_testkit::{Scratch, drop_from_cache};
use rustix::fs::{Advice, fadvise};

/// A file of `bytes` whose pages are not in the cache, where they can be dropped.
pub(crate) fn cold(name: &str, bytes: usize) -> Option<(Scratch, File)> {
    let scratch = Scratch::on_disk(name);
    let file = File::open(scratch.file("data", vec![7; bytes])).expect("it is there");
    drop_from_cache(&file);
    // No read of a test fetches more than it reads.
    fadvise(&file, 0, None, Advice::Random).expect("a regular file takes advice");
    let cached = kernel::cached(&file, &(0..bytes as u64)).expect("a regular file");
    (cached == kernel::Residency::Pages(0)).then_some((scratch, file))
}
