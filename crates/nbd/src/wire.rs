//! Numbers of the protocol, and integers in network byte order.
//!
//! # Invariants
//! - A value of the protocol stands here once, under the name that `doc/proto.md` gives it without
//!   the prefix `NBD_`.
//! - A [`Fields`] never reads past its bytes: a missing field is `None`.

/// The first word of a server.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// The second word of a server, and the first of each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The first word of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The first word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The first word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The first word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Flags of a greeting: the server speaks fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Flags of a greeting: no zeroes follow the answer to `EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// The zeroes after the answer to `EXPORT_NAME`.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Options of a handshake.
pub mod option {
    /// Ends the handshake, with an export by name.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the connection.
    pub const ABORT: u32 = 2;
    /// The names of all exports.
    pub const LIST: u32 = 3;
    /// Goes on under TLS.
    pub const STARTTLS: u32 = 5;
    /// What an export is.
    pub const INFO: u32 = 6;
    /// As `INFO`, and ends the handshake.
    pub const GO: u32 = 7;
    /// Replies to reads are structured.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// The metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Selects metadata contexts of an export.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod option_reply {
    /// The option is done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// One piece of information about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    /// The server's settings forbid the option.
    pub const ERR_POLICY: u32 = 1 << 31 | 2;
    /// The option's data are malformed.
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    /// The option is for connections under TLS.
    pub const ERR_TLS_REQD: u32 = 1 << 31 | 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    /// The option's data are too long.
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's canonical name.
    pub const NAME: u16 = 1;
    /// A text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Smallest, preferred and largest requests.
    pub const BLOCK_SIZE: u16 = 3;
}

/// What an export can do, as flags of its transmission.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// There is `FLUSH`.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Commands may be made durable one by one.
    pub const SEND_FUA: u16 = 1 << 3;
    /// There is `TRIM`.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// There is `WRITE_ZEROES`.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Replies to reads may be had in one chunk.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush of one connection covers all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// There is `CACHE`.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `WRITE_ZEROES` may be asked to fail where it is slow.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of chunks of a structured reply.
pub mod chunk {
    /// The request is done.
    pub const NONE: u16 = 0;
    /// Bytes at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of a metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// The request failed.
    pub const ERROR: u16 = 1 << 15 | 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = 1 << 15 | 2;
    /// A flag: the last chunk of its reply.
    pub const DONE: u16 = 1 << 0;
}

/// The one metadata context: what of an export is allocated.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in this server's replies.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// A state of `base:allocation`: not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// A state of `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// The longest string of the protocol.
pub const STRING_BYTES_MAX: usize = 4096;
/// The payload that any server takes.
pub const PAYLOAD_BYTES: u32 = 1 << 25;

/// Integers and strings of a message, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string that follows its length in 32 bits.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let bytes = self.u32()?;
        self.bytes(usize::try_from(bytes).ok()?)
    }
}

/// The length of something that is bounded far below 4 GiB.
pub(crate) fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("messages are bounded")
}

#[cfg(test)]
mod tests {
    use super::Fields;

    #[test]
    fn a_field_that_is_not_there_is_none_and_takes_nothing() {
        let mut fields = Fields(&[0, 1, 0, 0, 0, 2, b'a', b'b', 7]);
        assert_eq!((fields.u16(), fields.string()), (Some(1), Some(&b"ab"[..])));
        assert_eq!((fields.u16(), fields.u32(), fields.u64()), (None, None, None));
        assert_eq!((fields.string(), fields.bytes(2), fields.0), (None, None, &[7][..]));
        let mut long = Fields(&[0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(long.string(), None, "longer than the message");
    }
}
