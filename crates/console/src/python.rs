//! Commands whose work is the Python package's: this process becomes Python's.
//!
//! ```text
//!   forerun sweep ...   --exec-->  python3 -c PROGRAM sweep OPTIONS      python/forerun/_front.py
//! ```
//! Options are parsed and told of here, as those of every command; they go as one JSON object.
//!
//! # Invariants
//! - Python is that of `FORERUN_PYTHON`, which the wheel's own command sets; else `python3`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Becomes the package's `command` with `options`.
///
/// # Errors
/// There is no Python: this process is still what it was.
pub fn become_command(command: &str, options: &impl Serialize) -> Result<()> {
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| OsString::from("python3"));
    let options = serde_json::to_string(options).context("cannot write JSON")?;
    let error = Command::new(&python).args(["-c", PROGRAM, command, &options]).exec();
    Err(error).with_context(|| {
        format!(
            "cannot start {}: `forerun {command}` is part of the Python package \
             (of a clone: pip install '.[sweep]'); {PYTHON} names its Python",
            python.display()
        )
    })
}

const PYTHON: &str = "FORERUN_PYTHON";
const PROGRAM: &str = "\
import sys
try:
    from forerun._front import main
except ModuleNotFoundError as error:
    if error.name not in ('forerun', 'forerun._front'):
        raise
    sys.exit(
        f'forerun: {sys.executable} has no package forerun of this version: '
        \"in a clone of its sources: pip install '.[sweep]'; \"
        \"or name another Python by FORERUN_PYTHON\"
    )
sys.exit(main())
";
