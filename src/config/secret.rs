//! Values that no log, error or listing may show.

use std::fmt;

use serde::{Serialize, Serializer};

/// What stands in the place of a secret.
pub const HIDDEN: &str = "[hidden]";

/// A value that shows itself only to [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Hides a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value. Call it where it is used, and keep what it gives no longer than that.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// So the command line's parser hides a text.
impl From<&str> for Secret<String> {
    fn from(text: &str) -> Self {
        Self::new(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_show() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(format!("{secret:?}"), HIDDEN);
        assert_eq!(serde_json::to_string(&secret).unwrap(), r#""[hidden]""#);
        assert_eq!(secret.expose(), "hunter2");
    }
}
