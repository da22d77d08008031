//! The control groups that bound this process: its own, and each one around it.
//!
//! ```text
//!   /proc/self/cgroup        memory: /docker/abc/job      where it is
//!   /proc/self/mountinfo     /docker/abc  at  /sys/fs/cgroup/memory
//!   so                       /sys/fs/cgroup/memory/job, then /sys/fs/cgroup/memory
//! ```
//! A container sees a part of the hierarchy; what lies outside of it also bounds, but cannot be
//! seen. Version 1 has a hierarchy for each controller; version 2 has one for all.
//!
//! # Sources
//! Linux `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::text::{self, Mount};

/// A group that may have a limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) folder: PathBuf,
    pub(crate) version: Version,
}

/// The hierarchy of a group, which decides its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

impl Group {
    /// The limit of its bytes, if it has one; version 1 says a number that no machine has.
    pub(super) fn limit_bytes(&self) -> Option<u64> {
        let limit = match self.version {
            Version::One => self.number("memory.limit_in_bytes"),
            Version::Two => {
                let limits = [self.number("memory.max"), self.number("memory.high")];
                limits.into_iter().flatten().min()
            }
        };
        limit.filter(|bytes| *bytes < NO_LIMIT)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(name)).ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.read(name).and_then(|text| text::number(&text))
    }

    /// The bytes below its limit; `None` without a limit.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let (used, inactive, active) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file", "total_active_file"),
            Version::Two => ("memory.current", "inactive_file", "active_file"),
        };
        let (limit, used) = (self.limit_bytes()?, self.number(used)?);
        let stat = self.read("memory.stat").unwrap_or_default();
        let pages = |key| text::under(&stat, key).unwrap_or(0);
        let reclaimable = pages(inactive).saturating_add(pages(active) / 2);
        Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
    }
}

/// The groups of a process whose `/` is `root`, as [`of`].
pub(crate) fn of_own(root: &Path, controller: &str) -> Vec<Group> {
    let text = |path| fs::read_to_string(root.join(path)).unwrap_or_default();
    of(root, &text("proc/self/cgroup"), &text("proc/self/mountinfo"), controller)
}

/// The groups of a process with these two files, as far as they have `controller`, the nearest
/// first.
fn of(root: &Path, cgroup: &str, mountinfo: &str, controller: &str) -> Vec<Group> {
    let mounts: Vec<Mount> = text::mounts(mountinfo).collect();
    let mut groups = Vec::new();
    for (controllers, path) in text::memberships(cgroup) {
        let (version, kind) = match controllers {
            "" => (Version::Two, "cgroup2"),
            one if has(one, controller) => (Version::One, "cgroup"),
            _ => continue,
        };
        let shows = |mount: &&Mount| {
            mount.kind == kind && (version == Version::Two || has(&mount.options, controller))
        };
        let Some(mount) = mounts.iter().find(shows) else { continue };
        let top = below(root, Path::new(&mount.point));
        // A path that the mount does not show is of a group outside, of which the top is visible.
        let within = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let is_inside = within.components().all(|part| matches!(part, Component::Normal(_)));
        let own = if is_inside { top.join(within) } else { top.clone() };
        let around = own.ancestors().take_while(|folder| folder.starts_with(&top));
        groups.extend(
            around.take(DEPTH_MAX).map(|folder| Group { folder: folder.to_owned(), version }),
        );
    }
    groups
}

/// The absolute `path` in the file system that begins at `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Whether `name` is one of the names in `list`.
fn has(list: &str, name: &str) -> bool {
    list.split(',').any(|one| one == name)
}

/// Limits from here on are none.
const NO_LIMIT: u64 = 1 << 60;
/// Groups are followed through so many levels.
const DEPTH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_from_the_own_one_up() {
        const ONE: &str = "36 31 0:37 / /cg/memory rw - cgroup cgroup rw,memory\n";
        const TWO: &str = "41 31 0:38 / /cg/all rw - cgroup2 cgroup2 rw\n";
        const INNER: &str = "36 31 0:37 /docker/abc /cg rw - cgroup cgroup rw,memory\n";
        const OTHER: &str = "36 31 0:37 / /cg/cpu rw - cgroup cgroup rw,cpu\n";
        #[rustfmt::skip]
        let rows: &[(&str, &str, &str, &[&str])] = &[
            // why                     cgroup                    mountinfo  folders
            ("version 1",              "4:memory:/a/b\n",        ONE,
                &["/cg/memory/a/b", "/cg/memory/a", "/cg/memory"]),
            ("with others",            "4:cpu,memory:/a\n",      ONE,
                &["/cg/memory/a", "/cg/memory"]),
            ("version 2",              "0::/a\n",                TWO,  &["/cg/all/a", "/cg/all"]),
            ("the top",                "0::/\n",                 TWO,  &["/cg/all"]),
            ("seen from a container",  "4:memory:/docker/abc/j\n", INNER, &["/cg/j", "/cg"]),
            ("its own top",            "4:memory:/docker/abc\n", INNER, &["/cg"]),
            ("another's",              "4:memory:/docker/ab\n",  INNER, &["/cg"]),
            ("outside, not seen",      "0::/../x\n",             TWO,  &["/cg/all"]),
            ("not mounted",            "4:memory:/a\n",          OTHER, &[]),
            ("no memory",              "4:cpu:/a\n",             ONE,  &[]),
            ("nothing",                "",                       "",   &[]),
        ];
        for (why, cgroup, mountinfo, expected) in rows {
            let found = of(Path::new("/"), cgroup, mountinfo, "memory");
            let folders: Vec<&Path> = found.iter().map(|group| group.folder.as_path()).collect();
            let expected: Vec<&Path> = expected.iter().map(Path::new).collect();
            assert_eq!(folders, expected, "{why}");
        }
    }
}
