//! Programs in several languages, and awkward ones, each alone and in every way.

use std::process::Command;

use forerun_testkit::{Scratch, compile_c, installed, skip};

use crate::table::{WAYS, Way, run};

/// Reads the file `DATA` and prints a sum of its bytes, in each language.
#[rustfmt::skip]
const LANGUAGES: &[(&str, &str, &[&str])] = &[ // what, package, words
    ("sh", "dash", &["sh", "-c", "cksum < DATA; echo wrong >&2; exit 3"]),
    ("perl", "perl", &["perl", "-e",
        "open F, 'DATA'; binmode F; local $/; print unpack('%32C*', <F>)"]),
    ("python3", "python3", &["python3", "-c", "print(sum(open('DATA', 'rb').read()))"]),
    ("ruby", "ruby", &["ruby", "-e", "puts File.binread('DATA').sum(32)"]),
    ("node", "nodejs", &["node", "-e",
        "console.log(require('fs').readFileSync('DATA').reduce((a, b) => a + b, 0))"]),
    ("javac", "default-jdk-headless", &["java", "-cp", "SOURCE", "Sum", "DATA"]),
    ("go", "golang-go", &["SOURCE/sum", "DATA"]),
    ("rustc", "rustc", &["SOURCE/sum-rust", "DATA"]),
];

/// What programs do that goes beyond reading a file.
#[rustfmt::skip]
const AWKWARD: &[(&str, &str, &[&str])] = &[ // what, package, words
    ("setsid", "util-linux", &["setsid", "-w", "cksum", "DATA"]),
    ("setsid", "util-linux", &["sh", "-c", "setsid sh -c 'cksum DATA >left; exit 5'; echo $?"]),
    ("sh", "dash", &["sh", "-c", "exec sh -c 'exec env sh -c \"exec cksum DATA\"'"]),
    ("sh", "dash", &["sh", "-c",
        "(cksum DATA > one &); cksum DATA; until test -s one; do :; done"]),
    ("sh", "dash", &["sh", "-c", "cat DATA | (cksum; cksum) ; kill -9 $$"]),
    ("sh", "dash", &["sh", "-c", "yes | head -n 1; exec >&- 2>&-; cksum DATA > closed"]),
    ("perl", "perl", &["perl", "-e",
        "$SIG{USR1} = sub { $n++ }; kill USR1 => $$ for 1 .. 5000; print $n > 0"]),
    ("perl", "perl", &["perl", "-e",
        "use Time::HiRes; Time::HiRes::ualarm(200000); select undef, undef, undef, 60"]),
    ("perl", "perl", &["perl", "-e",
        "$SIG{CHLD} = 'IGNORE'; for (1 .. 50) { fork or exit 1 } 1 while wait > 0; print $!"]),
    // Whether bash tells on stderr that the job is done depends on when it ends.
    ("bash", "bash", &["bash", "-c",
        "exec 2> /dev/null; set -m; cksum DATA & wait; trap 'echo int' INT; kill -INT $$"]),
    ("bash", "bash", &["bash", "-c", "for i in {1..150}; do exec {fd}<DATA; done; echo $fd"]),
    ("timeout", "coreutils", &["timeout", "-s", "INT", "0.2", "sleep", "60"]),
    ("strace", "strace", &["strace", "-f", "-qq", "-e", "trace=openat", "-o", "/dev/null",
        "cksum", "DATA"]),
    ("gdb", "gdb", &["sh", "-c",
        "gdb -nx -q -batch -ex 'run <DATA >left' -ex quit cksum | grep -o 'exited normally'"]),
    ("unshare", "util-linux", &["unshare", "-r", "-m", "cksum", "DATA"]),
    ("chroot", "coreutils", &["chroot", "/", "cksum", "DATA"]),
    ("su", "util-linux", &["su", "-s", "/bin/sh", "-c", "id -un; cksum DATA", "nobody"]),
    // A job that has ended is none that `fg` continues.
    ("script", "bsdutils", &["script", "-qec",
        "stty -a | head -n 1; tty -s && echo tty; bash -ic 'sleep 1 & fg' 2>&1 | tail -n 1",
        "/dev/null"]),
];

