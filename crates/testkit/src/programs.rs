//! The command under test, and programs that tests compile.
//!
//! Cargo tells only the tests of a package where that package's programs lie. Here the path follows
//! from that of the running test, `target/PROFILE/deps/TEST-HASH`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Scratch, skip};

/// The fields of `stat` in the `folder` that a process or a thread has in `/proc`, from its state
/// on, the third of proc(5). None where it is gone.
#[must_use]
pub fn stat_fields(folder: &str) -> Vec<String> {
    let stat = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
    // Its name, before that, may hold anything.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split_whitespace().map(str::to_owned).collect()
}

/// The folder that cargo builds into, `target` unless told otherwise.
///
/// # Panics
/// Outside of a test that cargo built.
#[must_use]
pub fn target_dir() -> PathBuf {
    // target/PROFILE/deps/TEST-HASH
    profile_dir().parent().expect("a profile lies in the folder of the build").to_owned()
}

/// `target/PROFILE`: the folder of the programs that were built with this test.
fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent);
    folder.expect("cargo leaves tests in a folder of a profile").to_owned()
}

/// The path of the built command `forerun`.
///
/// # Panics
/// When it was not built with the test: a test of a package that has no such binary.
#[must_use]
pub fn forerun_path() -> PathBuf {
    let path = profile_dir().join("forerun");
    assert!(path.is_file(), "{} is missing: build forerun-cli first", path.display());
    path
}

/// `forerun` with `arguments`, separated by spaces.
///
/// # Panics
/// As [`forerun_path`].
#[must_use]
pub fn forerun(arguments: &str) -> Command {
    let mut command = Command::new(forerun_path());
    command.args(arguments.split_whitespace());
    command
}

/// The C program at `source`, compiled into `program` with `flags`. `None`, and `test` is skipped,
/// where there is no compiler, or the compiler refuses the flags.
///
/// # Panics
/// When the compiler fails and says nothing.
#[must_use]
pub fn compile_c(test: &str, source: &Path, flags: &[&str], program: &Path) -> Option<()> {
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-pthread"]).args(flags).arg("-o").arg(program).arg(source);
    let why = match compiler.output() {
        Ok(output) if output.status.success() => return Some(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let first = said.lines().next().expect("a compiler that fails says why");
            format!("cc {}: {first}", flags.join(" "))
        }
        Err(error) => format!("cc: {error}"),
    };
    skip(test, &why);
    None
}

/// A program that has one system call refused to others, as containers do.
#[derive(Debug)]
pub struct Sandbox {
    scratch: Scratch,
}

impl Sandbox {
    /// Compiles it. `None`, and `test` is skipped, where that cannot be.
    #[must_use]
    pub fn new(test: &str) -> Option<Self> {
        let scratch = Scratch::new("sandbox");
        let source = scratch.file("refuses.c", REFUSES);
        compile_c(test, &source, &[], &scratch.join("refuses"))?;
        Some(Self { scratch })
    }

    /// The command that runs the words to come where the system call `number` is refused.
    #[must_use]
    pub fn without(&self, number: i64) -> Command {
        let mut command = Command::new(self.scratch.join("refuses"));
        command.arg(number.to_string());
        command
    }
}

const REFUSES: &str = r"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int count, char **words) {
    if (count < 3) return 92;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(words[1]), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { 4, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 90;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 91;
    execvp(words[2], words + 2);
    return 92;
}
";

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{compile_c, target_dir};
    use crate::Scratch;

    #[test]
    fn the_folder_of_the_build_holds_this_test() {
        let test = std::env::current_exe().unwrap();
        assert!(test.starts_with(target_dir()));
    }

    #[test]
    fn a_program_in_c_is_compiled_and_runs() {
        let scratch = Scratch::new("compile");
        let source = scratch.file("seven.c", "int main(void) { return 7; }\n");
        let program = scratch.join("seven");
        let name = "a_program_in_c_is_compiled_and_runs";
        let Some(()) = compile_c(name, &source, &[], &program) else { return };
        assert_eq!(Command::new(program).status().unwrap().code(), Some(7));
    }
}
