//! Injected faults, and the GETs that they hit.
//!
//! # Invariants
//! - Faults on every Nth GET leave the N - 1 before alone.

use clap::ValueEnum;
use forerun_report::quantity::read;

/// A faulty way to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// 200 and the whole file, whatever the range.
    IgnoreRange,
    /// The requested bytes, as the content of a gzip file.
    Gzip,
    /// No Content-Length: the body comes in chunks.
    NoLength,
    /// The connection ends in the middle of the body.
    Drop,
    /// 206 of the first half of the range, and it says so.
    Short,
    /// 206 of twice the range, and it says so.
    Long,
    /// 206 of another range, and it says so.
    Shifted,
    /// 500.
    Error,
}

/// The GETs that a fault hits: none, or every so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    fault: Option<Fault>,
    /// Not 0.
    every: u64,
}

impl Turns {
    /// The turns of `KIND`, `KIND:EVERY` or `none`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self { fault: None, every: 1 });
        }
        let (kind, every) = text.split_once(':').unwrap_or((text, "1"));
        let fault = Fault::from_str(kind, false).map_err(|_| {
            let kinds = Fault::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let names: Vec<String> = kinds.map(|kind| kind.get_name().to_owned()).collect();
            format!("no fault {kind}; there are: none {}", names.join(" "))
        })?;
        match read(every) {
            Ok(0) => Err(format!("{text}: never is said by none")),
            every => Ok(Self { fault: Some(fault), every: every? }),
        }
    }

    /// The fault, whatever the turn.
    pub(super) fn fault(self) -> Option<Fault> {
        self.fault
    }

    /// The fault of the GET with this number, counted from 1.
    pub(super) fn of(self, turn: u64) -> Option<Fault> {
        self.fault.filter(|_| turn.is_multiple_of(self.every))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_read() {
        let plan = |fault, every| Some(Turns { fault: Some(fault), every });
        #[rustfmt::skip]
        let rows = [ // text      expected
            ("short",             plan(Fault::Short, 1)),
            ("ignore-range:3",    plan(Fault::IgnoreRange, 3)),
            ("none",              Some(Turns { fault: None, every: 1 })),
            ("",                  None),
            ("odd",               None),
            ("short:",            None),
            ("short:0",           None),
            ("short:x",           None),
        ];
        for (text, expected) in rows {
            assert_eq!(Turns::parse(text).ok(), expected, "{text}");
        }
        assert!(Turns::parse("odd").unwrap_err().contains("ignore-range"));
    }
}
