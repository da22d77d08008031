//! The engine's cache in front of a target: its settings, its errors.
//!
//! # Invariants
//! - A file that changes during the reads is an error that proposes another file.

use std::io;

use anyhow::anyhow;
use forerun_console::failure::usage;
use forerun_console::target::{Checked, Target, changed};
use forerun_core::device::Device;
use forerun_engine::{BuildError, Cache, Handle, ReadError, Settings};

/// The settings of a cache of `cache_bytes` for `target`.
#[must_use]
pub fn settings(target: &Target, cache_bytes: u64) -> Settings {
    let default = Settings::default();
    // No kernel is in front of the model: a disk without a queue serves requests in their order, so
    // a demand would wait for all readahead before it.
    let queues = target.device().is_none_or(|device| queues_commands(&device));
    let (least, most) = (default.background_depth, default.background_depth_max);
    Settings {
        cache_bytes,
        background_depth: if queues { least } else { 1 },
        background_depth_max: if queues { most } else { 1 },
        request_bytes_max: target.request_bytes_max(),
        ..default
    }
}

/// Whether the device orders its requests by itself.
#[must_use]
pub fn queues_commands(device: &Device) -> bool {
    !device.params().iter().any(|(key, value)| *key == "ncq" && value == "off")
}

/// `file` as `cache` itself opens files, as cold as possible.
pub fn opened_cold(file: &Checked, cache: &Cache) -> anyhow::Result<Handle> {
    file.forget()?;
    file.require_unchanged()?;
    Ok(cache.open(file.path())?)
}

/// A cache that cannot be built is a usage error.
#[must_use]
pub fn refused(error: BuildError) -> anyhow::Error {
    match error {
        BuildError::Memory(error) => anyhow!("{error}: give a smaller --cache"),
        error => usage(format!("--cache: {error}")),
    }
}

/// An error of a read of `file` that names it and, unless the system is the reason, says how to
/// come to a figure.
#[must_use]
pub fn failed(file: &Checked, error: impl Into<anyhow::Error>) -> anyhow::Error {
    failed_on(&file.path().display().to_string(), error)
}

/// As [`failed`], of a file or model called `name`.
#[must_use]
pub fn failed_on(name: &str, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    if error.chain().any(is_of_the_system) {
        return error.context(name.to_owned());
    }
    changed(name, &format!("{error:#}"))
}

/// Whether the reason is another than a change of the file.
fn is_of_the_system(cause: &(dyn std::error::Error + 'static)) -> bool {
    let read = cause.downcast_ref::<ReadError>();
    let changed =
        |error: &ReadError| matches!(error, ReadError::Changed | ReadError::Shrunk { .. });
    cause.is::<io::Error>() || read.is_some_and(|error| !changed(error))
}

#[cfg(test)]
mod tests {
    use forerun_io::files::Backend;

    use super::*;

    #[test]
    fn only_what_a_change_explains_asks_for_a_file_that_nobody_changes() {
        let path = std::env::current_exe().expect("a test is a file");
        let Ok(Target::File(file)) = Target::file(path, Backend::Threads) else {
            panic!("it can be read")
        };
        #[rustfmt::skip]
        let rows = [
            ("a change",       ReadError::Changed.into(),                             true),
            ("shorter",        ReadError::Shrunk { file_bytes: 1 }.into(),            true),
            ("other bytes",    anyhow!("the bytes are others"),                       true),
            ("a broken disk",  ReadError::Store { offset: 0, errno: 5 }.into(),       false),
            ("no thread",      anyhow::Error::from(io::Error::from_raw_os_error(11)), false),
        ];
        for (why, error, expected) in rows {
            let told = format!("{:#}", failed(&file, error));
            assert_eq!(told.ends_with("; measure a file that nobody changes"), expected, "{why}");
            assert!(told.starts_with('/'), "{why}: {told}");
        }
    }
}
