//! A recorded trace of a program is replayed on what a server serves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use forerun_testkit::{forerun, installed, skip, until};
use serde_json::Value;

use crate::rig::{Server, bytes, said, text};

/// An export as a file below a folder, by way of FUSE; unmounted at the end.
struct Mounted {
    folder: PathBuf,
    child: Child,
}

impl Mounted {
    fn of(server: &Server, export: &str) -> Self {
        let folder = server.scratch.join("mounted");
        fs::create_dir(&folder).unwrap();
        let mut command = Command::new("nbdfuse");
        command.arg("--readonly").arg(folder.join(export)).arg(server.uri(export));
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        until(|| {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "nbdfuse ends: {ended:?}");
            folder.join(export).exists()
        });
        Self { folder, child }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").arg("-uz").arg(&self.folder).status();
        let _ = self.child.wait();
    }
}

/// Reads of a program, an offset and a length each, as `forerun trace record` writes them.
fn trace(path: &Path, file: &str, reads: &[(usize, usize)]) {
    let call = |(at, &(offset, bytes)): (usize, &(usize, usize))| {
        format!(
            "{{\"t\":{at},\"thread\":1,\"call\":\"read\",\"path\":\"{file}\",\"offset\":{offset},\
             \"bytes\":{bytes},\"took\":1}}\n"
        )
    };
    let calls: String = reads.iter().enumerate().map(call).collect();
    fs::write(path, "{\"forerun_accesses\":2,\"program\":\"x\"}\n".to_owned() + &calls).unwrap();
}

#[test]
fn a_trace_of_a_program_is_replayed_through_a_server() {
    let name = "a_trace_of_a_program_is_replayed_through_a_server";
    if !installed(name, "nbdfuse") || !installed(name, "fusermount3") {
        return;
    }
    if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return skip(name, "/dev/fuse cannot be opened");
    }
    let disk = bytes(1 << 20);
    let server = Server::of(&[("disk", &disk)], "--metrics 127.0.0.1:0");
    let mounted = Mounted::of(&server, "disk");
    // A half in order, then a page of each piece of the other one.
    let half = disk.len() / 2;
    let mut reads: Vec<(usize, usize)> =
        (0..half / PIECE).map(|piece| (piece * PIECE, PIECE)).collect();
    reads.extend((half / PIECE..disk.len() / PIECE).map(|piece| (piece * PIECE + 4_096, 4_096)));
    let recorded = server.scratch.join("t.jsonl");
    trace(&recorded, "disk", &reads);
    let mut replay = forerun("replay --depth 1 --cache 8M --json --on");
    let done = replay.arg(&mounted.folder).arg(&recorded).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    let row: Value = serde_json::from_slice(&done.stdout).unwrap();
    let row = &row["runs"][0];
    let wanted: usize = reads.iter().map(|read| read.1).sum();
    assert_eq!([&row["requests"], &row["bytes_read"]], [reads.len(), wanted], "{row}");
    let counts = server.metrics("/metrics");
    let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap();
    let read = counts.lines().find(|line| line.starts_with("forerun_serve_read_bytes_total"));
    // The kernel's own cache of FUSE may read ahead, and no byte is asked for that it has.
    assert!((wanted..=disk.len() + 4_096).contains(&count(read.unwrap())), "{counts}");
    assert_eq!(
        said("cmp", &[text(&mounted.folder.join("disk")), text(&server.scratch.join("disk"))]),
        ""
    );
}

const PIECE: usize = 32_768;
