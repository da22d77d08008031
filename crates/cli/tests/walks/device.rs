//! A slow device with a tree on it: a server of one file, each read of which takes a while, a loop
//! device on that file, and ext4, which is mounted anew for each run.
//!
//! ```text
//!   image --FUSE, LATENCY a read--> disk --loop, direct--> ext4, read-only --> tree
//! ```
//! # Invariants
//! - This process serves the device, and never uses a file on it: it could not be killed then.
//! - What is mounted goes with its namespace, and the loop device and the server's mount are taken
//!   down by another process once this one has ended, however.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use forerun_testkit::{Scratch, skip};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry,
    ReplyOpen, Request,
};

use crate::tree;

/// See the module.
pub(crate) struct Device {
    folder: Scratch,
    /// Told what to do, and takes all down at its end.
    keeper: Child,
    session: Option<BackgroundSession>,
}

impl Device {
    /// A device with a tree; `None`, and `test` is skipped by name, where there can be none.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let folder = Scratch::new("walks");
        for name in ["source", "disk", "tree", "upper"] {
            std::fs::create_dir(folder.join(name)).expect("the folder takes folders");
        }
        tree::make(&folder.join("source"));
        let image = folder.join("image");
        File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).expect("there is room");
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-m", "0", "-I", "256", "-d"]).args([&folder.join("source"), &image]);
        if !mkfs.output().is_ok_and(|output| output.status.success()) {
            skip(test, "mkfs.ext4: apt-get install e2fsprogs");
            return None;
        }
        let file = Arc::new(File::open(&image).expect("it was written"));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName("slow".into())];
        let session = match fuser::spawn_mount(Disk(file), folder.join("disk"), &config) {
            Ok(session) => session,
            Err(error) => {
                skip(test, &format!("FUSE (/dev/fuse and root): {error}"));
                return None;
            }
        };
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).current_dir(&folder).process_group(0);
        let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("sh starts");
        let device = Self { folder, keeper, session: Some(session) };
        let mut look = Command::new("sh");
        look.args(["-c", ATTACHES]).current_dir(&device.folder).stderr(Stdio::null());
        if look.status().is_ok_and(|status| status.success()) {
            return Some(device);
        }
        skip(test, "a loop device with direct I/O, mounted by unshare (root)");
        None
    }

    /// Runs `words` in the tree, of which nothing is cached, with an empty folder `O`; where it
    /// `changes` the tree, in one of its own that can be written.
    pub(crate) fn run(&self, changes: bool, words: &[&str]) -> (Option<i32>, String, String) {
        // In a namespace of its own: copies of this one, which other tests may make meanwhile,
        // would keep what is mounted here, and what is cached of it.
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", if changes { CHANGED } else { READ }, "sh"]).args(words);
        command.current_dir(&self.folder).stdin(Stdio::null());
        let output = command.output().expect("unshare starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        drop(self.session.take());
    }
}

/// The server of the file `disk`.
struct Disk(Arc<File>);

impl Filesystem for Disk {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&Duration::from_secs(600), &attributes(2), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(600), &attributes(u64::from(ino)));
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(1), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = Arc::clone(&self.0);
        thread::spawn(move || {
            // As long as the device takes; it wakes for nothing else.
            thread::park_timeout(LATENCY);
            let mut bytes = vec![0; size as usize];
            match file.read_at(&mut bytes, offset) {
                Ok(count) => reply.data(&bytes[..count]),
                Err(_) => reply.error(Errno::EIO),
            }
        });
    }
}

fn attributes(ino: u64) -> FileAttr {
    let (kind, size) = match ino {
        2 => (FileType::RegularFile, IMAGE_BYTES),
        _ => (FileType::Directory, 0),
    };
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

/// Takes all down once nothing holds its input any more.
const KEEPER: &str = "
trap '' HUP INT QUIT TERM
cat > /dev/null
exec 2> /dev/null
[ -s loop ] && losetup -d $(cat loop)
umount -l disk || fusermount3 -uz disk";

/// Direct: requests arrive whole and in parallel.
const ATTACHES: &str = "
losetup -f --show -r --direct-io=on disk/disk > loop &&
unshare -m mount -o ro,noload $(cat loop) tree";

/// The tree, cold; what a run leaves there a moment longer is waited for.
const READ: &str = "
rm -rf out; mkdir out; export O=$PWD/out LC_ALL=C; top=$PWD
mount -o ro,noload $(cat loop) tree || exit 90
(cd tree && exec \"$@\"); status=$?
cd \"$top\"; until umount tree 2> /dev/null; do sleep 0.01; done
exit $status";

const CHANGED: &str = "
rm -rf out; mkdir out; export O=$PWD/out LC_ALL=C; top=$PWD
mount -o ro,noload $(cat loop) tree && mount -t tmpfs none upper || exit 90
mkdir upper/up upper/work upper/all
over=redirect_dir=on,lowerdir=tree,upperdir=upper/up,workdir=upper/work
mount -t overlay -o $over none upper/all || exit 91
(cd upper/all && exec \"$@\"); status=$?
cd \"$top\"; for at in upper/all upper tree; do
    until umount $at 2> /dev/null; do sleep 0.01; done
done
exit $status";

const LATENCY: Duration = Duration::from_micros(300);
const IMAGE_BYTES: u64 = 24 << 20;
