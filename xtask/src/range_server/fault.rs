//! What goes wrong on purpose, and on which turn.
//!
//! # Invariants
//! - A plan for every Nth GET leaves the N - 1 before it alone.

use anyhow::{Context as _, Result, ensure};

use super::units::whole;

/// A way to answer that a sound server has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// 200 and the whole file, whatever the range.
    IgnoreRange,
    /// The bytes asked for, as the content of a gzip file.
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

/// A fault and its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) fault: Fault,
    /// It hits every so many GETs; not 0.
    pub(super) every: u64,
}

impl Plan {
    /// Of `KIND`, `KIND:EVERY` or `none`.
    pub(super) fn parse(text: &str) -> Result<Option<Self>> {
        if text == "none" {
            return Ok(None);
        }
        let (kind, every) = text.split_once(':').unwrap_or((text, "1"));
        let fault = KINDS.iter().find(|(name, _)| *name == kind);
        let (_, fault) = fault.with_context(|| {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            format!("no fault {kind}; there are: none {}", names.join(" "))
        })?;
        let every = whole(every).with_context(|| format!("{text}: expected KIND:EVERY"))?;
        ensure!(every > 0, "{text}: never is said by none");
        Ok(Some(Self { fault: *fault, every }))
    }
}

const KINDS: [(&str, Fault); 8] = [
    ("ignore-range", Fault::IgnoreRange),
    ("gzip", Fault::Gzip),
    ("no-length", Fault::NoLength),
    ("drop", Fault::Drop),
    ("short", Fault::Short),
    ("long", Fault::Long),
    ("shifted", Fault::Shifted),
    ("error", Fault::Error),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read() {
        let plan = |fault, every| Some(Some(Plan { fault, every }));
        #[rustfmt::skip]
        let rows = [ // text      expected
            ("short",             plan(Fault::Short, 1)),
            ("ignore-range:3",    plan(Fault::IgnoreRange, 3)),
            ("none",              Some(None)),
            ("",                  None),
            ("odd",               None),
            ("short:",            None),
            ("short:0",           None),
            ("short:x",           None),
        ];
        for (text, expected) in rows {
            assert_eq!(Plan::parse(text).ok(), expected, "{text}");
        }
        assert!(Plan::parse("odd").unwrap_err().to_string().contains("ignore-range"));
    }
}
