//! Values that are one JSON string, and documents as text.

use std::fmt::{self, Display};
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Serialize, ser};

/// Reads a value from a string, which is lent to `parse` and copied nowhere.
pub(super) fn parsed<'de, D, T, E>(deserializer: D, parse: fn(&str) -> Result<T, E>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: Display,
{
    struct Parsed<T, E>(fn(&str) -> Result<T, E>, PhantomData<T>);

    impl<T, E: Display> Visitor<'_> for Parsed<T, E> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
            (self.0)(text).map_err(F::custom)
        }
    }

    deserializer.deserialize_str(Parsed(parse, PhantomData))
}

/// The JSON of a document, written into `room` bytes that are there from the start: one of a thousand bytes would else
/// move four times while it grows.
///
/// # Errors
/// The document can't be serialized.
pub fn json(document: &impl Serialize, room: usize) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::with_capacity(room);
    serde_json::to_writer(&mut bytes, document)?;
    String::from_utf8(bytes).map_err(ser::Error::custom)
}
