//! Mappings with the rules of Go's YAML: a repeated key is an error, and `<<` merges other
//! mappings.
//!
//! Prometheus reads rule files with version 3 of that library ([`Mapped`]), and unit tests with
//! version 2 ([`InOrder`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Unexpected, Visitor,
};

/// Labels or annotations: names and texts.
pub type Texts = BTreeMap<String, String>;

/// A type whose fields are read from a mapping.
pub(crate) trait Fields {
    /// Noun for the mapping in error messages.
    const WHAT: &str;
    /// The keys that the mapping may have; none if it may have any.
    const KEYS: &[&str] = &[];

    /// Reads the value of a key: calls `values.next_value` exactly once.
    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error>;
}

/// A type into which `<<` merges fields.
pub(super) trait Mapping: Fields + Default {
    /// Adds the fields that `self` does not have.
    fn merge(&mut self, other: Self);
}

/// Reads a [`Mapping`].
pub(super) struct Mapped<M>(pub(super) M);

impl<'de, M: Mapping> Deserialize<'de> for Mapped<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(MappingVisitor(PhantomData))
            .map(Self)
    }
}

struct MappingVisitor<M>(PhantomData<M>);

impl<'de, M: Mapping> Visitor<'de> for MappingVisitor<M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(M::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
        let mut mapping = M::default();
        let mut merged = Vec::new();
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key_seed(NewKey::of::<M>(&seen))? {
            let Some(key) = key else {
                skip(&mut map)?;
                continue;
            };
            if key == "<<" {
                merged.extend(map.next_value::<OneOrMany<M>>()?.0);
                continue;
            }
            mapping.set(&key, &mut map)?;
            seen.insert(key);
        }
        for other in merged {
            mapping.merge(other);
        }
        Ok(mapping)
    }
}

/// Reads a key, `None` if it is null. Fails at an unknown or a repeated one, so that the error has
/// the position of the key.
struct NewKey<'a> {
    known: &'a [&'a str],
    seen: &'a BTreeSet<String>,
}

impl<'a> NewKey<'a> {
    fn of<F: Fields>(seen: &'a BTreeSet<String>) -> Self {
        Self {
            known: F::KEYS,
            seen,
        }
    }
}

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for NewKey<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_none<E: Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, key: D) -> Result<Option<String>, D::Error> {
        key.deserialize_str(self)
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Option<String>, E> {
        if self.seen.contains(key) {
            return Err(E::custom(format!("key {key:?} is repeated")));
        }
        if !self.known.is_empty() && key != "<<" && !self.known.contains(&key) {
            return Err(E::custom(format!("field {key} is unknown")));
        }
        Ok(Some(key.to_owned()))
    }
}

/// The value of `<<`.
struct OneOrMany<M>(Vec<M>);

impl<'de, M: Mapping> Deserialize<'de> for OneOrMany<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(OneOrManyVisitor(PhantomData))
            .map(Self)
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

/// Reads fields in the order of the text: the last value of a field counts, whether `<<` has merged
/// it or not. Null changes nothing. A label that `<<` has merged already is an error.
pub(crate) struct InOrder<'a, F>(pub(crate) &'a mut F);

impl<'de, F: Fields> DeserializeSeed<'de> for InOrder<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(InOrderVisitor {
            fields: self.0,
            is_merged: false,
        })
    }
}

/// Reads the value of `<<` if `is_merged`.
struct InOrderVisitor<'a, F> {
    fields: &'a mut F,
    is_merged: bool,
}

impl<'de, F: Fields> DeserializeSeed<'de> for InOrderVisitor<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for InOrderVisitor<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::WHAT)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.is_merged {
            Err(E::invalid_type(Unexpected::Unit, &self))
        } else {
            Ok(())
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key_seed(NewKey::of::<F>(&seen))? {
            let key = key.unwrap_or_default();
            if key == "<<" {
                map.next_value_seed(InOrderVisitor {
                    fields: &mut *self.fields,
                    is_merged: true,
                })?;
                continue;
            }
            self.fields.set(&key, &mut map)?;
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if !self.is_merged {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        while items
            .next_element_seed(InOrder(&mut *self.fields))?
            .is_some()
        {}
        Ok(())
    }
}

/// A value that is read with [`InOrder`].
#[derive(Debug)]
pub(crate) struct ReadInOrder<F>(pub(crate) F);

impl<'de, F: Fields + Default> Deserialize<'de> for ReadInOrder<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = F::default();
        InOrder(&mut fields).deserialize(deserializer)?;
        Ok(Self(fields))
    }
}

