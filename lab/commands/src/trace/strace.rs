//! The text of `strace -f -ttt` and the tree that it is about, as a trace of accesses.
//!
//! # Invariants
//! - A text has a bound, as all of it is in memory.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use forerun_sim::walks::{AccessTrace, Tree, names, strace_calls};

/// The calls in the text `path` on entries below `top`, of a program that was started in `cwd`, or
/// in this working directory.
pub(crate) fn accesses(
    path: &Path,
    top: &Path,
    cwd: Option<&Path>,
    program: String,
) -> Result<AccessTrace> {
    let shown = path.display();
    let top = fs::canonicalize(top).with_context(|| format!("--tree {}", top.display()))?;
    let cwd = match cwd {
        Some(cwd) => {
            std::path::absolute(cwd).with_context(|| format!("--cwd {}", cwd.display()))?
        }
        None => env::current_dir().context("the working directory")?,
    };
    let mut text = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    file.take(TEXT_BYTES_MAX)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read {shown}"))?;
    ensure!((text.len() as u64) < TEXT_BYTES_MAX, "{shown}: more than {TEXT_BYTES_MAX} bytes");
    let encoded = |path: &Path| names::encoded(path.as_os_str().as_bytes());
    let calls = strace_calls(&String::from_utf8_lossy(&text), &encoded(&top), &encoded(&cwd));
    // Of a large tree, such as `/`, the directories on the way of the calls are what is asked for.
    let mut on_the_way: BTreeSet<&str> = BTreeSet::new();
    for call in &calls {
        let ends = call.path.match_indices('/').map(|(at, _)| at).chain([call.path.len()]);
        on_the_way.extend(ends.map(|end| &call.path[..end]));
    }
    let tree = Tree::read_on_the_way(&top, |path| on_the_way.contains(path))
        .with_context(|| format!("--tree {}", top.display()))?;
    Ok(AccessTrace { program, tree, calls })
}

const TEXT_BYTES_MAX: u64 = 2 << 30;
