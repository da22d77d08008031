//! Adding a policy touches one file and one line.
//!
//! The lists `policies!` and `readaheads!` are read from the source tree, and for each policy in
//! them every other mention of it is looked for: its module, its type or its name as a string, in
//! the code of any crate. There is to be none but the line in the list. Comments and tests do not
//! count; nor does a name that a driver takes as its default, as that is outside core.

use std::fs;
use std::path::{Path, PathBuf};

/// A line `module::Type,` of a list, and the name that the module gives itself.
struct Policy {
    list: &'static str,
    module: String,
    kind: String,
    name: String,
}

impl Policy {
    fn file(&self) -> PathBuf {
        core_src().join(self.list).join(format!("{}.rs", self.module))
    }

    /// Whether `path` is its file, or in the folder of its parts.
    fn owns(&self, path: &Path) -> bool {
        path == self.file() || path.starts_with(core_src().join(self.list).join(&self.module))
    }

    /// How often `code`, of a file at `path`, mentions it.
    fn mentions(&self, path: &Path, code: &str) -> usize {
        let Self { list, module, kind, name } = self;
        let among_policies = path.starts_with(core_src().join(list))
            || path == core_src().join(format!("{list}.rs"));
        let in_core = path.starts_with(core_src());
        let uses = |words: &[&str]| count(code, words);
        if among_policies {
            // `module::Kind` is one mention, not two.
            return uses(&[kind]) + uses(&[module, "::"]) + uses(&["mod", module])
                - uses(&[module, "::", kind])
                + code.matches(&format!("\"{name}\"")).count();
        }
        // A device's switch may be "off" too.
        let in_core = in_core && !path.starts_with(core_src().join("device"));
        let named = if in_core { code.matches(&format!("\"{name}\"")).count() } else { 0 };
        // Elsewhere a word may mean something else: only what is written as a path counts, in
        // other crates (whose `clock::Clock` is another one) from the list on.
        let path = if in_core { uses(&[module, "::", kind]) } else { 0 };
        path + uses(&[list, "::", module]) + uses(&["AnyEviction", "::", kind]) + named
    }
}

/// Whether `path` draws one paper's figures on the queues of two policies: it looks into them.
fn draws_a_paper(path: &Path) -> bool {
    let files = ["lab/commands/src/sim/two_q_star.rs", "lab/sim/src/queues.rs"];
    files.iter().any(|file| path == workspace().join(file))
}

#[test]
fn each_policy_is_mentioned_in_its_own_file_and_on_its_line_of_the_list() {
    let files: Vec<(PathBuf, String)> = ["crates", "lab"]
        .into_iter()
        .flat_map(|folder| sources(&workspace().join(folder)))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("sources are text");
            (path, code(&text))
        })
        .collect();
    assert!(files.len() > 10, "the source tree was found");
    for policy in listed("eviction", "policies!").chain(listed("readahead", "readaheads!")) {
        let mut places = Vec::new();
        let others = files.iter().filter(|(path, _)| !policy.owns(path) && !draws_a_paper(path));
        for (path, code) in others {
            let times = policy.mentions(path, code);
            places.extend((times > 0).then(|| format!("{} ({times})", path.display())));
        }
        let list = core_src().join(format!("{}.rs", policy.list));
        assert_eq!(places, [format!("{} (1)", list.display())], "{}", policy.name);
    }
}

#[test]
fn every_policy_file_is_listed_once_and_names_itself() {
    for (list, call) in [("eviction", "policies!"), ("readahead", "readaheads!")] {
        let modules: Vec<String> = listed(list, call).map(|policy| policy.module).collect();
        assert!(!modules.is_empty(), "{call} is empty");
        for path in sources(&core_src().join(list)) {
            let text = code(&fs::read_to_string(&path).expect("sources are text"));
            let module = path.file_stem().expect("a source has a name").to_string_lossy();
            let is_policy = text.contains("const NAME: &'static str = \"");
            let times = modules.iter().filter(|other| *other == module.as_ref()).count();
            assert_eq!(times, usize::from(is_policy), "{}", path.display());
        }
    }
}

