//! /api/v1/status/cardinality: series, and bytes in memory and on disk, by metric, label and label
//! value.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_advise::usage::Entry;
use varve_model::labels::METRIC_NAME;
use varve_server::requests::record::RequestRecord;
use varve_tsdb::stats::{Cost, Costs};

use super::status_tsdb::read_limit;
use crate::error::{ApiError, Result};
use crate::params::{Form, invalid_match, parse_selectors};
use crate::serving::run::{RequestClass, Work, job_fn, run_shared};
use crate::serving::state::HttpState;
use varve_wire::schema;

/// Memory of a pair of label name and value while pairs are sorted.
const SORTED_PAIR_SIZE: usize = size_of::<((&str, &str), Cost)>();
/// Memory of an entry of the report besides its texts.
const ENTRY_SIZE: usize = size_of::<PairCost>();
/// The sort keys of the lists.
pub(crate) const SORT_KEYS: [&str; 3] = ["series", "memory", "disk"];

schema! {
    /// The cost of the selected series, and of their metrics, labels and label values.
    pub(crate) struct CardinalityReport {
        total: SeriesCosts,
        metric_count: u64,
        label_count: u64,
        metrics: Vec<MetricCost>,
        labels: Vec<LabelCost>,
        pairs: Vec<PairCost>,
        /// The values of the label `focus`.
        values: Vec<ValueCost>,
        value_count: u64,
    }
}

schema! {
    /// The cost of series.
    pub(crate) struct SeriesCosts {
        /// Series in memory.
        series: u64,
        /// Their approximate size in memory, labels and index included.
        memory_bytes: u64,
        /// Samples in blocks.
        disk_samples: u64,
        /// Their part of the block files, labels and index included.
        disk_bytes: u64,
    }
}

schema! {
    /// The cost of a metric, and its use.
    pub(crate) struct MetricCost {
        name: String,
        cost: SeriesCosts,
        /// Recorded queries.
        queries: u64,
        /// The latest of them, in milliseconds since the epoch.
        last_used_ms: Option<i64>,
    }
}

schema! {
    /// The cost of all series that have a label.
    pub(crate) struct LabelCost {
        name: String,
        values: u64,
        cost: SeriesCosts,
    }
}

schema! {
    /// The cost of all series that have a label value.
    pub(crate) struct PairCost {
        name: String,
        value: String,
        cost: SeriesCosts,
    }
}

schema! {
    /// The cost of all series that have a value of the label `focus`.
    pub(crate) struct ValueCost {
        value: String,
        cost: SeriesCosts,
    }
}

impl MetricCost {
    fn new(name: &str, cost: Cost, usage: Option<&&Entry>) -> Self {
        Self {
            name: name.to_owned(),
            cost: cost.into(),
            queries: usage.map_or(0, |usage| usage.n_queries),
            last_used_ms: usage.map(|usage| usage.last_ms),
        }
    }
}

impl ValueCost {
    fn new(value: &str, cost: Cost) -> Self {
        Self {
            value: value.to_owned(),
            cost: cost.into(),
        }
    }
}

impl From<Cost> for SeriesCosts {
    fn from(cost: Cost) -> Self {
        Self {
            series: cost.n_series,
            memory_bytes: cost.memory_bytes,
            disk_samples: cost.n_samples,
            disk_bytes: cost.disk_bytes,
        }
    }
}

