//! What a list is learned of: the program that runs, and the name of its list.
//!
//! ```text
//!   executable, its build id, the script of an interpreter, the name called, the folder
//!                                          --hash--> train.py-1f0c9a44e2b7d053
//! ```
//! Two programs share a list only if all of it is the same: `python3 train.py` and `python3 -m
//! pytest` read other files, and so does a program that is started elsewhere.
//!
//! # Invariants
//! - Nothing but the executable is opened, and of that the head and the notes are read.
//! # Sources
//! elf(5), `NT_GNU_BUILD_ID`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use forerun_core::hash::FixedState;
use rustix::fs::{Access, access};

use super::format::{Program, hex};
use super::interpreters::{Script, script_of};
use super::store::NAME_BYTES_MAX;

impl Program {
    /// The program that `words` start in `folder`; none where there is no such program.
    pub(crate) fn of(words: &[OsString], folder: &Path) -> Option<Self> {
        let (called, words) = words.split_first()?;
        let executable = fs::canonicalize(found(called, folder)?).ok()?;
        let build = build_of(&File::open(&executable).ok()?)?;
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let words: Vec<String> = words.iter().take(WORDS_MAX).map(text).collect();
        let script = script_of(called, &executable, &words, folder).map(|script| match script {
            Script::Shown(text) => text,
            // Lists are exported, and their names are shown.
            Script::Hidden(text) => format!("{HIDDEN}{:016x}", FixedState.hash_one(text)),
        });
        Some(Self {
            executable: executable.to_string_lossy().into_owned(),
            build,
            script,
            called: text(called),
            folder: folder.to_string_lossy().into_owned(),
        })
    }

    /// The name of its list.
    pub(crate) fn list_name(&self) -> String {
        let Self { executable, build, script, called, folder } = self;
        let mut hasher = FixedState.build_hasher();
        for word in [executable, build, script.as_ref().unwrap_or(&String::new()), called, folder] {
            hasher.write(word.as_bytes());
            hasher.write_u64(word.len() as u64);
        }
        let shown = script.as_ref().filter(|it| !it.starts_with(HIDDEN)).unwrap_or(executable);
        let base = shown.rsplit('/').next().unwrap_or_default();
        let is_plain = |it: &char| it.is_ascii_alphanumeric() || "._-+".contains(*it);
        let dashed = base.chars().map(|it| if it == ' ' { '-' } else { it });
        let base: String = dashed.filter(is_plain).take(BASE_CHARS_MAX).collect();
        let base = base.trim_start_matches(['.', '-']);
        let base = if base.is_empty() { "program" } else { base };
        let name = format!("{base}-{:016x}", hasher.finish());
        assert!(name.len() <= NAME_BYTES_MAX, "it can be the name of a list");
        name
    }
}

/// Where a shell finds the program `called`.
fn found(called: &OsStr, folder: &Path) -> Option<PathBuf> {
    if called.as_bytes().contains(&b'/') {
        return Some(folder.join(called));
    }
    let is_there = |path: &PathBuf| access(path, Access::EXEC_OK).is_ok() && path.is_file();
    let places = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    env::split_paths(&places).map(|place| folder.join(place).join(called)).find(is_there)
}

/// The build id of `executable`, else its size and the time of its last change.
fn build_of(executable: &File) -> Option<String> {
    if let Some(id) = build_id(executable) {
        return Some(hex(&id));
    }
    let found = executable.metadata().ok()?;
    Some(format!("{}-{}.{:09}", found.len(), found.mtime(), found.mtime_nsec()))
}

/// The note that the linker left, of files of 64 bits in this machine's order.
fn build_id(executable: &File) -> Option<Vec<u8>> {
    let mut head = [0; 64];
    executable.read_exact_at(&mut head, 0).ok()?;
    let is_native =
        head.starts_with(b"\x7fELF\x02") && (head[5] == 1) == cfg!(target_endian = "little");
    if !is_native {
        return None;
    }
    let table = u64::from_ne_bytes(head[32..40].try_into().ok()?);
    let (size, count) = (half(&head, 54)?, half(&head, 56)?.min(SEGMENTS_MAX));
    if size < 56 {
        return None;
    }
    for at in 0..u64::from(count) {
        let mut row = [0; 56];
        executable.read_exact_at(&mut row, table.checked_add(at * u64::from(size))?).ok()?;
        if u32::from_ne_bytes(row[..4].try_into().ok()?) != NOTE {
            continue;
        }
        let place = u64::from_ne_bytes(row[8..16].try_into().ok()?);
        let bytes = u64::from_ne_bytes(row[32..40].try_into().ok()?).min(NOTES_BYTES_MAX);
        let mut notes = vec![0; usize::try_from(bytes).ok()?];
        if executable.read_exact_at(&mut notes, place).is_ok()
            && let Some(id) = build_id_in(&notes)
        {
            return Some(id.to_vec());
        }
    }
    None
}

