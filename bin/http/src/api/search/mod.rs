//! /api/v1/search/*: metric names, label names and label values that match search terms, for
//! completion while typing. Enabled by `--enable-feature=search-api`.
//!
//! The response has a JSON object per line: batches of results, then a line with the status. An
//! error after the first line aborts the response.

mod parameters;
mod score;

use std::cmp::Ordering;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use varve_advise::usage::Requester;
use varve_model::labels::METRIC_NAME;
use varve_model::metadata::Metadata;
use varve_model::{Matcher, StringSet};
use varve_query::usage::LabelSet;
use varve_server::requests::record::RequestRecord;

use super::listing::visible_families::VisibleFamilies;
use crate::error::{ApiError, ErrorKind, Result};
use crate::json;
use crate::params::Form;
use crate::requester::RequestedBy;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;
use parameters::{Order, Search, boolean};
use score::Steps;

pub(crate) use parameters::ALGORITHMS;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-ndjson; charset=utf-8");
/// Names between two checks of the request's context.
const NAMES_PER_CHECK: usize = 256;

/// The object of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    MetricNames { with_metadata: bool },
    LabelNames,
    LabelValues { label: String },
}

impl Field {
    /// Returns the labels whose values the request uses.
    fn labels(&self) -> LabelSet {
        match self {
            Self::MetricNames { .. } | Self::LabelNames => LabelSet::none(),
            Self::LabelValues { label } => LabelSet::Only([label.clone()].into()),
        }
    }
}

/// GET and POST /api/v1/search/metric_names.
pub(crate) async fn metric_names(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    search(&state, &record, who, form, "metric_names", |form| {
        Ok(Field::MetricNames {
            with_metadata: boolean(form, "include_metadata", false)?,
        })
    })
    .await
}

/// GET and POST /api/v1/search/label_names.
pub(crate) async fn label_names(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    search(&state, &record, who, form, "label_names", |_| {
        Ok(Field::LabelNames)
    })
    .await
}

/// GET and POST /api/v1/search/label_values.
pub(crate) async fn label_values(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    RequestedBy(who): RequestedBy,
    form: Form,
) -> Result {
    search(
        &state,
        &record,
        who,
        form,
        "label_values",
        |form| match form.first("label") {
            "" => Err(ApiError::bad_data("missing required parameter \"label\"")),
            label => Ok(Field::LabelValues {
                label: label.to_owned(),
            }),
        },
    )
    .await
}

async fn search(
    state: &HttpState,
    record: &Arc<RequestRecord>,
    who: Requester,
    form: Form,
    endpoint: &'static str,
    field: impl FnOnce(&Form) -> Result<Field> + Send + 'static,
) -> Result {
    let settings = &state.app.settings;
    if !settings.web.search {
        return Err(ApiError::new(ErrorKind::Disabled, "search API disabled"));
    }
    let limit_max = settings.web.search_results_max;
    let timeout = form.timeout()?;
    let job = job_fn(move |work| {
        let search = Search::read(&work.ctx, &form, endpoint, limit_max)?;
        search.respond(work, &who, &field(&form)?)
    });
    let response = run(state, record, RequestClass::Metadata, timeout, job);
    let mut response = response.await?;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, CONTENT_TYPE);
    Ok(response)
}

impl Search {
    fn respond(&self, work: &mut Work, who: &Requester, field: &Field) -> Result<()> {
        work.store
            .note_metadata(&work.ctx, who, &self.selectors, &field.labels());
        let names = self.find(work, field)?;

        let mut charge = work.ctx.charge();
        charge.grow(names.len() * size_of::<(&str, f64)>())?;
        let mut found = Vec::new();
        let mut chars = Vec::new();
        let mut steps = Steps::new(&work.ctx);
        for (i, name) in names.iter().enumerate() {
            if i % NAMES_PER_CHECK == 0 {
                work.ctx.check()?;
            }
            if let Some(score) = self.score(name, &mut chars, &mut steps)? {
                found.push((name, score));
            }
        }

        match self.order {
            Order::Ascending => {}
            Order::Descending => found.reverse(),
            Order::Score => {
                if found.len() > self.limit {
                    // Sorts only the returned names.
                    found.select_nth_unstable_by(self.limit, best_first);
                }
                let n_sorted = found.len().min(self.limit);
                found[..n_sorted].sort_unstable_by(best_first);
            }
        }
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);

