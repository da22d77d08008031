//! What is explained of directory trees, as reports have it.
//!
//! # Invariants
//! - Gains of walks sum up to the whole gain at most: each has the share of its waits.

use std::path::Path;

use forerun_core::units::Nanos;
use forerun_report::quantity::{float, seconds};
use forerun_report::{ExplainedCauses, ExplainedDirectory, ExplainedTrap, ExplainedWalk};
use forerun_steer::explain::{
    Cause, CauseTimes, DirectorySummary, Prediction, ProgramSummary, Trap, TrapSummary,
    TreeSummary, WalkSummary,
};

pub(super) fn causes(times: &CauseTimes) -> ExplainedCauses {
    let of = |cause| seconds(times.of(cause));
    ExplainedCauses {
        open_seconds: of(Cause::Open),
        stat_seconds: of(Cause::Stat),
        readdir_seconds: of(Cause::List),
        read_seconds: of(Cause::Read),
        fault_seconds: of(Cause::Fault),
        other_seconds: of(Cause::Other),
    }
}

pub(super) fn walks(
    summary: &ProgramSummary,
    trees: &TreeSummary,
    prediction: &Prediction,
) -> Vec<ExplainedWalk> {
    let streams = summary.files.iter().flat_map(|file| &file.streams);
    let known = streams.filter(|stream| stream.pattern.is_predictable());
    let known = known.map(|stream| stream.waited.0).sum::<u64>() + trees.spared.0;
    let predicted: u64 = trees.walks.iter().map(|walk| walk.waited_predicted.0).sum();
    let part = |one: u64, all: u64| if all == 0 { 0.0 } else { float(one) / float(all) };
    let of_trees = |gain: Nanos| seconds(gain) * part(trees.spared.0, known);
    let gain = |gain: Nanos, waited: Nanos| of_trees(gain) * part(waited.0, predicted);
    let walk = |walk: &WalkSummary| ExplainedWalk {
        directory: shown(&walk.directory),
        order: walk.order.clone(),
        entries: walk.entries,
        predicted: walk.predicted,
        storage_seconds: seconds(walk.waited.total()),
        causes: causes(&walk.waited),
        gain_seconds: gain(prediction.gain, walk.waited_predicted),
        gain_seconds_max: gain(prediction.gain_max, walk.waited_predicted),
    };
    trees.walks.iter().map(walk).collect()
}

pub(super) fn directory(summary: &DirectorySummary) -> ExplainedDirectory {
    ExplainedDirectory {
        path: shown(&summary.path),
        calls: summary.calls,
        storage_seconds: seconds(summary.waited.total()),
        causes: causes(&summary.waited),
    }
}

pub(super) fn trap(summary: &TrapSummary) -> ExplainedTrap {
    ExplainedTrap {
        kind: summary.kind.name(),
        path: shown(&summary.path),
        storage_seconds: seconds(summary.waited),
        why: match summary.kind {
            Trap::Nfs => {
                "NFS asks the server at each open whether the file is current: that round trip \
                 stays, whatever is fetched ahead"
            }
            Trap::Fuse => {
                "there are no walks on FUSE; and unless its server says FOPEN_KEEP_CACHE each open \
                 drops what was read ahead of it"
            }
            Trap::Overlay => {
                "overlayfs: what is cached belongs to the files of its layers, and those of the \
                 upper layer are others once they were written"
            }
        },
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
