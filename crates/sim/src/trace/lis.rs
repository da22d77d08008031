//! `.lis`: lines of "start count ignored request".
//!
//! ```text
//!   230027 8 0 0      8 units from unit 230027; request 0
//! ```
//! What a unit is the file does not say: 512 bytes in the traces of workstations (P1 to P14),
//! a block of 4 KiB in the others.
//!
//! # Sources
//! Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003), whose
//! traces have this form.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError, Params};

use super::input::{Input, number, shown};
use super::{Fault, Format, Named, REQUEST_BLOCKS_MAX, Request};

params! {
    /// What the file does not say.
    pub(super) struct Given {
        /// Bytes of a unit. A block of 4 KiB: what all but P1 to P14 have.
        unit: Bytes = Bytes(BLOCK_BYTES),
    }
}

/// [`Given`], held to units that make sense.
#[derive(Clone, Debug, Default)]
pub(super) struct LisParams(Given);

impl Params for LisParams {
    fn set(&mut self, key: &str, value: &str) -> Result<(), ParamError> {
        self.0.set(key, value)?;
        let unit = self.0.unit.0;
        if unit.is_power_of_two() && (512..=1 << 20).contains(&unit) {
            return Ok(());
        }
        let form = "a power of two from 512 to 1M".into();
        Err(ParamError::BadValue { key: key.into(), value: self.0.unit.show(), form })
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        self.0.show()
    }
}

/// See the module.
pub(super) struct Lis {
    unit: u64,
}

impl Named for Lis {
    const NAME: &'static str = "lis";
    const SUMMARY: &'static str =
        "text, lines of \"start count ignored request\"; unit=512 or unit=4K bytes";
    type Params = LisParams;

    fn new(params: LisParams) -> Self {
        Self { unit: params.0.unit.0 }
    }
}

impl Format for Lis {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, Fault> {
        while let Some(line) = input.record_line()? {
            let broken = |what: &str| Fault::Record(format!("{} {what}", shown(line)));
            let (start, count) =
                fields(line).ok_or_else(|| broken("is not \"start count ignored request\""))?;
            if count == 0 {
                continue;
            }
            let request =
                self.blocks(start, count).ok_or_else(|| broken("ends past byte 2^64"))?;
            if request.count > REQUEST_BLOCKS_MAX {
                return Err(broken(&format!("asks for more than {REQUEST_BLOCKS_MAX} blocks")));
            }
            return Ok(Some(request));
        }
        Ok(None)
    }
}

impl Lis {
    /// Every block of 4 KiB that `count` units from `start` touch.
    fn blocks(&self, start: u64, count: u64) -> Option<Request> {
        let from = start.checked_mul(self.unit)?;
        let last = count.checked_mul(self.unit)?.checked_add(from)? - 1;
        let (first, last) = (from / BLOCK_BYTES, last / BLOCK_BYTES);
        Some(Request { first, count: last - first + 1 })
    }
}

/// The first two of four numbers.
fn fields(line: &[u8]) -> Option<(u64, u64)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut next = || number(words.next()?);
    let (start, count, ..) = (next()?, next()?, next()?, next()?);
    words.next().is_none().then_some((start, count))
}

const BLOCK_BYTES: u64 = 4096;
