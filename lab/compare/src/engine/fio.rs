//! fio's command line for the same reads.
//!
//! # Invariants
//! - It never writes, and reads past the page cache, of which it drops the file's pages first.
//! # Sources
//! fio's `HOWTO`; the options are there from version 3.0 on.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::job::{Job, Order};

/// The engines that fio lists, once it is known to be there.
pub(super) fn engines() -> Result<Vec<String>> {
    let output = Command::new("fio").arg("--enghelp").stdin(Stdio::null()).output();
    let Ok(output) = output else {
        bail!("fio is missing: install the package fio (on Debian: apt-get install fio)");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

/// fio's command line for a round of `job`.
pub(super) fn words(
    job: &Job,
    engine: &str,
    file: &Path,
    seconds: u32,
    round: usize,
) -> Vec<OsString> {
    let mut filename = OsString::from("--filename=");
    // A colon would end the name.
    filename.push(file.display().to_string().replace(':', "\\:"));
    let mut words = vec![filename];
    let mut add = |word: String| words.push(word.into());
    for word in [
        "--readonly",
        "--direct=1",
        "--invalidate=1",
        "--group_reporting",
        "--lat_percentiles=1",
        "--output-format=json",
    ] {
        add(word.to_owned());
    }
    add(format!("--name={}", job.name));
    add(format!("--ioengine={engine}"));
    add(format!("--bs={}", job.request));
    add(format!("--iodepth={}", job.depth));
    add(format!("--numjobs={}", job.threads));
    add(format!("--runtime={seconds}"));
    match job.order {
        Order::Sequential => add("--rw=read".to_owned()),
        Order::Random => {
            add("--rw=randread".to_owned());
            add("--time_based".to_owned());
            // A page may be drawn twice, as by forerun.
            add("--norandommap".to_owned());
            add(format!("--randseed={}", round + 1));
        }
    }
    words
}
