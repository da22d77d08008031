//! The programs that `bench programs` runs, and their files.
//!
//! ```text
//!   {files}   the files of lab/testbed/contents.sh, on the slow device
//!   {bin}     programs that it built      {tenth}   a tenth of data.tar's bytes
//! ```
//!
//! # Invariants
//! - A program's output is the same each time, and is compared.

/// A program and its files.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) words: &'static [&'static str],
    /// The file or the folder below `{files}`.
    pub(super) reads: &'static str,
    /// The share of it that the program reads.
    pub(super) share: f64,
    /// The memory of its cgroup.
    pub(super) memory_mib: Option<u32>,
    /// Flags of `forerun run`, one after the other.
    pub(super) ways: &'static [&'static [&'static str]],
    /// A program that it calls, beside the first of its words.
    pub(super) calls: Option<&'static str>,
    /// The devices that it is run on; all of them if empty.
    devices: &'static [&'static str],
}

impl Program {
    const fn new(name: &'static str, reads: &'static str, words: &'static [&'static str]) -> Self {
        Self {
            name,
            words,
            reads,
            share: 1.0,
            memory_mib: None,
            ways: &[&[]],
            calls: None,
            devices: &[],
        }
    }

    pub(super) fn is_for(&self, device: &str) -> bool {
        self.devices.is_empty() || self.devices.contains(&device)
    }
}

/// The limits of the paper on prefetching threads, in larger steps.
const LIMITS: &[&[&str]] = &[
    &["--limit", "4K"],
    &["--limit", "64K"],
    &["--limit", "256K"],
    &["--limit", "1M"],
    &["--limit", "4M"],
    &["--limit", "16M"],
    &["--limit", "64M"],
    &["--limit", "512M", "--budget", "1G"],
];

const PRELOAD: &[&str] = &["--observe", "preload"];

/// Reads of 64 KiB from the end to the start, each at its place.
const BACKWARD: &str = "import os, sys, zlib
file, crc = os.open(sys.argv[1], os.O_RDONLY), 0
for at in reversed(range(0, os.fstat(file).st_size, 65536)):
    crc = zlib.crc32(os.pread(file, 65536, at), crc)
print(crc)";

