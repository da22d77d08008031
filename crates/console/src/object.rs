//! JSON objects as they are written: `object! { key: value, ... }`, keys in this order.
//!
//! ```text
//!   object! { a: 1, b: "x" }  is  Object(Entry("a", 1, Entry("b", "x", End)))  is  {"a":1,"b":"x"}
//! ```
//! A struct that is filled once, a line below its declaration, repeats each key three times; a
//! map would sort the keys.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// See the module; [`object!`](crate::object!) makes one.
pub struct Object<E>(pub E);

/// A key, its value, and the entries after it.
pub struct Entry<V, E>(pub &'static str, pub V, pub E);

/// No more entries.
pub struct End;

/// The entries of an object.
pub trait Entries {
    /// Writes them in order.
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

impl Entries for End {
    fn write<M: SerializeMap>(&self, _: &mut M) -> Result<(), M::Error> {
        Ok(())
    }
}

impl<V: Serialize, E: Entries> Entries for Entry<V, E> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry(self.0, &self.1)?;
        self.2.write(map)
    }
}

impl<E: Entries> Serialize for Object<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.write(&mut map)?;
        map.end()
    }
}

/// The JSON object of `key: value, ...`.
#[macro_export]
macro_rules! object {
    (@entries) => { $crate::object::End };
    (@entries $key:ident: $value:expr $(, $($rest:tt)*)?) => {
        $crate::object::Entry(
            stringify!($key),
            $value,
            $crate::object!(@entries $($($rest)*)?),
        )
    };
    ($($entries:tt)*) => { $crate::object::Object($crate::object!(@entries $($entries)*)) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_stay_in_their_order_at_every_depth() {
        let inner = object! { z: 1, a: None::<u8> };
        let text = serde_json::to_string(&object! { y: "x", b: vec![inner], c: 1.5 });
        assert_eq!(text.unwrap(), r#"{"y":"x","b":[{"z":1,"a":null}],"c":1.5}"#);
    }
}
