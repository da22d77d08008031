//! Watches of both kinds: what they tell, under which number, and until when.

use std::fs;

use forerun_testkit::{Scratch, skip};
use rustix::fs::{Mode, OFlags, open};

use super::*;

fn handle(scratch: &Scratch, name: &str) -> OwnedFd {
    open(scratch.join(name), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// What `queue` tells now.
fn told(queue: &WatchQueue) -> Vec<(i32, String)> {
    let mut all = Vec::new();
    queue.take(|event| {
        if let Told::Read { number, name, .. } = event {
            all.push((number, String::from_utf8(name.to_vec()).unwrap()));
        }
        Reply::Taken
    });
    all
}

#[test]
fn reads_are_told_by_the_number_of_their_directory_until_its_watch_ends() {
    let scratch = Scratch::on_disk("watch-numbers");
    for name in ["a/1", "a/2", "b/1"] {
        scratch.file(name, "x");
    }
    for queue in [WatchQueue::new(), WatchQueue::of_inotify()] {
        let (a, b) = (handle(&scratch, "a"), handle(&scratch, "b"));
        let (Ok(first), Ok(second)) = (queue.watch(&a), queue.watch(&b)) else {
            return skip("watch-numbers", "the system has no watches to give");
        };
        assert_ne!(first, second);
        assert_eq!(queue.watch(&a), Ok(first), "one watch of a directory");
        let read = |name: &str| drop(fs::read(scratch.join(name)).unwrap());
        ["a/1", "b/1", "a/2"].into_iter().for_each(read);
        let _ = fs::read_dir(scratch.join("a")).unwrap().count();
        let names = |rows: &[(i32, &str)]| {
            rows.iter().map(|&(at, name)| (at, name.to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(told(&queue), names(&[(first, "1"), (second, "1"), (first, "2")]));
        queue.end(first);
        ["a/1", "b/1"].into_iter().for_each(read);
        assert_eq!(told(&queue), names(&[(second, "1")]));
        let again = queue.watch(&a).unwrap();
        assert!(![first, second].contains(&again), "no number comes twice");
        read("a/2");
        assert_eq!(told(&queue), names(&[(again, "2")]));
        let path = scratch.join("a");
        assert!(queue.end_at(again, path.as_os_str().as_encoded_bytes()), "it told all");
        ["a/1", "b/1"].into_iter().for_each(read);
        assert_eq!(told(&queue), names(&[(second, "1")]));
    }
}

#[test]
fn a_mark_that_went_with_its_directory_is_told_at_the_end() {
    let scratch = Scratch::on_disk("watch-gone");
    scratch.file("a/1", "x");
    let queue = WatchQueue::new();
    let Ok(number) = queue.watch(&handle(&scratch, "a")) else {
        return skip("watch-gone", "the system has no watches to give");
    };
    if number > 0 {
        return skip("watch-gone", "no marks that hold no inode: Linux 5.19 has them");
    }
    fs::rename(scratch.join("a"), scratch.join("b")).unwrap();
    scratch.file("a/1", "x");
    let path = scratch.join("a");
    assert!(!queue.end_at(number, path.as_os_str().as_encoded_bytes()), "another directory");
}

#[test]
fn marks_are_bounded_and_the_last_ones_tell() {
    let scratch = Scratch::on_disk("watch-many");
    let queue = WatchQueue::new();
    let mut numbers = Vec::new();
    for at in 0..4_500 {
        scratch.file(&format!("{at}/file"), "x");
        let Ok(number) = queue.watch(&handle(&scratch, &at.to_string())) else {
            return skip("watch-many", "the system has no watches to give");
        };
        numbers.push(number);
    }
    if numbers[0] > 0 {
        return skip("watch-many", "no marks that hold no inode: Linux 5.19 has them");
    }
    for at in [0, 1_500, 4_499] {
        fs::read(scratch.join(format!("{at}/file"))).unwrap();
    }
    let at = |at: usize| (numbers[at], "file".to_owned());
    assert_eq!(told(&queue), [at(1_500), at(4_499)], "all but those of the first group");
    queue.clear();
    fs::read(scratch.join("4499/file")).unwrap();
    assert_eq!(told(&queue), []);
}

#[test]
fn what_comes_early_is_told_again_with_the_next_call_and_nothing_is_lost() {
    let scratch = Scratch::on_disk("watch-early");
    for name in ["a/1", "a/2", "a/3"] {
        scratch.file(name, "x");
    }
    for queue in [WatchQueue::new(), WatchQueue::of_inotify()] {
        let Ok(_) = queue.watch(&handle(&scratch, "a")) else {
            return skip("watch-early", "the system has no watches to give");
        };
        for name in ["a/1", "a/2", "a/3"] {
            fs::read(scratch.join(name)).unwrap();
        }
        let take = |answers: &[Reply]| {
            let (mut names, mut answers) = (Vec::new(), answers.iter());
            queue.take(|event| {
                let Told::Read { name, .. } = event else { return Reply::Taken };
                names.push(String::from_utf8(name.to_vec()).unwrap());
                *answers.next().unwrap()
            });
            names
        };
        // What was read of the kernel at once is given to the end.
        assert_eq!(take(&[Reply::Early, Reply::Enough, Reply::Early]), ["1", "2", "3"]);
        assert_eq!(take(&[Reply::Early, Reply::Taken]), ["1", "3"], "again");
        assert_eq!(take(&[]), [""; 0], "and no more than that");
    }
}
