//! /federate: the latest sample of each matching series, for another Prometheus to scrape.
//!
//! ```text
//! selections -> union in label order -> by metric name -> families -> text or protobuf, as the client asks
//! ```
//!
//! Families stand in the order of their names, as scrapers demand, and are written while series are read. Label order is
//! that order but for series with a label whose name sorts before `__name__`, such as `Code`: these come first, are held
//! back, charged, and written where they belong. Staleness markers and series without a name are left out.

mod format;
mod message;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use varve_query::usage::LabelSet;
use varve_tsdb::{
    CUSTOM_BUCKETS_SCHEMA, Charge, Clock, Histogram, Labels, METRIC_NAME, Matcher, ResetHint, SampleColumns, Series,
    SystemClock, TimeRange, is_stale_nan,
};

use super::selector_union::Union;
use crate::http::error::ApiError;
use crate::http::params::Form;
use crate::http::serving::run::{Class, Work, run};
use crate::http::{App, plain};
use crate::server::usage::Requester;
use format::Format;

/// The label that a series without one gets empty, so that the scraper does not put its own in.
const INSTANCE: &str = "instance";

/// GET /federate.
pub(crate) async fn federate(State(app): State<Arc<App>>, who: Requester, headers: HeaderMap, form: Form) -> Response {
    let timeout = || form.timeout().map_err(|refused| refused.message);
    let (selectors, timeout) = match read_selectors(&form).and_then(|selectors| Ok((selectors, timeout()?))) {
        Ok(read) => read,
        Err(refused) => return plain(StatusCode::BAD_REQUEST, refused + "\n"),
    };
    let format = Format::negotiate(&headers);
    let now_ms = SystemClock.now_ms();
    let range = TimeRange { start_ms: now_ms.saturating_sub(app.settings.lookback_delta_ms), end_ms: now_ms };
    let mut external = app.config.current().global.external_labels.clone();
    external.entry(INSTANCE.to_owned()).or_default();
    let answer = run(&app, Class::Query, timeout, move |work| {
        work.store.note_selectors(&who, &selectors, &LabelSet::all());
        write(work, &selectors, range, format, external)
    });
    let answer = answer.await;
    finish(answer, format)
}

fn read_selectors(form: &Form) -> Result<Vec<Vec<Matcher>>, String> {
    if let Some(damage) = &form.damage {
        return Err(format!("error parsing form values: {damage}"));
    }
    let parse = |text| varve_query::promql::parse_selector(text).map_err(|refused| refused.to_string());
    // As in Prometheus, one without matchers selects nothing.
    let selects = |selector: &Result<Vec<Matcher>, String>| !selector.as_ref().is_ok_and(Vec::is_empty);
    form.all("match[]").map(parse).filter(selects).collect()
}

/// Gives an answer the form of this page: errors are plain text, an empty answer is none without content.
fn finish(mut answer: Response, format: Format) -> Response {
    if let Some(error) = answer.extensions().get::<ApiError>() {
        return error.clone().into_plain();
    }
    let content_type = HeaderValue::from_str(&format.content_type()).expect("names of formats are ASCII");
    if answer.status() == StatusCode::NO_CONTENT {
        return ([(header::CONTENT_TYPE, content_type)], "").into_response();
    }
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

/// The latest sample of a series.
struct Latest {
    labels: Labels,
    timestamp_ms: i64,
    value: f64,
    histogram: Option<Arc<Histogram>>,
}

/// What tells families of one name apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Untyped,
    Histogram,
    GaugeHistogram,
}

impl Latest {
    /// Reads the latest sample of a series; `None` if there is none, or it says that the series has ended.
    fn read(series: &Series, columns: &mut SampleColumns) -> Result<Option<Self>, ApiError> {
        columns.clear();
        series.read(columns)?;
        let Some(idx) = columns.len().checked_sub(1) else { return Ok(None) };
        let value = columns.values[idx];
        if is_stale_nan(value) {
            return Ok(None);
        }
        let histogram = columns.histogram(idx).cloned();
        Ok(Some(Self { labels: series.labels().clone(), timestamp_ms: columns.timestamps_ms[idx], value, histogram }))
    }

