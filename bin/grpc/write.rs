//! `WriteableStore/RemoteWrite`: samples that a `thanos receive` router forwards.
//!
//! The message is `prometheus.WriteRequest` with a tenant and the number of the replica. The tenant becomes a label of
//! each series, and the team whose budget the samples count against.
//!
//! A router knows three outcomes: success, a conflict that no retry resolves (`AlreadyExists`, which its sender sees as
//! 409), and any other error, which it retries. So every other error is `Unavailable`.

use axum::extract::{Request, State};
use axum::response::Response;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint};
use varve_ingest::{Malformed, Origin};

use super::call::{check_open, coding, single};
use super::frame;
use super::status::{Code, Status};
use crate::http::api::write::ingest::ingest;
use crate::http::error::ApiError;
use crate::http::serving::state::HttpState;

pub(crate) const PATH: &str = "/thanos.WriteableStore/RemoteWrite";

/// Fields of the request.
const TIME_SERIES: u32 = 1;
const TENANT: u32 = 2;
/// Fields of a series and of a label.
const LABELS: u32 = 1;
const LABEL_NAME: u32 = 1;
const LABEL_VALUE: u32 = 2;

/// A response, which has no fields.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct WriteResponse {}

/// Serves the method.
pub(super) async fn write(State(state): State<HttpState>, request: Request) -> Response {
    let result = store(&state, request).await;
    single(&state, PATH, result.map(|()| WriteResponse {}))
}

async fn store(state: &HttpState, request: Request) -> Result<(), Status> {
    check_open(&state.app)?;
    let coding = coding(request.headers()).map_err(|status| Status::new(Code::Unavailable, status.message))?;
    let args = &state.app.settings.args;
    let (tenant_label, ctx) = (args.receive_tenant_label_name.clone(), state.app.write_context(args.read_timeout));
    let written = ingest(state, request, move |receiver, origin, body| {
        let malformed = |reason: String| Malformed::Encoding { encoding: "gRPC", reason };
        let mut charge = ctx.charge();
        let message = frame::read(body, coding, receiver.limits().decompressed_size_max, &mut charge);
        let message = message.map_err(|status| malformed(status.message))?;
        let (tenant, message) =
            with_tenant(&message, &tenant_label).ok_or_else(|| malformed("invalid message".to_owned()))?;
        let team = (!tenant.is_empty()).then_some(tenant).or(origin.team);
        receiver.write_message(&Origin { team, ..*origin }, &message)
    });
    let written = written.await.map_err(|error| failed(&error))?;
    match written.rejects.is_empty() {
        true => Ok(()),
        false => Err(Status::new(Code::AlreadyExists, written.rejects.to_string())),
    }
}

/// Returns the status of a write that stored nothing, or not everything that it could.
fn failed(error: &ApiError) -> Status {
    let code = if error.kind.is_retryable() { Code::Unavailable } else { Code::AlreadyExists };
    Status::new(code, error.message.clone())
}

/// Returns the tenant of a request, and its series as a `prometheus.WriteRequest` with the tenant as the label
/// `label_name`, which replaces a label of the series. An empty tenant, or an empty name, adds no label. Returns `None`
/// if the message is malformed.
fn with_tenant<'a>(message: &'a [u8], label_name: &str) -> Option<(&'a str, Vec<u8>)> {
    let (mut tenant, mut rest) = ("", message);
    while let Some(field) = next_field(&mut rest)? {
        if field.tag == TENANT {
            tenant = std::str::from_utf8(field.payload).ok()?;
        }
    }
    let mut label = Vec::new();
    if !tenant.is_empty() && !label_name.is_empty() {
        put(LABEL_NAME, label_name.as_bytes(), &mut label);
        put(LABEL_VALUE, tenant.as_bytes(), &mut label);
        label = field_of(LABELS, &label);
    }
    let (mut out, mut rest) = (Vec::with_capacity(message.len() + message.len() / 4), message);
    while let Some(field) = next_field(&mut rest)? {
        if field.tag == TIME_SERIES {
            put_series(field.payload, &label, label_name, &mut out)?;
        }
    }
    Some((tenant, out))
}

