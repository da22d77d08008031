//! The handshake: fixed newstyle, from the greeting to the export that is agreed on.
//!
//! ```text
//!   greeting  ->  client flags  ->  option*  ->  GO or EXPORT_NAME: Agreed
//!                                            ->  ABORT, a violation: Ended
//! ```
//! A step takes one message of the client, whole, and appends its replies. The caller keeps the
//! bytes that no step took, [`MESSAGE_BYTES_MAX`] at most.
//!
//! # Invariants
//! - An option is skipped where it is too long to be kept, and ends the connection where it is too
//!   long to be skipped; a handshake takes [`OPTIONS_MAX`] options.
//! - `SET_META_CONTEXT` replaces what was selected before, also where it fails.
//! - Without TLS where it is required, only `STARTTLS` and `ABORT` do anything.

mod options;

use crate::{
    export::Exports,
    wire::{
        EXPORT_NAME_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, Fields, MAGIC, OPTION_MAGIC,
        OPTION_REPLY_MAGIC, STRING_BYTES_MAX, length, option, option_reply,
    },
};

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// `STARTTLS` is refused.
    Off,
    /// All other options are refused before `STARTTLS`.
    Required,
}

/// What client and server agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The number of the export.
    pub export: usize,
    /// Replies to reads are structured.
    pub structured: bool,
    /// The client may ask what is allocated.
    pub allocation: bool,
}

/// Why a handshake ended without an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The client asked for its end.
    #[error("the client aborted the handshake")]
    Aborted,
    /// TLS begins; after it the caller goes on, with [`Handshake::secured`].
    #[error("TLS begins")]
    StartTls,
    /// `EXPORT_NAME` cannot be refused otherwise.
    #[error("the client asked for an export that there is not")]
    NoSuchExport,
    /// The client broke the protocol.
    #[error("the client broke the protocol: {0}")]
    Violation(&'static str),
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The message is not whole.
    Wants,
    /// So many bytes were taken; another message may follow.
    Took(usize),
    /// So many bytes were taken; requests follow.
    Done(usize, Agreed),
    /// So many bytes were taken; after the replies the connection ends, or TLS begins.
    Over(usize, Ended),
}

/// One handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    tls: Tls,
    secured: bool,
    /// The client's flags, once they are known.
    client: Option<u32>,
    /// The rest of an option that is skipped, and its number.
    skipped: Option<(usize, u32)>,
    options: u32,
    structured: bool,
    /// The export whose allocation the client may ask for.
    allocation: Option<usize>,
}

/// The most bytes that a step waits for.
pub const MESSAGE_BYTES_MAX: usize = OPTION_HEAD_BYTES + OPTION_BYTES_MAX;
/// The longest data of an option that is carried out.
pub const OPTION_BYTES_MAX: usize = 32 << 10;
/// The longest data of an option that is skipped.
pub const OPTION_BYTES_SKIPPED_MAX: usize = 1 << 20;
/// The most options of a handshake.
pub const OPTIONS_MAX: u32 = 1024;
/// Magic, option and length.
const OPTION_HEAD_BYTES: usize = 16;

impl Handshake {
    /// A handshake, and the greeting that opens it.
    pub fn new(tls: Tls, out: &mut Vec<u8>) -> Self {
        out.extend(MAGIC.to_be_bytes());
        out.extend(OPTION_MAGIC.to_be_bytes());
        out.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Self {
            tls,
            secured: false,
            client: None,
            skipped: None,
            options: 0,
            structured: false,
            allocation: None,
        }
    }

    /// The handshake under TLS: what was negotiated in the open is forgotten.
    #[must_use]
    pub fn secured(self) -> Self {
        Self { secured: true, structured: false, allocation: None, ..self }
    }

    /// Takes one message off the start of `input`, and appends the replies to `out`.
    pub fn step(&mut self, input: &[u8], exports: &Exports, out: &mut Vec<u8>) -> Step {
        let Some(client) = self.client else { return self.client_flags(input) };
        if let Some((left, number)) = self.skipped {
            return self.skip(input, left, number, out);
        }
        let mut head = Fields(input);
        let (Some(magic), Some(number), Some(bytes)) = (head.u64(), head.u32(), head.u32()) else {
            let starts_right = OPTION_MAGIC.to_be_bytes().starts_with(&input[..input.len().min(8)]);
            return if starts_right { Step::Wants } else { violation(0, NO_OPTION) };
        };
        if magic != OPTION_MAGIC {
            return violation(0, NO_OPTION);
        }
        if client & u32::from(FLAG_FIXED_NEWSTYLE) == 0 && number != option::EXPORT_NAME {
            return violation(0, "an option that is not fixed newstyle's");
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let bound = if number == option::EXPORT_NAME { STRING_BYTES_MAX } else { OPTION_BYTES_MAX };
        if bytes > OPTION_BYTES_SKIPPED_MAX || number == option::EXPORT_NAME && bytes > bound {
            return violation(0, "an option of absurd length");
        }
        if bytes <= bound && head.0.len() < bytes {
            return Step::Wants;
        }
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return violation(0, "too many options");
        }
        if bytes > bound {
            self.skipped = Some((bytes, number));
            return Step::Took(OPTION_HEAD_BYTES);
        }
        self.option(number, &head.0[..bytes], exports, out)
    }

