//! What an interpreter runs, as its words say: a script, a module, or a text.
//!
//! ```text
//!   python3 -X dev   -u a.py    arguments          java -cp app.jar A      bash -euo pipefail -c X
//!           takes    -  script  not looked at           kept        class       takes     text
//! ```
//! Which flags have a value differs between interpreters, and a value that is taken for the script
//! would have programs share a list. So each has a row, from its own documentation.
//!
//! # Invariants
//! - What follows the script is not looked at: it is the program's own.
//! # Sources
//! The manual pages of each, and where these leave it open the reader of its words:
//! `Python/getopt.c`, `perl.c` (`moreswitches`), `ruby.c` (`proc_options`), `main/getopt.c` of
//! PHP, `lua.c` (`collectargs`), `jloptions.c`, `shell.c` (`parse_shell_options`),
//! nodejs.org/api/cli.html, the manual of `java` (JDK 21).

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// How an interpreter reads its words.
#[derive(Debug)]
struct Interpreter {
    /// Its executable, without a version.
    names: &'static [&'static str],
    /// Flags whose value is what runs; what follows is the program's.
    runs: &'static [&'static str],
    /// Flags whose value is text that runs, with other flags behind it.
    texts: &'static [&'static str],
    /// Flags with a value, which says nothing of what runs.
    takes: &'static [&'static str],
    /// Flags whose value says where it is found.
    keeps: &'static [&'static str],
    /// Letters whose value, if they have one, is the rest of their word.
    rests: &'static str,
    letters: Letters,
}

/// What the letters of one word are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letters {
    /// A flag each; a value is the rest of the word, or the next word.
    Flags,
    /// A flag each; a value is the next word, and `c` makes the first word that is no flag a text.
    Shell,
    /// One flag together.
    Name,
}

/// What an interpreter runs, as a text that tells it from others: the first word that is no flag,
/// as a full path; a module, or text that is given as a flag. None where it is no interpreter, or
/// nothing is named.
/// It may be `called` otherwise, by a link to a program of many.
pub(super) fn script_of(
    called: &OsStr,
    executable: &Path,
    words: &[String],
    folder: &Path,
) -> Option<Script> {
    let base = executable.file_name()?.to_string_lossy();
    let base = base.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.');
    let called = Path::new(called).file_name().map(OsStr::to_string_lossy);
    let applet = words.first().filter(|_| base == "busybox");
    let names = [Some(base), called.as_deref(), applet.map(String::as_str)];
    if names.iter().flatten().any(|name| STARTERS.contains(name)) {
        return Some(Script::Hidden(words.join(" ")));
    }
    let rules = INTERPRETERS.iter().find(|rules| rules.names.contains(&base))?;
    let is_applet = applet.is_some_and(|it| SHELLS.contains(&&**it));
    let words = words.iter().skip(usize::from(is_applet));
    let mut reader = Reader { rules, words, said: Vec::new(), has_text: false };
    let found = reader.read(folder);
    let said = reader.said.into_iter().chain(found).collect::<Vec<_>>();
    let text = (!said.is_empty()).then(|| said.join(" "))?;
    let runs_text = |flag: &&str| text.strip_prefix(*flag).is_some_and(|it| it.starts_with(' '));
    let is_text = reader.has_text || TEXTS.iter().any(runs_text);
    Some(if is_text { Script::Hidden(text) } else { Script::Shown(text) })
}

/// Flags by which an interpreter runs text, where it ends with them.
const TEXTS: [&str; 14] = [
    "-c",
    "-e",
    "-E",
    "--eval",
    "-p",
    "--print",
    "-pe",
    "-r",
    "--run",
    "-B",
    "-R",
    "--process-begin",
    "--process-code",
    "--process-end",
];

/// What an interpreter runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// A file, a module or a class.
    Shown(String),
    /// Text, or all words of a program that becomes another one: there may be secrets in it.
    Hidden(String),
}

/// Reads the words of an interpreter.
struct Reader<W> {
    rules: &'static Interpreter,
    words: W,
    /// What was said so far of what runs.
    said: Vec<String>,
    /// Of it, text that runs.
    has_text: bool,
}

