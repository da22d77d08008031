//! What earlier runs have learnt of the devices on which a program's files lie.
//!
//! ```text
//!   first file of a device --number, id of the file system--> key --> record --> planner
//!   the run's end <-- records of the planner
//! ```
//! # Invariants
//! - Nothing here decides when a record is believed: the planner does.
//! - A record that cannot be read or kept costs the run nothing: the device is learnt again.
//! - Devices without a key are not kept; there are as many keys as the planner has devices.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

use forerun_core::device::remembered::DeviceRecord;
use forerun_core::planner::FILES_MAX;
use forerun_io::devices::{DeviceKey, DeviceStore};
use rustix::fs::fstatvfs;

/// See the module.
pub(crate) struct RememberedDevices {
    store: DeviceStore,
    keys: BTreeMap<u64, DeviceKey>,
}

impl RememberedDevices {
    /// Those of this user, if there is a folder for them.
    pub(crate) fn of_user() -> Option<Self> {
        DeviceStore::of_user().ok().map(Self::new)
    }

    fn new(store: DeviceStore) -> Self {
        Self { store, keys: BTreeMap::new() }
    }

    /// What is remembered of the device with this `number`, on which `file` lies.
    pub(super) fn record(&mut self, file: &File, number: u64) -> Option<DeviceRecord> {
        let key = DeviceKey::of_numbers(number, fstatvfs(file).ok()?.f_fsid);
        let record = self.store.load(&key).ok().flatten();
        let before = self.keys.insert(number, key);
        assert!(before.is_none(), "the planner gets the record of a device once");
        assert!(self.keys.len() <= FILES_MAX, "the planner has no more devices");
        record
    }

    /// Keeps what the planner has of devices. It waits for other runs that save for a moment only.
    pub(super) fn save(&self, records: impl Iterator<Item = (u64, DeviceRecord)>) {
        let keyed = |(number, record)| Some((self.keys.get(&number)?.clone(), record));
        let learnt: Vec<_> = records.filter_map(keyed).collect();
        let _ = self.store.save(&learnt, PATIENCE);
    }
}

/// The time that a run's end has for it is short.
const PATIENCE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn a_device_is_found_again_by_any_of_its_files_and_no_other_is() {
        let scratch = Scratch::new("remembered-devices");
        let devices = || RememberedDevices::new(DeviceStore::at(&scratch.join("s")).unwrap());
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let number = file.metadata().unwrap().dev();
        let record: DeviceRecord = "parallel 50000000 9000000 2 4096 kar 0".parse().unwrap();
        let mut first = devices();
        assert_eq!(first.record(&file, number), None);
        first.save([(number, record), (number + 1, record)].into_iter());
        assert_eq!(devices().record(&file, number), Some(record));
        assert_eq!(devices().record(&file, number + 1), None, "no file of it was opened");
    }
}
