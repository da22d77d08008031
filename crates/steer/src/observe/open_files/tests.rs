//! Positions of this process's own descriptors, and what becomes of them.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use forerun_testkit::Scratch;

use super::*;
use crate::observe::access::recording::RecordingSink;
use crate::observe::moves::Move;

#[test]
fn what_was_reported_is_told_to_the_observer_that_follows() {
    const PART: usize = 256 << 10;
    let scratch = Scratch::new("handed-over");
    let path = scratch.join("data");
    std::fs::write(&path, vec![7; 4 * PART]).unwrap();
    let process = File::open("/proc/self").unwrap();
    let process = process.as_fd();
    for parts in 0..3 {
        let (mut files, mut sink) = (OpenFiles::default(), RecordingSink::default());
        let mut file = File::open(&path).unwrap();
        let (number, stat) = (file.as_raw_fd(), crate::kernel::stat(&file).unwrap());
        while files.discover(process, None, Allowance::endless()).unwrap() {}
        for _ in 0..parts {
            file.read_exact(&mut vec![0; PART]).unwrap();
            files.poll(process, Nanos(0), Allowance::endless(), &mut sink);
        }
        let inode = (stat.st_dev, stat.st_ino);
        let older = (stat.st_dev, stat.st_ino + 1);
        assert_eq!(files.leave(number, older, Nanos(0), &mut sink), [0..0, 0..0]);
        let reported = files.leave(number, inode, Nanos(0), &mut sink);
        assert_eq!(reported, [0..(parts * PART) as u64, 0..0]);
    }
}

#[test]
fn what_is_written_is_not_followed_as_if_it_were_read() {
    let scratch = Scratch::new("overwritten");
    let path = scratch.join("data");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let process = File::open("/proc/self").unwrap();
    let (mut files, mut sink) = (OpenFiles::default(), RecordingSink::default());
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    let number = file.as_raw_fd();
    while files.discover(process.as_fd(), None, Allowance::endless()).unwrap() {}
    for nth in 1..=4 {
        file.write_all(&vec![8; 256 << 10]).unwrap();
        files.poll(process.as_fd(), Nanos(0), Allowance::endless(), &mut sink);
        let known = &files.open[&number];
        assert_eq!((known.position, known.cursor), (nth << 18, None));
    }
}

/// A shell has read elsewhere as much as its child writes by the descriptor that both have.
#[test]
fn what_a_child_writes_is_not_taken_for_what_its_parent_has_read() {
    const SCRIPT: &str = r#"
        read -r -n 300000 _ < "$0"; exec 3<> "$0"; echo; read -r
        read -r -n 65536 _ <&3; read -r -n $1 _ < "$0"; echo; read -r
        (head -c 8192 /dev/zero >&3; echo; read -r; head -c 90000 /dev/zero >&3; echo; read -r)
        "#;
    let scratch = Scratch::new("written-by-a-child");
    let path = scratch.join("data");
    #[rustfmt::skip]
    let rows = [ // found after steps, polls at each, bytes read elsewhere, and by this descriptor
        (0, 1, 1,      65536),
        (0, 2, 20_000, 65536),
        (1, 2, 20_000, 65536),
        (2, 2, 20_000, 0),
    ];
    for (found_after, polls, elsewhere, expected) in rows {
        std::fs::write(&path, vec![b'7'; 1 << 20]).unwrap();
        let mut shell = Command::new("bash");
        shell.args(["-c", SCRIPT]).arg(&path).arg(elsewhere.to_string());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut steps = BufReader::new(shell.stdout.take().unwrap());
        let process = File::open(format!("/proc/{}", shell.id())).unwrap();
        let file = File::open(&path).unwrap();
        let (mut files, mut sink) = (OpenFiles::default(), sink_of(&file));
        for step in 0..4 {
            steps.read_line(&mut String::new()).unwrap();
            if step >= found_after {
                discover_alone(&mut files, process.as_fd(), &file);
                for _ in 0..polls {
                    files.poll(process.as_fd(), Nanos(0), Allowance::endless(), &mut sink);
                }
            }
            shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }
        assert!(shell.wait().unwrap().success());
        assert_eq!(bytes_read(&sink), expected, "found after {found_after}: {:?}", sink.reads);
    }
}

