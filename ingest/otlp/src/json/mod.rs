//! OTLP in JSON, transcoded to protobuf:
//! <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.
//!
//! As in Prometheus' receiver, the names of fields are in lowerCamelCase or snake_case, 64-bit
//! integers and floats may be strings, enums may be names, and unknown fields are skipped. The ids
//! of traces and spans are hexadecimal. `null` stands for an absent field.
//!
//! Bounds: `serde_json` limits the nesting to 128 levels. The caller limits the size of the
//! message, and charges it to the request while it grows.

mod schema;

use std::fmt;

use base64::Engine as _;
use prost::encoding::{encode_varint, encoded_len_varint};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected,
    Visitor,
};

use varve_protobuf::{fixed64_key, len_key, varint_key};

use super::error::Error;
use super::value::BASE64;
use schema::{Field, Kind, Message, REQUEST, expected};

/// Returns a request in protobuf. Before the message grows, `check_size` is called with its new
/// size, and `grow` with the bytes to reserve.
///
/// # Errors
/// [`Error::Json`] if the body is not the JSON of a request, and the errors of `check_size` and
/// `grow`.
pub fn transcode<F: From<Error>>(
    body: &[u8],
    check_size: &dyn Fn(usize) -> Result<(), F>,
    grow: &mut dyn FnMut(usize) -> Result<(), F>,
) -> Result<Vec<u8>, F> {
    let mut output = Output {
        bytes: Vec::new(),
        reserved: 0,
        check_size,
        grow,
        failure: None,
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = Fields {
        message: &REQUEST,
        output: &mut output,
    }
    .deserialize(&mut json)
    .and_then(|()| json.end());
    match (read, output.failure.take()) {
        (_, Some(failure)) => Err(failure),
        (Err(error), None) => Err(Error::Json(error.to_string()).into()),
        (Ok(()), None) => {
            check_size(output.bytes.len())?;
            Ok(output.bytes)
        }
    }
}

/// The message in protobuf.
struct Output<'a, F> {
    bytes: Vec<u8>,
    /// Bytes that are reserved for `bytes`.
    reserved: usize,
    check_size: &'a dyn Fn(usize) -> Result<(), F>,
    grow: &'a mut dyn FnMut(usize) -> Result<(), F>,
    /// An error that is not one of the JSON.
    failure: Option<F>,
}

