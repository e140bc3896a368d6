//! Positions of fields.
//!
//! The parser reports positions only in errors, so the text is parsed again with a visitor that
//! fails at the field.

use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::error::Position;

/// One step from a YAML node to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The value of a key.
    Key(String),
    /// The key itself. Only at the end of a path.
    Name(String),
    /// An item of a sequence.
    Item(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

/// Returns the position of the longest prefix of `path` that exists in a document of the text.
pub(super) fn locate(text: &str, document: usize, path: &[Step]) -> Option<Position> {
    (0..=path.len()).rev().find_map(|len| {
        let document = serde_yaml_ng::Deserializer::from_str(text).nth(document)?;
        Seek(&path[..len])
            .deserialize(document)
            .err()
            .and_then(|error| Position::of(&error))
    })
}

/// Descends a path and fails at its end.
#[derive(Clone, Copy)]
struct Seek<'a>(&'a [Step]);

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0.first() {
            None => deserializer.deserialize_str(self),
            Some(Step::Item(_)) => deserializer.deserialize_seq(self),
            Some(_) => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the path")
    }

    fn visit_str<E: de::Error>(self, _text: &str) -> Result<(), E> {
        Err(E::custom("found"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (first, rest) = self
            .0
            .split_first()
            .expect("`deserialize` calls `deserialize_map` only for a key");
        let name = match first {
            Step::Name(name) => Some(name.as_str()),
            _ => None,
        };
        while let Some(key) = map.next_key_seed(Key { fails_at: name })? {
            match first {
                Step::Key(wanted) if *wanted == key => map.next_value_seed(Seek(rest))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((Step::Item(wanted), rest)) = self.0.split_first() else {
            return Err(A::Error::custom("found"));
        };
        for _ in 0..*wanted {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Seek(rest))?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Reads a key and fails at a wanted one.
struct Key<'a> {
    fails_at: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.fails_at == Some(key) {
            Err(E::custom("found"))
        } else {
            Ok(key.to_owned())
        }
    }
}