#[test]
fn what_is_read_through_copies_of_a_descriptor_counts_once() {
    const PART: usize = 64 << 10;
    let scratch = Scratch::new("copies");
    let path = scratch.join("data");
    std::fs::write(&path, vec![7; 24 * PART]).unwrap();
    let process = File::open("/proc/self").unwrap();
    let mut files = OpenFiles::new(i32::try_from(std::process::id()).unwrap());
    let first = File::open(&path).unwrap();
    let mut sink = sink_of(&first);
    let other = File::open(&path).unwrap();
    let mut copies = Vec::from([(); 3].map(|()| first.try_clone().unwrap()));
    copies.push(first);
    let process = process.as_fd();
    discover_alone(&mut files, process, &other);
    assert_eq!(copies_of(&files, &other), 3, "{:?}", files.copies);
    for nth in 0..24 {
        // The one that is followed is closed on the way, and then its follower.
        if nth % 8 == 7 {
            let lowest = (0..copies.len()).min_by_key(|&at| copies[at].as_raw_fd()).unwrap();
            drop(copies.remove(lowest));
        }
        let count = copies.len();
        copies[nth % count].read_exact(&mut vec![0; PART]).unwrap();
        files.poll(process, Nanos(0), Allowance::endless(), &mut sink);
    }
    assert_eq!(bytes_read(&sink), 24 * PART as u64);
}

#[test]
fn a_copy_that_is_opened_anew_is_followed_by_itself() {
    const PART: usize = 64 << 10;
    let scratch = Scratch::new("parted");
    let path = scratch.join("data");
    std::fs::write(&path, vec![7; 24 * PART]).unwrap();
    let process = File::open("/proc/self").unwrap();
    let (process, known) = (process.as_fd(), File::open(&path).unwrap());
    for anew in 0..2 {
        let mut files = OpenFiles::new(i32::try_from(std::process::id()).unwrap());
        let first = File::open(&path).unwrap();
        let mut sink = sink_of(&first);
        let first = OwnedFd::from(first);
        let mut both = [first.try_clone().unwrap(), first];
        both.sort_unstable_by_key(AsRawFd::as_raw_fd);
        let mut poll = || {
            discover_alone(&mut files, process, &known);
            files.poll(process, Nanos(0), Allowance::endless(), &mut sink);
            copies_of(&files, &known)
        };
        let read = |file: &OwnedFd| rustix::io::read(file, &mut vec![0; PART]).unwrap();
        for nth in 0..8 {
            assert_eq!(poll(), 1);
            assert_eq!(read(&both[nth % 2]), PART);
        }
        poll();
        rustix::io::dup2(File::open(&path).unwrap(), &mut both[anew]).unwrap();
        for nth in 0..8 {
            assert_eq!(read(&both[nth % 2]), PART);
            poll();
        }
        assert_eq!(poll(), 0);
        // Of a leader that was opened anew it is not known where the first read began.
        let (least, most) = ([15, 16][anew] * PART as u64, 16 * PART as u64);
        assert!((least..=most).contains(&bytes_read(&sink)), "{anew}: {:?}", sink.reads);
    }
}

/// Finds the descriptors of `file`, and leaves out what other tests of this process have open: that
/// would have its share of what was read.
fn discover_alone(files: &mut OpenFiles, process: BorrowedFd<'_>, file: &File) {
    while files.discover(process, None, Allowance::endless()).unwrap() {}
    let inode = inode_of(file);
    let OpenFiles { open, copies, .. } = files;
    open.retain(|&number, known| {
        let is_it = known.inode.1 == inode;
        if !is_it {
            copies.remove(number);
        }
        is_it
    });
}

/// A sink that follows `file` alone.
fn sink_of(file: &File) -> RecordingSink {
    RecordingSink { only: Some(inode_of(file)), ..RecordingSink::default() }
}

/// The descriptors of `file` that are known as copies.
fn copies_of(files: &OpenFiles, file: &File) -> usize {
    let inode = inode_of(file);
    let of_it = files.open.iter().filter(|(_, known)| known.inode.1 == inode);
    of_it.filter(|(number, _)| files.copies.is_copy(**number)).count()
}

