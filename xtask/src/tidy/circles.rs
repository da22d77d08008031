//! Files of a crate that import each other in a circle.
//!
//! ```text
//!   src/a/x.rs   use crate::b::Y;        a/x imports b
//!   src/b.rs     use crate::a::x::X;     b imports a/x: a circle
//!   src/a.rs     use x::X;               a module and what lies in its folder import each other
//!   src/a/x.rs   use super::Z;           freely: a parent hands on what its children export
//! ```
//! # Invariants
//! - Imports of tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::source::File;

/// One import: the module that imports and the one that is imported, both files of `root`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// The folder of the crate's sources.
    root: String,
    from: Module,
    path: String,
    line: usize,
    /// As written, from the root of the crate: a module, and perhaps a name in it.
    to: Module,
}

/// The names on the way from the root of a crate.
type Module = Vec<String>;
/// The folder of the sources, the file that imports, the one that is imported.
type Edge<'a> = (&'a str, &'a [String], &'a [String]);

/// The imports within its crate of a file that is no test.
pub(crate) fn imports(file: &File) -> Vec<Import> {
    let Some((root, from)) = module(file) else { return Vec::new() };
    let tokens = tokens(file);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut paths = Vec::new();
        let line = tokens[at].0;
        if starts_path(&tokens, at) {
            at = tree(&tokens, at, &mut Vec::new(), &mut paths);
        } else {
            at += 1;
        }
        let all = paths.into_iter().filter_map(|path| resolve(&from, &path));
        found.extend(all.map(|to| Import {
            root: root.clone(),
            from: from.clone(),
            path: file.path.to_owned(),
            line,
            to,
        }));
    }
    found
}

/// The imports that close a circle, the first of each pair of files.
pub(crate) fn check(imports: &[Import], files: &BTreeSet<String>) -> Vec<Finding> {
    let mut edges: BTreeMap<Edge, &Import> = BTreeMap::new();
    for import in imports {
        let is_file = |count: &usize| exists(&import.root, &import.to[..*count], files);
        let Some(count) = (1..=import.to.len()).rev().find(is_file) else { continue };
        let (from, to) = (&import.from[..], &import.to[..count]);
        if !from.starts_with(to) && !to.starts_with(from) {
            edges.entry((&import.root, from, to)).or_insert(import);
        }
    }
    let mut found = Vec::new();
    for (&(root, own, other), import) in &edges {
        if reaches(&edges, root, other, own) {
            let (own, other) = (own.join("::"), other.join("::"));
            found.push(Finding::new(
                &import.path,
                import.line,
                format!("`{own}` imports `{other}`, which imports `{own}`, if through others"),
                "move what both need to a module that imports neither",
            ));
        }
    }
    found
}

/// The folder of the sources and the module that `file` is, if it is one and no test.
fn module(file: &File) -> Option<(String, Module)> {
    let (root, place) = file.path.strip_suffix(".rs")?.split_once("/src/")?;
    if file.is_test() {
        return None;
    }
    let names = if ["lib", "main"].contains(&place) { Vec::new() } else { names(place, '/') };
    Some((format!("{root}/src"), names))
}

fn names(text: &str, separator: char) -> Module {
    text.split(separator).map(str::to_owned).collect()
}

fn exists(root: &str, module: &[String], files: &BTreeSet<String>) -> bool {
    files.contains(&format!("{root}/{}.rs", module.join("/")))
}

/// Whether `from` imports `to`, if through others.
fn reaches(edges: &BTreeMap<Edge, &Import>, root: &str, from: &[String], to: &[String]) -> bool {
    let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(at) = next.pop() {
        if at == to {
            return true;
        }
        let behind = edges.keys().filter(|(own_root, own, _)| *own_root == root && *own == at);
        next.extend(behind.map(|(_, _, other)| *other).filter(|other| seen.insert(other)));
    }
    false
}

/// `path` from the root of the crate; nothing for a path that begins elsewhere.
fn resolve(from: &[String], path: &[String]) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([from, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            Some([&from[..from.len().checked_sub(ups)?], &path[ups..]].concat())
        }
        _ => None,
    }
}

/// Names and the marks of paths, with their lines.
fn tokens(file: &File) -> Vec<(usize, String)> {
    let mut tokens: Vec<(usize, String)> = Vec::new();
    for (number, line) in file.numbered().filter(|(_, line)| !line.in_test) {
        let mut joins = false;
        for c in line.code.chars() {
            let is_name = c.is_alphanumeric() || c == '_';
            match tokens.last_mut().filter(|_| joins && is_name) {
                Some((_, name)) => name.push(c),
                None if c.is_whitespace() => {}
                None => tokens.push((number, c.to_string())),
            }
            joins = is_name;
        }
    }
    tokens
}

fn is(tokens: &[(usize, String)], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|(_, token)| token == text)
}

fn has_colons(tokens: &[(usize, String)], at: usize) -> bool {
    is(tokens, at, ":") && is(tokens, at + 1, ":")
}

