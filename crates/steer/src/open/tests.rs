//! Names that stand for something else by the time they are opened.

use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _};
use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use forerun_testkit::{Scratch, skip};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::mknodat;
use rustix::fs::{CWD, FileType as Type};

use super::*;

/// Things that a name may stand for, and a watch over all of them but the file.
struct Things {
    scratch: Scratch,
    file: PathBuf,
    others: Vec<PathBuf>,
    opened: OwnedFd,
}

impl Things {
    fn new(test: &str) -> Self {
        let scratch = Scratch::on_disk(test);
        let root = scratch.canonicalize().unwrap();
        let [file, secret, fifo, socket, link, device] =
            ["file", "secret", "fifo", "socket", "link", "device"].map(|name| root.join(name));
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        fs::write(&secret, vec![2; 1 << 20]).unwrap();
        mknodat(CWD, &fifo, Type::Fifo, Mode::RUSR, 0).unwrap();
        drop(UnixListener::bind(&socket).unwrap());
        symlink(&secret, &link).unwrap();
        let mut others = vec![fifo, socket, link];
        // It takes root to make one; of the memory of zeros, whose opening has no effect.
        if mknodat(CWD, &device, Type::CharacterDevice, Mode::RUSR, makedev(1, 5)).is_ok() {
            others.push(device);
        }
        let opened = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        for path in others.iter().chain([&secret]) {
            inotify::add_watch(&opened, path, WatchFlags::OPEN | WatchFlags::DONT_FOLLOW).unwrap();
        }
        Self { scratch, file, others, opened }
    }

    /// Has `name` stand for `thing`.
    fn rename(&self, thing: &Path, name: &Path) {
        let link = self.scratch.join("next");
        fs::hard_link(thing, &link).unwrap();
        fs::rename(&link, name).unwrap();
        // Two names of one file are left as they are.
        let _ = fs::remove_file(&link);
    }

    /// Whether anything was opened but the file.
    fn some_were_opened(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 512];
        inotify::Reader::new(&self.opened, &mut buffer).next().is_ok()
    }
}

