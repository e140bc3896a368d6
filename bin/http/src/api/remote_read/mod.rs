//! /api/v1/read: remote read, with which a Prometheus queries this store as its own.
//!
//! ```text
//! body -> snappy, protobuf -> queries -> selections -> SAMPLES: one message, in one snappy block
//!                                                  '-> STREAMED_XOR_CHUNKS: a stream of frames
//! ```
//!
//! A frame of the stream consists of its length as an unsigned varint, the CRC-32C of its bytes
//! (big endian), and its bytes. The bytes are a `ChunkedReadResponse` with chunks of one series, of
//! about `--storage.remote.read-max-bytes-in-frame` at most. Errors are plain text, as in
//! Prometheus.

mod shown_matchers;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use prost::Message;
use varve_advise::usage::Requester;
use varve_context::Charge;
use varve_model::{Labels, SampleColumns};
use varve_prometheus::chunk::{Encoder, StartTimestamps};

use crate::error::{ApiError, ErrorKind, Result};
use crate::params::{Form, short_url_query};
use crate::requester::{RequestedBy, record_of};
use crate::serving::request_body;
use crate::serving::request_body::BodyLimits;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;
use shown_matchers::ShownMatchers;
use varve_wire::prometheus::remote_read::{
    ChunkMessage, ChunkedReadResponse, ChunkedSeries, Query, ReadRequest, TimeSeries, labels,
};

/// Maximum size of a request, before and after decompression. Prometheus accepts 32 MiB. Its
/// requests have a few hundred bytes.
const REQUEST_SIZE_MAX: usize = 4 << 20;
/// Maximum bytes in memory per byte of a message: an empty query has two bytes.
const BYTES_PER_BYTE: usize = 96;
/// Response types that an error lists.
const QUOTED_TYPES_MAX: usize = 100;
/// Bytes that are compressed at a time. Snappy's encoder looks no further back.
const SNAPPY_PART_SIZE: usize = 64 << 10;

const SAMPLES: i32 = 0;
const STREAMED_XOR_CHUNKS: i32 = 1;

/// POST /api/v1/read.
pub(crate) async fn read(
    State(state): State<HttpState>,
    RequestedBy(who): RequestedBy,
    request: Request,
) -> Result {
    respond(&state, who, request).await.map_err(ApiError::plain)
}

async fn respond(state: &HttpState, who: Requester, request: Request) -> Result {
    let settings = &state.app.settings;
    let timeout = timeout(&request)?;
    let record = record_of(request.extensions())?;
    let mut charge = state.app.requests.memory(&record).charge();
    let limits = BodyLimits::new(REQUEST_SIZE_MAX, "remote read", settings);
    let body = request_body::read(request.into_body(), limits, &mut charge).await?;
    let (request, charge) = request_body::decode(move || decode(&body, charge)).await??;
    let Some(is_streamed) = negotiate(&request.accepted_response_types) else {
        let accepted = request
            .accepted_response_types
            .iter()
            .take(QUOTED_TYPES_MAX);
        let accepted: Vec<_> = accepted.map(i32::to_string).collect();
        let reason = format!(
            "server does not support any of the requested response types: [{}]; supported: map[SAMPLES:{{}} STREAMED_XOR_CHUNKS:{{}}]",
            accepted.join(" ")
        );
        return Err(ApiError::bad_data(reason));
    };
    let reader = Reader {
        who,
        external: state.app.config.current().global.external_labels.clone(),
        samples_max: settings.remote_read.samples_max,
        frame_size_max: settings.remote_read.frame_size_max,
    };
    let job = job_fn(move |work| {
        let _charge = charge;
        if is_streamed {
            reader.stream(work, &request.queries)
        } else {
            reader.send(work, &request.queries)
        }
    });
    let response = run(state, &record, RequestClass::RemoteRead, timeout, job);
    Ok(finish(response.await?, is_streamed))
}

/// Returns the timeout in the URL. The body is the message, not a form.
fn timeout(request: &Request) -> Result<Option<Duration>> {
    let mut form = Form::default();
    form.add(short_url_query(request.uri(), request.extensions())?)?;
    form.timeout()
}

fn decode(body: &[u8], mut charge: Charge) -> Result<(ReadRequest, Charge)> {
    let size = snap::raw::decompress_len(body).map_err(malformed)?;
    if size > REQUEST_SIZE_MAX {
        return Err(ApiError::bad_data(format!(
            "snappy: decoded length {size} exceeds limit {REQUEST_SIZE_MAX}"
        )));
    }
    charge.grow_without_waiting(size * BYTES_PER_BYTE)?;
    let message = snap::raw::Decoder::new()
        .decompress_vec(body)
        .map_err(malformed)?;
    let request = ReadRequest::decode(&*message).map_err(malformed)?;
    Ok((request, charge))
}

