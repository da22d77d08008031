//! Traces through one partitioned cache: the figures of the paper on 2Q*, and sizing.
//!
//! Workloads are cut, so that they run in a moment. Whole, they are those of the records in
//! `bench/runs`, and each test prints its rows; the counts depend on the commit alone:
//!
//! ```text
//!   FORERUN_FIGURES=whole cargo test --release -p forerun-sim --test partitions -- --nocapture
//! ```

mod figures;
mod sizing;

use forerun_sim::trace::Request;
use forerun_sim::workload;

/// Whether the workloads are run whole.
fn is_whole() -> bool {
    match std::env::var("FORERUN_FIGURES").as_deref() {
        Ok("whole") => true,
        Ok(other) => panic!("FORERUN_FIGURES is `{other}`, not `whole`"),
        Err(_) => false,
    }
}

/// The pages of the mail workload with these parameters, in their order.
fn mail(params: &str) -> Vec<u64> {
    let made = workload::make(&format!("mail,{params}")).expect("a workload");
    let request = |access: workload::Access| {
        let request = Request::blocks(access.file, access.offset, access.bytes.into());
        request.expect("inside its file").expect("it has bytes")
    };
    made.readers.into_iter().flatten().flat_map(|access| request(access).pages()).collect()
}