#[test]
fn mentions_are_counted_as_written() {
    let policy =
        Policy { list: "eviction", module: "lru".into(), kind: "Lru".into(), name: "lru".into() };
    let list = core_src().join("eviction.rs");
    let sibling = core_src().join("eviction/arc.rs");
    let elsewhere = core_src().join("cache.rs");
    let other_crate = workspace().join("crates/cli/src/lib.rs");
    let rows = [
        ("the line of the list", &list, "policies! { lru::Lru, }", 1),
        ("a second list", &list, "policies! { lru::Lru } names! { lru::Lru }", 2),
        ("a bare type", &list, "enum E { Lru(u8) }", 1),
        ("a longer word", &list, "LruParams, TwoLru, xlru::y", 0),
        ("its module declared by hand", &list, "pub mod lru;", 1),
        ("its name in a chain of ifs", &list, "if name == \"lru\" {}", 1),
        ("a sibling that builds on it", &sibling, "use super::lru::Lru;", 1),
        ("a sibling that takes a part of it", &sibling, "super::lru::helper()", 1),
        ("another type of the same name", &elsewhere, "struct Lru;", 0),
        ("a match on the enum", &elsewhere, "AnyEviction::Lru(_) => 1", 1),
        ("a path", &elsewhere, "use crate::eviction::lru;", 1),
        ("its name in core", &elsewhere, "let d = \"lru\";", 1),
        ("a driver's default", &other_crate, "let d = \"lru\";", 0),
        ("a driver that knows the type", &other_crate, "eviction::lru::Lru::new()", 1),
        ("a type of its own", &other_crate, "lru::Lru::new()", 0),
        ("a comment", &list, "// lru::Lru", 0),
        ("a test", &list, "#[cfg(test)]\nmod tests { lru::Lru }", 0),
    ];
    for (why, path, text, expected) in rows {
        assert_eq!(policy.mentions(path, &code(text)), expected, "{why}");
    }
}

/// The policies of `list`, in the order of the call that lists them.
fn listed(list: &'static str, call: &str) -> impl Iterator<Item = Policy> {
    let path = core_src().join(format!("{list}.rs"));
    let text = code(&fs::read_to_string(&path).expect("the list is there"));
    let (_, after) = text.split_once(&format!("\n{call} {{")).expect("the list is called");
    let (lines, _) = after.split_once('}').expect("the call ends");
    let entries: Vec<String> =
        lines.split(',').map(|line| line.trim().to_string()).filter(|l| !l.is_empty()).collect();
    entries.into_iter().map(move |entry| {
        let entry = entry.trim_end_matches(" as DEFAULT");
        let (module, kind) = entry.split_once("::").expect("a line is `module::Type`");
        let file = core_src().join(list).join(format!("{module}.rs"));
        let own = fs::read_to_string(&file).expect("a listed module has a file");
        let (_, after) =
            own.split_once("const NAME: &'static str = \"").expect("a policy has a name");
        let (name, _) = after.split_once('"').expect("a string ends");
        Policy { list, module: module.into(), kind: kind.into(), name: name.into() }
    })
}

/// How often `words` follow each other in `code`, white space aside.
fn count(code: &str, words: &[&str]) -> usize {
    let tokens = tokens(code);
    tokens.windows(words.len()).filter(|window| *window == words).count()
}

/// Words, `::`, and every other character by itself. Strings are dropped.
fn tokens(code: &str) -> Vec<&str> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut rest) = (Vec::new(), code);
    while let Some(first) = rest.chars().next() {
        let length = if word(first) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() && first != '"' {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

/// `text` without comments that fill a line, and without the tests at its end.
fn code(text: &str) -> String {
    let (code, _) = text.split_once("#[cfg(test)]\nmod ").unwrap_or((text, ""));
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Every `.rs` file below `folder` that is in some `src`, or in `folder` itself if that is.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            let in_src = path.components().any(|part| part.as_os_str() == "src");
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if in_src && path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn core_src() -> PathBuf {
    workspace().join("crates/core/src")
}

fn workspace() -> PathBuf {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    core.ancestors().nth(2).expect("core lies in crates/").to_path_buf()
}
