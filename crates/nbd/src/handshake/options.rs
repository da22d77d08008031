//! Options that tell what exports there are: `LIST`, `INFO`, `GO` and metadata contexts.
//!
//! # Invariants
//! - An option's data are read whole, or the reply is `ERR_INVALID`.
//! - Replies describe an export of the list, never the client's name.

use super::reply;
use crate::{
    export::Exports,
    wire::{
        BASE_ALLOCATION, BASE_ALLOCATION_ID, Fields, STRING_BYTES_MAX, info as kinds, length,
        option, option_reply,
    },
};

/// Appends the names of all exports.
pub(super) fn list(exports: &Exports, out: &mut Vec<u8>) {
    for export in exports.all() {
        let mut data = length(export.name.len()).to_be_bytes().to_vec();
        data.extend(export.name.as_bytes());
        data.extend(export.description.as_bytes());
        reply(out, option::LIST, option_reply::SERVER, &data);
    }
    reply(out, option::LIST, option_reply::ACK, b"");
}

/// Answers `INFO` or `GO`; the export where it is there.
pub(super) fn info(
    number: u32,
    data: &[u8],
    exports: &Exports,
    structured: bool,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let Some((name, wanted)) = wanted(data) else {
        reply(out, number, option_reply::ERR_INVALID, MALFORMED);
        return None;
    };
    let Some(found) = exports.find(name) else {
        reply(out, number, option_reply::ERR_UNKNOWN, b"there is no such export");
        return None;
    };
    let export = &exports.all()[found];
    let mut tell = |kind: u16, data: &[u8]| {
        reply(out, number, option_reply::INFO, &[&kind.to_be_bytes(), data].concat());
    };
    let flags = export.transmission_flags(structured);
    tell(kinds::EXPORT, &[&export.bytes.to_be_bytes()[..], &flags.to_be_bytes()].concat());
    if wanted.contains(&kinds::NAME) {
        tell(kinds::NAME, export.name.as_bytes());
    }
    if wanted.contains(&kinds::DESCRIPTION) && !export.description.is_empty() {
        tell(kinds::DESCRIPTION, export.description.as_bytes());
    }
    if wanted.contains(&kinds::BLOCK_SIZE) {
        let sizes = [export.blocks.min, export.blocks.preferred, export.blocks.payload_max];
        tell(kinds::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
    }
    reply(out, number, option_reply::ACK, b"");
    Some(found)
}

/// The export's name, and the kinds of information that the client wants.
fn wanted(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields(data);
    let name = fields.string().filter(|name| name.len() <= STRING_BYTES_MAX)?;
    let count = fields.u16()?;
    let kinds: Option<Vec<u16>> = (0..count).map(|_| fields.u16()).collect();
    kinds.filter(|_| fields.0.is_empty()).map(|kinds| (name, kinds))
}

/// Answers `LIST_META_CONTEXT` or `SET_META_CONTEXT`; the export whose allocation is selected, or
/// listed.
pub(super) fn contexts(
    number: u32,
    data: &[u8],
    exports: &Exports,
    structured: bool,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let Some((name, queries)) = queries(data).filter(|_| structured) else {
        reply(out, number, option_reply::ERR_INVALID, MALFORMED);
        return None;
    };
    let Some(export) = exports.find(name) else {
        reply(out, number, option_reply::ERR_UNKNOWN, b"there is no such export");
        return None;
    };
    let lists = number == option::LIST_META_CONTEXT;
    let matches = |query: &&[u8]| {
        *query == BASE_ALLOCATION.as_bytes() || lists && *query == b"base:".as_slice()
    };
    let selected = lists && queries.is_empty() || queries.iter().any(matches);
    if selected {
        let id = if lists { 0 } else { BASE_ALLOCATION_ID };
        let data = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat();
        reply(out, number, option_reply::META_CONTEXT, &data);
    }
    reply(out, number, option_reply::ACK, b"");
    Some(export).filter(|_| selected)
}

/// The export's name, and the queries.
fn queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let short = |text: &&[u8]| text.len() <= STRING_BYTES_MAX;
    let name = fields.string().filter(short)?;
    let count = fields.u32()?;
    // Each query has its length at least: a count that the data cannot hold is refused at once.
    if usize::try_from(count).map_or(true, |count| count > fields.0.len() / 4) {
        return None;
    }
    let queries: Option<Vec<&[u8]>> = (0..count).map(|_| fields.string().filter(short)).collect();
    queries.filter(|_| fields.0.is_empty()).map(|queries| (name, queries))
}

const MALFORMED: &[u8] = b"the option's data are malformed, or out of turn";
