//! /federate: the latest sample of each matching series, for another Prometheus to scrape.
//!
//! ```text
//! selectors -> union in label order -> by metric name -> families -> text or protobuf, by content negotiation
//! ```
//!
//! Families are sorted by name, as scrapers demand, and written while series are read. Label order
//! differs from that order only for series with a label whose name sorts before `__name__`, such as
//! `Code`. These series come first. They are buffered, and charged, until their family is written.
//! Staleness markers and series without a name are skipped.

mod classic_histogram;
mod format;
mod latest;
mod message;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use varve_advise::usage::Requester;
use varve_context::{Charge, QueryContext};
use varve_env::{Clock, SystemClock};
use varve_model::labels::METRIC_NAME;
use varve_model::{Matcher, SampleColumns, TimeRange};
use varve_server::requests::record::RequestRecord;

use super::selector_union::SelectorUnion;
use crate::error::{ApiError, Result};
use crate::params::{Form, parse_selector};
use crate::requester::RequestedBy;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;
use format::Format;
use latest::{Kind, Latest};

/// Written with an empty value for series without this label, so that the scraper does not add its
/// own value.
const INSTANCE: &str = "instance";

/// GET /federate.
pub(crate) async fn federate(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    headers: HeaderMap,
    form: Form,
) -> Result {
    respond(&state, &record, who, &headers, form)
        .await
        .map_err(ApiError::plain)
}

async fn respond(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    who: Requester,
    headers: &HeaderMap,
    form: Form,
) -> Result {
    let timeout = form.timeout()?;
    let format = Format::negotiate(headers);
    let now_ms = SystemClock.now_ms();
    let start_ms = now_ms.saturating_sub(state.app.settings.query.lookback_delta_ms);
    let range = TimeRange {
        start_ms,
        end_ms: now_ms,
    };
    let mut external = state.app.config.current().global.external_labels.clone();
    external.entry(INSTANCE.to_owned()).or_default();
    let job = job_fn(move |work| {
        let selectors = read_selectors(&work.ctx, &form)?;
        work.store.note_selectors(&work.ctx, &who, &selectors);
        write(work, &selectors, range, format, external)
    });
    let mut response = run(state, record, RequestClass::Query, timeout, job).await?;
    let content_type =
        HeaderValue::from_str(&format.content_type()).expect("names of formats are ASCII");
    if response.status() == StatusCode::NO_CONTENT {
        // As in Prometheus, an empty body has status 200.
        return Ok(([(header::CONTENT_TYPE, content_type)], "").into_response());
    }
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

fn read_selectors(ctx: &QueryContext, form: &Form) -> Result<Vec<Vec<Matcher>>> {
    form.check_encoding()?;
    let mut selectors = Vec::new();
    for text in form.all("match[]") {
        let matchers = parse_selector(ctx, text, ApiError::bad_data)?;
        // As in Prometheus, a selector without matchers selects nothing.
        if !matchers.is_empty() {
            selectors.push(matchers);
        }
    }
    Ok(selectors)
}

/// Series that precede their family in label order.
struct Buffered {
    /// By metric name, in label order.
    series: BTreeMap<String, Vec<Latest>>,
    charge: Charge,
}

impl Buffered {
    fn push(&mut self, latest: Latest) -> Result<()> {
        self.charge.grow(latest.size())?;
        self.series
            .entry(latest.labels.metric_name().to_owned())
            .or_default()
            .push(latest);
        Ok(())
    }

    /// Returns the series of the next name, if this name is not after `name`.
    fn pop_up_to(&mut self, name: Option<&str>) -> Option<Vec<Latest>> {
        let next = self.series.first_entry()?;
        let is_due = name.is_none_or(|name| next.key().as_str() <= name);
        is_due.then(|| next.remove())
    }
}

fn write(
    work: &mut Work,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
    format: Format,
    external: BTreeMap<String, String>,
) -> Result<()> {
    let mut families = Families {
        format,
        external,
        open: None,
        message: message::Family::new(&work.ctx),
    };
    let mut early = Buffered {
        series: BTreeMap::new(),
        charge: work.ctx.charge(),
    };
    let mut columns = SampleColumns::default();
    for series in SelectorUnion::select(&work.store.db, &work.ctx, selectors, range)? {
        let Some(latest) = Latest::read(&series?, &mut columns)? else {
            continue;
        };
        let name = latest.labels.metric_name();
        if name.is_empty() || latest.is_native() && !format.is_protobuf() {
            continue;
        }
        if latest
            .labels
            .iter()
            .next()
            .is_some_and(|(first, _)| first < METRIC_NAME)
        {
            early.push(latest)?;
            continue;
        }
        while let Some(buffered) = early.pop_up_to(Some(name)) {
            families.write_all(work, &buffered)?;
        }
        families.write(work, &latest)?;
    }
    while let Some(buffered) = early.pop_up_to(None) {
        families.write_all(work, &buffered)?;
    }
    families.end(work)
}

/// Writes samples, grouped by family.
struct Families {
    format: Format,
    external: BTreeMap<String, String>,
    /// The current family.
    open: Option<(String, Kind)>,
    /// The current family as a message: the protobuf format has the size of a family before its
    /// data.
    message: message::Family,
}

impl Families {
    fn write_all(&mut self, work: &mut Work, series: &[Latest]) -> Result<()> {
        for latest in series {
            self.write(work, latest)?;
        }
        Ok(())
    }

    fn write(&mut self, work: &mut Work, latest: &Latest) -> Result<()> {
        let name = latest.labels.metric_name();
        let kind = latest.kind();
        if self
            .open
            .as_ref()
            .is_none_or(|(open, open_kind)| open != name || *open_kind != kind)
        {
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

    fn end(&mut self, work: &mut Work) -> Result<()> {
        if let Some((name, kind)) = self.open.take()
            && self.format.is_protobuf()
        {
            self.message
                .finish(work, &self.format.escape(&name), kind)?;
        }
        work.out.step()
    }
}
