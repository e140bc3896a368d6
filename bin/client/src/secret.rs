//! Secrets in configuration files.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string that is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

/// The text of a secret in a printed configuration.
const HIDDEN: &str = "<secret>";

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        // As in Prometheus, null is empty.
        match Option::<String>::deserialize(deserializer)?.unwrap_or_default() {
            hidden if hidden == HIDDEN => Err(D::Error::custom(
                "<secret> is the placeholder of a printed configuration: set the secret or its file",
            )),
            secret => Ok(Self(secret)),
        }
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { HIDDEN })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}
