//! Exports: what clients may open, and by which names.
//!
//! # Invariants
//! - The list is fixed before the first client: no name of a client creates or finds anything else.
//! - Names differ, are not empty, and fit the protocol; the empty name is that of the first export.
//! - An export's size is a multiple of its smallest block, so that its last bytes can be reached.

use crate::wire::{PAYLOAD_BYTES, STRING_BYTES_MAX, transmission};

/// The requests that an export takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it; a power of two up to 64 KiB.
    pub min: u32,
    /// Aligned requests from this size on are efficient; a power of two from 512 and `min` on.
    pub preferred: u32,
    /// The longest payload of a request or reply; at least `preferred`.
    pub payload_max: u32,
}

impl Default for BlockSizes {
    /// Any byte of a file; the sizes that the protocol names where a server says nothing.
    fn default() -> Self {
        Self { min: 1, preferred: 4096, payload_max: PAYLOAD_BYTES }
    }
}

/// Why an export cannot have these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockSizesError {
    /// The smallest block is no power of two up to 64 KiB.
    #[error("a block of {0} bytes: a power of two up to 65536 is")]
    Min(u32),
    /// The preferred block is no power of two, or smaller than it may be.
    #[error("a preferred block of {0} bytes: a power of two from 512 and the smallest block on is")]
    Preferred(u32),
    /// The longest payload is shorter than the preferred block.
    #[error("a payload of {0} bytes at most: at least the preferred block is")]
    Payload(u32),
}

impl BlockSizes {
    /// Refuses sizes that the protocol forbids.
    ///
    /// # Errors
    /// See [`BlockSizesError`].
    pub fn check(&self) -> Result<(), BlockSizesError> {
        let Self { min, preferred, payload_max } = *self;
        if !min.is_power_of_two() || min > 1 << 16 {
            return Err(BlockSizesError::Min(min));
        }
        if !preferred.is_power_of_two() || preferred < min.max(512) {
            return Err(BlockSizesError::Preferred(preferred));
        }
        if payload_max < preferred {
            return Err(BlockSizesError::Payload(payload_max));
        }
        Ok(())
    }
}

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name that clients ask for.
    pub name: String,
    /// A text for people; may be empty.
    pub description: String,
    /// Its size.
    pub bytes: u64,
    /// Whether writes, flushes, trims and zeroes are carried out.
    pub writable: bool,
    /// The requests that it takes.
    pub blocks: BlockSizes,
}

impl Export {
    /// The transmission flags of a connection; `structured` if its replies are.
    ///
    /// One cache serves all connections, so a flush of one covers all.
    #[must_use]
    pub fn transmission_flags(&self, structured: bool) -> u16 {
        let mut flags = transmission::HAS_FLAGS
            | transmission::CAN_MULTI_CONN
            | transmission::SEND_CACHE
            | if structured { transmission::SEND_DF } else { 0 };
        flags |= if self.writable {
            transmission::SEND_FLUSH
                | transmission::SEND_FUA
                | transmission::SEND_TRIM
                | transmission::SEND_WRITE_ZEROES
                | transmission::SEND_FAST_ZERO
        } else {
            transmission::READ_ONLY
        };
        flags
    }
}

/// The exports of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exports(Vec<Export>);

/// Why a list of exports cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    /// There is none.
    #[error("no export")]
    Empty,
    /// A name is empty or too long, or has a zero byte.
    #[error("an export named {0:?}: a name has 1 to {STRING_BYTES_MAX} bytes, and no zero byte")]
    Name(String),
    /// A description is too long.
    #[error("the description of {name:?}: {STRING_BYTES_MAX} bytes at most")]
    Description {
        /// The export.
        name: String,
    },
    /// Two exports have one name.
    #[error("two exports named {0:?}: give one another name")]
    Twice(String),
    /// The last bytes are no whole block.
    #[error("{name:?} has {bytes} bytes, which are no whole number of blocks of {min}")]
    Size {
        /// The export.
        name: String,
        /// Its size.
        bytes: u64,
        /// Its smallest block.
        min: u32,
    },
    /// Its block sizes are none of the protocol.
    #[error("{name:?}: {source}")]
    Blocks {
        /// The export.
        name: String,
        /// Which, and why.
        source: BlockSizesError,
    },
}