        let metadata = match field {
            Field::MetricNames {
                with_metadata: true,
            } => Some(work.store.db.metadata()),
            _ => None,
        };
        let ctx = work.ctx.clone();
        let metadata = metadata
            .as_deref()
            .map(|families| VisibleFamilies::new(families, &ctx));
        self.write(work, field, &found, has_more, metadata)
    }

    /// Returns the number of names that are needed: all, unless the first ones are the result.
    fn n_names_max(&self) -> usize {
        if self.terms.is_empty() && self.order != Order::Descending {
            // One more shows that there are more.
            self.limit.saturating_add(1)
        } else {
            usize::MAX
        }
    }

    /// Returns the names that are needed, before they are compared with the terms.
    fn find(&self, work: &Work, field: &Field) -> varve_tsdb::Result<StringSet> {
        let mut selectors = self.selectors.iter();
        let first = selectors.next().map_or(&[][..], |matchers| matchers);
        let mut names = self.find_matching(work, field, first)?;
        for matchers in selectors {
            names.extend(&self.find_matching(work, field, matchers)?)?;
        }
        Ok(names)
    }

    fn find_matching(
        &self,
        work: &Work,
        field: &Field,
        matchers: &[Matcher],
    ) -> varve_tsdb::Result<StringSet> {
        let db = &work.store.db;
        let ctx = &work.ctx;
        let n_max = self.n_names_max();
        let label = match field {
            Field::MetricNames { .. } => METRIC_NAME,
            Field::LabelNames => return db.first_label_names(ctx, matchers, self.range, n_max),
            Field::LabelValues { label } => label,
        };
        db.first_label_values(ctx, label, matchers, self.range, n_max)
    }

    /// Returns the best score of a name over all terms, or `None` if none of them matches. `chars`
    /// is scratch space.
    fn score(
        &self,
        name: &str,
        chars: &mut Vec<char>,
        steps: &mut Steps<'_>,
    ) -> varve_tsdb::Result<Option<f64>> {
        if self.terms.is_empty() {
            return Ok(Some(1.0));
        }
        let lower = if self.case_sensitive {
            None
        } else {
            Some(name.to_lowercase())
        };
        let name = lower.as_deref().unwrap_or(name);
        chars.clear();
        chars.extend(name.chars());
        let mut best = None;
        for term in &self.terms {
            let score = term.score(name, chars, steps)?;
            best = best.into_iter().chain(score).max_by(f64::total_cmp);
        }
        Ok(best)
    }

    fn write(
        &self,
        work: &mut Work,
        field: &Field,
        found: &[(&str, f64)],
        has_more: bool,
        metadata: Option<VisibleFamilies<'_>>,
    ) -> Result<()> {
        let key: &[u8] = if matches!(field, Field::LabelValues { .. }) {
            b"{\"value\":"
        } else {
            b"{\"name\":"
        };
        // An empty result has one empty batch.
        let batches = found
            .chunks(self.batch_size)
            .chain(found.is_empty().then_some(&[][..]));
        let warnings = Vec::from_iter(work.ctx.partial().map(str::to_owned));
        for (i, batch) in batches.enumerate() {
            let described = described(batch, metadata)?;
            work.out.buffer().extend_from_slice(b"{\"results\":");
            work.array(&described, |out, (name, score, metadata)| {
                out.extend_from_slice(key);
                json::write_html_string(out, name.as_bytes());
                if self.include_score {
                    out.extend_from_slice(
                        format!(",\"score\":{}", varve_promql::decimal::Json(*score)).as_bytes(),
                    );
                }
                if let Some(metadata) = metadata {
                    write_metadata(out, metadata);
                }
                out.push(b'}');
            })?;
            if i == 0 && !warnings.is_empty() {
                work.out.buffer().extend_from_slice(b",\"warnings\":");
                work.array(&warnings, |out, text| {
                    json::write_html_string(out, text.as_bytes())
                })?;
            }
            work.out.buffer().extend_from_slice(b"}\n");
            work.out.step()?;
        }
        let end = format!("{{\"status\":\"success\",\"has_more\":{has_more}}}\n");
        work.out.buffer().extend_from_slice(end.as_bytes());
        work.out.step()
    }
}

