//! /api/v1/status/tsdb and /api/v1/status/tsdb/blocks: cardinality of the head, and the blocks.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use varve_model::TimeRange;
use varve_prometheus::block::Ulid;
use varve_server::requests::record::RequestRecord;
use varve_tsdb::stats::{BlockSummary, Cardinality, NameCount};

use crate::error::{ApiError, Result};
use crate::params::{Form, parse_int};
use crate::response::success;
use crate::serving::app::App;
use crate::serving::run::{RequestClass, job_fn, run};
use crate::serving::state::HttpState;
use varve_wire::schema;

const LIMIT_DEFAULT: i64 = 10;
const LIMIT_MAX: i64 = 10_000;

schema! {
    /// A count by name.
    pub(crate) struct TsdbStat {
        name: String,
        value: u64,
    }
}

schema! {
    /// The head.
    pub(crate) struct HeadStats {
        num_series: u64,
        /// Pairs of label name and value.
        num_label_pairs: u64,
        /// Always 0: Varve's head has no chunks as Prometheus counts them.
        chunk_count: u64,
        /// Time of the oldest sample, in milliseconds.
        min_time: i64,
        /// Time of the newest sample, in milliseconds.
        max_time: i64,
    }
}

schema! {
    /// Cardinality of labels in the head, the largest first.
    pub(crate) struct TsdbStatus {
        head_stats: HeadStats,
        series_count_by_metric_name: Vec<TsdbStat>,
        label_value_count_by_label_name: Vec<TsdbStat>,
        /// Memory of the label's values and of their index.
        memory_in_bytes_by_label_name: Vec<TsdbStat>,
        series_count_by_label_value_pair: Vec<TsdbStat>,
    }
}

impl TsdbStat {
    fn list(counts: Vec<NameCount>) -> Vec<Self> {
        let mut list = Vec::with_capacity(counts.len());
        for NameCount { name, count } in counts {
            list.push(Self { name, value: count });
        }
        list
    }
}

impl From<Cardinality> for TsdbStatus {
    fn from(found: Cardinality) -> Self {
        // As in Prometheus, for a head without samples.
        let range = found.range.unwrap_or(TimeRange {
            start_ms: i64::MAX,
            end_ms: i64::MIN,
        });
        Self {
            head_stats: HeadStats {
                num_series: found.n_series,
                num_label_pairs: found.n_label_pairs,
                chunk_count: 0,
                min_time: range.start_ms,
                max_time: range.end_ms,
            },
            series_count_by_metric_name: TsdbStat::list(found.series_by_metric),
            label_value_count_by_label_name: TsdbStat::list(found.values_by_label),
            memory_in_bytes_by_label_name: TsdbStat::list(found.bytes_by_label),
            series_count_by_label_value_pair: TsdbStat::list(found.series_by_pair),
        }
    }
}

/// GET /api/v1/status/tsdb.
pub(crate) async fn cardinality(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let limit = read_limit(&form)?;
    let timeout = form.timeout()?;
    let job = job_fn(move |work| {
        let found = TsdbStatus::from(work.store.db.cardinality(&work.ctx, limit)?);
        work.respond_json(&found)
    });
    run(&state, &record, RequestClass::Metadata, timeout, job).await
}

pub(super) fn read_limit(form: &Form) -> Result<usize> {
    let limit = match form.first("limit") {
        "" => LIMIT_DEFAULT,
        text => parse_int(text)
            .ok()
            .filter(|&limit| limit > 0)
            .ok_or_else(|| ApiError::bad_data("limit must be a positive number"))?,
    };
    match usize::try_from(limit) {
        Ok(limit) if limit as i64 <= LIMIT_MAX => Ok(limit),
        _ => Err(ApiError::bad_data(format!(
            "limit must not exceed {LIMIT_MAX}"
        ))),
    }
}

schema! {
    /// Contents of a block.
    pub(crate) struct BlockStats {
        num_samples: u64,
        num_series: u64,
    }
}

schema! {
    /// Sources of a block.
    pub(crate) struct BlockMetaCompaction {
        /// 1 for a part that a flush wrote. For a merged block, one more than the highest level of
        /// its sources.
        level: u64,
        /// The blocks that it was merged from. A part is its own source.
        sources: Vec<String>,
    }
}

schema! {
    /// A block.
    pub(crate) struct BlockMeta {
        /// Its number, formatted as an ULID.
        ulid: String,
        /// Time of the oldest sample, in milliseconds.
        min_time: i64,
        /// Time after the newest sample, in milliseconds.
        max_time: i64,
        stats: BlockStats,
        compaction: BlockMetaCompaction,
        version: u64,
    }
}

schema! {
    /// All blocks, sorted by time.
    pub(crate) struct Blocks {
        blocks: Vec<BlockMeta>,
    }
}

impl From<&BlockSummary> for BlockMeta {
    fn from(block: &BlockSummary) -> Self {
        let own = [block.number];
        let sources = if block.sources.is_empty() {
            &own
        } else {
            &*block.sources
        };
        Self {
            ulid: ulid(block.number),
            min_time: block.range.start_ms,
            max_time: block.range.end_ms.saturating_add(1),
            stats: BlockStats {
                num_samples: block.n_samples,
                num_series: block.n_series,
            },
            compaction: BlockMetaCompaction {
                level: u64::from(block.level) + 1,
                sources: sources.iter().copied().map(ulid).collect(),
            },
            version: 1,
        }
    }
}

/// GET /api/v1/status/tsdb/blocks.
pub(crate) async fn blocks(State(app): State<Arc<App>>) -> Result {
    let store = app.store().ok_or_else(ApiError::stopping)?;
    Ok(success(&Blocks {
        blocks: store.db.blocks().iter().map(BlockMeta::from).collect(),
    }))
}

/// Formats a number as a ULID.
fn ulid(number: u64) -> String {
    Ulid::new(0, number.into()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rejected_in_the_words_of_prometheus() {
        for (encoded, expect) in [
            ("", Ok(10)),
            ("limit=10000", Ok(10_000)),
            ("limit=0", Err("limit must be a positive number")),
            ("limit=x", Err("limit must be a positive number")),
            ("limit=10001", Err("limit must not exceed 10000")),
        ] {
            let mut form = Form::default();
            form.add(encoded.as_bytes()).unwrap();
            assert_eq!(
                read_limit(&form).map_err(|error| error.message),
                expect.map_err(str::to_owned)
            );
        }
    }

    #[test]
    fn block_numbers_are_formatted_as_ulids() {
        assert_eq!(ulid(0), "00000000000000000000000000");
        assert_eq!(ulid(33), "00000000000000000000000011");
        assert_eq!(ulid(u64::MAX), "0000000000000FZZZZZZZZZZZZ");
    }
}