fn this_process() -> OwnedFd {
    open_path("/proc/self", HANDLE | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

#[test]
fn a_name_that_is_swapped_before_it_is_opened_opens_nothing_else() {
    let things = Things::new("swapped");
    let (process, inode) = (this_process(), fs::metadata(&things.file).unwrap().ino());
    let name = things.scratch.canonicalize().unwrap().join("name");
    let all: Vec<&PathBuf> = [&things.file].into_iter().chain(&things.others).collect();
    let mut opened = 0;
    for round in 0..10_000 {
        things.rename(all[round % all.len()], &name);
        let next = all[(round + 1 + round / all.len() % (all.len() - 1)) % all.len()];
        let found = open(process.as_fd(), Name::Path(name.as_os_str()), |_| {
            things.rename(next, &name);
            true
        });
        match found {
            Ok((_, stat)) => {
                assert_eq!(stat.st_ino, inode, "round {round}");
                opened += 1;
            }
            Err(why) => assert_ne!(round % all.len(), 0, "{why:?}"),
        }
    }
    assert_eq!(opened, 10_000_usize.div_ceil(all.len()));
    assert!(!things.some_were_opened());
    // The watch would have told.
    drop(File::open(&things.others[2]).unwrap());
    assert!(things.some_were_opened());
}

#[test]
fn an_entry_that_is_swapped_before_it_is_opened_opens_nothing_else() {
    let things = Things::new("entries");
    let root = things.scratch.canonicalize().unwrap();
    let directory = open_path(&root, HANDLE | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let (inode, name) = (fs::metadata(&things.file).unwrap().ino(), root.join("name"));
    let (all, leases): (Vec<&PathBuf>, _) =
        ([&things.file].into_iter().chain(&things.others).collect(), LeaseList::new());
    let (mut opened, own) = (0, OwnDescriptors::open().unwrap());
    for round in 0..10_000 {
        things.rename(all[round % all.len()], &name);
        let next = all[(round + 1 + round / all.len() % (all.len() - 1)) % all.len()];
        let (place, stat) = entries::entry(&directory, b"name").unwrap();
        things.rename(next, &name);
        match open_found(&place, &stat, &leases, Some(&own)) {
            Ok((_, stat)) => {
                assert_eq!(stat.st_ino, inode, "round {round}");
                opened += 1;
            }
            Err(why) => assert_ne!(round % all.len(), 0, "{why:?}"),
        }
        assert!(entries::subdirectory(&directory, b"name").is_err(), "round {round}");
    }
    assert_eq!(opened, 10_000_usize.div_ceil(all.len()));
    assert!(!things.some_were_opened());
}

#[test]
#[expect(unsafe_code, reason = "leases have no safe wrapper")]
fn a_file_with_a_lease_is_left_when_it_is_found_in_a_directory() {
    let things = Things::new("leased");
    let root = things.scratch.canonicalize().unwrap();
    let directory = open_path(&root, HANDLE | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let (place, stat) = entries::entry(&directory, b"file").unwrap();
    assert!(open_found(&place, &stat, &LeaseList::new(), None).is_ok());
    let holder = File::open(&things.file).unwrap();
    // SAFETY: a call on a descriptor that is open; no memory is touched.
    let taken = unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    if taken != 0 {
        forerun_testkit::skip("leases of found files", "no leases here");
        return;
    }
    let found = open_found(&place, &stat, &LeaseList::new(), None);
    assert_eq!(found.err(), Some(Refusal::Locked));
}

#[test]
fn a_descriptor_that_is_swapped_before_it_is_opened_opens_nothing_else() {
    let things = Things::new("descriptor");
    let process = this_process();
    let (file, secret) = (File::open(&things.file).unwrap(), things.scratch.join("secret"));
    let inode = fs::metadata(&things.file).unwrap().ino();
    let pipe = std::io::pipe().unwrap();
    let other = File::options().write(true).open(&secret).unwrap();
    assert!(things.some_were_opened());
    let mut number = file.try_clone().unwrap();
    let others = [OwnedFd::from(pipe.0), pipe.1.into(), other.into()];
    for round in 0..10_000 {
        let raw = number.as_raw_fd();
        let (before, after) = match round % 4 {
            0 => (file.as_fd(), others[round / 4 % 3].as_fd()),
            at => (others[at - 1].as_fd(), file.as_fd()),
        };
        let swap = |number: File, to| {
            let mut number = OwnedFd::from(number);
            rustix::io::dup2(to, &mut number).unwrap();
            File::from(number)
        };
        number = swap(number, before);
        let mut held = Some(number);
        let found = open(process.as_fd(), Name::Descriptor(raw), |_| {
            held = held.take().map(|number| swap(number, after));
            true
        });
        number = held.unwrap();
        match found {
            Ok((_, stat)) => assert_eq!((stat.st_ino, round % 4), (inode, 0)),
            Err(why) => assert!(matches!(why, Refusal::Kind | Refusal::Unread | Refusal::Changed)),
        }
    }
    assert!(!things.some_were_opened());
    assert!(number.into_raw_fd() >= 0);
}

#[test]
fn paths_are_of_the_process_and_the_kernels_own_files_are_left() {
    let things = Things::new("paths");
    let process = this_process();
    let root = things.scratch.canonicalize().unwrap();
    fs::create_dir(root.join("folder")).unwrap();
    symlink(root.join("folder"), root.join("way")).unwrap();
    fs::write(root.join("folder/file"), [0; 9]).unwrap();
    let within = |path: &str| OsString::from(root.join(path));
    #[rustfmt::skip]
    let rows: [(OsString, Option<Refusal>, &str); 8] = [
        (within("file"),                 None, "a file"),
        (within("folder/file"),          None, "in a folder"),
        (within("way/file"),             Some(Refusal::Absent(Errno::LOOP)), "by a link"),
        (within("link"),                 Some(Refusal::Absent(Errno::LOOP)), "a link"),
        (within("folder"),               Some(Refusal::Kind), "a folder"),
        (within("none"),                 Some(Refusal::Absent(Errno::NOENT)), "nothing"),
        ("/proc/version".into(),         Some(Refusal::Kind), "of the kernel's own"),
        ("/proc/self/exe".into(),        Some(Refusal::Absent(Errno::LOOP)), "a magic link"),
    ];
    for (path, expected, why) in rows {
        let found = open(process.as_fd(), Name::Path(&path), |_| true);
        assert_eq!(found.err(), expected, "{why}");
    }
    let path = within("file");
    let other = open(process.as_fd(), Name::Path(&path), |found| found.is_on(u64::MAX));
    assert_eq!(other.err(), Some(Refusal::Changed), "on another device");
    let device = fs::metadata(&path).unwrap().dev();
    assert!(open(process.as_fd(), Name::Path(&path), |found| found.is_on(device)).is_ok());
}

#[test]
fn links_are_followed_that_no_other_user_may_have_put_there() {
    let scratch = Scratch::on_disk("links");
    let root = scratch.canonicalize().unwrap();
    scratch.file("d/file", "x");
    let absolute = root.join("deep");
    let links: [(&str, &Path); 6] = [
        ("own", Path::new("d/file")),
        ("deep", Path::new("d/../own")),
        ("absolute", &absolute),
        ("folder", Path::new("./d")),
        ("loop", Path::new("loop")),
        ("nowhere", Path::new("d/absent")),
    ];
    for (name, target) in links {
        symlink(target, root.join(name)).unwrap();
    }
    let found = |name: &str| {
        let path = root.join(name).into_os_string().into_encoded_bytes();
        let inode = |found: Result<(OwnedFd, Stat), Refusal>| found.map(|(_, stat)| stat.st_ino);
        (inode(entries::on_a_safe_way(&path)), inode(entries::on_the_way(&path)))
    };
    for name in ["d/file", "own", "deep", "absolute", "folder/file", "folder//./file", "folder"] {
        let (safe, any) = found(name);
        assert!(safe.is_ok() && safe == any, "{name}: {safe:?}, {any:?}");
    }
    for name in ["loop", "nowhere", "own/file", "absent", "absent/file"] {
        let (safe, any) = found(name);
        assert!(safe.is_err() && safe == any, "{name}: {safe:?}, {any:?}");
    }
    assert!(entries::on_a_safe_way(b"/proc/self/cwd").is_err(), "the kernel's own");
    if lchown(root.join("own"), Some(1234), None).is_err() {
        return skip("links_are_followed_that_no_other_user_may_have_put_there", "root");
    }
    for (name, is_safe) in
        [("d/file", true), ("folder/file", true), ("own", false), ("absolute", false)]
    {
        let (safe, any) = found(name);
        assert!(any.is_ok(), "{name}");
        assert_eq!(safe, if is_safe { any } else { Err(Refusal::Rights) }, "{name}");
    }
}
