//! Durations in the configuration file.

use std::fmt;
use std::time::Duration;

use serde::de::Visitor;
use serde::{Deserializer, Serializer};
use varve_system::quantity::{parse_duration, print_duration};

/// Prints a duration as Prometheus does.
pub(super) fn print<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&print_duration(*duration))
}

/// Reads a duration such as `1h30m`.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(DurationVisitor)
}

/// Parses a duration inside the deserializer, whose error then names the key.
struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 1h30m")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
        parse_duration(text).map_err(E::custom)
    }
}
