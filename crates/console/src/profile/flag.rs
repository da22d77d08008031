//! `--profile`: the facts of a device before the first read.
//!
//! ```text
//!   FILE   the profile of this device under this kernel, or an error that names the others
//!   auto   that of ~/.config/forerun/devices.toml; without one, the reads measure the device
//! ```
//! # Invariants
//! - A profile of another device, file system or kernel is never used, and a profile not used is
//!   noted on stderr.

use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use forerun_core::device::estimate::DeviceProfile;

use super::place::Place;
use super::store::{Lookup, Profiles};
use crate::failure::{note, usage};
use crate::output;
use crate::target::Target;

/// The flag.
#[derive(clap::Args)]
pub struct ProfileFlag {
    /// What the device can do, from a file of `forerun profile`; auto: from
    /// ~/.config/forerun/devices.toml, if it is there [default: learnt from the reads]
    #[arg(long, value_name = "FILE.toml|auto")]
    profile: Option<PathBuf>,
}

impl ProfileFlag {
    /// Whether there is one.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.profile.is_some()
    }

    /// The facts of the device of `target`, where the flag is given.
    ///
    /// # Errors
    /// The file that was named has none of this device as it is now, or is no such file.
    pub fn facts(&self, target: &Target) -> Result<Option<DeviceProfile>> {
        let Some(path) = &self.profile else { return Ok(None) };
        let place = target.place()?;
        if path.as_os_str() != AUTO {
            return facts_in(path, &place)?
                .map_or_else(|why| Err(usage(why)), |facts| Ok(Some(facts)));
        }
        let Some(path) = usual_place() else {
            note("--profile auto: there is no home folder: the device is learnt as it is read");
            return Ok(None);
        };
        match facts_in(&path, &place)? {
            Ok(facts) => Ok(Some(facts)),
            Err(why) => {
                note(&format!("{why}; the device is learnt as it is read"));
                Ok(None)
            }
        }
    }
}

/// What is known of a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFacts {
    /// Its facts.
    pub facts: DeviceProfile,
    /// Bytes a second of small random reads, at the best depth and one by one.
    pub small: Option<[f64; 2]>,
}

/// What is known of `place` from `path`, else from the usual file, for callers with a fallback.
/// Assumed facts are left out.
///
/// # Errors
/// A file holds something else.
pub fn known(path: Option<&Path>, place: &Place) -> Result<Option<DeviceFacts>> {
    let Some(path) = path.map(Path::to_owned).or_else(usual_place) else { return Ok(None) };
    let profiles = Profiles::load(&path)?;
    Ok(match profiles.find(place)? {
        Lookup::Here(facts, assumed) => {
            assumed.is_empty().then(|| DeviceFacts { facts, small: profiles.small(place) })
        }
        Lookup::OtherKernel(_) | Lookup::Nothing => None,
    })
}

/// Refuses a file of profiles that is not there, or none.
///
/// # Errors
/// See above.
pub fn require(path: &Path) -> Result<()> {
    if !path.exists() {
        let name = path.display();
        return Err(usage(format!(
            "--profile {name}: there is no such file: measure with `forerun profile ... -o {name}`"
        )));
    }
    Profiles::load(path).map(|_| ())
}

/// The facts of `place`, or the reason why they are missing.
fn facts_in(path: &Path, place: &Place) -> Result<Result<DeviceProfile, String>> {
    let (name, key) = (path.display(), place.key());
    let again = format!("measure with `forerun profile ... -o {name}`");
    if !path.exists() {
        return Ok(Err(format!("--profile {name}: there is no such file: {again}")));
    }
    Ok(match Profiles::load(path)?.find(place)? {
        Lookup::Here(facts, assumed) => {
            if !assumed.is_empty() {
                let assumed = assumed.join(", ");
                note(&format!("{name}: of {key}, this was assumed, not measured: {assumed}"));
            }
            Ok(facts)
        }
        Lookup::OtherKernel(kernel) => Err(format!(
            "--profile {name}: that of this device is of {kernel}, and this is {}: {again}",
            place.kernel
        )),
        Lookup::Nothing => Err(format!("--profile {name}: it has no profile of {key}: {again}")),
    })
}

/// The file of profiles by default.
fn usual_place() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(config.join("forerun/devices.toml"))
}

/// The same, its folder made, for a profile to be added.
///
/// # Errors
/// There is no home folder, or the folder cannot be made.
pub fn usual_place_to_write() -> Result<PathBuf> {
    let path =
        usual_place().ok_or_else(|| usage("there is no home folder: name a file with -o"))?;
    let folder = output::parent(&path);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot make {}; name a file with -o", folder.display()))?;
    output::require_place(&path).context("name another file with -o")?;
    Ok(path)
}

const AUTO: &str = "auto";

#[cfg(test)]
mod tests {
    use std::fs;

    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn a_profile_is_taken_for_its_device_file_system_and_kernel_alone() {
        let own = Place { device: "8:0".into(), kernel: "linux 6.1".into(), ..Place::default() };
        let text = format!(
            "[\"{}\"]\ndevice = \"8:0\"\nkernel = \"linux 6.1\"\nkind = \"parallel\"\n\
             access_us = 2.0\nmb_per_second = 3.0\ndepth = 4\nrequest_bytes = 4096\n\
             assumed = []\nclasses = []\n",
            own.key()
        );
        let scratch = Scratch::new("given");
        let path = scratch.join("devices.toml");
        let other = |change: fn(&mut Place)| {
            let mut place = own.clone();
            change(&mut place);
            place
        };
        let newer = other(|place| place.kernel = "linux 6.2".into());
        let partition = other(|place| place.device = "8:1".into());
        let file = other(|place| place.file_system = "xfs".into());
        let drive = other(|place| place.model = "M".into());
        #[rustfmt::skip]
        let rows = [ // why            place        told
            ("its own",                own.clone(), None),
            ("a newer kernel",         newer,       Some("is of linux 6.1, and this is linux 6.2")),
            ("another device",         partition,   Some("no profile of 8:1")),
            ("through a file system",  file,        Some("no profile of 8:0, xfs")),
            ("another drive",          drive,       Some("no profile of 8:0, M")),
        ];
        let missing = facts_in(&path, &own).expect("no error").expect_err("no file");
        assert!(missing.contains("no such file"), "{missing}");
        fs::write(&path, text).expect("a file in the temporary folder");
        for (why, place, told) in rows {
            match (facts_in(&path, &place).expect(why), told) {
                (Ok(facts), None) => assert_eq!((facts.depth, facts.access.0), (4, 2_000), "{why}"),
                (Err(text), Some(told)) => assert!(text.contains(told), "{why}: {text}"),
                (found, _) => panic!("{why}: {found:?}"),
            }
        }
        fs::write(&path, "[\"8:0, linux 6.1\"]\nkind = 1\n").expect("the same file");
        assert!(facts_in(&path, &own).is_err(), "a file that holds something else");
    }
}
