//! `make install` into a folder of its own, and what is there then.
//!
//! # Invariants
//! - Nothing outside of the target folder is written.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Run;

/// Installs the command; checks what belongs to it, how large it is, and that it works from there.
pub(super) fn test(run: &mut Run) -> Result<bool> {
    let folder = std::path::absolute(run.target.join("installed"))?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let mut make = Command::new("make");
    make.args(["install", "PREFIX=/usr"]).arg(format!("DESTDIR={}", folder.display()));
    make.env("CARGO", crate::cargo());
    if !run.succeeds(&mut make)? {
        return Ok(false);
    }
    let usr = folder.join("usr");
    for file in FILES {
        let size = bytes_of(&usr.join(file))?;
        ensure!(size > 0, "{file} is empty");
    }
    let size = bytes_of(&usr.join("bin/forerun"))?;
    println!("{size} bytes of bin/forerun");
    ensure!(size <= BYTES_MAX, "bin/forerun has {size} bytes: at most {BYTES_MAX}");
    // The shim is found beside the command, wherever both are.
    let mut shimmed = Command::new(usr.join("bin/forerun"));
    shimmed.args(["run", "--observe", "preload", "--learn", "off", "--", "true"]);
    shimmed.env_remove("FORERUN_PRELOAD");
    run.succeeds(&mut shimmed)
}

fn bytes_of(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.len())
}

const FILES: [&str; 7] = [
    "bin/forerun",
    "lib/libforerun_preload.so",
    "share/man/man1/forerun.1",
    "share/man/man1/forerun-run.1",
    "share/bash-completion/completions/forerun",
    "share/zsh/site-functions/_forerun",
    "share/fish/vendor_completions.d/forerun.fish",
];
/// Of the command with the lab, stripped: 12 MiB.
const BYTES_MAX: u64 = 12 << 20;
