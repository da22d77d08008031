//! The formats that are no more than a table of columns.
//!
//! ```text
//!   230027 8 0 0                                 lis: 8 units from unit 230027; request 0
//!   5265.313 0 6357144 8 0                       disksim: 8 blocks of device 0; a write
//!   287 128 W 0                                  sandrain: 128 blocks from block 287; a write
//!   0,20941264,8192,W,0.551706                   spc: 8192 bytes from sector 20941264 of unit 0
//!   128166372003061629,hm,0,Read,8192,4096,153   msr: 4096 bytes from byte 8192 of disk 0 of hm
//!   419,W,8792731648,16384,1577808144360767      alibaba: 16384 bytes, at so many microseconds
//!   1538323200,12910952,128,0,1063               tencent: 128 sectors of volume 1063; a read
//! ```
//! - lis: what a unit is the file does not say: 512 bytes in the traces of workstations (P1 to
//!   P14), a block of 4 KiB in the others.
//! - disksim: flag 1 is a read. A time with a fraction is in milliseconds, as `DiskSim` writes it;
//!   one without is in nanoseconds, as simulators of flash write it.
//! - sandrain: the reader ignores fields behind the third. Its source does not say what a block
//!   is; 4 KiB is the usual one of its time.
//! - spc: blocks are of 512 bytes; fields may be added behind the fifth.
//! - msr: times are Windows file times, 100 ns since 1601. Disks of the first host keep their
//!   numbers; those of others get numbers of their own, so that several files may be put together.
//! - tencent: sectors have 512 bytes, times are seconds, op 0 is a read.
//!
//! # Sources
//! - lis: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003).
//! - disksim: the manual of `DiskSim` 4.0 (Bucy and others 2008), section 7.2: the ASCII format;
//!   the readme of `SSDsim`, which took it over with times in nanoseconds.
//! - sandrain: the traces that come with the simulator sandrain/cachesim (`PostMark` and others).
//! - spc: Storage Performance Council, "SPC Trace File Format Specification" 1.0.1 (2002). It
//!   leaves the size of a block open; the traces of `UMass` have 512 bytes.
//! - msr: Narayanan, Donnelly, Rowstron, "Write Off-Loading" (FAST 2008), and the readme of its
//!   traces at SNIA.
//! - alibaba: the readme of alibaba/block-traces (2020).
//! - tencent: Zhang and others, "OSCA" (USENIX ATC 2020), and the readme of its traces at SNIA.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError};

use super::columns::Column::{
    Device, Host, Ignored, Number, Offset, Op, ReadIf, Size, Time, TimeMillisOrNanos,
};
use super::columns::{Columns, Delimiter, Heading, Table};
use super::request::BLOCK_BYTES;
use super::{Entry, Reader};

params! {
    /// The block size, which a file of blocks does not state.
    pub(super) struct Blocks {
        /// Bytes of a block or unit.
        unit: Bytes = Bytes(BLOCK_BYTES),
    }
}

/// Declares formats: parameters, name, help, columns, delimiter, heading, and whether a line may
/// have more fields than there are columns.
macro_rules! tables {
    ($($format:ident($params:ty) $name:literal, $summary:literal,
        |$given:pat_param| [$($column:expr),+], $delimiter:expr, $heading:ident, $open:expr;
    )+) => {$(
        #[doc = concat!("The format `", $name, "`: see the module.")]
        pub(super) struct $format;

        impl Entry for $format {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = $summary;
            type Params = $params;

            fn reader(params: $params) -> Result<Box<dyn Reader>, ParamError> {
                let $given = params.checked()?;
                Ok(Box::new(Columns::new(Table {
                    columns: vec![$($column),+],
                    delimiter: $delimiter,
                    open: $open,
                    heading: Heading::$heading,
                })))
            }
        }
    )+};
}

tables! {
    Lis(Blocks) "lis",
        "text, lines of \"start count ignored request\"; unit=512 or unit=4K bytes",
        |unit| [Offset(unit), Size(unit), Number, Number], BLANKS, Never, false;
    Disksim(()) "disksim",
        "text, lines of \"time device block blocks flag\"; blocks of 512 bytes, flag 1 = read",
        |()| [TimeMillisOrNanos, Device, Offset(512), Size(512), ReadIf(1)], BLANKS, Never, false;
    Sandrain(Blocks) "sandrain", "text, lines of \"block count R|W\"; unit=4K bytes",
        |unit| [Offset(unit), Size(unit), Op], BLANKS, Never, true;
    Spc(()) "spc", "csv of UMass: unit,block,bytes,op,seconds; blocks of 512 bytes",
        |()| [Device, Offset(512), Size(1), Op, Time(1_000_000_000)], COMMAS, Never, true;
    Msr(()) "msr", "csv of MSR Cambridge: time,host,disk,type,offset,bytes,response",
        |()| [Time(100), Host, Device, Op, Offset(1), Size(1), Ignored], COMMAS, IfWords, false;
    Alibaba(()) "alibaba", "csv of Alibaba: device,op,offset,bytes,microseconds",
        |()| [Device, Op, Offset(1), Size(1), Time(1_000)], COMMAS, IfWords, false;
    Tencent(()) "tencent",
        "csv of Tencent: seconds,offset,size,op,volume; sectors of 512 bytes, op 0 = read",
        |()| [Time(1_000_000_000), Offset(512), Size(512), ReadIf(0), Device],
        COMMAS, IfWords, false;
}

/// Parameters that make sense as they are, and what a table needs of them.
trait Checked {
    type Value;
    fn checked(self) -> Result<Self::Value, ParamError>;
}

impl Checked for () {
    type Value = ();

    fn checked(self) -> Result<(), ParamError> {
        Ok(())
    }
}

impl Checked for Blocks {
    type Value = u64;

    fn checked(self) -> Result<u64, ParamError> {
        unit("unit", self.unit)
    }
}

/// `given`, if it makes sense as the unit of a trace.
pub(super) fn unit(key: &str, given: Bytes) -> Result<u64, ParamError> {
    if given.0.is_power_of_two() && given.0 <= 1 << 20 {
        return Ok(given.0);
    }
    let form = "a power of two up to 1M".into();
    Err(ParamError::BadValue { key: key.into(), value: given.show(), form })
}

const BLANKS: Delimiter = Delimiter::Blanks;
const COMMAS: Delimiter = Delimiter::Byte(b',');

#[cfg(test)]
mod tests;