fn build_id_in(mut notes: &[u8]) -> Option<&[u8]> {
    let word = |bytes: &[u8], at| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    while let (Some(name), Some(bytes), Some(kind)) =
        (word(notes, 0), word(notes, 4), word(notes, 8))
    {
        let (name, bytes) = (name as usize, bytes as usize);
        let begins = 12 + name.next_multiple_of(4);
        let value = notes.get(begins..begins.checked_add(bytes)?)?;
        if kind == BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            return Some(value);
        }
        notes = notes.get(begins + bytes.next_multiple_of(4)..)?;
    }
    None
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Where programs are without `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// What begins the hash of words that are not kept.
const HIDDEN: &str = "#";
const WORDS_MAX: usize = 1_024;
const BASE_CHARS_MAX: usize = 64;
const SEGMENTS_MAX: u16 = 64;
const NOTES_BYTES_MAX: u64 = 64 << 10;
/// `PT_NOTE`.
const NOTE: u32 = 4;
/// `NT_GNU_BUILD_ID`.
const BUILD_ID: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::store::check_name;

    #[test]
    fn what_may_be_secret_is_neither_kept_nor_shown() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            Program::of(&words, Path::new("/")).expect("it is installed")
        };
        let programs =
            ["env TOKEN=secret true", "env TOKEN=other true", "sh -c secret", "sh -c other"];
        let names = programs.map(|line| of(line).list_name());
        for (line, name) in programs.iter().zip(&names) {
            assert!(!format!("{:?} {name}", of(line)).contains("secret"), "{line}: {name}");
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{line}: {name}");
        }
    }

    #[test]
    fn each_part_makes_another_list_with_a_name_that_can_be_one() {
        let program = Program {
            executable: "/usr/bin/\u{e9}x y".into(),
            build: "1".into(),
            script: None,
            called: "x".into(),
            folder: "/w".into(),
        };
        let others = [
            Program { executable: "/bin/x".into(), ..program.clone() },
            Program { build: "2".into(), ..program.clone() },
            Program { script: Some("-m ..".into()), ..program.clone() },
            Program { called: "y".into(), ..program.clone() },
            Program { folder: "/".into(), ..program.clone() },
        ];
        let name = program.list_name();
        assert!(name.starts_with("x-y-"), "{name}");
        let script = |text: &str| Program { script: Some(text.into()), ..program.clone() };
        assert!(script("-jar /a/b.jar").list_name().starts_with("b.jar-"));
        assert!(script("-m pytest").list_name().starts_with("m-pytest-"));
        assert_eq!(name, program.clone().list_name());
        for other in others {
            assert_ne!(other.list_name(), name, "{other:?}");
            check_name(&other.list_name()).unwrap();
        }
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let words = [env::current_exe().unwrap().into_os_string(), "x".into()];
        let nowhere = Path::new("/");
        let own = Program::of(&words, nowhere).unwrap();
        assert_eq!(Path::new(&own.executable), fs::canonicalize(&words[0]).unwrap());
        assert!(!own.build.is_empty() && own.called == words[0].to_string_lossy());
        let shell = Program::of(&["sh".into(), "-c".into(), "exit".into()], nowhere).unwrap();
        assert!(Path::new(&shell.executable).is_absolute(), "found by PATH");
        assert!(shell.script.is_some_and(|it| it.starts_with(HIDDEN)), "its text runs");
        assert_eq!(Program::of(&["no such program".into()], nowhere), None);
        let here = Path::new(&words[0]);
        let (folder, base) = (here.parent().unwrap(), here.file_name().unwrap());
        let word = Path::new(".").join(base).into_os_string();
        let relative = Program::of(&[word], folder).unwrap();
        assert_eq!(relative.executable, own.executable, "found in its folder");
        assert_eq!(Path::new(&relative.folder), folder);
    }

    #[test]
    fn notes_are_found_and_damaged_ones_are_none() {
        let note = |name: &[u8], kind: u32, value: &[u8]| {
            let mut bytes = Vec::new();
            let length = |part: &[u8]| u32::try_from(part.len()).unwrap();
            for word in [length(name), length(value), kind] {
                bytes.extend(word.to_ne_bytes());
            }
            for part in [name, value] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let both = [note(b"GNU\0", 1, b"abi"), note(b"GNU\0", BUILD_ID, b"12345")].concat();
        assert_eq!(build_id_in(&both), Some(b"12345".as_slice()));
        assert_eq!(build_id_in(&note(b"Go\0\0", BUILD_ID, b"1")), None);
        for end in 0..both.len() {
            let _ = build_id_in(&both[..end]);
        }
        assert_eq!(build_id_in(&[0xff; 64]), None);
    }
}
