//! How many times as fast programs that walk over trees shall be under `forerun run`.
//!
//! # Invariants
//! - Each names a device and a program; the group `walks` is all of a device.

/// The least that is wanted of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Floor {
    /// So many times as fast as alone.
    Ratio(f64),
    /// Half of what the program waits for beyond its limit.
    HalfOfWaits,
}

impl Floor {
    /// As a ratio, of a program that takes `alone` seconds and is limited to `limit`.
    pub(super) fn ratio(self, alone: f64, limit: f64) -> f64 {
        match self {
            Self::Ratio(ratio) => ratio,
            Self::HalfOfWaits => alone / (limit + (alone - limit) / 2.0),
        }
    }
}

/// That of `program` on `device`, where one is wanted.
pub(super) fn of(device: &str, program: &str) -> Option<Floor> {
    let row = FLOORS.iter().find(|(on, name, _)| *on == device && *name == program);
    row.map(|&(.., floor)| floor)
}

/// The name of the group of all rows here.
pub(super) const GROUP: &str = "walks";

#[rustfmt::skip]
const FLOORS: [(&str, &str, Floor); 24] = [
    ("cloud",  "tar headers",       Floor::Ratio(7.0)),
    ("cloud",  "grep -r headers",   Floor::Ratio(5.0)),
    ("cloud",  "cp -r headers",     Floor::Ratio(3.0)),
    ("cloud",  "rsync headers",     Floor::Ratio(3.0)),
    ("cloud",  "find -size",        Floor::Ratio(3.0)),
    ("cloud",  "du",                Floor::Ratio(3.0)),
    ("cloud",  "git status copied", Floor::Ratio(4.0)),
    ("cloud",  "git grep",          Floor::Ratio(3.0)),
    ("cloud",  "make -j2",          Floor::HalfOfWaits),
    ("cloud",  "git status",        Floor::Ratio(0.98)),
    ("cloud",  "Go repo",           Floor::Ratio(0.98)),
    ("cloud",  "8 threads headers", Floor::Ratio(0.98)),
    ("cloud",  "leaves a walk",     Floor::Ratio(0.98)),
    ("cloud",  "opens twice",       Floor::Ratio(0.98)),
    ("object", "grep -r repo",      Floor::Ratio(20.0)),
    ("object", "tar repo",          Floor::Ratio(20.0)),
    ("object", "git status copied", Floor::Ratio(12.0)),
    ("hdd",    "grep -r repo",      Floor::Ratio(1.5)),
    ("hdd",    "tar repo",          Floor::Ratio(1.5)),
    ("hdd",    "find -size",        Floor::Ratio(0.98)),
    ("hdd",    "du",                Floor::Ratio(0.98)),
    ("hdd",    "git status",        Floor::Ratio(0.98)),
    ("hdd",    "git status copied", Floor::Ratio(0.98)),
    ("hdd",    "git grep",          Floor::Ratio(0.98)),
];

#[cfg(test)]
mod tests {
    use super::super::cases::PROGRAMS;
    use super::*;
    use crate::device::DEVICES;

    #[test]
    fn floors_are_of_programs_that_there_are_on_devices_that_they_run_on() {
        for (device, program, _) in FLOORS {
            assert!(DEVICES.iter().any(|it| it.name == device), "{device}");
            let found = PROGRAMS.iter().find(|it| it.name == program);
            assert!(found.is_some_and(|it| it.is_for(device)), "{program}");
        }
        assert!((Floor::HalfOfWaits.ratio(4.0, 2.0) - 4.0 / 3.0).abs() < 1e-9);
    }
}