    fn client_flags(&mut self, input: &[u8]) -> Step {
        let Some(flags) = Fields(input).u32() else { return Step::Wants };
        if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return violation(4, "unknown flags");
        }
        self.client = Some(flags);
        Step::Took(4)
    }

    fn skip(&mut self, input: &[u8], left: usize, number: u32, out: &mut Vec<u8>) -> Step {
        if input.is_empty() {
            return Step::Wants;
        }
        let took = left.min(input.len());
        self.skipped = Some((left - took, number)).filter(|&(left, _)| left > 0);
        if self.skipped.is_none() {
            if number == option::SET_META_CONTEXT {
                self.allocation = None;
            }
            reply(out, number, option_reply::ERR_TOO_BIG, b"the option is too long");
        }
        Step::Took(took)
    }

    /// Carries out an option whose data are whole.
    fn option(&mut self, number: u32, data: &[u8], exports: &Exports, out: &mut Vec<u8>) -> Step {
        let took = OPTION_HEAD_BYTES + data.len();
        let mut say = |kind, text: &str| reply(out, number, kind, text.as_bytes());
        let open = self.secured || self.tls == Tls::Off;
        match number {
            option::ABORT => {
                say(option_reply::ACK, "");
                return Step::Over(took, Ended::Aborted);
            }
            option::STARTTLS if self.tls == Tls::Off => {
                say(option_reply::ERR_POLICY, "this server has no TLS");
            }
            option::STARTTLS if self.secured || !data.is_empty() => {
                say(option_reply::ERR_INVALID, "TLS runs already, or the option has data");
            }
            option::STARTTLS => {
                say(option_reply::ACK, "");
                return Step::Over(took, Ended::StartTls);
            }
            option::EXPORT_NAME => return self.export_name(data, open, exports, out),
            _ if !open => say(option_reply::ERR_TLS_REQD, "this server requires TLS"),
            option::LIST | option::STRUCTURED_REPLY if !data.is_empty() => {
                say(option_reply::ERR_INVALID, "the option takes no data");
            }
            option::LIST => options::list(exports, out),
            option::STRUCTURED_REPLY => {
                self.structured = true;
                say(option_reply::ACK, "");
            }
            option::INFO | option::GO => {
                let found = options::info(number, data, exports, self.structured, out);
                if let Some(export) = found.filter(|_| number == option::GO) {
                    return Step::Done(took, self.agreed(export));
                }
            }
            option::LIST_META_CONTEXT => {
                options::contexts(number, data, exports, self.structured, out);
            }
            option::SET_META_CONTEXT => {
                self.allocation = options::contexts(number, data, exports, self.structured, out);
            }
            _ => say(option_reply::ERR_UNSUP, "this server does not know the option"),
        }
        Step::Took(took)
    }

    fn export_name(&self, name: &[u8], open: bool, exports: &Exports, out: &mut Vec<u8>) -> Step {
        let took = OPTION_HEAD_BYTES + name.len();
        if !open {
            return violation(took, "an export in the open, where TLS is required");
        }
        let Some(export) = exports.find(name) else {
            return Step::Over(took, Ended::NoSuchExport);
        };
        let Some(client) = self.client else { unreachable!("options follow the client's flags") };
        let found = &exports.all()[export];
        out.extend(found.bytes.to_be_bytes());
        out.extend(found.transmission_flags(self.structured).to_be_bytes());
        if client & u32::from(FLAG_NO_ZEROES) == 0 {
            out.extend([0; EXPORT_NAME_ZEROES]);
        }
        Step::Done(took, self.agreed(export))
    }

    fn agreed(&self, export: usize) -> Agreed {
        let allocation = self.structured && self.allocation == Some(export);
        Agreed { export, structured: self.structured, allocation }
    }
}

/// Appends a reply to an option.
fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(length(data.len()).to_be_bytes());
    out.extend(data);
}

fn violation(took: usize, what: &'static str) -> Step {
    Step::Over(took, Ended::Violation(what))
}

const NO_OPTION: &str = "what should be an option is none";
