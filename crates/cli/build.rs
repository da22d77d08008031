//! The commit that is built, for `forerun --version --json` and for records of runs.
//!
//! ```text
//!   FORERUN_COMMIT in the environment   that one
//!   a clone of this repository          git describe --always
//!   any other place                     none: the version stands for it
//! ```
//! # Invariants
//! - A folder inside of another repository has none: that one's commit says nothing of it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=FORERUN_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if env::var_os("FORERUN_COMMIT").is_none()
        && let Some(commit) = commit(&root)
    {
        println!("cargo::rustc-env=FORERUN_COMMIT={commit}");
    }
}

/// The commit of the repository whose top is `root`.
fn commit(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // The log of HEAD grows with each commit and checkout; where none is kept, HEAD tells the
    // latter.
    for name in ["HEAD", "logs/HEAD"] {
        let path = PathBuf::from(git(root, &["rev-parse", "--git-path", name])?);
        let path = root.join(path);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(root, &["describe", "--always", "--abbrev=10"])
}

/// What git says; nothing where it fails or is not there.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).current_dir(root).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned()).filter(|said| !said.is_empty())
}
