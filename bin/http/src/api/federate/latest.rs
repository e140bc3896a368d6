//! The latest sample of a series.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_model::histogram::{CUSTOM_BUCKETS_SCHEMA, Histogram, ResetHint};
use varve_model::labels::METRIC_NAME;
use varve_model::staleness::is_stale_nan;
use varve_model::{Labels, SampleColumns};
use varve_tsdb::select::Series;

use crate::error::Result;

/// The latest sample of a series.
pub(super) struct Latest {
    pub(super) labels: Labels,
    pub(super) timestamp_ms: i64,
    pub(super) value: f64,
    pub(super) histogram: Option<Arc<Histogram>>,
}

/// The kind of a family. Families of different kinds may have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Untyped,
    Histogram,
    GaugeHistogram,
}

impl Latest {
    /// Reads the latest sample of a series. Returns `None` if there is none, or if it is a
    /// staleness marker.
    pub(super) fn read(series: &Series, columns: &mut SampleColumns) -> Result<Option<Self>> {
        columns.clear();
        series.read(columns)?;
        let Some(idx) = columns.len().checked_sub(1) else {
            return Ok(None);
        };
        let value = columns.values[idx];
        if is_stale_nan(value) {
            return Ok(None);
        }
        let histogram = columns.histogram(idx).cloned();
        Ok(Some(Self {
            labels: series.labels().clone(),
            timestamp_ms: columns.timestamps_ms[idx],
            value,
            histogram,
        }))
    }

    pub(super) fn kind(&self) -> Kind {
        match &self.histogram {
            None => Kind::Untyped,
            Some(histogram) if histogram.reset_hint == ResetHint::Gauge => Kind::GaugeHistogram,
            Some(_) => Kind::Histogram,
        }
    }

    /// Returns `true` if it is a histogram with exponential buckets, which the text format cannot
    /// represent.
    pub(super) fn is_native(&self) -> bool {
        self.histogram
            .as_ref()
            .is_some_and(|histogram| histogram.schema != CUSTOM_BUCKETS_SCHEMA)
    }

    pub(super) fn size(&self) -> usize {
        size_of::<Self>()
            + self.labels.size()
            + self
                .histogram
                .as_ref()
                .map_or(0, |histogram| 16 * histogram.n_buckets() + 256)
    }

    /// Returns the labels without the name, then the labels of `external` that the series does not
    /// have.
    pub(super) fn labels<'a>(
        &'a self,
        external: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let own = self.labels.iter().filter(|(name, _)| *name != METRIC_NAME);
        let missing = external
            .iter()
            .filter(|(name, _)| self.labels.get(name).is_none());
        own.chain(missing.map(|(name, value)| (name.as_str(), value.as_str())))
    }
}