/// Every program.
pub(super) const PROGRAMS: [Program; 36] = [
    Program::new("gzip", "data.tar", &["gzip", "-3", "-c", "{files}/data.tar"]),
    Program {
        ways: LIMITS,
        devices: &["cloud", "t7k250"],
        ..Program::new("gzip by limit", "data.tar", &["gzip", "-3", "-c", "{files}/data.tar"])
    },
    Program::new("zstd", "data.tar.zst", &["zstd", "-q", "-d", "-c", "{files}/data.tar.zst"]),
    Program::new("md5sum", "data.tar", &["md5sum", "{files}/data.tar"]),
    // Into a pipe: tar reads no data when its output is /dev/null.
    Program::new("tar", "tree", &["sh", "-c", "tar cf - {files}/tree 2>&- | md5sum"]),
    Program::new("sort", "lines", &["sh", "-c", "LC_ALL=C sort -S 300M {files}/lines | md5sum"]),
    Program::new(
        "grep -r",
        "tree",
        &["sh", "-c", "grep -rl GNU_STACK {files}/tree | sort | md5sum"],
    ),
    Program::new("tar headers", "headers", &["sh", "-c", "tar cf - -C {files} headers | md5sum"]),
    Program::new(
        "grep -r headers",
        "headers",
        &["sh", "-c", "grep -rc size_t {files}/headers | md5sum"],
    ),
    Program::new(
        "cp -r headers",
        "headers",
        &[
            "sh",
            "-c",
            "to=$(mktemp -d /dev/shm/cp-XXXXXX) && cp -r {files}/headers $to; \
             (cd $to && find . -printf '%s %P\n' | sort | md5sum); rm -r $to",
        ],
    ),
    Program {
        calls: Some("rsync"),
        ..Program::new(
            "rsync headers",
            "headers",
            &[
                "sh",
                "-c",
                "to=$(mktemp -d /dev/shm/cp-XXXXXX) && rsync -a {files}/headers $to; \
                 (cd $to && find . -printf '%s %P\n' | sort | md5sum); rm -r $to",
            ],
        )
    },
    Program {
        share: 0.02,
        ..Program::new(
            "find -size",
            "headers",
            &["sh", "-c", "find {files}/headers -size +20k | md5sum"],
        )
    },
    Program { share: 0.02, ..Program::new("du", "headers", &["du", "-s", "{files}/headers"]) },
    Program::new("Go headers", "headers", &["{bin}/gosum", "{files}/headers"]),
    Program::new("Go repo", "repo", &["{bin}/gosum", "{files}/repo"]),
    Program::new("8 threads headers", "headers", &["{bin}/reader", "tree", "{files}/headers", "8"]),
    Program::new("tar repo", "repo", &["sh", "-c", "tar cf - -C {files} repo | md5sum"]),
    Program::new("grep -r repo", "repo", &["sh", "-c", "grep -rc size_t {files}/repo | md5sum"]),
    Program::new("du repo", "repo", &["du", "-s", "{files}/repo"]),
    Program::new("git status", "repo/.git", &["git", "-C", "{files}/repo", "status", "--short"]),
    Program {
        calls: Some("git"),
        ..Program::new(
            "git status copied",
            "repo",
            &[
                "sh",
                "-c",
                "GIT_INDEX_FILE={files}/repo/.git/index-copied git -C {files}/repo status --short",
            ],
        )
    },
    Program::new("git grep", "repo/.git", &["git", "-C", "{files}/repo", "grep", "-c", "size_t"]),
    Program {
        calls: Some("make"),
        ..Program::new(
            "make -j2",
            "c",
            &[
                "sh",
                "-c",
                "to=$(mktemp -d /dev/shm/make-XXXXXX) && make -s -j2 -C {files}/c OUT=$to; \
                 (cd $to && cat *.o | md5sum); rm -r $to",
            ],
        )
    },
    Program {
        devices: &["cloud"],
        ..Program::new(
            "opens twice",
            "opens",
            &["sh", "-c", "cd {files} && xargs cat <twice | md5sum"],
        )
    },
    Program {
        share: 0.25,
        ..Program::new(
            "headers in no order",
            "headers",
            &["sh", "-c", "cd {files} && xargs cat <shuffled | md5sum"],
        )
    },
    Program {
        share: 0.1,
        ..Program::new(
            "leaves a walk",
            "headers",
            &["sh", "-c", "cd {files} && find headers -type f | head -n 800 | xargs cat | md5sum"],
        )
    },
    Program {
        ways: &[&[], PRELOAD],
        ..Program::new(
            "sqlite3",
            "base.db",
            &["sqlite3", "-readonly", "{files}/base.db", "select sum(length(body)) from rows"],
        )
    },
    Program::new(
        "tensors.py",
        "model.safetensors",
        &["{python}", "{tensors}", "read", "{files}/model.safetensors", "0"],
    ),
    Program::new("mapped 60 MB/s", "data.tar", &["{bin}/reader", "map", "{files}/data.tar", "60"]),
    Program::new(
        "static C 100 MB/s",
        "data.tar",
        &["{bin}/reader", "read", "{files}/data.tar", "100"],
    ),
    Program::new("Go SHA-512", "data.tar", &["{bin}/gosum", "{files}/data.tar"]),
    Program {
        ways: &[PRELOAD],
        ..Program::new("backward", "data.tar", &["{python}", "-c", BACKWARD, "{files}/data.tar"])
    },
    Program {
        // 500 pages.
        share: 0.015_26,
        ..Program::new("random", "data.tar", &["{bin}/reader", "random", "{files}/data.tar", "500"])
    },
    Program {
        share: 0.1,
        ..Program::new(
            "stops early",
            "data.tar",
            &["sh", "-c", "head -c {tenth} {files}/data.tar | md5sum"],
        )
    },
    Program {
        memory_mib: Some(256),
        ways: &[&["--limit", "4M"], &["--limit", "64M"], &["--limit", "1G", "--budget", "1G"]],
        devices: &["cloud"],
        ..Program::new("md5sum 2 GiB in 256 MiB", "data", &["md5sum", "{files}/data"])
    },
    Program {
        memory_mib: Some(256),
        devices: &["cloud"],
        ..Program::new(
            "gzip -1 in 256 MiB",
            "data",
            &["sh", "-c", "head -c 512M {files}/data | gzip -1 | md5sum"],
        )
    },
];
