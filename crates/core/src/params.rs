//! Parameters of policies: `NAME:key=value,key=value` on the command line, a plain struct here.
//!
//! [`params!`](crate::params) writes the struct, its defaults, its parsing and its listing from
//! one place, so that help, reports and docs cannot disagree.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};
use core::fmt;

/// What may be set from outside, by name.
pub trait Params: Default + Clone {
    /// Sets one parameter.
    ///
    /// # Errors
    /// The key is not one of these, or the value does not parse; the message says which.
    fn set(&mut self, key: &str, value: &str) -> Result<(), ParamError>;

    /// Every parameter with its value, in the order of declaration.
    fn show(&self) -> Vec<(&'static str, String)>;
}

/// One kind of value.
pub trait Param: Sized {
    /// What a value of this kind looks like, for error messages and help.
    const FORM: &'static str;
    /// The value that `text` stands for.
    fn parse(text: &str) -> Option<Self>;
    /// The text that parses to this value.
    fn show(&self) -> String;
}

/// Why a name or a parameter was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamError {
    /// There is no policy, model or workload of this name.
    UnknownName {
        /// What was asked for.
        name: String,
        /// What there is, in order.
        known: Vec<&'static str>,
    },
    /// There is no parameter of this name.
    UnknownKey {
        /// What was asked for.
        key: String,
        /// What there is, in order.
        known: Vec<&'static str>,
    },
    /// The value cannot be read or is out of its bounds.
    BadValue {
        /// The parameter.
        key: String,
        /// What was given.
        value: String,
        /// What it should look like.
        form: String,
    },
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name, known } => {
                write!(f, "no `{name}`; there are: {}", known.join(" "))
            }
            Self::UnknownKey { key, known } if known.is_empty() => {
                write!(f, "no parameter `{key}`; there are none")
            }
            Self::UnknownKey { key, known } => {
                write!(f, "no parameter `{key}`; there are: {}", known.join(" "))
            }
            Self::BadValue { key, value, form } => {
                write!(f, "`{key}={value}`: expected {form}")
            }
        }
    }
}

impl core::error::Error for ParamError {}

/// The name and the `key=value` pairs of `NAME:key=value,…`.
#[must_use]
pub fn split(spec: &str) -> (&str, &str) {
    spec.split_once(':').unwrap_or((spec, ""))
}

/// Applies `key=value,…` to `params`.
///
/// # Errors
/// As [`Params::set`]; a pair without `=` is a bad value.
pub fn apply<P: Params>(params: &mut P, pairs: &str) -> Result<(), ParamError> {
    for pair in pairs.split(',').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(ParamError::BadValue {
                key: pair.to_owned(),
                value: String::new(),
                form: "key=value".to_owned(),
            });
        };
        params.set(key, value)?;
    }
    Ok(())
}

/// A size in bytes: `4096`, `64K`, `1M`, `2G`, powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Whole pages in this size.
    #[must_use]
    pub fn pages(self, page_bytes: u32) -> u32 {
        u32::try_from(self.0 / u64::from(page_bytes)).unwrap_or(u32::MAX)
    }
}

impl Param for Bytes {
    const FORM: &'static str = "a size such as 4096, 64K, 1M or 2G";

    fn parse(text: &str) -> Option<Self> {
        let (digits, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
            b'K' => (&text[..text.len() - 1], 10),
            b'M' => (&text[..text.len() - 1], 20),
            b'G' => (&text[..text.len() - 1], 30),
            b'T' => (&text[..text.len() - 1], 40),
            _ => (text, 0),
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        digits.parse::<u64>().ok()?.checked_mul(1 << shift).map(Self)
    }

    fn show(&self) -> String {
        for (shift, unit) in [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
            if self.0 > 0 && self.0.trailing_zeros() >= shift {
                return format!("{}{unit}", self.0 >> shift);
            }
        }
        format!("{}", self.0)
    }
}

/// A share of a whole in parts per million, so that no float decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// Parts per million; may exceed a million.
    pub ppm: u32,
}

impl Share {
    /// So many hundredths.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self { ppm: percent * 10_000 }
    }

    /// This share of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: u32) -> u32 {
        let part = u64::from(whole) * u64::from(self.ppm) / 1_000_000;
        u32::try_from(part).unwrap_or(u32::MAX)
    }
}

impl Param for Share {
    const FORM: &'static str = "a share from 0 to 1000, such as 0.25";

    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole)
            || !digits(fraction)
            || fraction.len() > 6
            || (whole.is_empty() && fraction.is_empty())
        {
            return None;
        }
        let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut ppm: u32 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        for _ in fraction.len()..6 {
            ppm *= 10;
        }
        (whole <= 1_000).then(|| Self { ppm: whole * 1_000_000 + ppm })
    }

    fn show(&self) -> String {
        let text = format!("{}.{:06}", self.ppm / 1_000_000, self.ppm % 1_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

impl Param for u32 {
    const FORM: &'static str = "a whole number";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> String {
        format!("{self}")
    }
}

impl Param for u64 {
    const FORM: &'static str = "a whole number";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> String {
        format!("{self}")
    }
}

impl Params for () {
    fn set(&mut self, key: &str, _: &str) -> Result<(), ParamError> {
        Err(ParamError::UnknownKey { key: key.to_owned(), known: Vec::new() })
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Declares a [`Params`] struct: each field with its doc (what it is, where its default is from),
/// its type (a [`Param`]) and its default.
#[macro_export]
macro_rules! params {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $kind:ty = $default:expr,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::params::Params for $name {
            fn set(&mut self, key: &str, value: &str) -> Result<(), $crate::params::ParamError> {
                match key {
                    $(stringify!($field) => {
                        let Some(parsed) = <$kind as $crate::params::Param>::parse(value) else {
                            return Err($crate::params::ParamError::BadValue {
                                key: key.into(),
                                value: value.into(),
                                form: <$kind as $crate::params::Param>::FORM.into(),
                            });
                        };
                        self.$field = parsed;
                        Ok(())
                    })*
                    _ => Err($crate::params::ParamError::UnknownKey {
                        key: key.into(),
                        known: alloc::vec![$(stringify!($field)),*],
                    }),
                }
            }

            fn show(&self) -> alloc::vec::Vec<(&'static str, alloc::string::String)> {
                alloc::vec![$((stringify!($field), $crate::params::Param::show(&self.$field))),*]
            }
        }
    };
}
