//! The path of the shim's library.
//!
//! The library is a file of its own, since the loader takes nothing else: `make install` puts it
//! into `lib` next to the `bin` of the command, and a build leaves both in the same folder.
//!
//! # Invariants
//! - `LD_PRELOAD` can hold the path: it splits its value at colons and blanks, and cannot quote
//!   them.
//! - A loader of another C library passes the shim by. That of musl ends a program whose libraries
//!   lack a symbol, and is silent about one that it does not find.
//! # Sources
//! ld.so(8), *Dynamic string tokens*; musl `ldso/dynlink.c` (`load_preload`), which expands none.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

/// Why the shim cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoLibrary {
    /// The library is in none of the folders that are searched.
    #[error(
        "no {NAME} in {places}: install it there (make install), or set FORERUN_PRELOAD to its path"
    )]
    Missing {
        /// The folders, separated by commas.
        places: String,
    },
    /// The chosen path leads to no file.
    #[error("FORERUN_PRELOAD: {path}: {source}")]
    Chosen {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The library is there, and `LD_PRELOAD` cannot hold its path.
    #[error(
        "LD_PRELOAD cannot name {path}, which has a blank, a colon or a dollar in it: copy the \
         file to another folder and set FORERUN_PRELOAD to its path"
    )]
    Unnamable {
        /// The path.
        path: PathBuf,
    },
}

/// The full path of the shim's library: `chosen`, if that is given, else beside `binary` or in the
/// `lib` beside its folder.
///
/// # Errors
/// There is none, or none that `LD_PRELOAD` can name; see [`NoLibrary`].
pub fn find(chosen: Option<&Path>, binary: &Path) -> Result<PathBuf, NoLibrary> {
    let path = match chosen {
        Some(path) => is_file(path)
            .map_err(|source| NoLibrary::Chosen { path: path.to_path_buf(), source })?,
        None => beside(binary)?,
    };
    let is_split = |byte: &u8| matches!(*byte, b':' | b'$') || byte.is_ascii_whitespace();
    if path.as_os_str().as_encoded_bytes().iter().any(is_split) {
        return Err(NoLibrary::Unnamable { path });
    }
    Ok(path)
}

fn beside(binary: &Path) -> Result<PathBuf, NoLibrary> {
    let folder = binary.parent().unwrap_or(Path::new("/"));
    let places = [folder.to_path_buf(), folder.join("../lib")];
    let found = places.iter().find_map(|place| is_file(&place.join(NAME)).ok());
    found.ok_or_else(|| {
        let [near, far] = places.map(|place| place.display().to_string());
        NoLibrary::Missing { places: format!("{near}, {far}") }
    })
}

/// The full path of the file at `path`.
fn is_file(path: &Path) -> io::Result<PathBuf> {
    let full = path.canonicalize()?;
    if full.is_file() { Ok(full) } else { Err(io::ErrorKind::IsADirectory.into()) }
}

/// The name of `library` in `LD_PRELOAD`. It leads up from `folder` or one beside it, by a token
/// that the loader of glibc alone expands. Where there is no such folder the plain path has to do.
pub(super) fn named(library: &Path, folder: &Path) -> OsString {
    if !folder.is_dir() {
        return library.into();
    }
    let mut name = OsString::from("/$LIB");
    // Above the root there is the root again.
    name.push(UP.repeat(DEPTH_MAX));
    name.push(library);
    name
}

/// What the token becomes lies in it, or beside it.
pub(super) const FOLDER: &str = "/lib";
const UP: &str = "/..";
/// How deep what the token becomes lies, at most, wherever links lead.
const DEPTH_MAX: usize = 16;
const NAME: &str = "libforerun_preload.so";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_library_is_found_beside_the_binary_in_lib_or_where_it_is_said_to_be() {
        let scratch = forerun_testkit::Scratch::new("library");
        let root = scratch.canonicalize().unwrap();
        for folder in ["dol$lar", "near", "usr/bin", "usr/lib", "else where", "none", "folder/x.so"]
        {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["near/libforerun_preload.so", "usr/lib/libforerun_preload.so", "near/b.so"] {
            fs::write(root.join(file), "").unwrap();
        }
        fs::write(root.join("else where/c.so"), "").unwrap();
        fs::write(root.join("dol$lar/d.so"), "").unwrap();
        #[rustfmt::skip]
        let rows = [ // why, chosen, binary, found or what the error says
            ("beside the binary", None, "near/forerun", Ok("near/libforerun_preload.so")),
            ("in lib", None, "usr/bin/forerun", Ok("usr/lib/libforerun_preload.so")),
            ("in neither", None, "none/forerun", Err("none, ")),
            ("as said", Some("near/b.so"), "usr/bin/forerun", Ok("near/b.so")),
            ("said and not there", Some("near/d.so"), "near/forerun", Err("near/d.so: No such")),
            ("said, a folder", Some("folder/x.so"), "near/forerun", Err("x.so: is a directory")),
            ("with a blank", Some("else where/c.so"), "near/forerun", Err("a blank, a colon")),
            ("with a dollar", Some("dol$lar/d.so"), "near/forerun", Err("or a dollar")),
        ];
        for (why, chosen, binary, expected) in rows {
            let chosen = chosen.map(|path| root.join(path));
            match (find(chosen.as_deref(), &root.join(binary)), expected) {
                (Ok(path), Ok(expected)) => assert_eq!(path, root.join(expected), "{why}"),
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{why}: {error}");
                }
                (found, _) => panic!("{why}: {found:?}"),
            }
        }
    }
    #[test]
    fn the_name_leads_to_the_library_where_the_token_is_expanded_alone() {
        let library = Path::new("/opt/shim.so");
        let name = named(library, Path::new("/"));
        assert!(name.to_string_lossy().ends_with("/../opt/shim.so"), "{name:?}");
        assert!(!Path::new(&name).exists(), "a loader that expands nothing finds nothing");
        let (scratch, deep) = (forerun_testkit::Scratch::new("named"), "a/b/c/d/e/f");
        fs::create_dir_all(scratch.join(deep)).unwrap();
        let library = scratch.file("shim.so", "").canonicalize().unwrap();
        let name = named(&library, &scratch).into_string().unwrap();
        let token = scratch.join(deep).display().to_string();
        let expanded = name.replace("/$LIB", &token);
        assert_eq!(Path::new(&expanded).canonicalize().unwrap(), library);
        assert_eq!(named(&library, &scratch.join("none")), library, "no folder, no token");
    }
}