    fn kind(&self) -> Kind {
        match &self.histogram {
            None => Kind::Untyped,
            Some(histogram) if histogram.reset_hint == ResetHint::Gauge => Kind::GaugeHistogram,
            Some(_) => Kind::Histogram,
        }
    }

    /// Tells whether it is a histogram with exponential buckets, which the text format has no place for.
    fn is_native(&self) -> bool {
        self.histogram.as_ref().is_some_and(|histogram| histogram.schema != CUSTOM_BUCKETS_SCHEMA)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.labels.size() + self.histogram.as_ref().map_or(0, |of| 16 * of.n_buckets() + 256)
    }

    /// Returns the labels but for the name, then those of `external` that the series does not have.
    fn labels<'a>(&'a self, external: &'a BTreeMap<String, String>) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = self.labels.iter().filter(|(name, _)| *name != METRIC_NAME);
        let missing = external.iter().filter(|(name, _)| self.labels.get(name).is_none());
        own.chain(missing.map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

/// Series that came before their place, by name.
struct HeldBack {
    /// Descending by name; of one name in reverse label order.
    series: Vec<Latest>,
    charge: Charge,
}

impl HeldBack {
    fn push(&mut self, latest: Latest) -> Result<(), ApiError> {
        self.charge.grow(latest.size())?;
        self.series.push(latest);
        Ok(())
    }

    fn sort(&mut self) {
        self.series.reverse();
        self.series.sort_by(|a, b| b.labels.metric_name().cmp(a.labels.metric_name()));
    }

    /// Takes the next one, if it stands before or beside a name.
    fn pop_up_to(&mut self, name: Option<&str>) -> Option<Latest> {
        let next = self.series.last()?;
        let is_due = name.is_none_or(|name| next.labels.metric_name() <= name);
        if is_due { self.series.pop() } else { None }
    }
}

fn write(
    work: &mut Work,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
    format: Format,
    external: BTreeMap<String, String>,
) -> Result<(), ApiError> {
    let mut families = Families { format, external, open: None, message: message::Family::new(&work.ctx) };
    let mut early = HeldBack { series: Vec::new(), charge: work.ctx.charge() };
    let mut is_early = true;
    let mut columns = SampleColumns::default();
    for series in Union::select(&work.store.db, &work.ctx, selectors, range)? {
        let Some(latest) = Latest::read(&series?, &mut columns)? else { continue };
        let name = latest.labels.metric_name();
        if name.is_empty() || latest.is_native() && !format.is_protobuf() {
            continue;
        }
        if is_early && latest.labels.iter().next().is_some_and(|(first, _)| first < METRIC_NAME) {
            early.push(latest)?;
            continue;
        }
        if std::mem::take(&mut is_early) {
            early.sort();
        }
        while let Some(held) = early.pop_up_to(Some(latest.labels.metric_name())) {
            families.write(work, &held)?;
        }
        families.write(work, &latest)?;
    }
    if is_early {
        early.sort();
    }
    while let Some(held) = early.pop_up_to(None) {
        families.write(work, &held)?;
    }
    families.end(work)
}

/// Writes samples family by family.
struct Families {
    format: Format,
    external: BTreeMap<String, String>,
    /// The family that is being written.
    open: Option<(String, Kind)>,
    /// Of the protobuf format, which needs to know a family's size before its start.
    message: message::Family,
}

impl Families {
    fn write(&mut self, work: &mut Work, latest: &Latest) -> Result<(), ApiError> {
        let (name, kind) = (latest.labels.metric_name(), latest.kind());
        if self.open.as_ref().is_none_or(|(open, of)| open != name || *of != kind) {
            self.end(work)?;
            self.open = Some((name.to_owned(), kind));
            if !self.format.is_protobuf() {
                text::write_head(work.out.buffer(), &self.format.escape(name), kind);
            }
        }
        if self.format.is_protobuf() {
            self.message.push(latest, &self.external, self.format)?;
        } else {
            text::write_sample(work.out.buffer(), latest, &self.external, self.format);
        }
        work.out.step()
    }

    fn end(&mut self, work: &mut Work) -> Result<(), ApiError> {
        if let Some((name, kind)) = self.open.take()
            && self.format.is_protobuf()
        {
            self.message.finish(work, &self.format.escape(&name), kind)?;
        }
        work.out.step()
    }
}
