//! /api/v1/metadata: type, help and unit of metric families.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_model::labels::METRIC_NAME;
use varve_model::metadata::Metadata;
use varve_model::{StringSet, TimeRange};
use varve_server::requests::record::RequestRecord;

use super::visible_families::VisibleFamilies;
use crate::error::{ApiError, Result};
use crate::json;
use crate::params::{Form, parse_int};
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;

/// GET /api/v1/metadata.
pub(crate) async fn metadata(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let request = Request::read(&form)?;
    let job = job_fn(move |work| request.respond(work));
    run(
        &state,
        &record,
        RequestClass::Metadata,
        form.timeout()?,
        job,
    )
    .await
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// Empty: all.
    metric: String,
    /// Number of families. As in Prometheus, 0 means none at all.
    limit: usize,
    /// Number of entries of a family.
    limit_per_metric: usize,
}

impl Request {
    fn read(form: &Form) -> Result<Self> {
        let limit = number(form, "limit")?;
        // As in Prometheus, 0 means all, too.
        let limit_per_metric = match number(form, "limit_per_metric")? {
            ..=0 => usize::MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        Ok(Self {
            limit_per_metric,
            metric: form.first("metric").to_owned(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
        })
    }

    fn respond(&self, work: &mut Work) -> Result<()> {
        let families = work.store.db.metadata();
        let visible = visible_names(work)?;
        let ctx = work.ctx.clone();
        work.respond(|work| {
            work.out.buffer().push(b'{');
            let mut n_written = 0;
            VisibleFamilies::new(&families, &ctx).visit(|family, entries| {
                if n_written == self.limit {
                    return Ok(false);
                }
                let is_wanted = (self.metric.is_empty() || family == self.metric)
                    && visible
                        .as_ref()
                        .is_none_or(|names| is_visible(family, names));
                if is_wanted {
                    work.comma(n_written);
                    let entries = &entries[..entries.len().min(self.limit_per_metric)];
                    write_family(work.out.buffer(), family, entries);
                    n_written += 1;
                }
                work.out.step()?;
                Ok(true)
            })?;
            work.out.buffer().push(b'}');
            Ok(())
        })
    }
}

/// Returns the metric names that the tenant of the request sees, or `None` without a tenant.
fn visible_names(work: &Work) -> Result<Option<StringSet>> {
    if work.ctx.restriction().is_empty() {
        return Ok(None);
    }
    Ok(Some(work.store.db.label_values(
        &work.ctx,
        METRIC_NAME,
        &[],
        TimeRange::ALL,
    )?))
}

/// Returns `true` if a family has a metric with one of these names.
fn is_visible(family: &str, names: &StringSet) -> bool {
    const SUFFIXES: [&str; 6] = ["", "_total", "_bucket", "_sum", "_count", "_info"];
    SUFFIXES
        .iter()
        .any(|suffix| names.contains(&format!("{family}{suffix}")))
}

/// Reads a number. A missing number is -1. As in Prometheus, negative numbers mean no limit.
fn number(form: &Form, name: &str) -> Result<i64> {
    match form.first(name) {
        "" => Ok(-1),
        text => parse_int(text).map_err(|_| ApiError::bad_data(format!("{name} must be a number"))),
    }
}

fn write_family(out: &mut Vec<u8>, family: &str, entries: &[&Metadata]) {
    json::write_html_string(out, family.as_bytes());
    out.push(b':');
    for (idx, metadata) in entries.iter().enumerate() {
        out.push(if idx == 0 { b'[' } else { b',' });
        out.extend_from_slice(b"{\"type\":");
        json::write_html_string(out, metadata.kind.as_bytes());
        out.extend_from_slice(b",\"unit\":");
        json::write_html_string(out, metadata.unit.as_bytes());
        out.extend_from_slice(b",\"help\":");
        json::write_html_string(out, metadata.help.as_bytes());
        out.push(b'}');
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoded: &str, expect: Result<usize, &str>) {
        let mut form = Form::default();
        form.add(encoded.as_bytes()).unwrap();
        let limit = Request::read(&form)
            .map(|request| request.limit)
            .map_err(|error| error.message);
        assert_eq!(limit, expect.map_err(str::to_owned), "{encoded}");
    }

    #[test]
    fn limits_count_families_and_zero_means_none_at_all() {
        check("", Ok(usize::MAX));
        check("limit=-1", Ok(usize::MAX));
        check("limit=0&limit_per_metric=1", Ok(0));
        check("limit=x", Err("limit must be a number"));
        check(
            "limit_per_metric=x",
            Err("limit_per_metric must be a number"),
        );
    }

    #[test]
    fn a_family_is_written_as_prometheus_writes_it() {
        let metadata = Metadata {
            kind: "counter".into(),
            help: "a <b>".into(),
            unit: String::new(),
        };
        let mut out = Vec::new();
        write_family(&mut out, "up", &[&metadata]);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#""up":[{"type":"counter","unit":"","help":"a \u003cb\u003e"}]"#
        );
    }
}
