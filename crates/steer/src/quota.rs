//! The processor time that control groups leave this process and the program that it runs: what
//! forerun may use is a part of that.
//!
//! ```text
//!   version 2   cpu.max            20000 100000                       a fifth of a processor
//!   version 1   cpu.cfs_quota_us, cpu.cfs_period_us                   its own group, and each one
//!                                                                     around it: the least counts
//! ```
//! # Invariants
//! - A share is above 0 and at most that of one processor.
//! - What cannot be read or parsed is no limit and no error.
//! # Sources
//! Linux `Documentation/admin-guide/cgroup-v2.rst` and `Documentation/scheduler/sched-bwc.rst`.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::memory::groups::{self, Group, Version};
use crate::memory::text::number;

/// A share of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    thousandths: u64,
}

impl Share {
    /// All of it.
    const WHOLE: Self = Self { thousandths: WHOLE };

    /// That of this process, as it was when this was asked first.
    pub(crate) fn own() -> Self {
        static OWN: OnceLock<Share> = OnceLock::new();
        *OWN.get_or_init(|| Self::on(Path::new("/")))
    }

    /// That of a process which sees the file system that begins at `root`.
    fn on(root: &Path) -> Self {
        let groups = groups::of_own(root, "cpu");
        groups.iter().filter_map(of_group).min().unwrap_or(Self::WHOLE)
    }

    /// In thousandths of a processor: from 1 to 1000.
    pub(crate) fn thousandths(self) -> u64 {
        self.thousandths
    }

    /// `quota` of each `period`.
    fn of(quota: u64, period: u64) -> Option<Self> {
        let thousandths = quota.checked_mul(WHOLE)?.checked_div(period)?.clamp(1, WHOLE);
        Some(Self { thousandths })
    }

    /// One part in so many of a processor is one in `one_in` of this share.
    pub(crate) fn one_in(self, one_in: u64) -> u64 {
        assert!((1..=WHOLE).contains(&self.thousandths), "{self:?}");
        one_in.saturating_mul(WHOLE) / self.thousandths
    }
}

/// The share that a group has; `None` without a limit.
fn of_group(group: &Group) -> Option<Share> {
    let read = |name| fs::read_to_string(group.folder.join(name)).ok();
    let (quota, period) = match group.version {
        Version::One => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
        Version::Two => {
            let both = read("cpu.max")?;
            let (quota, period) = both.split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
    };
    Share::of(number(&quota)?, number(&period)?)
}

/// A processor, in the unit of [`Share`].
const WHOLE: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_testkit::Scratch;

    type Files = [(&'static str, &'static str)];

    #[test]
    fn the_least_share_of_the_groups_around_counts() {
        const WHOLE: u64 = 50;
        #[rustfmt::skip]
        let rows: &[(&str, &Files, u64)] = &[ // why, files, one in 50 of it
            ("no limit",          &[("two/cpu.max", "max 100000\n"),
                                    ("one/a/cpu.cfs_quota_us", "-1\n"),
                                    ("one/a/cpu.cfs_period_us", "100000\n")],     WHOLE),
            ("a tenth",           &[("two/a/cpu.max", "10000 100000\n")],         WHOLE * 10),
            ("of the one around", &[("two/a/cpu.max", "50000 100000\n"),
                                    ("two/cpu.max", "20000 100000\n")],           WHOLE * 5),
            ("version 1",         &[("one/a/cpu.cfs_quota_us", "25000\n"),
                                    ("one/a/cpu.cfs_period_us", "50000\n")],      WHOLE * 2),
            ("four processors",   &[("two/a/cpu.max", "400000 100000\n")],        WHOLE),
            ("next to nothing",   &[("two/a/cpu.max", "1 1000000\n")],            WHOLE * 1000),
            ("no period",         &[("two/a/cpu.max", "10000\n")],                WHOLE),
            ("an empty period",   &[("two/a/cpu.max", "10000 0\n")],              WHOLE),
            ("beyond 64 bits",    &[("two/a/cpu.max", "18446744073709551615 1\n")], WHOLE),
            ("nothing",           &[],                                            WHOLE),
        ];
        for (why, files, expected) in rows {
            let scratch = Scratch::new("quota");
            let write = |path: &str, text: &str| {
                let path = scratch.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/a\n");
            let mounts = "36 31 0:37 / /one rw - cgroup cgroup rw,cpu,cpuacct\n\
                          41 31 0:38 / /two rw - cgroup2 cgroup2 rw\n";
            write("proc/self/mountinfo", mounts);
            for (path, text) in *files {
                write(path, text);
            }
            assert_eq!(Share::on(&scratch.join("")).one_in(WHOLE), *expected, "{why}");
        }
    }
}