fn malformed(reason: impl fmt::Display) -> ApiError {
    ApiError::bad_data(reason.to_string())
}

/// Returns whether the first supported response type is the streamed one, or `None` if none is
/// supported.
fn negotiate(accepted: &[i32]) -> Option<bool> {
    if accepted.is_empty() {
        return Some(false);
    }
    accepted
        .iter()
        .find(|kind| matches!(**kind, SAMPLES | STREAMED_XOR_CHUNKS))
        .map(|kind| *kind == STREAMED_XOR_CHUNKS)
}

/// Sets status and headers of remote read.
fn finish(mut response: Response, is_streamed: bool) -> Response {
    // A stream without frames also has status 200.
    *response.status_mut() = StatusCode::OK;
    let content_type = if is_streamed {
        "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
    } else {
        "application/x-protobuf"
    };
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if !is_streamed {
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    }
    response
}

/// Reads and responds to the queries of a request.
struct Reader {
    who: Requester,
    external: BTreeMap<String, String>,
    samples_max: usize,
    frame_size_max: usize,
}

impl Reader {
    /// Calls `visit` with each series that a query selects and its samples, in label order.
    fn visit(
        &self,
        work: &mut Work,
        query: &Query,
        mut visit: impl FnMut(&mut Work, &Labels, &SampleColumns) -> Result<()>,
    ) -> Result<()> {
        let matchers = query.parsed_matchers().map_err(ApiError::bad_data)?;
        if matchers.is_empty() {
            // As in Prometheus, such a query selects nothing.
            return Ok(());
        }
        let matchers = ShownMatchers::new(&work.ctx, matchers, &self.external)?;
        let stored = &matchers.stored;
        work.store
            .note_selectors(&work.ctx, &self.who, std::slice::from_ref(stored));
        let mut columns = SampleColumns::default();
        let db = &work.store.db;
        let ctx = &work.ctx;
        if query.wants_labels_only() {
            for series in db.select_labels(ctx, stored, query.range())? {
                let series = series?;
                if !matchers.match_shown(&work.ctx, series.labels())? {
                    continue;
                }
                let mut charge = work.ctx.charge();
                charge.grow(series.labels().size())?;
                visit(work, series.labels(), &columns)?;
            }
            return Ok(());
        }
        for series in db.select(ctx, stored, query.range())? {
            let series = series?;
            if !matchers.match_shown(&work.ctx, series.labels())? {
                continue;
            }
            columns.clear();
            series.read(&mut columns)?;
            // Charged twice: as columns, and as encoded bytes.
            let mut charge = work.ctx.charge();
            charge.grow(2 * size_of_columns(&columns) + series.labels().size())?;
            visit(work, series.labels(), &columns)?;
        }
        Ok(())
    }

    /// Responds with all samples in one message.
    fn send(&self, work: &mut Work, queries: &[Query]) -> Result<()> {
        const TAG_AND_LENGTH_SIZE: usize = 11;
        let mut charge = work.ctx.charge();
        let mut response = Vec::new();
        let mut result = Vec::new();
        for query in queries {
            let mut n_samples = 0;
            result.clear();
            self.visit(work, query, |_, label_set, columns| {
                n_samples += columns.len();
                if self.samples_max > 0 && n_samples > self.samples_max {
                    return Err(ApiError::bad_data(format!(
                        "exceeded sample limit ({})",
                        self.samples_max
                    )));
                }
                let series = TimeSeries::new(labels(label_set, &self.external), columns);
                let size = series.encoded_len() + TAG_AND_LENGTH_SIZE;
                // Charged twice: in the result and in the response.
                charge.grow(2 * size)?;
                prost::encoding::message::encode(1, &series, &mut result);
                Ok(())
            })?;
            prost::encoding::bytes::encode(1, &result, &mut response);
        }
        drop(result);
        write_snappy(work, &response)
    }

