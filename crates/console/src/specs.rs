//! The common argument form of all commands: lists of `NAME:key=value,...`.
//!
//! ```text
//!   lru,2q:kin=0.1,kout=1,fifo  -->  lru | 2q:kin=0.1,kout=1 | fifo
//! ```
//! A comma ends a spec unless what follows is `key=value`, which goes on with its parameters.

use anyhow::Result;
use forerun_core::device::Device;
use forerun_core::params::ParamError;
use forerun_core::{device, params, readahead};

use crate::failure::usage;
use crate::{names, ranges};

/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;
/// The specs in a list.
#[must_use]
pub fn split(text: &str) -> Vec<String> {
    let mut specs: Vec<String> = Vec::new();
    for item in text.split(',').map(str::trim) {
        let name = item.split(':').next().unwrap_or(item);
        match specs.last_mut() {
            Some(last) if name.contains('=') => {
                last.push(',');
                last.push_str(item);
            }
            Some(_) | None => specs.push(item.to_owned()),
        }
    }
    specs
}

/// Readahead policies.
pub fn readaheads(text: &str) -> Result<Vec<String>> {
    let make = |spec: &str| readahead::make(spec, PAGE_BYTES);
    each(text, "--readahead", names::POLICIES, make)
}

/// The specs in a list, those of ranges among them, each of which `check` makes. `flag` and the
/// command `lister` are for errors.
pub fn each<T>(
    text: &str,
    flag: &str,
    lister: &str,
    check: impl Fn(&str) -> Result<T, ParamError>,
) -> Result<Vec<String>> {
    let mut specs = Vec::new();
    for spec in split(text) {
        let refused = |error| names::refused(&format!("{flag} {spec}"), &error, lister);
        let (name, pairs) = params::split(&spec);
        let head = if spec.contains(':') { format!("{name}:") } else { name.to_owned() };
        let expanded = ranges::expand(&head, pairs, &check).map_err(refused)?;
        for one in &expanded {
            check(one).map_err(refused)?;
        }
        specs.extend(expanded);
    }
    Ok(specs)
}

/// The device model `spec`, which must take a page in one request.
pub fn device(spec: &str, seed: u64) -> Result<Device> {
    let made = device::make(spec, seed);
    let refused = |error| names::refused(&format!("--device {spec}"), &error, names::DEVICES);
    let device = made.map_err(refused)?;
    if device.request_bytes_max() < u64::from(PAGE_BYTES) {
        return Err(usage(format!("--device {spec}: max= is less than a page of {PAGE_BYTES}")));
    }
    Ok(device)
}

/// Device models, each of which must take a page in one request.
pub fn devices(text: &str) -> Result<Vec<String>> {
    let specs = each(text, "--device", names::DEVICES, |spec| device::make(spec, 0))?;
    specs.iter().try_for_each(|spec| device(spec, 0).map(drop))?;
    Ok(specs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_between_specs_only() {
        #[rustfmt::skip]
        let rows: &[(&str, &[&str])] = &[
            ("lru",                            &["lru"]),
            ("lru,fifo",                       &["lru", "fifo"]),
            ("2q:kin=0.1,kout=1,lru",          &["2q:kin=0.1,kout=1", "lru"]),
            ("lru,2q:kin=0.1,2q:kout=1",       &["lru", "2q:kin=0.1", "2q:kout=1"]),
            ("a:x=1,y=b:c,d",                  &["a:x=1,y=b:c", "d"]),
            ("",                               &[""]),
            ("lru,",                           &["lru", ""]),
            ("x=1,lru",                        &["x=1", "lru"]),
        ];
        for (text, specs) in rows {
            assert_eq!(split(text), *specs, "{text}");
        }
    }

    #[test]
    fn readaheads_are_checked() {
        for text in ["", "linux-9", "off:max=1M", "linux-2.6.24:max=0x"] {
            assert!(readaheads(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_device_takes_a_page_at_once() {
        for (spec, is_one) in [
            ("t7k250", true),
            ("t7k250:max=4K", true),
            ("t7k250:max=4095", false),
            ("cloud:max=1", false),
            ("ssd:max=5000", true),
            ("t7k250:rate=0", false),
            ("disk", false),
        ] {
            assert_eq!(device(spec, 1).is_ok(), is_one, "{spec}");
        }
        assert_eq!(
            devices("hdd,ssd:connections=1..3/3").unwrap(),
            ["hdd", "ssd:connections=1", "ssd:connections=2", "ssd:connections=3"]
        );
        assert!(devices("t7k250:max=2K..8K/2").is_err());
    }
}
