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
    let Job { name, request, depth, threads, .. } = job;
    let reads = match job.order {
        Order::Sequential => "--rw=read".to_owned(),
        // A page may be drawn twice, as by forerun.
        Order::Random => {
            format!("--rw=randread --time_based --norandommap --randseed={}", round + 1)
        }
    };
    let words = format!(
        "--readonly --direct=1 --invalidate=1 --group_reporting --lat_percentiles=1 \
         --output-format=json --name={name} --ioengine={engine} --bs={request} --iodepth={depth} \
         --numjobs={threads} --runtime={seconds} {reads}"
    );
    std::iter::once(filename).chain(words.split_whitespace().map(OsString::from)).collect()
}