    /// Responds with chunks, frame by frame.
    fn stream(&self, work: &mut Work, queries: &[Query]) -> Result<()> {
        let mut encoder = Encoder::new(StartTimestamps::Drop);
        for (query, query_index) in queries.iter().zip(0..) {
            self.visit(work, query, |work, label_set, columns| {
                encoder.push_columns(columns);
                let labels = labels(label_set, &self.external);
                let labels_size: usize = labels.iter().map(Message::encoded_len).sum();
                let room = self.frame_size_max.saturating_sub(labels_size);
                let mut frame = ChunkedSeries {
                    labels,
                    chunks: Vec::new(),
                };
                let mut size = 0;
                for chunk in encoder.finish() {
                    let chunk = ChunkMessage {
                        min_time_ms: chunk.min_ms,
                        max_time_ms: chunk.max_ms,
                        encoding: i32::from(chunk.encoding.code()),
                        data: chunk.bytes,
                    };
                    size += chunk.encoded_len();
                    frame.chunks.push(chunk);
                    if size >= room {
                        write_frame(work, &mut frame, query_index)?;
                        size = 0;
                    }
                }
                // For `/api/v1/series`, Prometheus reads the labels from frames without chunks.
                if !frame.chunks.is_empty() || query.wants_labels_only() {
                    write_frame(work, &mut frame, query_index)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Returns the size of samples in memory.
pub(crate) fn size_of_columns(columns: &SampleColumns) -> usize {
    let mut size = columns.len() * (size_of::<i64>() + size_of::<f64>());
    for (_, histogram) in &columns.histograms {
        size += size_of_val(&**histogram) + 16 * histogram.n_buckets();
    }
    size
}

/// Writes a frame with the collected chunks and removes them.
fn write_frame(work: &mut Work, frame: &mut ChunkedSeries, query_index: i64) -> Result<()> {
    let chunks = std::mem::take(&mut frame.chunks);
    let labels = frame.labels.clone();
    let message = ChunkedReadResponse {
        chunked_series: vec![ChunkedSeries { labels, chunks }],
        query_index,
    };
    let bytes = message.encode_to_vec();
    let out = work.out.buffer();
    prost::encoding::encode_varint(bytes.len() as u64, out);
    #[expect(clippy::big_endian_bytes, reason = "the format demands it")]
    out.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
    work.write(&bytes)
}

/// Writes a message as one block of snappy's raw format: the length, then elements. Parts are
/// compressed on their own, as the encoder does too, and written one by one, so that an interrupt
/// is noticed.
fn write_snappy(work: &mut Work, message: &[u8]) -> Result<()> {
    let Ok(size) = u32::try_from(message.len()) else {
        let reason = format!("response of {} bytes exceeds 4 GiB", message.len());
        return Err(ApiError::new(ErrorKind::Execution, reason));
    };
    prost::encoding::encode_varint(u64::from(size), work.out.buffer());
    let mut encoder = snap::raw::Encoder::new();
    for part in message.chunks(SNAPPY_PART_SIZE) {
        let compressed = encoder.compress_vec(part).map_err(|error| {
            let reason = format!("compress the response: {error}");
            ApiError::new(ErrorKind::Execution, reason)
        })?;
        let size_of_length = prost::encoding::encoded_len_varint(part.len() as u64);
        work.write(&compressed[size_of_length..])?;
    }
    work.out.step()
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_context::{Limit, MemoryBudget, QueryContext};
    use varve_tsdb::ReadContext;

    #[test]
    fn the_first_supported_response_type_is_chosen() {
        for (accepted, expect) in [
            (&[][..], Some(false)),
            (&[1, 0], Some(true)),
            (&[0, 1], Some(false)),
            (&[7, 1], Some(true)),
            (&[7], None),
        ] {
            assert_eq!(negotiate(accepted), expect, "{accepted:?}");
        }
    }

    #[test]
    fn requests_that_are_too_large_are_rejected() {
        let decode = |body: &[u8]| {
            let memory = MemoryBudget::new(Limit::Other("memory"), 1 << 20);
            let ctx = ReadContext::unrestricted(QueryContext::new(
                std::time::Duration::from_secs(60),
                memory,
            ));
            super::decode(body, ctx.charge())
                .map(|(request, _)| request.queries.len())
                .map_err(|e| e.message)
        };
        let packed = |message: &[u8]| snap::raw::Encoder::new().compress_vec(message).unwrap();
        assert_eq!(decode(&packed(&[0x0a, 0])), Ok(1));
        assert_eq!(decode(&packed(&[])), Ok(0));
        assert!(
            decode(&packed(&[0x0a, 0].repeat(10_000)))
                .unwrap_err()
                .starts_with("memory: ")
        );
        assert!(
            decode(&[0xff, 0xff, 0xff, 0x7f, 0])
                .unwrap_err()
                .contains("exceeds limit")
        );
        assert!(decode(&packed(&[0x0a, 9])).is_err() && decode(b"").is_err());
    }
}
