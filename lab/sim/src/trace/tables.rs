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
use super::columns::{Column, Columns, Delimiter, Heading, Table};
use super::request::BLOCK_BYTES;

params! {
    /// The block size, which a file of blocks does not state.
    pub(super) struct Blocks {
        /// Bytes of a block or unit.
        unit: Bytes = Bytes(BLOCK_BYTES),
    }
}

pub(super) fn lis(given: &Blocks) -> Result<Columns, ParamError> {
    let unit = unit("unit", given.unit)?;
    Ok(blanks(vec![Offset(unit), Size(unit), Number, Number], false))
}

pub(super) fn disksim() -> Columns {
    blanks(vec![TimeMillisOrNanos, Device, Offset(512), Size(512), ReadIf(1)], false)
}

pub(super) fn sandrain(given: &Blocks) -> Result<Columns, ParamError> {
    let unit = unit("unit", given.unit)?;
    Ok(blanks(vec![Offset(unit), Size(unit), Op], true))
}

pub(super) fn spc() -> Columns {
    let columns = vec![Device, Offset(512), Size(1), Op, Time(1_000_000_000)];
    Columns::new(Table { columns, delimiter: COMMAS, open: true, heading: Heading::No })
}

pub(super) fn msr() -> Columns {
    commas(vec![Time(100), Host, Device, Op, Offset(1), Size(1), Ignored])
}

pub(super) fn alibaba() -> Columns {
    commas(vec![Device, Op, Offset(1), Size(1), Time(1_000)])
}

pub(super) fn tencent() -> Columns {
    commas(vec![Time(1_000_000_000), Offset(512), Size(512), ReadIf(0), Device])
}

/// Columns that blanks part, without a heading.
fn blanks(columns: Vec<Column>, open: bool) -> Columns {
    Columns::new(Table { columns, delimiter: Delimiter::Blanks, open, heading: Heading::No })
}

/// Columns that commas part, with a heading or without.
fn commas(columns: Vec<Column>) -> Columns {
    Columns::new(Table { columns, delimiter: COMMAS, open: false, heading: Heading::Auto })
}

/// `given`, if it makes sense as the unit of a trace.
pub(super) fn unit(key: &str, given: Bytes) -> Result<u64, ParamError> {
    if given.0.is_power_of_two() && given.0 <= 1 << 20 {
        return Ok(given.0);
    }
    let form = "a power of two up to 1M".into();
    Err(ParamError::BadValue { key: key.into(), value: given.show(), form })
}

const COMMAS: Delimiter = Delimiter::Byte(b',');

#[cfg(test)]
mod tests;
