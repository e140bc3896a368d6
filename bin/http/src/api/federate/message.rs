//! The protobuf format: length-delimited `io.prometheus.client.MetricFamily` messages.

use std::collections::BTreeMap;

use prost::Message;
use varve_context::{Charge, QueryContext};
use varve_model::histogram::{CUSTOM_BUCKETS_SCHEMA, Histogram};
use varve_wire::prometheus::exposition::{
    BucketMessage, FamilyMessage, HistogramMessage, LabelMessage, MetricMessage, UntypedMessage,
};
use varve_wire::prometheus::types::SpanMessage;

use super::classic_histogram::{Floats, to_classic};
use super::format::Format;
use super::latest::{Kind, Latest};
use crate::error::Result;
use crate::serving::run::Work;

/// A family being collected. Its memory is charged.
pub(super) struct Family {
    metrics: Vec<MetricMessage>,
    ctx: QueryContext,
    charge: Charge,
}

impl Family {
    pub(super) fn new(ctx: &QueryContext) -> Self {
        Self {
            metrics: Vec::new(),
            ctx: ctx.clone(),
            charge: ctx.charge(),
        }
    }

    /// Adds a sample.
    pub(super) fn push(
        &mut self,
        latest: &Latest,
        external: &BTreeMap<String, String>,
        format: Format,
    ) -> Result<()> {
        let message = metric_message(latest, external, format);
        // Charged twice: as a sample, and as encoded bytes.
        self.charge
            .grow(2 * message.encoded_len() + size_of::<MetricMessage>())?;
        self.metrics.push(message);
        Ok(())
    }

    /// Writes the family and starts the next one.
    pub(super) fn finish(&mut self, work: &mut Work, name: &str, kind: Kind) -> Result<()> {
        let kind = match kind {
            Kind::Untyped => 3,
            Kind::Histogram => 4,
            Kind::GaugeHistogram => 5,
        };
        let metric = std::mem::take(&mut self.metrics);
        let bytes = FamilyMessage {
            name: Some(name.to_owned()),
            kind: Some(kind),
            metric,
        }
        .encode_length_delimited_to_vec();
        work.write(&bytes)?;
        self.charge = self.ctx.charge();
        Ok(())
    }
}

fn metric_message(
    latest: &Latest,
    external: &BTreeMap<String, String>,
    format: Format,
) -> MetricMessage {
    let mut labels = Vec::new();
    for (name, value) in latest.labels(external) {
        labels.push(LabelMessage {
            name: Some(format.escape(name).into_owned()),
            value: Some(value.to_owned()),
        });
    }
    let untyped = latest.histogram.is_none().then_some(UntypedMessage {
        value: Some(latest.value),
    });
    MetricMessage {
        label: labels,
        untyped,
        histogram: latest
            .histogram
            .as_ref()
            .map(|histogram| histogram_message(histogram)),
        timestamp_ms: Some(latest.timestamp_ms),
    }
}

fn histogram_message(histogram: &Histogram) -> HistogramMessage {
    if histogram.schema == CUSTOM_BUCKETS_SCHEMA {
        let classic = to_classic(histogram);
        let mut buckets = Vec::with_capacity(classic.buckets.len());
        for (bound, count) in classic.buckets {
            buckets.push(BucketMessage {
                upper_bound: Some(bound),
                cumulative_count_float: Some(count),
            });
        }
        return HistogramMessage {
            sample_count_float: Some(classic.count),
            sample_sum: Some(histogram.sum),
            bucket: buckets,
            ..HistogramMessage::default()
        };
    }
    let Floats {
        count,
        zero_count,
        positive,
        negative,
    } = Floats::of(histogram);
    HistogramMessage {
        sample_count_float: Some(count),
        sample_sum: Some(histogram.sum),
        schema: Some(i32::from(histogram.schema)),
        zero_threshold: Some(histogram.zero_threshold),
        zero_count_float: Some(zero_count),
        negative_span: SpanMessage::list(&histogram.negative_spans),
        negative_count: negative,
        positive_span: SpanMessage::list(&histogram.positive_spans),
        positive_count: positive,
        bucket: Vec::new(),
    }
}
