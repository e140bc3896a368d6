//! `Status/TSDBStatistics`: cardinality of the head.

use varve_model::TimeRange;
use varve_tsdb::stats::NameCount;

use super::call::{Caller, Method};
use super::frame::Frames;
use crate::error::Result;
use crate::serving::run::Work;
use varve_wire::thanos::status::{
    HeadStatistics, Statistic, Statistics, StatisticsRequest, StatisticsResponse, TenantStatistics,
};

/// The tenant of a store without tenants, as of `thanos receive`.
const TENANT: &str = "default-tenant";
const LIMIT_DEFAULT: usize = 10;
const LIMIT_MAX: usize = 10_000;

impl Method for StatisticsRequest {
    const PATH: &'static str = "/thanos.Status/TSDBStatistics";

    fn respond(self, _: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        let limit = usize::try_from(self.limit)
            .ok()
            .filter(|limit| *limit > 0)
            .unwrap_or(LIMIT_DEFAULT);
        let found = work.store.db.cardinality(&work.ctx, limit.min(LIMIT_MAX))?;
        let range = found.range.unwrap_or(TimeRange {
            start_ms: i64::MAX,
            end_ms: i64::MIN,
        });
        let statistics = TenantStatistics {
            head: Some(HeadStatistics {
                n_series: found.n_series,
                n_label_pairs: found.n_label_pairs as i64,
                n_chunks: 0,
                min_time: range.start_ms,
                max_time: range.end_ms,
            }),
            series_by_metric: statistics(found.series_by_metric),
            values_by_label: statistics(found.values_by_label),
            bytes_by_label: statistics(found.bytes_by_label),
            series_by_pair: statistics(found.series_by_pair),
        };
        let tenant = if self.tenant.is_empty() {
            TENANT.to_owned()
        } else {
            self.tenant
        };
        let tenants = [(tenant, statistics)].into();
        out.send(
            work,
            &StatisticsResponse {
                statistics: Some(Statistics { tenants }),
            },
        )
    }
}

fn statistics(counts: Vec<NameCount>) -> Vec<Statistic> {
    let mut statistics = Vec::with_capacity(counts.len());
    for NameCount { name, count } in counts {
        statistics.push(Statistic { name, value: count });
    }
    statistics
}