impl<'a, W: Iterator<Item = &'a String>> Reader<W> {
    /// What runs, where that is more than was `said`.
    fn read(&mut self, folder: &Path) -> Option<String> {
        let (mut is_text, mut has_ended) = (false, false);
        while let Some(word) = self.words.next() {
            if has_ended || !self.is_flag(word) {
                return self.script(word, is_text, folder);
            }
            match &**word {
                "" => {}
                // A shell takes it for the end of its flags.
                "-" if self.rules.letters == Letters::Shell => has_ended = true,
                // What runs is read from stdin.
                "-" => return None,
                "--" => has_ended = true,
                _ => match self.flag(word) {
                    Flag::Plain => {}
                    Flag::Text => is_text = true,
                    Flag::Runs(what) => return Some(what),
                },
            }
        }
        None
    }

    fn is_flag(&self, word: &str) -> bool {
        let more = match self.rules.letters {
            Letters::Shell => Some('+'),
            // A file of more words.
            Letters::Name if self.rules.names.contains(&"java") => Some('@'),
            Letters::Flags | Letters::Name => None,
        };
        word.is_empty() || word.starts_with('-') || more.is_some_and(|it| word.starts_with(it))
    }

    /// What the first word that is no flag says.
    fn script(&self, word: &str, is_text: bool, folder: &Path) -> Option<String> {
        if is_text {
            return Some(format!("-c {word}"));
        }
        if self.has_text && !self.rules.names.contains(&"lua") {
            // An argument of the text.
            return None;
        }
        let is_class = self.rules.names.contains(&"java")
            && Path::new(word).extension() != Some(OsStr::new("java"));
        if is_class {
            return Some(word.to_owned());
        }
        let path = folder.join(word);
        let path = fs::canonicalize(&path).unwrap_or_else(|_| plain(&path));
        Some(path.to_string_lossy().into_owned())
    }

    /// Reads the flag that `word` is, or the flags that its letters are.
    fn flag(&mut self, word: &str) -> Flag {
        assert!(self.is_flag(word), "a word that is no flag is the script");
        let is_name = word.starts_with("--") || self.rules.letters == Letters::Name;
        if let Some((name, value)) = word.split_once('=').filter(|_| is_name) {
            return self.named(name, || Some(value.to_owned()));
        }
        if is_name {
            let rules = self.rules;
            let has_value = [rules.runs, rules.texts, rules.takes, rules.keeps]
                .iter()
                .any(|flags| flags.contains(&word));
            let value = if has_value { self.words.next().cloned() } else { None };
            return self.named(word, || value);
        }
        self.letters(word)
    }

    /// What the flag `name` says by its value.
    fn named(&mut self, name: &str, value: impl FnOnce() -> Option<String>) -> Flag {
        let rules = self.rules;
        let said = || format!("{name} {}", value().unwrap_or_default());
        if rules.runs.contains(&name) {
            return Flag::Runs(said());
        }
        if rules.texts.contains(&name) || rules.keeps.contains(&name) {
            let said = said();
            self.said.push(said);
            self.has_text |= rules.texts.contains(&name);
        } else if rules.names.contains(&"java") && name.starts_with('@') {
            self.said.push(name.to_owned());
        }
        Flag::Plain
    }

    fn letters(&mut self, word: &str) -> Flag {
        let (rules, mut is_text) = (self.rules, false);
        assert!(rules.letters != Letters::Name, "a flag that is a name has no letters");
        let with_value = [rules.runs, rules.texts, rules.takes, rules.keeps];
        for (at, letter) in word.char_indices().skip(1) {
            let name = format!("-{letter}");
            let has = |flags: &[&str]| flags.contains(&&*name);
            let rest = &word[at + letter.len_utf8()..];
            match rules.letters {
                Letters::Shell if letter == 'c' => is_text = word.starts_with('-'),
                Letters::Shell if has(rules.takes) => {
                    self.words.next();
                }
                Letters::Flags if with_value.into_iter().any(has) => {
                    let value = if rest.is_empty() {
                        self.words.next().cloned()
                    } else {
                        Some(rest.to_owned())
                    };
                    return self.named(&name, || value);
                }
                Letters::Flags if rules.rests.contains(letter) => break,
                Letters::Flags | Letters::Shell | Letters::Name => {}
            }
        }
        if is_text { Flag::Text } else { Flag::Plain }
    }
}

/// What a flag says.
enum Flag {
    /// Nothing that ends the flags.
    Plain,
    /// The first word that is no flag is a text.
    Text,
    /// What runs.
    Runs(String),
}

/// `path` without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

const NONE: Interpreter = Interpreter {
    names: &[],
    runs: &[],
    texts: &[],
    takes: &[],
    keeps: &[],
    rests: "",
    letters: Letters::Flags,
};