impl Exports {
    /// A list that can be served.
    ///
    /// # Errors
    /// See [`ExportsError`].
    pub fn new(exports: Vec<Export>) -> Result<Self, ExportsError> {
        if exports.is_empty() {
            return Err(ExportsError::Empty);
        }
        for (at, export) in exports.iter().enumerate() {
            let Export { name, description, bytes, blocks, .. } = export;
            if name.is_empty() || name.len() > STRING_BYTES_MAX || name.contains('\0') {
                return Err(ExportsError::Name(name.clone()));
            }
            let name = name.clone();
            if description.len() > STRING_BYTES_MAX {
                return Err(ExportsError::Description { name });
            }
            if exports[..at].iter().any(|other| other.name == name) {
                return Err(ExportsError::Twice(name));
            }
            if let Err(source) = blocks.check() {
                return Err(ExportsError::Blocks { name, source });
            }
            if bytes % u64::from(blocks.min) != 0 {
                return Err(ExportsError::Size { name, bytes: *bytes, min: blocks.min });
            }
        }
        Ok(Self(exports))
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> &[Export] {
        &self.0
    }

    /// The number of the export that a client calls `name`.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() {
            return Some(0);
        }
        self.0.iter().position(|export| export.name.as_bytes() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str) -> Export {
        let (description, blocks) = (String::new(), BlockSizes::default());
        Export { name: name.into(), description, bytes: 1024, writable: false, blocks }
    }

    #[test]
    fn a_list_that_the_protocol_cannot_carry_is_refused_in_one_line() {
        let sized = |min| BlockSizes { min, ..BlockSizes::default() };
        let odd = Export { bytes: 1025, blocks: sized(512), ..export("odd") };
        let blocks = |blocks| Export { blocks, ..export("a") };
        let preferred = BlockSizes { preferred: 256, ..sized(1) };
        let payload = BlockSizes { payload_max: 4095, ..sized(1) };
        let text = Export { description: "x".repeat(4097), ..export("a") };
        #[rustfmt::skip]
        let rows = [ // why         exports                          begins with
            ("none",                vec![],                          "no export"),
            ("no name",             vec![export("")],                "an export named \"\""),
            ("a long name",         vec![export(&"x".repeat(4097))], "an export named \"xxx"),
            ("a zero byte",         vec![export("a\0")],             "an export named \"a\\0\""),
            ("a long text",         vec![text],                      "the description of \"a\""),
            ("twice",               vec![export("a"), export("a")],  "two exports named \"a\""),
            ("not whole blocks",    vec![odd],                       "\"odd\" has 1025 bytes"),
            ("an odd block",        vec![blocks(sized(3))],          "\"a\": a block of 3"),
            ("a huge block",        vec![blocks(sized(1 << 17))],    "\"a\": a block of 131072"),
            ("a small preference",  vec![blocks(preferred)],         "\"a\": a preferred block"),
            ("a small payload",     vec![blocks(payload)],           "\"a\": a payload of 4095"),
        ];
        for (why, exports, begins) in rows {
            let error = Exports::new(exports).expect_err(why).to_string();
            assert!(error.starts_with(begins) && !error.contains('\n'), "{why}: {error}");
        }
    }

    #[test]
    fn the_empty_name_is_the_first_export() {
        let exports = Exports::new(vec![export("a"), export("b")]).unwrap();
        let names: [&[u8]; 5] = [b"", b"a", b"b", b"c", b"../a"];
        assert_eq!(names.map(|name| exports.find(name)), [Some(0), Some(0), Some(1), None, None]);
    }

    #[test]
    fn flags_name_what_is_carried_out() {
        let read_only = export("a");
        let writable = Export { writable: true, ..export("a") };
        #[rustfmt::skip]
        let rows = [ // export  structured   flags
            (&read_only,        false,       0b0101_0000_0011),
            (&read_only,        true,        0b0101_1000_0011),
            (&writable,         false,       0b1101_0110_1101),
            (&writable,         true,        0b1101_1110_1101),
        ];
        for (export, structured, flags) in rows {
            assert_eq!(export.transmission_flags(structured), flags, "{export:?} {structured}");
        }
    }
}
