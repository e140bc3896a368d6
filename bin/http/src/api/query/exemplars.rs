//! /api/v1/query_exemplars: the exemplars of the series that an expression selects.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_advise::usage::Requester;
use varve_model::{Exemplar, TimeRange};
use varve_promql::Features;
use varve_query::usage::LabelSet;
use varve_server::requests::record::RequestRecord;
use varve_tsdb::exemplars::SeriesExemplars;

use crate::error::{ApiError, Result};
use crate::json;
use crate::params::Form;
use crate::requester::RequestedBy;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;

/// GET and POST /api/v1/query_exemplars.
pub(crate) async fn query_exemplars(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    let features = state.app.settings.query.features;
    let range = read_range(&form)?;
    let timeout = form.timeout()?;
    let job = job_fn(move |work| respond(work, &who, form.first("query"), &features, range));
    run(&state, &record, RequestClass::Query, timeout, job).await
}

fn read_range(form: &Form) -> Result<TimeRange> {
    let range = form.time_range()?;
    if range.end_ms < range.start_ms {
        return Err(ApiError::bad_data(
            "end timestamp must not be before start timestamp",
        ));
    }
    Ok(range)
}

fn respond(
    work: &mut Work,
    who: &Requester,
    query: &str,
    features: &Features,
    range: TimeRange,
) -> Result<()> {
    let (expr, _expr_charge) =
        varve_promql::parse_within(&work.ctx, query, features).map_err(|error| match error {
            // Prometheus does not name the parameter here.
            varve_promql::Error::Parse(error) => ApiError {
                limit: error.limit(),
                ..ApiError::bad_data(error.to_string())
            },
            other => other.into(),
        })?;
    let selectors = varve_promql::selectors(&expr);
    if selectors.is_empty() {
        // An empty response is a 204, as in Prometheus.
        return Ok(());
    }
    // The response has the whole label set of each selected series.
    work.store
        .note_metadata(&work.ctx, who, &selectors, &LabelSet::all());
    let found = work.store.db.exemplars(&work.ctx, &selectors, range)?;
    work.out.drop_permit();
    work.respond(|work| {
        work.out.buffer().push(b'[');
        for (idx, series) in found.series.iter().enumerate() {
            work.comma(idx);
            write_series(work, series)?;
        }
        work.out.buffer().push(b']');
        Ok(())
    })
}

fn write_series(work: &mut Work, series: &SeriesExemplars) -> Result<()> {
    let out = work.out.buffer();
    out.extend_from_slice(b"{\"seriesLabels\":");
    json::write_labels(out, &series.labels);
    out.extend_from_slice(b",\"exemplars\":");
    work.array(&series.exemplars, write_exemplar)?;
    work.out.buffer().push(b'}');
    work.out.step()
}

fn write_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    out.extend_from_slice(b"{\"labels\":");
    json::write_labels(out, &exemplar.labels);
    out.extend_from_slice(b",\"value\":");
    json::write_float(out, exemplar.value);
    out.extend_from_slice(b",\"timestamp\":");
    json::write_timestamp(out, exemplar.timestamp_ms);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::Labels;

    #[test]
    fn an_exemplar_is_written_as_prometheus_writes_it() {
        let labels = Labels::from_pairs([("trace_id", "a\"b")]).unwrap();
        let mut out = Vec::new();
        write_exemplar(
            &mut out,
            &Exemplar {
                labels,
                value: 6.0,
                timestamp_ms: 1_600_096_945_479,
            },
        );
        let expect = r#"{"labels":{"trace_id":"a\"b"},"value":"6","timestamp":1600096945.479}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }
}
