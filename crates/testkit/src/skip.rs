//! Skips by name, and what a machine may lack: programs, and data beside the repository.
//!
//! # Invariants
//! - A function that takes the name of a test has skipped it when it returns nothing.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Says that `test` did not run, and why: the line `SKIPPED test: why` goes to stderr, and to the
/// file that `FORERUN_SKIPPED` names, where a build that must skip nothing looks.
///
/// # Panics
/// When `FORERUN_SKIPPED` names a file that cannot be appended to.
pub fn skip(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    // One write a line, so that lines of parallel tests do not mix.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FORERUN_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("FORERUN_SKIPPED names a file that can be appended to");
    }
}

/// Whether `program` starts; without it, `test` is skipped.
#[must_use]
pub fn installed(test: &str, program: &str) -> bool {
    first_installed(test, &[program]).is_some()
}

/// The first of `programs` that starts; without any, `test` is skipped.
#[must_use]
pub fn first_installed(test: &str, programs: &[&str]) -> Option<String> {
    let found = programs.iter().find(|program| starts(program));
    if found.is_none() {
        skip(test, &format!("there is no {}", programs.join(", ")));
    }
    found.map(|&program| program.to_owned())
}

/// A browser that starts; without one, `test` is skipped.
#[must_use]
pub fn browser(test: &str) -> Option<String> {
    first_installed(test, &["chromium", "chromium-browser", "google-chrome"])
}

fn starts(program: &str) -> bool {
    let version = if program == "go" { "version" } else { "--version" };
    let mut command = Command::new(program);
    command.arg(version).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The folder of sample traces, where there is one.
#[must_use]
pub fn traces_dir() -> Option<PathBuf> {
    shared_dir("FORERUN_TRACES", "traces")
}

/// Optional data: the folder that `variable` names, else `../shared/NAME` beside the repository.
#[must_use]
pub fn shared_dir(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(PathBuf::from(path));
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = repository.join("../shared").join(name);
    path.is_dir().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::{first_installed, installed, shared_dir};

    #[test]
    fn a_program_that_starts_is_found_and_the_first_of_several_is_taken() {
        assert!(installed("unused", "cargo"));
        let found = first_installed("unused", &["no-such-program", "cargo", "rustc"]);
        assert_eq!(found.as_deref(), Some("cargo"));
    }

    #[test]
    fn data_that_is_not_there_is_none() {
        assert_eq!(shared_dir("FORERUN_NO_SUCH_VARIABLE", "no-such-data"), None);
    }
}