fn starts_path(tokens: &[(usize, String)], at: usize) -> bool {
    let is_within = at >= 2 && has_colons(tokens, at - 2);
    let is_root = ["crate", "self", "super"].iter().any(|root| is(tokens, at, root));
    is_root && !is_within && has_colons(tokens, at + 1)
}

/// Takes apart the path at `at`, which may end in braces, behind `before`; where it ends.
fn tree(
    tokens: &[(usize, String)],
    mut at: usize,
    before: &mut Module,
    paths: &mut Vec<Module>,
) -> usize {
    let depth = before.len();
    loop {
        if is(tokens, at, "{") {
            at += 1;
            while at < tokens.len() && !is(tokens, at, "}") {
                at = tree(tokens, at, before, paths).max(at + 1);
                // A new name, and the comma.
                while at < tokens.len() && !is(tokens, at, ",") && !is(tokens, at, "}") {
                    at += 1;
                }
                at += usize::from(is(tokens, at, ","));
            }
            at += 1;
            break;
        }
        let Some((_, name)) = tokens.get(at) else { break };
        // `a::{self}` is `a`.
        if before.is_empty() || name != "self" {
            before.push(name.clone());
        }
        at += 1;
        if !has_colons(tokens, at) {
            paths.push(before.clone());
            break;
        }
        at += 2;
    }
    before.truncate(depth);
    at
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{check, imports};
    use crate::tidy::source::File;

    /// Files by name and what they hold; each file that closes a circle, with the line.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, usize)]);

    #[test]
    fn files_do_not_import_each_other_in_a_circle() {
        #[rustfmt::skip]
        let rows: [Row; 13] = [ // why, files, findings
            ("one way",
             &[("a", "use crate::b::B;\n"), ("b", "")], &[]),
            ("both ways",
             &[("a", "\nuse crate::b::B;\n"), ("b", "use super::a::A;\n")], &[("a", 2), ("b", 1)]),
            ("through a third",
             &[("a", "use crate::b;\n"), ("b", "use crate::{c, d};\n"), ("c", "use crate::a::A;\n"),
               ("d", "")],
             &[("a", 1), ("b", 1), ("c", 1)]),
            ("a parent and its child",
             &[("a", "use b::B;\nuse self::b::C;\n"), ("a/b", "use super::A;\n")], &[]),
            ("of one folder",
             &[("a", ""), ("a/b", "use super::c::C;\n"), ("a/c", "use super::{b::B, A};\n")],
             &[("a/b", 1), ("a/c", 1)]),
            ("across folders",
             &[("a", ""), ("a/x", "use crate::b::{self, y::Y};\n"), ("b", "use crate::a::x::X;\n"),
               ("b/y", "")],
             &[("a/x", 1), ("b", 1)]),
            ("folders alone",
             &[("a", ""), ("a/x", "use crate::b::B;\n"), ("b", ""), ("b/y", "use crate::a::A;\n")],
             &[]),
            ("a path in code",
             &[("a", "fn f() { crate::b::g(); }\n"), ("b", "use crate::a;\n")],
             &[("a", 1), ("b", 1)]),
            ("over lines",
             &[("a", "use crate::{\n    b::{B, C},\n    c::D,\n};\n"), ("b", ""),
               ("c", "use crate::a::A as B;\n")],
             &[("a", 1), ("c", 1)]),
            ("tests do not count",
             &[("a", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
               ("b", "use crate::a::A;\n")], &[]),
            ("nor do files of tests",
             &[("a", "use crate::b::B;\n"), ("b", ""), ("b/tests", "use crate::a::A;\n")], &[]),
            ("nor comments and strings",
             &[("a", "// use crate::b::B;\nf(\"crate::b\");\n"), ("b", "use crate::a::A;\n")], &[]),
            ("the root is the parent of all",
             &[("lib", "use a::A;\n"), ("a", "use crate::Top;\n")], &[]),
        ];
        for (why, files, expected) in rows {
            let path = |name: &str| format!("crates/x/src/{name}.rs");
            let paths: BTreeSet<String> = files.iter().map(|(name, _)| path(name)).collect();
            let all = files.iter().flat_map(|(name, text)| imports(&File::new(&path(name), text)));
            let found = check(&all.collect::<Vec<_>>(), &paths);
            let found: BTreeSet<_> = found.into_iter().map(|it| (it.path, it.line)).collect();
            let expected = expected.iter().map(|(name, line)| (path(name), *line)).collect();
            assert_eq!(found, expected, "{why}");
        }
    }

    #[test]
    fn crates_are_apart() {
        let files = [("crates/x/src/a.rs", "use crate::b::B;\n"), ("crates/y/src/b.rs", "")];
        let paths: BTreeSet<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let all: Vec<_> =
            files.iter().flat_map(|(path, text)| imports(&File::new(path, text))).collect();
        assert_eq!((all.len(), check(&all, &paths).len()), (1, 0));
    }
}
