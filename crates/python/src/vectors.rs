//! What readahead policies decide: `forerun.vectors`.
//!
//! Plain values alone: rows are tuples here, and named by `python/forerun/vectors.py`.

use forerun_core::readahead;
use forerun_sim::decisions::{self as sim, WindowDecision};
use forerun_sim::vectors;
use pyo3::prelude::pyfunction;
use pyo3::{PyResult, Python};

use crate::errors;

/// Read, cause, page, start, size, async size, and the first and last page of each run fetched.
type Row = (u32, &'static str, u64, u64, u32, u32, Vec<(u64, u64)>);

/// The names of readahead policies, in the order of reports.
#[pyfunction]
pub(crate) fn policies() -> Vec<&'static str> {
    readahead::NAMES.to_vec()
}

/// The windows that the policy `spec` opens while `reads` (offset and length in bytes) are read
/// from a file of `file_bytes`.
#[pyfunction]
pub(crate) fn decisions(
    py: Python<'_>,
    spec: &str,
    reads: Vec<(u64, u64)>,
    file_bytes: u64,
) -> PyResult<Vec<Row>> {
    let decided = py.detach(move || sim::decisions(spec, file_bytes, &reads));
    Ok(decided.map_err(errors::option)?.into_iter().map(row).collect())
}

/// Runs recorded vectors: scenarios that held, that did not, and a line for each row that differs.
#[pyfunction]
#[pyo3(signature = (text, policy=None))]
pub(crate) fn check(
    py: Python<'_>,
    text: &str,
    policy: Option<&str>,
) -> PyResult<(u32, u32, Vec<String>)> {
    let verdict = py.detach(|| vectors::run(text, policy)).map_err(errors::option)?;
    Ok((verdict.passed, verdict.failed, verdict.lines))
}

fn row(decided: WindowDecision) -> Row {
    let WindowDecision { read, page, cause, window, fetched } = decided;
    (read, cause.name(), page, window.start, window.size, window.async_size, fetched)
}
