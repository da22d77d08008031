//! Values as bytes, from one process to another of the same program.
//!
//! Both processes are one program, forked, so the form has no version and its numbers have the
//! order of the machine.
//!
//! # Invariants
//! - [`from_bytes`] gives what [`to_bytes`] was given, and nothing for bytes that are not whole.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use forerun_core::units::Nanos;

/// A value that can go to another process.
pub(crate) trait Wire: Sized {
    /// Appends the value to `bytes`.
    fn put(&self, bytes: &mut Vec<u8>);

    /// Takes a value off the head of `bytes`.
    fn take(bytes: &mut &[u8]) -> Option<Self>;
}

/// The bytes of `value`.
pub(crate) fn to_bytes(value: &impl Wire) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    bytes
}

/// The value that has these bytes.
pub(crate) fn from_bytes<T: Wire>(mut bytes: &[u8]) -> Option<T> {
    T::take(&mut bytes).filter(|_| bytes.is_empty())
}

/// Sends structures field by field.
macro_rules! wire {
    ($($type:ty { $($field:ident),* $(,)? })*) => {$(
        impl $crate::wire::Wire for $type {
            fn put(&self, bytes: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($crate::wire::Wire::put($field, bytes);)*
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                $(let $field = $crate::wire::Wire::take(bytes)?;)*
                Some(Self { $($field),* })
            }
        }
    )*};
}
pub(crate) use wire;

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (head, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_ne_bytes(*head))
            }
        }
    )*};
}
numbers! { u8, u64 }

impl Wire for bool {
    fn put(&self, bytes: &mut Vec<u8>) {
        u8::from(*self).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(u8::take(bytes)? != 0)
    }
}

impl Wire for Nanos {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        u64::take(bytes).map(Self)
    }
}

impl Wire for Range<u64> {
    fn put(&self, bytes: &mut Vec<u8>) {
        (self.start, self.end).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (start, end) = Wire::take(bytes)?;
        Some(start..end)
    }
}

impl Wire for PathBuf {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.as_os_str().as_bytes().to_vec().put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Vec::take(bytes).map(|name| OsString::from_vec(name).into())
    }
}

impl Wire for String {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().to_vec().put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(Vec::take(bytes)?).ok()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
        self.1.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::take(bytes)?, B::take(bytes)?))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.is_some().put(bytes);
        if let Some(value) = self {
            value.put(bytes);
        }
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        if bool::take(bytes)? { T::take(bytes).map(Some) } else { Some(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        (self.len() as u64).put(bytes);
        for value in self {
            value.put(bytes);
        }
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        (0..u64::take(bytes)?).map(|_| T::take(bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct All {
        path: PathBuf,
        time: Option<Nanos>,
        ranges: Vec<(Range<u64>, bool)>,
        text: String,
    }
    wire! { All { path, time, ranges, text } }

    #[test]
    fn a_value_comes_back_whole_or_not_at_all() {
        let full = All {
            path: OsString::from_vec(vec![b'/', 255, b'a']).into(),
            time: Some(Nanos(u64::MAX)),
            ranges: vec![(0..1, true), (7..u64::MAX, false)],
            text: "text".into(),
        };
        let empty =
            All { path: PathBuf::new(), time: None, ranges: Vec::new(), text: String::new() };
        for value in [full, empty] {
            let bytes = to_bytes(&value);
            assert_eq!(from_bytes::<All>(&bytes), Some(value));
            for end in 0..bytes.len() {
                assert_eq!(from_bytes::<All>(&bytes[..end]), None, "{end} bytes");
            }
            assert_eq!(from_bytes::<All>(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