impl<F> Output<'_, F> {
    /// Appends bytes, reserving memory first.
    fn put<E: serde::de::Error>(&mut self, bytes: &[u8]) -> Result<(), E> {
        let size = self.bytes.len() + bytes.len();
        if size > self.reserved {
            let step = (size - self.reserved).max(RESERVE_STEP);
            let grown = (self.check_size)(size).and_then(|()| (self.grow)(step));
            if let Err(failure) = grown {
                self.failure = Some(failure);
                return Err(E::custom("the message exceeds a limit"));
            }
            self.reserved += step;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn put_varint<E: serde::de::Error>(&mut self, value: u64) -> Result<(), E> {
        let mut bytes = [0; 10];
        encode_varint(value, &mut &mut bytes[..]);
        self.put(&bytes[..encoded_len_varint(value)])
    }

    fn put_bytes<E: serde::de::Error>(&mut self, number: u32, bytes: &[u8]) -> Result<(), E> {
        self.put_varint(u64::from(len_key(number)))?;
        self.put_varint(bytes.len() as u64)?;
        self.put(bytes)
    }

    fn put_fixed64<E: serde::de::Error>(&mut self, number: u32, bits: u64) -> Result<(), E> {
        self.put_varint(u64::from(fixed64_key(number)))?;
        self.put(&bits.to_le_bytes())
    }

    /// Appends a varint field.
    fn put_int<E: serde::de::Error>(&mut self, number: u32, value: u64) -> Result<(), E> {
        self.put_varint(u64::from(varint_key(number)))?;
        self.put_varint(value)
    }
}

/// Reads an object and appends its fields.
struct Fields<'o, 'a, F> {
    message: &'static Message,
    output: &'o mut Output<'a, F>,
}

impl<'de, F> DeserializeSeed<'de> for Fields<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F> Visitor<'de> for Fields<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match self
                .message
                .0
                .iter()
                .find(|field| field.names.contains(&name.as_str()))
            {
                Some(field) => map.next_value_seed(Value {
                    field,
                    is_item: false,
                    output: self.output,
                })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Reads the value of a field, or an item of a repeated field, and appends the field.
struct Value<'o, 'a, F> {
    field: &'static Field,
    is_item: bool,
    output: &'o mut Output<'a, F>,
}

impl<'de, F> DeserializeSeed<'de> for Value<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<F> Value<'_, '_, F> {
    fn is_list(&self) -> bool {
        self.field.is_repeated && !self.is_item
    }

    /// Appends an integer.
    fn put_integer<E: serde::de::Error>(
        self,
        value: i128,
        unexpected: Unexpected<'_>,
    ) -> Result<(), E> {
        let is_list = self.is_list();
        let Self {
            field: &Field {
                number, ref kind, ..
            },
            output,
            ..
        } = self;
        let invalid = || E::invalid_value(unexpected, &"an integer in the range of the field");
        match kind {
            _ if is_list => Err(E::invalid_type(unexpected, &"a list")),
            Kind::Fixed64 => {
                output.put_fixed64(number, u64::try_from(value).map_err(|_| invalid())?)
            }
            Kind::Sfixed64 => output.put_fixed64(
                number,
                i64::try_from(value).map_err(|_| invalid())?.cast_unsigned(),
            ),
            Kind::Uint64 => output.put_int(number, u64::try_from(value).map_err(|_| invalid())?),
            Kind::Uint32 => {
                output.put_int(number, u32::try_from(value).map_err(|_| invalid())?.into())
            }
            Kind::Int64 => output.put_int(
                number,
                i64::try_from(value).map_err(|_| invalid())?.cast_unsigned(),
            ),
            Kind::Sint32 => {
                let value = i32::try_from(value).map_err(|_| invalid())?;
                output.put_int(
                    number,
                    u64::from((value << 1 ^ value >> 31).cast_unsigned()),
                )
            }
            Kind::Enum(_) => {
                output.put_int(number, u32::try_from(value).map_err(|_| invalid())?.into())
            }
            Kind::Double => output.put_fixed64(number, (value as f64).to_bits()),
            _ => Err(E::invalid_type(unexpected, &expected(kind))),
        }
    }

    /// Appends a message whose content `read` appends.
    fn put_message<E: serde::de::Error>(
        self,
        message: &'static Message,
        read: impl FnOnce(Fields<'_, '_, F>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { field, output, .. } = self;
        output.put_varint(u64::from(len_key(field.number)))?;
        let start = output.bytes.len() + LENGTH_SIZE;
        output.put(&[0; LENGTH_SIZE])?;
        read(Fields {
            message,
            output: &mut *output,
        })?;
        // The length is known only now: a varint of a fixed size, which is at most the limit of a
        // decompressed body.
        let size = output.bytes.len() - start;
        for (i, byte) in output.bytes[start - LENGTH_SIZE..start]
            .iter_mut()
            .enumerate()
        {
            let more = if i < LENGTH_SIZE - 1 { 0x80 } else { 0 };
            *byte = (size >> (7 * i) & 0x7f) as u8 | more;
        }
        Ok(())
    }
}

impl<'de, F> Visitor<'de> for Value<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_list() {
            "a list"
        } else {
            expected(&self.field.kind)
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if !self.is_list() {
            return Err(A::Error::invalid_type(
                Unexpected::Seq,
                &expected(&self.field.kind),
            ));
        }
        let Self { field, output, .. } = self;
        while seq
            .next_element_seed(Value {
                field,
                is_item: true,
                output: &mut *output,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match &self.field.kind {
            Kind::Message(message) if !self.is_list() => {
                self.put_message(message, |fields| fields.visit_map(map))
            }
            kind => Err(A::Error::invalid_type(Unexpected::Map, &expected(kind))),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let number = self.field.number;
        let invalid = |kind| E::invalid_value(Unexpected::Str(text), &expected(kind));
        match &self.field.kind {
            kind if self.is_list() => Err(E::invalid_type(Unexpected::Str(text), &expected(kind))),
            Kind::String => self.output.put_bytes(number, text.as_bytes()),
            kind @ Kind::Base64 => self
                .output
                .put_bytes(number, &BASE64.decode(text).map_err(|_| invalid(kind))?),
            Kind::Hex(_) if text.is_empty() => Ok(()),
            kind @ Kind::Hex(size) => {
                let bytes = hex_bytes(text)
                    .filter(|bytes| bytes.len() == *size)
                    .ok_or_else(|| invalid(kind))?;
                self.output.put_bytes(number, &bytes)
            }
            kind @ Kind::Double => {
                let value: f64 = text.parse().map_err(|_| invalid(kind))?;
                self.output.put_fixed64(number, value.to_bits())
            }
            kind @ Kind::Enum(names) => {
                let value = names
                    .iter()
                    .position(|name| *name == text)
                    .ok_or_else(|| invalid(kind))?;
                self.output.put_int(number, value as u64)
            }
            kind @ (Kind::Bool | Kind::Message(_)) => {
                Err(E::invalid_type(Unexpected::Str(text), &expected(kind)))
            }
            kind => {
                let value = text.parse().map_err(|_| invalid(kind))?;
                self.put_integer(value, Unexpected::Str(text))
            }
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.put_integer(value.into(), Unexpected::Unsigned(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.put_integer(value.into(), Unexpected::Signed(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match &self.field.kind {
            Kind::Double if !self.is_list() => {
                self.output.put_fixed64(self.field.number, value.to_bits())
            }
            kind => Err(E::invalid_type(Unexpected::Float(value), &expected(kind))),
        }
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match &self.field.kind {
            Kind::Bool if !self.is_list() => self.output.put_int(self.field.number, value.into()),
            kind => Err(E::invalid_type(Unexpected::Bool(value), &expected(kind))),
        }
    }

    /// `null`.
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        match &self.field.kind {
            // A message in a list keeps its place.
            Kind::Message(message) if self.is_item => self.put_message(message, |_| Ok(())),
            kind if self.is_item => Err(E::invalid_type(Unexpected::Unit, &expected(kind))),
            _ => Ok(()),
        }
    }
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    for pair in text.as_bytes().chunks(2) {
        let &[high, low] = pair else { return None };
        let high = char::from(high).to_digit(16)?;
        let low = char::from(low).to_digit(16)?;
        bytes.push((high << 4 | low) as u8);
    }
    Some(bytes)
}

/// Bytes of the length of a message: enough for the largest decompressed body.
const LENGTH_SIZE: usize = 5;
/// Memory is reserved in steps of this size.
const RESERVE_STEP: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expect: Result<&[u8], &str>) {
        let transcoded = transcode::<Error>(json.as_bytes(), &|_| Ok(()), &mut |_| Ok(()));
        match (transcoded, expect) {
            (Ok(bytes), Ok(expect)) => assert_eq!(bytes, expect, "{json}"),
            (Err(error), Err(expect)) => {
                assert!(error.to_string().contains(expect), "{json}: {error}")
            }
            (transcoded, _) => panic!("{json}: {transcoded:?}"),
        }
    }

    #[test]
    fn fields_are_transcoded() {
        let nested = |number: u8, inner: &[u8]| {
            let mut bytes = vec![
                number << 3 | 2,
                inner.len() as u8 | 0x80,
                0x80,
                0x80,
                0x80,
                0,
            ];
            bytes.extend_from_slice(inner);
            bytes
        };
        let metric = |inner: &[u8]| nested(1, &nested(2, &nested(2, inner)));
        let request = |metric: &str| {
            format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}"#)
        };
        check("{}", Ok(&[]));
        check(r#"{"resource_metrics":null,"other":[{"x":1}]}"#, Ok(&[]));
        check(
            &request(r#"{"name":"a\u00e9","unknown":{}}"#),
            Ok(&metric(b"\x0a\x03a\xc3\xa9")),
        );
        let sum = [
            &nested(
                1,
                b"\x19\x05\0\0\0\0\0\0\0\x31\xfe\xff\xff\xff\xff\xff\xff\xff",
            )[..],
            &[0x10, 2, 0x18, 1],
        ];
        for point in [
            r#"{"timeUnixNano":"5","asInt":"-2"}"#,
            r#"{"time_unix_nano":5,"as_int":-2}"#,
        ] {
            for temporality in ["2", r#""AGGREGATION_TEMPORALITY_CUMULATIVE""#] {
                let sum_json = format!(
                    r#"{{"sum":{{"dataPoints":[{point}],"aggregationTemporality":{temporality},"isMonotonic":true}}}}"#
                );
                check(&request(&sum_json), Ok(&metric(&nested(7, &sum.concat()))));
            }
        }
        for (value, bits) in [
            ("1.5", 1.5_f64),
            (r#""NaN""#, f64::NAN),
            (r#""-Infinity""#, f64::NEG_INFINITY),
            ("3", 3.0),
        ] {
            let point = [&[0x21][..], &bits.to_le_bytes()].concat();
            let json = request(&format!(
                r#"{{"gauge":{{"dataPoints":[{{"asDouble":{value}}}]}}}}"#
            ));
            check(&json, Ok(&metric(&nested(5, &nested(1, &point)))));
        }
        let exemplar = nested(5, b"\x22\x08\x01\x23\x45\x67\x89\xab\xcd\xef");
        let json = request(
            r#"{"gauge":{"dataPoints":[{"exemplars":[{"spanId":"0123456789ABCDEF","traceId":""}]}]}}"#,
        );
        check(&json, Ok(&metric(&nested(5, &nested(1, &exemplar)))));
    }

    #[test]
    fn invalid_bodies_are_rejected() {
        for (json, expect) in [
            ("", "json: EOF while parsing"),
            ("[]", "invalid type: sequence, expected an object"),
            ("{} x", "trailing characters"),
            (r#"{"resourceMetrics":{}}"#, "invalid type: map"),
            (r#"{"resourceMetrics":[5]}"#, "expected an object"),
            (
                r#"{"resourceMetrics":[{"resource":{"attributes":[{"value":{"intValue":"x"}}]}}]}"#,
                "expected a number",
            ),
            (
                r#"{"resourceMetrics":[{"resource":{"attributes":[{"value":{"bytesValue":"*"}}]}}]}"#,
                "base64",
            ),
            (
                r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"bucketCounts":[null"#,
                "invalid type: null, expected a number",
            ),
            (
                r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"aggregationTemporality":-1}}]}]}]}"#,
                "an integer in the range of the field",
            ),
        ] {
            check(json, Err(expect));
        }
        let deep = r#"{"arrayValue":{"values":["#.repeat(100);
        let attribute =
            format!(r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"value":{deep}"#);
        check(&attribute, Err("recursion limit exceeded"));
    }

    #[test]
    fn the_message_is_bounded_and_charged() {
        let zeros = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"histogram":{{"dataPoints":[{{"bucketCounts":[{}]}}]}}}}]}}]}}]}}"#,
            vec!["0"; 100_000].join(",")
        );
        let refused = |what| Error::TooLarge {
            what,
            size: 0,
            limit: 0,
        };
        let transcoded = |limit: usize, memory: usize| {
            let mut reserved = 0;
            let check_size = |size: usize| {
                if size > limit {
                    Err(refused("size"))
                } else {
                    Ok(())
                }
            };
            let mut grow = |size: usize| {
                reserved += size;
                if reserved > memory {
                    Err(refused("memory"))
                } else {
                    Ok(())
                }
            };
            transcode(zeros.as_bytes(), &check_size, &mut grow).map(|bytes| (bytes.len(), reserved))
        };
        let (size, reserved) = transcoded(1 << 20, 1 << 30).unwrap();
        assert_eq!(size / 100_000, 9);
        assert!(
            reserved >= size && reserved < size + RESERVE_STEP,
            "{reserved}"
        );
        assert_eq!(transcoded(size - 1, 1 << 30), Err(refused("size")));
        assert_eq!(transcoded(size, size), Err(refused("memory")));
    }
}
