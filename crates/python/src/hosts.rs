//! `Host`: the store behind the files of one host, remembered from process to process.
//!
//! # Invariants
//! - What cannot be read or kept is learnt again: no error is raised.
//! - A lock is held with the GIL and never over a call of Python: a fork cannot meet it taken.

use std::time::Duration;

use forerun_engine::ranges::Store;
use forerun_engine::{DeviceKey, DeviceStore};
use pyo3::prelude::*;

/// See the module.
#[pyclass(frozen, module = "forerun._forerun")]
pub(crate) struct Host {
    key: Option<DeviceKey>,
    pub(crate) store: Store,
}

#[pymethods]
impl Host {
    /// The store at `name`, such as `https://example.com:8000`, with what earlier processes of this
    /// user have learnt of it.
    #[new]
    fn new(py: Python<'_>, name: &str) -> Self {
        let key = DeviceKey::of_host(name);
        let record = py.detach(|| DeviceStore::of_user().ok()?.load(key.as_ref()?).ok()?);
        Self { key, store: Store::new(record) }
    }

    /// What is known of it, as the line that is kept; `None` where too little was seen.
    fn record(&self) -> Option<String> {
        Some(self.store.record()?.to_string())
    }

    /// Keeps what was learnt for later processes.
    fn keep(&self, py: Python<'_>) {
        let (Some(key), Some(record)) = (&self.key, self.store.record()) else { return };
        let learnt = [(key.clone(), record)];
        py.detach(|| {
            let _ = DeviceStore::of_user().and_then(|devices| devices.save(&learnt, PATIENCE));
        });
    }
}

/// How long a file's close waits for other processes that keep what they learnt.
const PATIENCE: Duration = Duration::from_millis(5);
