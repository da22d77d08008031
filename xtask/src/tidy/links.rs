//! Links in prose lead somewhere.
//!
//! Relative links in Markdown, inline and as references, must name a file or folder that a
//! clone has, and a heading that it has. Links to the web are not followed; what stands in code is
//! no link.

use super::finding::Finding;
use super::source::File;

/// Links whose target is not there; `exists` answers for a path relative to the root, `read` gives
/// the text of a file.
pub(crate) fn check(
    file: &File,
    exists: &dyn Fn(&str) -> bool,
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    if file.extension() != "md" {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in prose(file.text) {
        for target in targets(line) {
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let place = resolve(file.path, path);
            let instead = match place.filter(|place| path.is_empty() || exists(place)) {
                None => "name a committed file, relative to this one",
                // A folder has no text.
                Some(place) => {
                    let text = if path.is_empty() { Some(file.text.into()) } else { read(&place) };
                    if heading.is_empty() || text.is_none_or(|text| has_heading(&text, heading)) {
                        continue;
                    }
                    "name a heading that the page has"
                }
            };
            let what = format!("the link to '{target}' leads nowhere");
            found.push(Finding::new(file.path, number, what, instead));
        }
    }
    found
}

/// The lines outside of fences, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Whether `name` links to a heading of `text`: in small letters, spaces as dashes, no punctuation.
fn has_heading(text: &str, name: &str) -> bool {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let mut headings = headings.map(|(_, line)| line.trim_start_matches('#').trim());
    headings.any(|heading| {
        let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        let small = kept.flat_map(char::to_lowercase);
        small.map(|it| if it == ' ' { '-' } else { it }).eq(name.chars())
    })
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
        let page = "# It's `a` Part\n```\n# no\n```\n## 2. of two_parts\n";
        let read = |path: &str| (path == "docs/a.md").then(|| page.to_owned());
        let from = "docs/b.md";
        #[rustfmt::skip]
        assert_rows(|file| check(file, &exists, &read), &[ // why, path, text, findings
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
             "[a](a.md#its-a-part) [a](a.md#2-of-two_parts)\n", &[]),
            ("a heading that is in a fence", from,
             "[a](a.md#no)\n", &[(1, "a heading")]),
            ("a heading here", from,
             "# Part\n[a](#part)\n", &[]),
            ("a heading that is elsewhere", from,
             "[a](#its-a-part)\n", &[(1, "a heading")]),
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