#[rustfmt::skip] // A row an interpreter.
const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy"],
        runs: &["-m", "-c"],
        takes: &["-W", "-X", "-Q", "--check-hash-based-pycs", "--jit"],
        ..NONE
    },
    Interpreter {
        names: &["perl"],
        texts: &["-e", "-E"],
        takes: &["-I"],
        rests: "mMiFxCDdV",
        ..NONE
    },
    Interpreter {
        names: &["ruby"],
        texts: &["-e"],
        takes: &[
            "-I", "-r", "-E", "--encoding", "--external-encoding", "--internal-encoding",
            "--enable", "--disable", "--backtrace-limit", "--parser",
        ],
        keeps: &["-C", "-X"], // Folders that it goes to before it opens the script.
        rests: "iFKxW",
        ..NONE
    },
    Interpreter {
        names: &["node", "nodejs"],
        runs: &["-e", "--eval", "-p", "--print", "-pe", "--run"],
        takes: &[
            "-r", "--require", "--import", "-C", "--conditions", "--loader",
            "--experimental-loader", "--env-file", "--env-file-if-exists", "--input-type",
            "--experimental-default-type", "--inspect-port", "--debug-port", "--title",
            "--icu-data-dir", "--openssl-config", "--redirect-warnings", "--disable-warning",
            "--trace-event-categories", "--trace-event-file-pattern", "--diagnostic-dir",
            "--dns-result-order", "--unhandled-rejections", "--max-http-header-size",
            "--test-name-pattern", "--test-reporter", "--test-reporter-destination",
            "--test-concurrency", "--test-shard", "--test-skip-pattern", "--test-timeout",
            "--cpu-prof-dir", "--cpu-prof-name", "--cpu-prof-interval", "--heap-prof-dir",
            "--heap-prof-name", "--heap-prof-interval", "--heapsnapshot-signal",
            "--heapsnapshot-near-heap-limit", "--secure-heap", "--secure-heap-min",
            "--tls-cipher-list", "--tls-keylog", "--watch-path", "--report-dir",
            "--report-directory", "--report-filename", "--report-signal", "--localstorage-file",
            "--allow-fs-read", "--allow-fs-write", "--security-revert", "--disable-proto",
            "--stack-trace-limit", "--v8-pool-size", "--snapshot-blob",
            "--build-snapshot-config", "--network-family-autoselection-attempt-timeout",
        ],
        letters: Letters::Name,
        ..NONE
    },
    Interpreter {
        names: &["java"],
        runs: &["-jar", "-m", "--module", "-d", "--describe-module"],
        takes: &[
            "--add-modules", "--add-reads", "--add-exports", "--add-opens", "--limit-modules",
            "--patch-module", "--upgrade-module-path", "--source", "--enable-native-access",
            "--illegal-native-access", "--finalization", "--sun-misc-unsafe-memory-access",
        ],
        keeps: &["-cp", "-classpath", "--class-path", "-p", "--module-path"],
        letters: Letters::Name,
        ..NONE
    },
    Interpreter {
        names: &["php"],
        runs: &[
            "-f", "--file", "-r", "--run", "-B", "--process-begin", "-R", "--process-code", "-F",
            "--process-file", "-E", "--process-end",
        ],
        takes: &[
            "-c", "--php-ini", "-d", "--define", "-t", "--docroot", "-S", "--server", "-z",
            "--zend-extension",
        ],
        ..NONE
    },
    Interpreter { names: &["lua"], texts: &["-e"], takes: &["-l"], ..NONE },
    Interpreter { names: &["Rscript"], texts: &["-e"], letters: Letters::Name, ..NONE },
    Interpreter {
        names: &["julia"],
        texts: &["-e", "--eval", "-E", "--print"],
        runs: &["-m", "--module"],
        takes: &[
            "-L", "--load", "-p", "--procs", "-t", "--threads", "-H", "--home", "-J",
            "--sysimage", "-C", "--cpu-target", "--machine-file", "--gcthreads",
            "--startup-file", "--handle-signals", "--history-file", "--color", "--banner",
            "--sysimage-native-code", "--compiled-modules", "--pkgimages", "--check-bounds",
            "--inline", "--math-mode", "--depwarn", "--warn-overwrite", "--warn-scope",
            "--heap-size-hint", "--trace-compile", "--output-o", "--output-ji",
        ],
        rests: "gO",
        ..NONE
    },
    Interpreter {
        names: &["sh", "bash", "dash", "zsh", "busybox"],
        takes: &["-o", "-O", "--rcfile", "--init-file"],
        letters: Letters::Shell,
        ..NONE
    },
];
/// Programs that become the one that their words name.
#[rustfmt::skip] // As many as fit a line.
const STARTERS: &[&str] = &[
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "taskset", "chrt",
    "numactl", "prlimit", "setarch", "unshare", "chroot", "xargs", "sudo", "su", "setpriv",
];
/// Applets of busybox that read a script.
const SHELLS: &[&str] = &["sh", "ash", "hush"];

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const ROWS: &[(&str, &str, Option<&str>)] = &[
        // executable          words                              what runs
        ("/usr/bin/python3.11",    "train.py 1",                      Some("/w/train.py")),
        ("/usr/bin/python3.11",    "-u ./a/../train.py",              Some("/w/train.py")),
        ("/usr/bin/python3.11",    "-m pytest -x",                    Some("-m pytest")),
        ("/usr/bin/python3.11",    "-um pytest",                      Some("-m pytest")),
        ("/usr/bin/python3.11",    "-mpytest x",                      Some("-m pytest")),
        ("/usr/bin/python3.11",    "-c import",                       Some("-c import")),
        ("/usr/bin/python3.11",    "-X dev a.py",                     Some("/w/a.py")),
        ("/usr/bin/python3.11",    "-Xdev -W error b.py",             Some("/w/b.py")),
        ("/usr/bin/python3.11",    "-IX dev -Wd c.py -m x",           Some("/w/c.py")),
        ("/usr/bin/python3.11",    "--check-hash-based-pycs never d", Some("/w/d")),
        ("/usr/bin/python3.11",    "- x",                             None),
        ("/usr/bin/python3.11",    "-- -x",                           Some("/w/-x")),
        ("/usr/bin/python3.11",    "",                                None),
        ("/usr/bin/perl",          "/b/x.pl",                         Some("/b/x.pl")),
        ("/usr/bin/perl",          "-I lib a",                        Some("/w/a")),
        ("/usr/bin/perl",          "-Ilib -w b",                      Some("/w/b")),
        ("/usr/bin/perl",          "-MList::Util -lne print x",       Some("-e print")),
        ("/usr/bin/perl",          "-pi.bak -e s/a/b/ x",             Some("-e s/a/b/")),
        ("/usr/bin/perl",          "-e 1 -E 2 data",                  Some("-e 1 -E 2")),
        ("/usr/bin/perl",          "-0777ne 1 data",                  Some("-e 1")),
        ("/usr/bin/ruby3.1",       "-I lib -r set a",                 Some("/w/a")),
        ("/usr/bin/ruby3.1",       "-W:no-deprecated -rset b",        Some("/w/b")),
        ("/usr/bin/ruby3.1",       "--encoding UTF-8 c",              Some("/w/c")),
        ("/usr/bin/ruby3.1",       "--encoding=UTF-8 -ne 1 d",        Some("-e 1")),
        ("/usr/bin/ruby3.1",       "-C /a x.rb",                      Some("-C /a /w/x.rb")),
        ("/usr/bin/ruby3.1",       "-wC/b -X c d -e",                 Some("-C /b -X c /w/d")),
        ("/usr/bin/ruby3.1",       "-C /a -e 1 x.rb",                 Some("-C /a -e 1")),
        ("/usr/bin/node",          "-r x a.js",                       Some("/w/a.js")),
        ("/usr/bin/node",          "--require=x --import y b.js",     Some("/w/b.js")),
        ("/usr/bin/node",          "--inspect -pe 1+1",               Some("-pe 1+1")),
        ("/usr/bin/node",          "--eval=1 x",                      Some("--eval 1")),
        ("/jdk/bin/java",          "-Xmx1g -jar app.jar x",           Some("-jar app.jar")),
        ("/jdk/bin/java",          "-cp app.jar A x",                 Some("-cp app.jar A")),
        ("/jdk/bin/java",          "-cp app.jar B",                   Some("-cp app.jar B")),
        ("/jdk/bin/java",          "-Dx=y --add-opens a/b=c A",       Some("A")),
        ("/jdk/bin/java",          "-cp p A.java",                    Some("-cp p /w/A.java")),
        ("/jdk/bin/java",          "-p m --module=M",                 Some("-p m --module M")),
        ("/jdk/bin/java",          "@words A",                        Some("@words A")),
        ("/usr/bin/php8.2",        "-d a=b -c ini x.php",             Some("/w/x.php")),
        ("/usr/bin/php8.2",        "-da=b -n -r echo",                Some("-r echo")),
        ("/usr/bin/php8.2",        "-S localhost:80 -t pub r.php",    Some("/w/r.php")),
        ("/usr/bin/lua5.4",        "-l socket -e x=1 a.lua",          Some("-e x=1 /w/a.lua")),
        ("/usr/bin/lua5.4",        "-e x=1",                          Some("-e x=1")),
        ("/usr/bin/Rscript",       "--vanilla -e 1 x",                Some("-e 1")),
        ("/usr/bin/julia",         "-t 4 -J sys.so -O3 a.jl",         Some("/w/a.jl")),
        ("/usr/bin/julia",         "--project=. --threads=2 -p2 b",   Some("/w/b")),
        ("/usr/bin/bash",          "-c ls",                           Some("-c ls")),
        ("/usr/bin/bash",          "-euo pipefail -c ls x",           Some("-c ls")),
        ("/usr/bin/bash",          "-euo pipefail -c id",             Some("-c id")),
        ("/usr/bin/bash",          "-c -e ls",                        Some("-c ls")),
        ("/usr/bin/bash",          "- a.sh",                          Some("/w/a.sh")),
        ("/usr/bin/dash",          "-e - -b.sh",                      Some("/w/-b.sh")),
        ("/bin/busybox",           "sh - a.sh",                       Some("/w/a.sh")),
        ("/bin/sh",                "-c - ls",                         Some("-c ls")),
        ("/usr/bin/zsh",           "-",                               None),
        ("/usr/bin/bash",          "-lc ls",                          Some("-c ls")),
        ("/usr/bin/bash",          "+ -c ls",                         Some("-c ls")),
        ("/jdk/bin/java",          "@ A",                             Some("@ A")),
        ("/usr/bin/bash",          "+o posix -O extglob a.sh",        Some("/w/a.sh")),
        ("/usr/bin/bash",          "--rcfile rc --norc b.sh",         Some("/w/b.sh")),
        ("/bin/busybox",           "sh -e a.sh",                      Some("/w/a.sh")),
        ("/bin/busybox",           "-ec ls",                          Some("-c ls")),
        ("/usr/bin/git",           "status",                          None),
        ("/usr/bin/env",           "A=1 git status",                  Some("A=1 git status")),
    ];

    #[test]
    fn interpreters_are_known_by_what_they_run() {
        for &(executable, words, expected) in ROWS {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let script =
                script_of(OsStr::new(executable), Path::new(executable), &words, Path::new("/w"));
            let text = script.as_ref().map(|(Script::Shown(text) | Script::Hidden(text))| &**text);
            assert_eq!(text, expected, "{executable} {words:?}");
        }
    }

    #[test]
    fn text_that_runs_and_words_of_starters_are_hidden() {
        #[rustfmt::skip]
        let rows = [ // what runs, whether it may be shown
            ("/usr/bin/python3.11",  "-m http.server",    true),
            ("/usr/bin/python3.11",  "a.py --password x", true),
            ("/usr/bin/python3.11",  "-Sc x=1",           false),
            ("/usr/bin/node",        "--eval 1",          false),
            ("/usr/bin/perl",        "-e 1",              false),
            ("/usr/bin/php8.2",      "-r 1",              false),
            ("/usr/bin/bash",        "-lc ls",            false),
            ("/usr/bin/lua5.4",      "-e x=1 a.lua",      false),
            ("/usr/bin/timeout",     "5 a --password x",  false),
            ("/bin/busybox",         "env A=x b",         false),
        ];
        for (executable, words, is_shown) in rows {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let script =
                script_of(OsStr::new(executable), Path::new(executable), &words, Path::new("/w"))
                    .unwrap();
            assert_eq!(matches!(script, Script::Shown(_)), is_shown, "{executable} {words:?}");
        }
        let words = ["A=x".to_owned()];
        let script =
            script_of(OsStr::new("env"), Path::new("/bin/busybox"), &words, Path::new("/"));
        assert_eq!(script, Some(Script::Hidden("A=x".into())), "by a link");
    }

    #[test]
    fn a_flag_stands_in_one_column_of_its_row() {
        for rules in INTERPRETERS {
            let columns = [rules.runs, rules.texts, rules.takes, rules.keeps];
            let mut all: Vec<&str> = columns.concat();
            all.sort_unstable();
            let count = all.len();
            all.dedup();
            assert_eq!(all.len(), count, "{:?}", rules.names);
            let letters = |flag: &&str| flag.len() == 2;
            let taken =
                all.iter().filter(|it| letters(it)).filter(|it| rules.rests.contains(&it[1..]));
            assert_eq!(taken.count(), 0, "{:?}", rules.names);
        }
    }
}
