//! Requests: 28 bytes of a client, and whether an export can carry them out.
//!
//! ```text
//!   magic 4 | flags 2 | command 2 | cookie 8 | offset 8 | length 4 | payload of WRITE
//! ```
//!
//! # Invariants
//! - [`Request::check`] refuses a request before anything is done for it, by its numbers alone.
//! - The range of a request that passed lies within its export, without overflow; `DISC` has none.
//! - A refused `WRITE` still has its payload, which the caller skips; one too long to be skipped
//!   ends the connection ([`Request::floods`]).

use crate::{
    error::ErrorCode,
    export::Export,
    handshake::Agreed,
    wire::{Fields, PAYLOAD_BYTES, REQUEST_MAGIC},
};

/// The bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;

/// What a client wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes.
    Read,
    /// Bytes follow.
    Write,
    /// The connection's end; it has no reply.
    Disconnect,
    /// All acknowledged writes durable.
    Flush,
    /// A hint: the range is not needed.
    Trim,
    /// A hint: the range is about to be read.
    Cache,
    /// Zeroes without a payload.
    WriteZeroes,
    /// What is allocated.
    BlockStatus,
    /// None that this server knows.
    Unknown(u16),
}

/// The flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// Durable before the reply.
    pub const FUA: Self = Self(1 << 0);
    /// Of `WRITE_ZEROES`: the range stays allocated.
    pub const NO_HOLE: Self = Self(1 << 1);
    /// Of `READ`: one chunk of content.
    pub const DF: Self = Self(1 << 2);
    /// Of `BLOCK_STATUS`: one extent.
    pub const REQ_ONE: Self = Self(1 << 3);
    /// Of `WRITE_ZEROES`: fail where it is slow.
    pub const FAST_ZERO: Self = Self(1 << 4);

    /// Whether all of `flags` are set.
    #[must_use]
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its flags.
    pub flags: Flags,
    /// What is to be done.
    pub command: Command,
    /// What the replies are known by.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
}

/// The bytes are no request: the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client broke the protocol: what should be a request begins with {magic:#x}")]
pub struct NotARequest {
    /// What it begins with.
    pub magic: u32,
}

impl Request {
    /// The request in `bytes`.
    ///
    /// # Errors
    /// It does not begin as a request.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, NotARequest> {
        let mut fields = Fields(bytes);
        let whole = "a request has 28 bytes";
        let magic = fields.u32().expect(whole);
        if magic != REQUEST_MAGIC {
            return Err(NotARequest { magic });
        }
        Ok(Self {
            flags: Flags(fields.u16().expect(whole)),
            command: Command::of(fields.u16().expect(whole)),
            cookie: fields.u64().expect(whole),
            offset: fields.u64().expect(whole),
            length: fields.u32().expect(whole),
        })
    }

    /// The bytes that follow.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        if self.command == Command::Write { self.length } else { 0 }
    }

    /// Whether the payload is too long to be skipped: any server skips what all have to take.
    #[must_use]
    pub fn floods(&self, export: &Export) -> bool {
        self.payload_bytes() > export.blocks.payload_max.max(PAYLOAD_BYTES)
    }

    /// The byte after the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    /// Refuses what `export` does not carry out under what was agreed on.
    ///
    /// # Errors
    /// The error of the reply.
    pub fn check(&self, export: &Export, agreed: &Agreed) -> Result<(), ErrorCode> {
        let Self { flags, command, offset, length, .. } = *self;
        let mut known = command.flags(agreed);
        known.0 |= if export.writable { Flags::FUA.0 } else { 0 };
        if !known.has(flags) {
            return Err(ErrorCode::Invalid);
        }
        match command {
            Command::Unknown(_) => return Err(ErrorCode::Invalid),
            Command::Flush if !export.writable || offset > 0 || length > 0 => {
                return Err(ErrorCode::Invalid);
            }
            Command::Disconnect | Command::Flush => return Ok(()),
            Command::BlockStatus if !agreed.allocation || length == 0 => {
                return Err(ErrorCode::Invalid);
            }
            _ => {}
        }
        if command.writes() && !export.writable {
            return Err(ErrorCode::NotPermitted);
        }
        if length > export.blocks.payload_max && matches!(command, Command::Read | Command::Write) {
            let chunked = command == Command::Read && agreed.structured;
            return Err(if chunked { ErrorCode::Overflow } else { ErrorCode::Invalid });
        }
        let end = offset.checked_add(u64::from(length));
        if end.is_none_or(|end| end > export.bytes) {
            let grows = matches!(command, Command::Write | Command::WriteZeroes);
            return Err(if grows { ErrorCode::NoSpace } else { ErrorCode::Invalid });
        }
        let min = export.blocks.min;
        if !offset.is_multiple_of(u64::from(min)) || !length.is_multiple_of(min) {
            return Err(ErrorCode::Invalid);
        }
        Ok(())
    }
}

impl Command {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            number => Self::Unknown(number),
        }
    }

    /// Whether it changes the export.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }

    /// The flags that it takes, besides FUA.
    fn flags(self, agreed: &Agreed) -> Flags {
        match self {
            Self::Read if agreed.structured => Flags::DF,
            Self::WriteZeroes => Flags(Flags::NO_HOLE.0 | Flags::FAST_ZERO.0),
            Self::BlockStatus => Flags::REQ_ONE,
            // An unknown command is refused whatever its flags.
            Self::Unknown(_) => Flags(u16::MAX),
            Self::Read
            | Self::Write
            | Self::Disconnect
            | Self::Flush
            | Self::Trim
            | Self::Cache => Flags(0),
        }
    }
}
