//! /api/v1/export: all samples of the selected series, in VictoriaMetrics' JSON line format.
//!
//! A line is a series with at most `max_rows_per_line` samples:
//! `{"metric":{"__name__":"up"},"values":[1],"timestamps":[1700000000000]}`. A staleness marker is
//! `null`, as in VictoriaMetrics, which stores no other NaN. NaN and infinities are the strings
//! `NaN`, `Infinity` and `-Infinity`. Native histograms are skipped, as the format has none. Lines
//! are written while series are read. The memory of a request is one series.

use std::sync::Arc;

use std::io::Write as _;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use varve_advise::usage::Requester;
use varve_model::staleness::is_stale_nan;
use varve_model::{Labels, SampleColumns, TimeRange};
use varve_server::requests::record::RequestRecord;

use super::selector_union::SelectorUnion;
use crate::api::remote_read::size_of_columns;
use crate::error::{ApiError, Result};
use crate::json;
use crate::params::{Form, invalid_match, parse_selectors};
use crate::requester::RequestedBy;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;

/// Content type of the response, as in VictoriaMetrics.
pub(super) const MEDIA_TYPE: &str = "application/stream+json; charset=utf-8";
/// Samples per line by default. VictoriaMetrics' receiver accepts lines of up to 10 MB.
const ROWS_PER_LINE: usize = 10_000;
/// Samples that are written between two checks of the deadline.
const STEP_ROWS: usize = 1_000;

/// GET and POST /api/v1/export.
pub(crate) async fn export(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    let request = Request::read(&form)?;
    let timeout = form.timeout()?;
    let job = job_fn(move |work| request.respond(work, &who));
    let response = run(&state, &record, RequestClass::RemoteRead, timeout, job);
    let mut response = response.await?;
    // An empty export also has status 200.
    *response.status_mut() = StatusCode::OK;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    Ok(response)
}

struct Request {
    selectors: Vec<String>,
    range: TimeRange,
    rows_per_line: usize,
}

impl Request {
    fn read(form: &Form) -> Result<Self> {
        form.check_encoding()?;
        let rows_per_line = match form.first("max_rows_per_line") {
            "" | "0" => ROWS_PER_LINE,
            text => text.parse().map_err(|error| {
                ApiError::invalid_parameter("max_rows_per_line", format!("{text:?}: {error}"))
            })?,
        };
        Ok(Self {
            selectors: form.required_selectors()?,
            range: form.time_range()?,
            rows_per_line,
        })
    }

    fn respond(&self, work: &mut Work, who: &Requester) -> Result<()> {
        let selectors = parse_selectors(&work.ctx, &self.selectors, invalid_match)?;
        work.store.note_selectors(&work.ctx, who, &selectors);
        let mut columns = SampleColumns::default();
        let selected = SelectorUnion::select(&work.store.db, &work.ctx, &selectors, self.range)?;
        // The format has no place for a warning.
        if let Some(partial) = work.ctx.partial() {
            return Err(ApiError::unavailable(partial));
        }
        for series in selected {
            let series = series?;
            columns.clear();
            series.read(&mut columns)?;
            let mut charge = work.ctx.charge();
            charge.grow(size_of_columns(&columns))?;
            self.write(work, series.labels(), &columns)?;
        }
        Ok(())
    }

    fn write(&self, work: &mut Work, labels: &Labels, columns: &SampleColumns) -> Result<()> {
        let mut floats = (0..columns.len())
            .filter(|&idx| columns.histogram(idx).is_none())
            .peekable();
        let mut charge = work.ctx.charge();
        charge.grow(size_of::<usize>() * self.rows_per_line.min(columns.len()))?;
        while floats.peek().is_some() {
            let rows: Vec<usize> = floats.by_ref().take(self.rows_per_line).collect();
            work.out.buffer().extend_from_slice(b"{\"metric\":");
            json::write_labels(work.out.buffer(), labels);
            write_list(work, "values", &rows, |out, idx| {
                write_value(out, columns.values[idx])
            })?;
            write_list(work, "timestamps", &rows, |out, idx| {
                write_number(out, &columns.timestamps_ms[idx])
            })?;
            work.out.buffer().extend_from_slice(b"}\n");
            work.out.step()?;
        }
        Ok(())
    }
}

fn write_list(
    work: &mut Work,
    name: &str,
    rows: &[usize],
    write: impl Fn(&mut Vec<u8>, usize),
) -> Result<()> {
    work.out
        .buffer()
        .extend_from_slice(format!(",\"{name}\":[").as_bytes());
    for (part, part_idx) in rows.chunks(STEP_ROWS).zip(0..) {
        for (row, idx) in part.iter().zip(0..) {
            work.comma(part_idx + idx);
            write(work.out.buffer(), *row);
        }
        work.out.step()?;
    }
    work.out.buffer().push(b']');
    Ok(())
}

fn write_value(out: &mut Vec<u8>, value: f64) {
    /// The range in which a number without exponent is short.
    const PLAIN: std::ops::Range<f64> = 1e-6..1e21;
    match value {
        f64::INFINITY => out.extend_from_slice(b"\"Infinity\""),
        f64::NEG_INFINITY => out.extend_from_slice(b"\"-Infinity\""),
        _ if is_stale_nan(value) => out.extend_from_slice(b"null"),
        _ if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        _ if value == 0.0 || PLAIN.contains(&value.abs()) => write_number(out, &value),
        _ => write_number(out, &format_args!("{value:e}")),
    }
}

fn write_number(out: &mut Vec<u8>, number: &impl std::fmt::Display) {
    write!(out, "{number}").expect("a vector takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::staleness::STALE_NAN_BITS;

    #[test]
    fn values_are_json_numbers_that_parse_to_the_same_bits() {
        for value in [
            0.0,
            -0.0,
            1.0,
            -0.1,
            1e-7,
            1e21,
            5e-324,
            f64::MAX,
            123_456_789.125,
        ] {
            let mut out = Vec::new();
            write_value(&mut out, value);
            let parsed: f64 = serde_json::from_slice(&out).unwrap();
            assert_eq!(
                parsed.to_bits(),
                value.to_bits(),
                "{}",
                String::from_utf8_lossy(&out)
            );
            assert!(out.len() <= 24, "{}", String::from_utf8_lossy(&out));
        }
        for (value, expect) in [
            (f64::from_bits(STALE_NAN_BITS), "null"),
            (f64::NAN, "\"NaN\""),
            (f64::INFINITY, "\"Infinity\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ] {
            let mut out = Vec::new();
            write_value(&mut out, value);
            assert_eq!(out, expect.as_bytes());
        }
    }
}