/// Reads the sequence of mappings that is the next value. Null is an empty sequence, and a mapping
/// without fields.
pub(crate) fn next_ordered<'de, F: Fields + Default, A: MapAccess<'de>>(
    values: &mut A,
) -> Result<Vec<F>, A::Error> {
    let items = values
        .next_value::<Option<Vec<ReadInOrder<F>>>>()?
        .unwrap_or_default();
    Ok(items
        .into_iter()
        .map(|ReadInOrder(fields)| fields)
        .collect())
}

/// A string. YAML numbers and booleans keep their spelling, null is empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct Text(pub(crate) String);

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
        if is_in_range {
            Ok(Integer(number as i64))
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Integer, E> {
        match number(text) {
            Some(Number::Integer(integer)) => self.visit_i64(integer),
            Some(Number::Float(float)) => self.visit_f64(float),
            None => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }
}

/// A number that Go's YAML reads as one, but serde's as a text.
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

/// Parses a number with `_`, or with a leading zero: `1_000`, `010` (octal), `08`. Serde passes
/// these as strings, quoted or not, so a quoted one counts as a number. Any other string was
/// quoted, and stays a text.
pub(crate) fn number(text: &str) -> Option<Number> {
    let plain = text.replace('_', "");
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let is_go_number = unsigned
        .strip_prefix('0')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || "xob".contains(c)))
        || plain.len() < text.len();
    if !is_go_number || !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut integer: Result<i64, _> = unsigned.parse();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)] {
        if let Some(digits) = unsigned.strip_prefix(prefix)
            && !digits.starts_with(['+', '-'])
        {
            integer = i64::from_str_radix(digits, radix);
            break;
        }
    }
    match integer {
        Ok(integer) if plain.starts_with('-') => Some(Number::Integer(integer.wrapping_neg())),
        Ok(integer) => Some(Number::Integer(integer)),
        Err(_) => plain.parse().ok().map(Number::Float),
    }
}

impl Fields for Texts {
    const WHAT: &str = "a mapping of names to texts";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match self.insert(key.to_owned(), values.next_value::<Text>()?.0) {
            None => Ok(()),
            Some(_) => Err(A::Error::custom(format!("key {key:?} is repeated"))),
        }
    }
}

impl Mapping for Texts {
    fn merge(&mut self, other: Self) {
        for (name, text) in other {
            self.entry(name).or_insert(text);
        }
    }
}

/// Reads the mapping that is the next value. Null is a mapping without keys.
pub(super) fn next_mapping<'de, M: Mapping, A: MapAccess<'de>>(
    values: &mut A,
) -> Result<M, A::Error> {
    Ok(values
        .next_value::<Option<Mapped<M>>>()?
        .map_or_else(M::default, |Mapped(mapping)| mapping))
}

/// Reads the sequence of mappings that is the next value. Null is an empty sequence, and as in Go
/// no item of one.
pub(super) fn next_mappings<'de, M: Mapping, A: MapAccess<'de>>(
    values: &mut A,
) -> Result<Vec<M>, A::Error> {
    let items = values
        .next_value::<Option<Vec<Option<Mapped<M>>>>>()?
        .unwrap_or_default();
    Ok(items
        .into_iter()
        .flatten()
        .map(|Mapped(mapping)| mapping)
        .collect())
}

/// Reads and drops the next value.
pub(super) fn skip<'de, A: MapAccess<'de>>(values: &mut A) -> Result<(), A::Error> {
    values.next_value::<IgnoredAny>().map(drop)
}
