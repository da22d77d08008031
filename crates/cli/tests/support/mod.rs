//! What the end-to-end tests share: skipping by name, and where the data lies.
//!
//! A test that needs a program, a device or a file that is not here says so by [`skip`] and
//! returns. The line `SKIPPED test: why` goes to stderr, and to the file that `FORERUN_SKIPPED`
//! names, so that a build which must skip nothing can look there.
//!
//! # Invariants
//! - A skip is never silent, and never a pass by another name where `FORERUN_SKIPPED` is read.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

// Each test program uses a part of these; here all of them are used.
const _: fn(&str, &str) = skip;
const _: fn(&str) -> Option<String> = browser;
const _: fn() -> Option<PathBuf> = traces_dir;

/// Says that `test` did not run, and why.
pub(crate) fn skip(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    // Written at once, so that lines of parallel tests do not mix.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FORERUN_SKIPPED") {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("FORERUN_SKIPPED names a file that can be appended to");
    }
}

/// The folder of sample traces, where there is one.
pub(crate) fn traces_dir() -> Option<PathBuf> {
    dir("FORERUN_TRACES", "traces")
}

/// The folder that `variable` names, else the one of that `name` beside the workspace.
fn dir(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(PathBuf::from(path));
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = workspace.join("../shared").join(name);
    path.is_dir().then_some(path)
}

/// The name of a browser that starts; without one, `test` is skipped.
pub(crate) fn browser(test: &str) -> Option<String> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let version = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    });
    if found.is_none() {
        skip(test, "no chromium, chromium-browser or google-chrome is installed");
    }
    found.map(str::to_owned)
}
