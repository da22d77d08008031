//! Errors of the protocol, and the errno that each stands for.
//!
//! # Invariants
//! - The protocol knows eight errors; any other errno is `Io`.
//! - This is the only table from errno to the protocol.

/// An error in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorCode {
    /// `NBD_EPERM`: the export is not written to.
    #[error("operation not permitted")]
    NotPermitted,
    /// `NBD_EIO`: the storage failed.
    #[error("input/output error")]
    Io,
    /// `NBD_ENOMEM`: a bound of the server is reached. Try again.
    #[error("cannot allocate memory")]
    NoMemory,
    /// `NBD_EINVAL`: the request makes no sense.
    #[error("invalid argument")]
    Invalid,
    /// `NBD_ENOSPC`: no room is left, or the write lies past the export's end.
    #[error("no space left")]
    NoSpace,
    /// `NBD_EOVERFLOW`: the request is too long.
    #[error("value too large")]
    Overflow,
    /// `NBD_ENOTSUP`: it would not be fast.
    #[error("operation not supported")]
    NotSupported,
    /// `NBD_ESHUTDOWN`: the server ends.
    #[error("the server shuts down")]
    Shutdown,
}

impl ErrorCode {
    /// The number in a reply.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::NotPermitted => 1,
            Self::Io => 5,
            Self::NoMemory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::NotSupported => 95,
            Self::Shutdown => 108,
        }
    }

    /// The error for `errno` of the storage.
    #[must_use]
    pub fn of_errno(errno: i32) -> Self {
        match errno {
            EPERM | EACCES | EROFS => Self::NotPermitted,
            EAGAIN | ENOMEM | ENFILE | EMFILE => Self::NoMemory,
            EFBIG | ENOSPC | EDQUOT => Self::NoSpace,
            EOPNOTSUPP => Self::NotSupported,
            _ => Self::Io,
        }
    }
}

const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const EDQUOT: i32 = 122;

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn an_errno_becomes_the_nearest_error_of_the_protocol() {
        #[rustfmt::skip]
        let rows = [ // why                errno  number
            ("the device failed",          5,     5),
            ("another program changed it", 116,   5),
            ("all frames are pinned",      11,    12),
            ("a quota",                    122,   28),
            ("the limit of a file",        27,    28),
            ("a read-only mount",          30,    1),
            ("no such operation",          95,    95),
            ("none that it knows",         -7,    5),
        ];
        for (why, errno, number) in rows {
            assert_eq!(ErrorCode::of_errno(errno).number(), number, "{why}");
        }
    }
}