/// GET and POST /api/v1/status/cardinality.
pub(crate) async fn status(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    form.check_encoding()?;
    let request = Arc::new(Request::read(&form)?);
    let timeout = form.timeout()?;
    let parameters = Arc::clone(&request);
    let job = job_fn(move |work| request.respond(work));
    run_shared(
        &state,
        &record,
        RequestClass::Query,
        timeout,
        parameters,
        job,
    )
    .await
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Request {
    selectors: Vec<String>,
    focus: String,
    limit: usize,
    sort: SortKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SortKey {
    Series,
    Memory,
    Disk,
}

impl Request {
    fn read(form: &Form) -> Result<Self> {
        let sort = match form.first("sort") {
            "" | "series" => SortKey::Series,
            "memory" => SortKey::Memory,
            "disk" => SortKey::Disk,
            other => {
                return Err(ApiError::invalid_parameter(
                    "sort",
                    format!("{other:?} is none of {SORT_KEYS:?}"),
                ));
            }
        };
        Ok(Self {
            selectors: form.selectors(),
            focus: form.first("focus").into(),
            limit: read_limit(form)?,
            sort,
        })
    }

    fn respond(&self, work: &mut Work) -> Result<()> {
        let selectors = parse_selectors(&work.ctx, &self.selectors, invalid_match)?;
        let costs = work.store.db.costs(&work.ctx, &selectors)?;
        let n_pairs: usize = costs.by_label.values().map(HashMap::len).sum();
        let mut charge = work.ctx.charge();
        charge.grow(n_pairs * SORTED_PAIR_SIZE)?;
        let usage = work.store.usage.snapshot(&mut charge)?;
        let used: HashMap<&str, &Entry> = usage
            .metrics
            .iter()
            .map(|metric| (&*metric.text, metric))
            .collect();
        let report = self.report(work, &costs, &used)?;
        work.respond_json(&report)
    }

    fn report(
        &self,
        work: &Work,
        costs: &Costs,
        used: &HashMap<&str, &Entry>,
    ) -> Result<CardinalityReport> {
        let metrics = values(costs, METRIC_NAME);
        let focused = values(costs, &self.focus);
        let labels = labels(costs);
        let pairs = costs.by_label.iter().flat_map(|(name, values)| {
            values
                .iter()
                .map(move |(value, cost)| ((name, value), *cost))
        });
        let metric_count = metrics.clone().count() as u64;
        let label_count = labels.len() as u64;
        let value_count = focused.clone().count() as u64;
        let metrics = self.largest(metrics);
        let labels = self.largest(labels);
        let pairs = self.largest(pairs);
        let focused = self.largest(focused);

        let names = metrics.iter().chain(&focused).map(|(name, _)| name.len());
        let label_names = labels.iter().map(|((name, _), _)| name.len());
        let pair_texts = pairs
            .iter()
            .map(|((name, value), _)| name.len() + value.len());
        work.keep(entries_size(names.chain(label_names).chain(pair_texts)))?;
        Ok(CardinalityReport {
            total: costs.total.into(),
            metric_count,
            label_count,
            metrics: metrics
                .into_iter()
                .map(|(name, cost)| MetricCost::new(name, cost, used.get(name.as_str())))
                .collect(),
            labels: labels
                .into_iter()
                .map(|((name, values), cost)| LabelCost {
                    name: name.clone(),
                    values,
                    cost: cost.into(),
                })
                .collect(),
            pairs: pairs
                .into_iter()
                .map(|((name, value), cost)| PairCost {
                    name: name.clone(),
                    value: value.clone(),
                    cost: cost.into(),
                })
                .collect(),
            value_count,
            values: focused
                .into_iter()
                .map(|(value, cost)| ValueCost::new(value, cost))
                .collect(),
        })
    }

    /// Returns the most expensive entries. Ties are sorted by name.
    fn largest<K: Ord + Copy>(
        &self,
        entries: impl IntoIterator<Item = (K, Cost)>,
    ) -> Vec<(K, Cost)> {
        let key = |&(name, cost): &(K, Cost)| {
            let cost = match self.sort {
                SortKey::Series => cost.n_series,
                SortKey::Memory => cost.memory_bytes,
                SortKey::Disk => cost.disk_bytes,
            };
            (Reverse(cost), name)
        };
        let mut entries: Vec<_> = entries.into_iter().collect();
        if entries.len() > self.limit {
            entries.select_nth_unstable_by_key(self.limit, key);
            entries.truncate(self.limit);
        }
        entries.sort_unstable_by_key(key);
        entries
    }
}

/// Returns the bytes of entries with texts of these sizes.
fn entries_size(texts: impl Iterator<Item = usize>) -> usize {
    texts.map(|size| ENTRY_SIZE + size).sum()
}

/// Returns the labels other than the name, with their number of values and the cost of each.
fn labels(costs: &Costs) -> Vec<((&String, u64), Cost)> {
    let mut labels = Vec::new();
    for (name, values) in &costs.by_label {
        if name != METRIC_NAME {
            labels.push(((name, values.len() as u64), total(values)));
        }
    }
    labels
}

/// Returns the values of a label, with the cost of each.
fn values<'a>(
    costs: &'a Costs,
    label: &str,
) -> impl Iterator<Item = (&'a String, Cost)> + Clone + use<'a> {
    let values = costs.by_label.get(label).into_iter().flatten();
    values.map(|(value, cost)| (value, *cost))
}

fn total(values: &HashMap<String, Cost>) -> Cost {
    let mut total = Cost::default();
    for cost in values.values() {
        total += *cost;
    }
    total
}