/// Appends a series with an encoded label, or with its own labels if there is none.
fn put_series(series: &[u8], label: &[u8], label_name: &str, out: &mut Vec<u8>) -> Option<()> {
    if label.is_empty() {
        put(TIME_SERIES, series, out);
        return Some(());
    }
    let (mut replaced, mut rest) = (None, series);
    while let Some(field) = next_field(&mut rest)? {
        if field.tag == LABELS && name_of(field.payload)? == label_name.as_bytes() {
            replaced = Some(series.len() - rest.len() - field.whole.len()..series.len() - rest.len());
        }
    }
    let replaced = replaced.unwrap_or(0..0);
    encode_key(TIME_SERIES, WireType::LengthDelimited, out);
    encode_varint((label.len() + series.len() - replaced.len()) as u64, out);
    for part in [label, &series[..replaced.start], &series[replaced.end..]] {
        out.extend_from_slice(part);
    }
    Some(())
}

fn name_of(label: &[u8]) -> Option<&[u8]> {
    let (mut name, mut rest) = (&b""[..], label);
    while let Some(field) = next_field(&mut rest)? {
        if field.tag == LABEL_NAME {
            name = field.payload;
        }
    }
    Some(name)
}

fn put(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn field_of(tag: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(1 + encoded_len_varint(bytes.len() as u64) + bytes.len());
    put(tag, bytes, &mut field);
    field
}

/// A field of a message.
struct Field<'a> {
    tag: u32,
    /// The bytes of a string or message, else empty.
    payload: &'a [u8],
    whole: &'a [u8],
}

/// Takes the first field of `rest`. Returns `Some(None)` at the end, and `None` if the bytes are not a field.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<Option<Field<'a>>> {
    let start = *rest;
    if start.is_empty() {
        return Some(None);
    }
    let (tag, wire_type) = decode_key(rest).ok()?;
    let size = match wire_type {
        WireType::Varint => decode_varint(rest).ok().map(|_| 0)?,
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => usize::try_from(decode_varint(rest).ok()?).ok()?,
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    let (bytes, after) = rest.split_at_checked(size)?;
    *rest = after;
    let payload = if wire_type == WireType::LengthDelimited { bytes } else { &[] };
    Some(Some(Field { tag, payload, whole: &start[..start.len() - after.len()] }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::ErrorKind;
    use crate::http::protobuf::Label;

    #[derive(Clone, PartialEq, Message)]
    struct Decoded {
        #[prost(message, repeated, tag = "1")]
        series: Vec<DecodedSeries>,
        #[prost(string, tag = "2")]
        tenant: String,
        #[prost(int64, tag = "3")]
        replica: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct DecodedSeries {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<Label>,
        #[prost(bytes = "vec", repeated, tag = "2")]
        samples: Vec<Vec<u8>>,
    }

    fn series(labels: &[(&str, &str)]) -> DecodedSeries {
        let label = |&(name, value): &(&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
        DecodedSeries { labels: labels.iter().map(label).collect(), samples: vec![b"\x10\x01".to_vec()] }
    }

    #[test]
    fn the_tenant_becomes_a_label() {
        let stored = |tenant: &str, label_name: &str| {
            let series = vec![series(&[("a", "b"), ("tenant_id", "own"), ("z", "c")]), series(&[])];
            let message = Decoded { series, tenant: tenant.to_owned(), replica: 2 }.encode_to_vec();
            let (found, message) = with_tenant(&message, label_name).unwrap();
            assert_eq!(found, tenant);
            Decoded::decode(&*message).unwrap().series
        };
        let own = || vec![series(&[("a", "b"), ("tenant_id", "own"), ("z", "c")]), series(&[])];
        assert_eq!(stored("", "tenant_id"), own());
        assert_eq!(stored("t", ""), own());
        let replaced = vec![series(&[("tenant_id", "t"), ("a", "b"), ("z", "c")]), series(&[("tenant_id", "t")])];
        assert_eq!(stored("t", "tenant_id"), replaced);
    }

    #[test]
    fn malformed_messages_are_rejected() {
        for message in [&b"\x0a"[..], b"\x0a\x05a", b"\x0b", b"\x12\x01\xff", b"\x0a\x02\x0a\x05\x12\x01t"] {
            assert!(with_tenant(message, "tenant_id").is_none(), "{message:?}");
        }
    }

    #[test]
    fn a_router_retries_only_what_a_retry_can_store() {
        for (kind, code) in [
            (ErrorKind::Unavailable, Code::Unavailable),
            (ErrorKind::TooManyRequests, Code::Unavailable),
            (ErrorKind::Internal, Code::Unavailable),
            (ErrorKind::BadData, Code::AlreadyExists),
            (ErrorKind::TooLarge, Code::AlreadyExists),
        ] {
            assert_eq!(failed(&ApiError::new(kind, "x").with_limit("--flag")).code, code);
        }
    }
}
