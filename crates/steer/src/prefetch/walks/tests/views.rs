//! Programs that change what they see and what they may do, and directories at several paths.
//!
//! # Invariants
//! - The time that the driver is given goes on by a millisecond for each use.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;

use forerun_testkit::compile_c;
use rustix::process::geteuid;

use super::*;

/// A program that answers to each byte with one, and on the first changes its root, its user, or
/// begins a thread of another user.
struct Changes {
    process: Child,
    folder: OwnedFd,
    _scratch: Scratch,
}

impl Changes {
    /// None, and `test` is skipped by name, where there is no compiler.
    fn new(test: &str, what: &str) -> Option<Self> {
        let scratch = Scratch::new(test);
        let (source, program) = (scratch.file("changes.c", CHANGES), scratch.join("changes"));
        compile_c(test, &source, &[], &program)?;
        let root = scratch.join("root");
        fs::create_dir(&root).unwrap();
        let mut command = Command::new(program);
        command.arg(what).arg(root).stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = command.spawn().unwrap();
        let folder = format!("/proc/{}", process.id());
        let folder = open(&*folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        Some(Self { process, folder, _scratch: scratch })
    }

    /// Returns once it has changed.
    fn change(&mut self) {
        self.process.stdin.as_ref().unwrap().write_all(b"?").unwrap();
        self.process.stdout.as_mut().unwrap().read_exact(&mut [0]).expect("it may change");
    }

    /// It uses what lies at `path`, by its second thread where there is one.
    fn entry(&self, walk: &mut Walk, path: &Path, call: EntryCall) {
        let (pid, path) = (self.process.id().cast_signed(), path.as_os_str().as_bytes());
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let number = |it: fs::DirEntry| it.file_name().to_str()?.parse().ok();
        let thread = threads.flatten().filter_map(number).find(|&tid| tid != pid).unwrap_or(pid);
        let process = self.folder.as_fd();
        let access = EntryAccess { pid, thread, process, path, call, read: None };
        walk.driver.entry(walk.now, &access);
        walk.advance();
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn what_a_program_has_given_up_is_used_for_it_no_more() {
    let test = "what_a_program_has_given_up_is_used_for_it_no_more";
    if !geteuid().is_root() {
        return forerun_testkit::skip(test, "root");
    }
    let rows = [("nothing", true), ("root", false), ("rights", false), ("thread", false)];
    for (what, is_listed) in rows {
        let mut walk = Walk::new("walk-given-up");
        let Some(mut program) = Changes::new(test, what) else { return };
        for at in 0..40 {
            fs::write(walk.path(format!("f{at:02}")), vec![1; 100]).unwrap();
        }
        fs::set_permissions(walk.path(""), fs::Permissions::from_mode(0o700)).unwrap();
        let names = walk.names("");
        // It is met where nothing is listed for it, by the root and the rights that it has.
        program.entry(&mut walk, Path::new("/etc"), EntryCall::Stat);
        program.change();
        for path in &names[..10] {
            program.entry(&mut walk, path, READ);
        }
        assert!(walk.now < Nanos::from_millis(15), "all of it is of one moment");
        assert_eq!(walk.driver.directories.names() > 0, is_listed, "{what}");
        assert_eq!(walk.driver.stats().requested > 0, is_listed, "{what}");
    }
}

#[test]
fn processes_that_see_the_same_by_the_same_rights_share_a_root() {
    let test = "processes_that_see_the_same_by_the_same_rights_share_a_root";
    let mut walk = Walk::new("walk-shared");
    for at in 0..40 {
        walk.tree.file(&format!("f{at:02}"), vec![1; 100]);
    }
    let names = walk.names("");
    let [Some(one), Some(other)] = [(); 2].map(|()| Changes::new(test, "nothing")) else { return };
    // Each alone has used too few.
    for pair in names[..20].chunks(2) {
        one.entry(&mut walk, &pair[0], READ);
        other.entry(&mut walk, &pair[1], READ);
    }
    let stats = walk.driver.stats();
    assert_eq!((stats.walks, stats.failed), (1, 0), "{stats:?}");
    // Where one has ended, handles are had from the other.
    drop(one);
    walk.now += Nanos::from_millis(200);
    for path in &names[20..] {
        other.entry(&mut walk, path, READ);
    }
    let stats = walk.driver.stats();
    assert_eq!((stats.walks, stats.failed), (1, 0), "{stats:?}");
    assert!(stats.used > 30, "{stats:?}");
}

#[test]
fn a_watch_on_a_directory_at_two_paths_tells_of_one_of_them() {
    let test = "a_watch_on_a_directory_at_two_paths_tells_of_one_of_them";
    let mut watches = Watches::new(WatchQueue::new());
    let tree = Scratch::on_disk("twins");
    tree.file("file", "x");
    let process = open("/proc/self", OFlags::PATH, Mode::empty()).unwrap();
    let top = Place::top(Arc::new(Root::of(process.as_fd()).unwrap()));
    let [(one, a), (two, b)] = [(1, "a"), (2, "b")]
        .map(|(at, name)| (DirectoryId(at), Place::below(&top, name.as_bytes())));
    let folder = open(tree.join(""), OFlags::PATH, Mode::empty()).unwrap();
    let Ok(number) = watches.queue().watch(&folder) else {
        return forerun_testkit::skip(test, "the system has no watches to give");
    };
    let told = |watches: &mut Watches| {
        fs::read(tree.join("file")).unwrap();
        let mut told = Vec::new();
        watches.take(&mut told);
        told.into_iter().map(|read| read.dir).collect::<Vec<_>>()
    };
    let dir = |untold: Option<Untold>| untold.map(|(dir, _)| dir);
    assert_eq!(dir(watches.add(number, one, &a)), None);
    assert_eq!(told(&mut watches), [one]);
    assert_eq!(dir(watches.add(number, two, &b)), Some(one), "it is told of no more");
    assert_eq!(told(&mut watches), [two]);
    assert_eq!(dir(watches.prefer(two, &b)), None, "it is told of");
    assert_eq!(dir(watches.prefer(one, &a)), Some(two), "the program is there again");
    assert_eq!(told(&mut watches), [one]);
    assert_eq!(dir(watches.add(number, one, &a)), None, "it is listed again");
    assert_eq!(dir(watches.prefer(two, &b)), Some(one));
    // However many paths there are.
    for at in 3..300 {
        let untold = watches.add(number, DirectoryId(at), &Place::below(&top, b"more"));
        assert_eq!(dir(untold), Some(DirectoryId(at - 1)));
    }
    assert_eq!((watches.count(), dir(watches.prefer(one, &a))), (1, None), "a bound");
    watches.clear();
    assert_eq!(told(&mut watches), []);
}

#[test]
fn a_read_in_a_directory_at_two_paths_counts_once() {
    let test = "a_read_in_a_directory_at_two_paths_counts_once";
    let mut walk = Walk::new("walk-twins");
    fs::create_dir(walk.path("d")).unwrap();
    symlink("d", walk.path("again")).unwrap();
    for at in 0..300 {
        fs::write(walk.path(format!("d/{at:03}.h")), [7; 100]).unwrap();
    }
    walk.read("d", 6);
    walk.read("again", 6);
    if walk.driver.watches.count() == 0 {
        return forerun_testkit::skip(test, "the system has no watches to give");
    }
    let before = walk.driver.stats();
    for path in &walk.names("d")[6..200] {
        walk.entry(path, READ);
        assert_eq!(fs::read(path).unwrap().len(), 100);
        walk.advance();
    }
    let stats = walk.driver.stats();
    assert!(stats.used >= before.used + 150, "the walk goes on: {stats:?}");
    let requested = stats.requested - before.requested;
    assert!(requested <= 300, "{requested} of 300 entries: {stats:?}");
    assert_eq!(stats.failed, 0, "{stats:?}");
}

const CHANGES: &str = r#"
#define _GNU_SOURCE
#include <grp.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *begin(void *done)
{
    if (syscall(SYS_setresuid, 65534, 65534, 65534)) return 0;
    if (write(*(int *)done, "!", 1) == 1) for (;;) pause();
    return 0;
}
static int begins(void)
{
    int done[2];
    char byte;
    pthread_t thread;
    if (pipe(done) || pthread_create(&thread, 0, begin, &done[1])) return 0;
    return read(done[0], &byte, 1) == 1;
}
int main(int count, char **words)
{
    char byte, *what = count > 2 ? words[1] : "";
    for (int nth = 0; read(0, &byte, 1) == 1; nth++) {
        if (nth == 0 && !strcmp(what, "root") && (chroot(words[2]) || chdir("/"))) return 1;
        if (nth == 0 && !strcmp(what, "rights")
            && (setgroups(0, 0) || setgid(65534) || setuid(65534)))
            return 1;
        if (nth == 0 && !strcmp(what, "thread") && !begins()) return 1;
        if (write(1, &byte, 1) != 1) return 1;
    }
    return 0;
}
"#;
