//! Links in prose lead somewhere.
//!
//! Relative links in Markdown, inline and as references, must name a file or folder that a
//! clone has. Links to the web are not followed; what stands in code is no link.

use super::finding::Finding;
use super::source::File;

/// Links whose target is not there; `exists` answers for a path relative to the root.
pub(crate) fn check(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    if file.extension() != "md" {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let there = resolve(file.path, &target).is_some_and(|path| exists(&path));
            if !there {
                let what = format!("the link to '{target}' leads nowhere");
                let instead = "name a committed file, relative to this one";
                found.push(Finding::new(file.path, number, what, instead));
            }
        }
    }
    found
}

/// The relative targets of the links on a line.
fn targets(line: &str) -> Vec<String> {
    // Every other part between back-ticks is code.
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("_");
    let mut raw: Vec<&str> = Vec::new();
    for (at, _) in prose.match_indices("](") {
        raw.extend(prose[at + 2..].split(')').next());
    }
    if let Some((_, target)) =
        prose.split_once("]: ").filter(|(label, _)| label.starts_with('[') && !label.contains(' '))
    {
        raw.push(target);
    }
    raw.into_iter()
        .filter_map(|target| target.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']))
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The path from the root that `target` means in the file `from`; none if it leaves the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn links_lead_somewhere() {
        let exists = |path: &str| ["docs/a.md", "README.md", "docs"].contains(&path);
        let from = "docs/b.md";
        #[rustfmt::skip]
        assert_rows(|file| check(file, &exists), &[ // why, path, text, findings
            ("a sibling", from,
             "see [a](a.md).\n", &[]),
            ("missing", from,
             "\nsee [c](c.md).\n", &[(2, "a committed file")]),
            ("the second of a line", from,
             "[a](a.md) and [c](c.md)\n", &[(1, "a committed file")]),
            ("a folder up", from,
             "[r](../README.md)\n", &[]),
            ("out of the repository", from,
             "[r](../../README.md)\n", &[(1, "a committed file")]),
            ("a folder", "R.md",
             "[d](docs/)\n", &[]),
            ("a heading elsewhere", from,
             "[a](a.md#part)\n", &[]),
            ("a heading here", from,
             "[a](#part)\n", &[]),
            ("with a title", from,
             "[a](a.md \"A\")\n", &[]),
            ("an image", from,
             "![a](a.svg)\n", &[(1, "a committed file")]),
            ("the web", from,
             "[w](https://example.org/x)\n", &[]),
            ("a reference", from,
             "[c]: c.md\n", &[(1, "a committed file")]),
            ("in a fence", from,
             "```\n[c](c.md)\n```\n", &[]),
            ("after a fence", from,
             "```\n```\n[c](c.md)\n", &[(3, "a committed file")]),
            ("in code", from,
             "`[c](c.md)` and `x`\n", &[]),
            ("not prose", "a.rs",
             "// [c](c.md)\n", &[]),
        ]);
    }
}