fn inode_of(file: &File) -> u64 {
    crate::kernel::stat(file).unwrap().st_ino
}

fn bytes_read(sink: &RecordingSink) -> u64 {
    sink.reads.iter().map(|(_, range, _)| range.end - range.start).sum()
}

#[test]
fn positions_of_one_file_may_move_as_they_like() {
    let scratch = Scratch::new("two");
    let path = scratch.join("data");
    std::fs::write(&path, vec![7; 2 << 20]).unwrap();
    let process = File::open("/proc/self").unwrap();
    let (mut files, mut sink) = (OpenFiles::default(), RecordingSink::default());
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    let opened = open();
    let mut both = [opened.try_clone().unwrap(), opened, open()];
    while files.discover(process.as_fd(), None, Allowance::endless()).unwrap() {}
    let places = [[1, 9], [7, 3], [7, 5], [0, 0], [15, 1], [2, 15]];
    for place in places.iter().flatten().zip([1, 2].into_iter().cycle()) {
        both[place.1].seek(SeekFrom::Start(place.0 << 17)).unwrap();
        both[place.1].read_exact(&mut vec![0; 64 << 10]).unwrap();
        files.poll(process.as_fd(), Nanos(0), Allowance::endless(), &mut sink);
    }
    let stat = crate::kernel::stat(&both[0]).unwrap();
    for file in &both {
        let (number, inode) = (file.as_raw_fd(), (stat.st_dev, stat.st_ino));
        let [shown, aside] = files.leave(number, inode, Nanos(0), &mut sink);
        assert!(shown.end <= 2 << 20 && aside.is_empty());
    }
}

#[test]
fn a_descriptor_that_another_observer_leaves_is_followed_from_where_it_is() {
    let scratch = Scratch::new("left");
    let path = scratch.join("data");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let process = File::open("/proc/self").unwrap();
    let (mut files, mut sink) = (OpenFiles::default(), RecordingSink::default());
    let mut file = File::open(&path).unwrap();
    let (number, stat) = (file.as_raw_fd(), crate::kernel::stat(&file).unwrap());
    let discover = |files: &mut OpenFiles| {
        while files.discover(process.as_fd(), None, Allowance::endless()).unwrap() {}
    };
    discover(&mut files);
    files.leave(number, (stat.st_dev, stat.st_ino), Nanos(0), &mut sink);
    file.read_exact(&mut vec![0; 256 << 10]).unwrap();
    discover(&mut files);
    assert!(files.holds_any() && !files.open.contains_key(&number));
    files.take_back(number);
    discover(&mut files);
    assert_eq!(files.open[&number].position, 256 << 10);
}

#[test]
fn calls_with_offsets_of_their_own_go_on_each_in_its_turn_as_far_as_the_allowance_goes() {
    const BYTES: u64 = 1 << 20;
    let scratch = Scratch::new("asides");
    let path = scratch.join("data");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let copy = File::create(scratch.join("copy")).unwrap();
    copy.set_len(BYTES).unwrap();
    let process = File::open("/proc/self").unwrap();
    let opened = [(); 3].map(|()| File::open(&path).unwrap());
    let mut files = OpenFiles::new(i32::try_from(std::process::id()).unwrap());
    let mut sink = sink_of(&opened[0]);
    discover_alone(&mut files, process.as_fd(), &opened[0]);
    for file in &opened {
        let call = Move::new(0, BYTES, copy.as_raw_fd(), 0).unwrap();
        files.moving(file.as_raw_fd(), BlockedMove { call, by_position: false });
    }
    let first = opened.iter().map(AsRawFd::as_raw_fd).min().unwrap();
    let mut poll = |files: &mut OpenFiles, allowance| {
        files.poll(process.as_fd(), Nanos(0), allowance, &mut sink);
        bytes_read(&sink)
    };
    assert_eq!(poll(&mut files, Allowance::of(Nanos(0))), 0, "there was no time");
    assert_eq!(files.asides_from, first);
    files.asides_from = first + 1;
    assert_eq!(poll(&mut files, Allowance::endless()), 3 * BYTES, "of all, also of those before");
}
