//! Unknown names: the error names the nearest known one, and the command that lists them.
//!
//! ```text
//!   --policy lur  -->  no `lur`; there are: fifo lru ...; the nearest is `lru`;
//!                      `forerun sim --list-policies` lists them
//! ```
//! # Invariants
//! - A command is named only where the build has it; the lists are the laboratory's.

use forerun_core::params::ParamError;
pub use forerun_core::params::nearest;

use crate::failure::usage;

/// Lists the policies of replacement, readahead and prefetching threads.
pub const POLICIES: &str = lab("forerun sim --list-policies");
/// Lists the device models.
pub const DEVICES: &str = lab("forerun sim --list-devices");
/// Lists the formats of traces.
pub const FORMATS: &str = lab("forerun sim --list-formats");
/// Lists the workloads.
pub const WORKLOADS: &str = lab("forerun sim --list-workloads");

/// `command` of the laboratory; nothing where the build lacks it.
pub(crate) const fn lab(command: &'static str) -> &'static str {
    if cfg!(feature = "lab") { command } else { "" }
}

/// The usage error of `what` (a flag and its value) with the name or parameter that `error`
/// refuses; the command `lister` lists the names.
#[must_use]
pub fn refused(what: &str, error: &ParamError, lister: &str) -> anyhow::Error {
    let hint = match error {
        ParamError::UnknownName { .. } => listed(lister),
        _ => String::new(),
    };
    usage(format!("{what}: {error}{hint}"))
}

/// The addition to an error about the unknown `name`; no `lister` lists the names where that is
/// empty.
#[must_use]
pub fn hint(name: &str, known: &[impl AsRef<str>], lister: &str) -> String {
    let nearest = nearest(name, known).map(|nearest| format!("; the nearest is `{nearest}`"));
    nearest.unwrap_or_default() + &listed(lister)
}

/// The command that lists the names; nothing where there is none.
#[must_use]
pub fn listed(lister: &str) -> String {
    if lister.is_empty() { String::new() } else { format!("; `{lister}` lists them") }
}

/// Each of `paths` by the last part of its name, and as many before it as tell it from the others.
#[must_use]
pub fn base_names(paths: &[&str]) -> Vec<String> {
    let last = |path: &str, parts: usize| -> String {
        let cut = path.rmatch_indices('/').nth(parts - 1).map_or(0, |(at, _)| at + 1);
        path[cut..].to_owned()
    };
    let name = |path: &&str| {
        let parts = 1 + path.matches('/').count();
        let first = if path.ends_with('/') { 2 } else { 1 };
        let is_own = |own: &String, parts| {
            paths.iter().all(|other| other == path || last(other, parts) != *own)
        };
        let own = (first..=parts).map(|parts| (last(path, parts), parts));
        own.into_iter()
            .find(|(own, parts)| is_own(own, *parts))
            .map_or_else(|| (*path).to_owned(), |(own, _)| own)
    };
    paths.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_name_has_what_tells_it_from_the_others() {
        #[rustfmt::skip]
        let rows: &[(&[&str], &[&str])] = &[
            (&["/x/a.csv", "b.csv"],            &["a.csv", "b.csv"]),
            (&["/x/a", "/y/a", "/x/a"],         &["x/a", "y/a", "x/a"]),
            (&["a", "/y/a"],                    &["a", "y/a"]),
            (&["/a", "a"],                      &["/a", "a"]),
            (&["/x/y/a", "/z/y/a", "b/"],       &["x/y/a", "z/y/a", "b/"]),
            (&["workload:mail,model=m1", "-"],  &["workload:mail,model=m1", "-"]),
        ];
        for (paths, names) in rows {
            assert_eq!(base_names(paths), *names, "{paths:?}");
        }
    }

    #[test]
    fn only_an_unknown_name_has_a_hint() {
        let unknown = ParamError::UnknownName { name: "lur".into(), known: vec!["fifo", "lru"] };
        let says = "--policy lur: no `lur`; there are: fifo lru; the nearest is `lru`";
        for (lister, listed) in [("forerun x", "; `forerun x` lists them"), ("", "")] {
            let text = refused("--policy lur", &unknown, lister).to_string();
            assert_eq!(text, format!("{says}{listed}"));
        }
        assert_eq!(POLICIES.is_empty(), !cfg!(feature = "lab"));
        let key = ParamError::UnknownKey { key: "x".into(), known: vec![] };
        let text = refused("--policy lru:x=1", &key, POLICIES).to_string();
        assert_eq!(text, "--policy lru:x=1: no parameter `x`; there are none");
    }
}
