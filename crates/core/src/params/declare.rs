//! What declares parameters and finds them by name: `params!`, `choice!`, `by_name!`.
//!
//! A declaration is a struct with defaults, or an enum with a word for each variant; the name of a
//! policy, a device or a format chooses the arm with its parameters.

/// Returns the arm of the name that `$spec` (`NAME:key=value,..`) begins with, as `Ok`, or a
/// [`ParamError`](crate::params::ParamError): `$params` holds its parameters there.
#[macro_export]
macro_rules! by_name {
    ($spec:expr, $names:expr, $params:ident: $($name:expr, $type:ty => $then:expr;)+) => {
        let (name, pairs) = $crate::params::split($spec);
        $(if name == $name {
            let mut $params = <$type>::default();
            $crate::params::apply(&mut $params, pairs)?;
            return Ok($then);
        })+
        return Err($crate::params::ParamError::UnknownName {
            name: name.into(),
            known: $names.to_vec(),
        });
    };
}

pub use by_name;

/// Declares a [`Params`](crate::params::Params) struct: each field with its doc (what it is, where
/// its default is from), its type (a [`Param`](crate::params::Param)) and its default.
#[macro_export]
macro_rules! params {
    (
        $(#[$doc:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $kind:ty = $default:expr,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $visibility struct $name {
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
                        known: $crate::alloc::vec![$(stringify!($field)),*],
                    }),
                }
            }

            fn show(&self) -> $crate::alloc::vec::Vec<(&'static str,
                $crate::alloc::string::String)> {
                $crate::alloc::vec![$((stringify!($field),
                    $crate::params::Param::show(&self.$field))),*]
            }
        }
    };
}

/// Declares a parameter that is one of some words.
#[macro_export]
macro_rules! choice {
    (
        $(#[$doc:meta])*
        $visibility:vis enum $name:ident ($form:literal) {
            $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $crate::params::Param for $name {
            const FORM: &'static str = $form;

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn show(&self) -> $crate::alloc::string::String {
                match self {
                    $(Self::$variant => $word.into(),)+
                }
            }
        }
    };
}

pub use choice;