/// Returns names and scores with the metadata of the metrics.
fn described<'a>(
    batch: &[(&'a str, f64)],
    families: Option<VisibleFamilies<'a>>,
) -> Result<Vec<(&'a str, f64, Option<&'a Metadata>)>> {
    let mut described = Vec::with_capacity(batch.len());
    for &(name, score) in batch {
        let metadata = match families {
            Some(families) => metadata_of(families, name)?,
            None => None,
        };
        described.push((name, score, metadata));
    }
    Ok(described)
}

/// Orders names by score, the best first. Equal scores are in ascending order of names.
fn best_first(a: &(&str, f64), b: &(&str, f64)) -> Ordering {
    b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0))
}

/// Returns the metadata of a metric: of the family with its name, or of a family whose type allows
/// a suffix of the name.
fn metadata_of<'a>(families: VisibleFamilies<'a>, name: &str) -> Result<Option<&'a Metadata>> {
    if let Some(metadata) = families.first(name)? {
        return Ok(Some(metadata));
    }
    let Some((family, suffix)) = name.rsplit_once('_') else {
        return Ok(None);
    };
    let kinds: &[&str] = match suffix {
        // In the text format of Prometheus, such a family has series of its own name.
        "total" if family.ends_with("_total") => &[],
        "info" if family.ends_with("_info") => &[],
        "total" => &["counter"],
        "info" => &["info"],
        "bucket" => &["histogram", "gaugehistogram"],
        "sum" | "count" => &["histogram", "gaugehistogram", "summary"],
        "gsum" | "gcount" => &["gaugehistogram"],
        _ => &[],
    };
    let metadata = families.first(family)?;
    Ok(metadata.filter(|metadata| kinds.contains(&&*metadata.kind)))
}

fn write_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    for (name, text) in [
        ("type", &metadata.kind),
        ("help", &metadata.help),
        ("unit", &metadata.unit),
    ] {
        if !text.is_empty() {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            json::write_html_string(out, text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::metadata::Families;
    use varve_tsdb::ReadContext;

    #[test]
    fn series_of_a_family_have_its_metadata() {
        let kinds = [
            ("a", "counter"),
            ("a_total", "counter"),
            ("h", "histogram"),
            ("s", "summary"),
            ("g", "gauge"),
        ];
        let family = |(name, kind): (&str, &str)| {
            (
                name.into(),
                Metadata {
                    kind: kind.into(),
                    ..Metadata::default()
                }
                .into(),
            )
        };
        let families: Families = kinds.into_iter().map(family).collect();
        let ctx = ReadContext::unbounded();
        let families = VisibleFamilies::new(&families, &ctx);
        for (name, expect) in [
            ("a", Some("counter")),
            ("a_total", Some("counter")),
            ("a_total_total", None),
            ("h_bucket", Some("histogram")),
            ("h_count", Some("histogram")),
            ("h_gcount", None),
            ("s_sum", Some("summary")),
            ("s_bucket", None),
            ("g_total", None),
            ("h_created", None),
            ("h", Some("histogram")),
            ("x", None),
        ] {
            let found = metadata_of(families, name).unwrap();
            assert_eq!(found.map(|metadata| &*metadata.kind), expect, "{name}");
        }
    }

    #[test]
    fn the_best_score_of_several_terms_counts() {
        let ctx = ReadContext::unbounded();
        let score = |encoded: &str, name: &str| {
            let mut form = Form::default();
            form.add(encoded.as_bytes()).unwrap();
            Search::read(&ctx, &form, "label_names", 1000)
                .unwrap()
                .score(name, &mut Vec::new(), &mut Steps::new(&ctx))
                .unwrap()
        };
        assert_eq!(score("", "anything"), Some(1.0));
        assert_eq!(score("search[]=&search[]=up", "up"), Some(1.0));
        assert_eq!(score("search[]=x&search[]=UP", "up"), None);
        assert_eq!(
            score("search[]=x&search[]=UP&case_sensitive=false", "Upper"),
            Some(1.0)
        );
    }
}
