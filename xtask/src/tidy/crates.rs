//! Which crate may import which: one row a crate.
//!
//! The rows are the fence between the parts. A crate is split off by what it may know, not by
//! its size, so a new edge is a change of design: it takes a decision record and a row here.
//! Crates that are planned have their rows already.

/// What a crate may do.
pub(crate) struct Crate {
    /// Its folder under `crates/` or `lab/`, but for `lab/commands`, which is `lab`; its package is
    /// `forerun-NAME`.
    pub(crate) name: &'static str,
    /// The crates of this repository that it may depend on, in tests too.
    pub(crate) imports: &'static [&'static str],
    /// The crates from elsewhere that it may depend on; tests are free.
    pub(crate) foreign: Foreign,
    /// Its rule on `unsafe`.
    pub(crate) unsafety: Unsafety,
}

/// Which dependencies from elsewhere a crate may have.
pub(crate) enum Foreign {
    /// Any that the licences allow.
    Any,
    /// These alone.
    Only(&'static [&'static str]),
}

/// What a crate does about `unsafe`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsafety {
    /// The compiler forbids it: `#![forbid(unsafe_code)]`.
    Forbidden,
    /// Macros of other crates may expand to it; no file writes it.
    MacrosOnly,
    /// Every block says why it is sound.
    Explained,
}

/// The row of the crate that `path` lies in, if `path` lies in one.
pub(crate) fn of(path: &str) -> Option<Result<&'static Crate, &str>> {
    let name = match path.split_once('/') {
        // Programs in C and scripts, no crate.
        Some(("lab", rest)) if rest.starts_with("testbed/") => return None,
        Some(("lab", rest)) if rest.starts_with("commands/") => "lab",
        Some(("crates" | "lab", rest)) => rest.split_once('/')?.0,
        Some(("xtask", _)) => "xtask",
        _ => return None,
    };
    Some(CRATES.iter().find(|row| row.name == name).ok_or(name))
}

const fn row(
    name: &'static str,
    imports: &'static [&'static str],
    foreign: Foreign,
    unsafety: Unsafety,
) -> Crate {
    Crate { name, imports, foreign, unsafety }
}

const CLI: &[&str] = &[
    "core", "io", "engine", "steer", "preload", "report", "console", "lab", "nbd", "fuse", "remote",
];
const PYTHON: &[&str] = &[
    "core", "io", "engine", "steer", "preload", "sim", "lab", "report", "nbd", "fuse", "remote",
    "cli",
];
/// What is said to the person at the terminal, and the device that is measured.
const CONSOLE: &[&str] = &["core", "io", "steer", "report"];
const MEASURE: &[&str] = &["core", "io", "engine", "steer", "report", "console", "sim"];
const LAB: &[&str] = &["core", "io", "engine", "steer", "report", "console", "sim", "measure"];

/// `preload` for its tests alone, which load it into programs.
const STEER: &[&str] = &["core", "io", "preload"];

#[rustfmt::skip]
const CRATES: &[Crate] = &[
    // name          may import           from elsewhere                unsafe
    row("core",    &[],                 Foreign::Only(&["hashbrown"]), Unsafety::Forbidden),
    row("io",      &["core"],           Foreign::Any,                  Unsafety::Explained),
    row("engine",  &["core", "io"],     Foreign::Any,                  Unsafety::Forbidden),
    row("steer",   STEER,               Foreign::Any,                  Unsafety::Explained),
    row("preload", &[],                 Foreign::Any,                  Unsafety::Explained),
    row("sim",     &["core"],           Foreign::Any,                  Unsafety::Forbidden),
    row("report",  &["core"],           Foreign::Any,                  Unsafety::Forbidden),
    row("nbd",     &["engine", "io"],   Foreign::Any,                  Unsafety::Forbidden),
    row("fuse",    &["engine", "io"],   Foreign::Any,                  Unsafety::Forbidden),
    row("remote",  &["core", "io"],     Foreign::Any,                  Unsafety::Forbidden),
    row("console", CONSOLE,             Foreign::Any,                  Unsafety::Forbidden),
    row("measure", MEASURE,             Foreign::Any,                  Unsafety::Forbidden),
    row("lab",     LAB,                 Foreign::Any,                  Unsafety::Forbidden),
    row("python",  PYTHON,              Foreign::Any,                  Unsafety::MacrosOnly),
    row("cli",     CLI,                 Foreign::Any,                  Unsafety::Forbidden),
    row("testkit", &[],                 Foreign::Any,                  Unsafety::Forbidden),
    row("compare", &["core", "report"], Foreign::Any,                  Unsafety::Forbidden),
    row("xtask",   &[],                 Foreign::Any,                  Unsafety::Forbidden),
];

/// What every crate may depend on in its tests, and none elsewhere.
pub(crate) const FOR_TESTS: &str = "testkit";

#[cfg(test)]
mod tests {
    use super::{CRATES, of};

    #[test]
    fn a_path_has_the_row_of_its_crate() {
        let name = |path| of(path).map(|row| row.map(|row| row.name));
        assert_eq!(name("crates/core/src/units.rs"), Some(Ok("core")));
        assert_eq!(name("xtask/src/main.rs"), Some(Ok("xtask")));
        assert_eq!(name("crates/novel/Cargo.toml"), Some(Err("novel")));
        assert_eq!(name("Cargo.toml"), None);
        assert_eq!(name("docs/decisions/0001-x.md"), None);
    }

    #[test]
    fn rows_name_only_rows_and_form_no_cycle() {
        let imports = |name: &str| CRATES.iter().find(|row| row.name == name).map(|r| r.imports);
        for row in CRATES {
            let mut seen = Vec::new();
            let mut open = row.imports.to_vec();
            while let Some(name) = open.pop() {
                assert_ne!(name, row.name, "{} reaches itself", row.name);
                let further = imports(name).expect("an import has a row of its own");
                if !seen.contains(&name) {
                    seen.push(name);
                    open.extend(further);
                }
            }
        }
    }
}