/// What starts `forerun`, or the program alone.
#[rustfmt::skip]
const STARTERS: &[(&str, &str, &[&str])] = &[ // what, package, words
    ("setsid", "util-linux", &["setsid", "-w"]),
    ("nohup", "coreutils", &["nohup"]),
    ("timeout", "coreutils", &["timeout", "-s", "INT", "60"]),
    ("nice", "coreutils", &["nice", "-n", "9"]),
    ("strace", "strace", &["strace", "-f", "-qq", "-e", "trace=none", "-o", "/dev/null"]),
    ("unshare", "util-linux", &["unshare", "-r", "-m"]),
    ("perl", "perl", &["perl", "-e", "alarm 100; exec @ARGV"]),
];

/// Becomes the words after it in a memory group of their own, and ends it.
const MEMORY_GROUP: &str = "
at=/sys/fs/cgroup; limit=memory.max
[ -d $at/memory ] && at=$at/memory limit=memory.limit_in_bytes
group=$at/forerun-$$; mkdir $group && echo 134217728 > $group/$limit || exit 90
(echo 0 > $group/cgroup.procs && exec \"$@\"); status=$?
until rmdir $group; do sleep 0.01; done 2> /dev/null; exit $status";

const SUM_JAVA: &str = "
import java.nio.file.*;
class Sum {
    public static void main(String[] words) throws Exception {
        long sum = 0;
        for (byte b : Files.readAllBytes(Path.of(words[0]))) sum += b & 255;
        System.out.println(sum);
    }
}
";

const SUM_GO: &str = "
package main

import (\"fmt\"; \"os\")

func main() {
    data, _ := os.ReadFile(os.Args[1])
    sum := 0
    for _, b := range data { sum += int(b) }
    fmt.Println(sum)
}
";

const SUM_RUST: &str = "
fn main() {
    let data = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
    println!(\"{}\", data.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    std::process::exit(5);
}
";

/// Becomes a parent by `vfork`, whose child has its memory until it is another program.
const VFORKS_C: &str = "
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words) {
    for (int i = 0; i < 20; i++) {
        fflush(stdout);
        pid_t child = vfork();
        if (child == 0) {
            close(0);
            execlp(\"cksum\", \"cksum\", words[1], NULL);
            _exit(99);
        }
        int status;
        if (waitpid(child, &status, 0) != child) return 1;
        printf(\"%d of %d\\n\", status, count);
    }
    return 6;
}
";

const SUM_C: &str = "
#include <stdio.h>
int main(int count, char **words) {
    FILE *file = fopen(words[1], \"r\");
    long sum = 0;
    for (int byte; (byte = getc(file)) != EOF;) sum += byte;
    printf(\"%ld\\n\", sum);
    fprintf(stderr, \"%d words\\n\", count);
    return 9;
}
";

/// A program that is killed where it makes a call that `forerun` may make, and not itself.
const SUM_SECCOMP: &str = "
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define CALL(number, result) \\
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, result)
int main(int count, char **words) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        CALL(__NR_readahead, SECCOMP_RET_KILL_PROCESS),
        CALL(__NR_fadvise64, SECCOMP_RET_KILL_PROCESS),
        CALL(__NR_mincore, SECCOMP_RET_KILL_PROCESS),
        CALL(__NR_socket, SECCOMP_RET_KILL_PROCESS),
        CALL(__NR_ptrace, SECCOMP_RET_KILL_PROCESS),
        CALL(__NR_getppid, SECCOMP_RET_ERRNO | EXDEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter)) return 1;
    FILE *file = fopen(words[1], \"r\");
    long sum = 0;
    for (int byte; (byte = getc(file)) != EOF;) sum += byte;
    int is_refused = syscall(__NR_getppid) < 0 && errno == EXDEV;
    printf(\"%ld %d of %d\\n\", sum, is_refused, count);
    return 4;
}
";

/// A row of the table.
struct Row {
    name: String,
    before: Vec<String>,
    words: Vec<String>,
}

/// Whether `program` can be started; where it cannot, its row of `test` is skipped.
fn is_there(test: &str, program: &str, package: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        skip(test, &format!("its row of {program}: apt-get install {package}"));
    }
    found
}

fn rows(test: &str, scratch: &Scratch) -> Vec<Row> {
    let data: Vec<u8> = (0..2_u32 << 20).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let data = scratch.file("data", data).display().to_string();
    let source = scratch.display().to_string();
    scratch.file("Sum.java", SUM_JAVA);
    scratch.file("sum.go", SUM_GO);
    scratch.file("sum.rs", SUM_RUST);
    for compile in [
        &["javac", "Sum.java"][..],
        &["go", "build", "-o", "sum", "sum.go"],
        &["rustc", "-o", "sum-rust", "sum.rs"],
    ] {
        // Where there is no compiler the row is skipped below.
        let mut command = Command::new(compile[0]);
        if let Ok(output) = command.args(&compile[1..]).current_dir(scratch).output() {
            assert!(output.status.success(), "{compile:?}: {output:?}");
        }
    }
    let fill = |word: &&str| word.replace("DATA", &data).replace("SOURCE", &source);
    let mut rows = Vec::new();
    for (at, (program, package, words)) in LANGUAGES.iter().chain(AWKWARD).enumerate() {
        if is_there(test, program, package) {
            let name = format!("{program} {at}");
            rows.push(Row { name, before: Vec::new(), words: words.iter().map(fill).collect() });
        }
    }
    let listing = scratch.file("sum.c", SUM_C);
    for (name, flags) in [("C", &[][..]), ("static C", &["-static"])] {
        let program = scratch.join(name.replace(' ', "-"));
        if compile_c(test, &listing, flags, &program).is_some() {
            let words = vec![program.display().to_string(), data.clone()];
            rows.push(Row { name: name.into(), before: Vec::new(), words });
        }
    }
    for (name, source) in [("seccomp", SUM_SECCOMP), ("vfork", VFORKS_C)] {
        let (listing, program) = (scratch.file(&format!("{name}.c"), source), scratch.join(name));
        if compile_c(test, &listing, &[], &program).is_some() {
            let words = vec![program.display().to_string(), data.clone()];
            rows.push(Row { name: name.into(), before: Vec::new(), words });
        }
    }
    if is_there(test, "musl-gcc", "musl-tools") {
        let program = scratch.join("musl");
        let mut compiler = Command::new("musl-gcc");
        let made = compiler.arg("-o").arg(&program).arg(&listing).status();
        assert!(made.is_ok_and(|made| made.success()), "musl-gcc compiles a short program");
        let words = vec![program.display().to_string(), data.clone()];
        rows.push(Row { name: "musl".into(), before: Vec::new(), words: words.clone() });
        let shell = ["sh", "-c", "\"$@\"; echo $?", "sh"].map(str::to_owned);
        let words = shell.into_iter().chain(words).collect();
        rows.push(Row { name: "musl, a child".into(), before: Vec::new(), words });
    }
    let grouped: Vec<String> = ["sh", "-c", MEMORY_GROUP, "sh"].map(str::to_owned).to_vec();
    let can_group = Command::new("sh").args(&grouped[1..]).arg("true").output();
    if can_group.is_ok_and(|output| output.status.success()) {
        let words = ["sh", "-c", "grep -c forerun- /proc/self/cgroup; cksum < DATA; exit 3"];
        let words = words.iter().map(fill).collect();
        rows.push(Row { name: "memory group".into(), before: grouped, words });
    } else {
        println!("{:20} left out: no group of memory can be made here", "memory group");
    }
    for (program, package, before) in STARTERS {
        if is_there(test, program, package) {
            let words = ["sh", "-c", "cksum < DATA; cat /proc/self/oom_score_adj; exit 3"];
            let (before, words) = (before.iter().map(fill), words.iter().map(fill));
            let name = format!("after {program}");
            rows.push(Row { name, before: before.collect(), words: words.collect() });
        }
    }
    rows
}

#[test]
fn programs_do_what_they_do_alone() {
    let test = "programs_do_what_they_do_alone";
    if !installed(test, "cc") {
        return;
    }
    let scratch = Scratch::new("programs");
    let mut differences = Vec::new();
    for Row { name, before, words } in rows(test, &scratch) {
        let alone = run(&scratch, Way::Alone, &before, &words);
        for way in &WAYS[1..] {
            let found = run(&scratch, *way, &before, &words).differences(&alone);
            let table = if found.is_empty() { "equal" } else { "DIFFERS" };
            println!("{name:20} {:12} {table}", format!("{way:?}").to_lowercase());
            differences.extend(found.into_iter().map(|what| format!("{name}, {way:?}: {what}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
