//! The NBD protocol: block devices over a socket.
//!
//! ```text
//!   client                                     server
//!            <-- greeting ----------------------
//!            --- options: LIST, INFO, GO ... -->   handshake    bytes in, bytes out, an end
//!            <-- replies to options ------------
//!            --- READ, WRITE, FLUSH ... ------->   request      28 bytes in, a request out
//!            <-- simple replies, chunks --------   reply        what happened in, bytes out
//! ```
//!
//! The codec holds no socket, clock or thread: bytes are arguments and results. The [`server`]
//! around it reads a socket, feeds [`Handshake`] until it ends, and then decodes a [`Request`] at a
//! time.
//!
//! # Invariants
//! - Any bytes of a client end in a message, a reply that refuses them, or the connection's end;
//!   none panics.
//! - Every length that a client gives is compared with a bound before memory is taken for it.
//! - A name that a client gives is compared with those of the [`Export`]s, and used for nothing
//!   else.
//! # Sources
//! `doc/proto.md` of the repository `NetworkBlockDevice/nbd`, as of May 2026. Experimental
//! extensions (extended headers, resize) are refused as unknown.
#![forbid(unsafe_code)]

mod error;
mod export;
mod handshake;
pub mod reply;
mod request;
pub mod server;
pub mod wire;

pub use error::ErrorCode;
pub use export::{BlockSizes, BlockSizesError, Export, Exports, ExportsError};
pub use handshake::{
    Agreed, Ended, Handshake, MESSAGE_BYTES_MAX, OPTION_BYTES_MAX, OPTION_BYTES_SKIPPED_MAX,
    OPTIONS_MAX, Step, Tls,
};
pub use request::{Command, Flags, NotARequest, REQUEST_BYTES, Request};
