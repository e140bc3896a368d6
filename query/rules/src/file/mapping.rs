//! Mappings with the rules of Go's YAML: a repeated key is an error, and `<<` merges other mappings.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};

use super::Texts;

/// A type that is read from a mapping.
pub(super) trait Mapping: Default {
    /// Noun for the mapping in error messages.
    const WHAT: &str;

    /// Reads the value of a key: calls `values.next_value` exactly once.
    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error>;

    /// Adds the fields that `self` does not have.
    fn merge(&mut self, other: Self);
}

/// Reads a [`Mapping`].
pub(super) struct Mapped<M>(pub(super) M);

impl<'de, M: Mapping> Deserialize<'de> for Mapped<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MappingVisitor(PhantomData)).map(Self)
    }
}

struct MappingVisitor<M>(PhantomData<M>);

impl<'de, M: Mapping> Visitor<'de> for MappingVisitor<M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(M::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
        let (mut mapping, mut merged, mut seen) = (M::default(), Vec::new(), BTreeSet::new());
        while let Some(Text(key)) = map.next_key()? {
            if key == "<<" {
                merged.extend(map.next_value::<OneOrMany<M>>()?.0);
                continue;
            }
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("key {key:?} is repeated")));
            }
            mapping.set(&key, &mut map)?;
            seen.insert(key);
        }
        merged.into_iter().for_each(|other| mapping.merge(other));
        Ok(mapping)
    }
}

/// The value of `<<`.
struct OneOrMany<M>(Vec<M>);

impl<'de, M: Mapping> Deserialize<'de> for OneOrMany<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData)).map(Self)
    }
}

struct OneOrManyVisitor<M>(PhantomData<M>);

impl<'de, M: Mapping> Visitor<'de> for OneOrManyVisitor<M> {
    type Value = Vec<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to merge", M::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<M>, A::Error> {
        Ok(vec![MappingVisitor(PhantomData).visit_map(map)?])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<M>, A::Error> {
        let mut all = Vec::new();
        while let Some(Mapped(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all)
    }
}

/// A string. YAML numbers and booleans keep their spelling, null is empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<String>::deserialize(deserializer).map(|text| Self(text.unwrap_or_default()))
    }
}

/// An integer. As in Go, a float loses its fraction.
#[derive(Debug)]
pub(super) struct Integer(pub(super) i64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntegerVisitor)
    }
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = Integer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Integer, E> {
        Ok(Integer(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Integer, E> {
        i64::try_from(number).map(Integer).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Integer, E> {
        let is_in_range = number.abs() < i64::MAX as f64;
        if is_in_range { Ok(Integer(number as i64)) } else { Err(E::invalid_value(Unexpected::Float(number), &self)) }
    }
}

impl Mapping for Texts {
    const WHAT: &str = "a mapping of names to texts";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        self.insert(key.to_owned(), values.next_value::<Text>()?.0);
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (name, text) in other {
            self.entry(name).or_insert(text);
        }
    }
}

/// Reads the mapping that is the next value. Null is a mapping without keys.
pub(super) fn next_mapping<'de, M: Mapping, A: MapAccess<'de>>(values: &mut A) -> Result<M, A::Error> {
    Ok(values.next_value::<Option<Mapped<M>>>()?.map_or_else(M::default, |Mapped(mapping)| mapping))
}

/// Reads the sequence of mappings that is the next value. Null is an empty sequence, and as in Go no item of one.
pub(super) fn next_mappings<'de, M: Mapping, A: MapAccess<'de>>(values: &mut A) -> Result<Vec<M>, A::Error> {
    let items = values.next_value::<Option<Vec<Option<Mapped<M>>>>>()?.unwrap_or_default();
    Ok(items.into_iter().flatten().map(|Mapped(mapping)| mapping).collect())
}

/// Reads and drops the next value.
pub(super) fn skip<'de, A: MapAccess<'de>>(values: &mut A) -> Result<(), A::Error> {
    values.next_value::<IgnoredAny>().map(drop)
}
