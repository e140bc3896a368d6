//! The rejected part of a request: counts per reason, with one example each.

use std::fmt;

use varve_model::{RejectionReason, Sample};
use varve_tsdb::bounds::Bounds;

/// The rejects of one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectionCount {
    /// The reason.
    pub reason: RejectionReason,
    /// Number of samples, series, histograms or metric families, depending on the reason.
    pub count: u64,
    /// Number of rejected samples, floats and histograms together.
    pub n_samples: u64,
    /// The first rejected sample, series or metric family.
    pub example: Example,
}

/// A rejected sample, series or metric family.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Example {
    /// The description for the sender.
    pub text: String,
    /// The labels as sent, truncated if long; empty if the reason does not concern a series.
    pub labels: String,
    /// The timestamp of the sample, if the reason concerns a sample.
    pub timestamp_ms: Option<i64>,
    /// The value of the sample, or the sum of the histogram.
    pub value: Option<f64>,
}

/// The rejects of a request, in the order in which their reasons first occurred. The `Display`
/// output is the body of the 400: a single line, because senders log the first line or the first
/// kilobyte of a response.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rejections {
    counts: Vec<RejectionCount>,
}

impl RejectionCount {
    /// Returns `true` if `count` is a number of samples, or of series or histograms with samples.
    pub(crate) fn counts_samples(&self) -> bool {
        !matches!(
            self.reason,
            RejectionReason::NoSamples
                | RejectionReason::ExemplarOutOfOrder
                | RejectionReason::InvalidMetadata
        )
    }

    /// Returns the unit of `count`, in singular and plural.
    fn unit(&self) -> (&'static str, &'static str) {
        match self.reason {
            RejectionReason::OutOfOrder
            | RejectionReason::Duplicate
            | RejectionReason::OutOfBounds
            | RejectionReason::TooOld
            | RejectionReason::TooFarInFuture
            | RejectionReason::HistogramTooLarge
            | RejectionReason::Moved => ("sample", "samples"),
            RejectionReason::ExemplarOutOfOrder => ("exemplar", "exemplars"),
            RejectionReason::Untranslatable => ("data point", "data points"),
            RejectionReason::InvalidHistogram => ("histogram", "histograms"),
            RejectionReason::InvalidMetadata => ("metric family", "metric families"),
            _ => ("series", "series"),
        }
    }
}

impl fmt::Display for RejectionCount {
    /// Writes `out of order sample: 3 samples, e.g. series {__name__="up"} at 1700000000000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, many) = self.unit();
        write!(
            f,
            "{}: {} {}",
            self.reason,
            self.count,
            if self.count == 1 { one } else { many }
        )?;
        if one == "series" && self.n_samples > 0 {
            write!(
                f,
                " with {} {}",
                self.n_samples,
                if self.n_samples == 1 {
                    "sample"
                } else {
                    "samples"
                }
            )?;
        }
        write!(f, ", e.g. {}", self.example.text)
    }
}

impl Rejections {
    /// Returns `true` if nothing was rejected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Iterates over the reasons.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RejectionCount> {
        self.counts.iter()
    }

    /// Returns the number of rejected samples.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.counts.iter().map(|reject| reject.n_samples).sum()
    }

    /// Appends an explanation to the example of a reason, if there is one.
    pub(crate) fn explain(&mut self, reason: RejectionReason, explanation: &str) {
        let rejected = self.counts.iter_mut().find(|count| count.reason == reason);
        if let Some(rejected) = rejected {
            rejected.example.text.push_str(explanation);
        }
    }

    /// Adds the rejects of another part of the same body.
    pub(crate) fn merge(&mut self, other: Self) {
        for RejectionCount {
            reason,
            count,
            n_samples,
            example,
        } in other.counts
        {
            self.add(reason, count, n_samples, || example);
        }
    }

    /// Adds `count` rejects of a reason with `n_samples` samples in total. Calls `example` only for
    /// the first reject of a reason.
    pub(crate) fn add<E: Into<Example>>(
        &mut self,
        reason: RejectionReason,
        count: u64,
        n_samples: u64,
        example: impl FnOnce() -> E,
    ) {
        if let Some(reject) = self
            .counts
            .iter_mut()
            .find(|reject| reject.reason == reason)
        {
            reject.count += count;
            reject.n_samples += n_samples;
        } else {
            self.counts.push(RejectionCount {
                reason,
                count,
                n_samples,
                example: example().into(),
            });
        }
    }
}

impl Example {
    /// Describes a series.
    pub(crate) fn of_series(labels: String) -> Self {
        Self {
            text: format!("series {labels}"),
            labels,
            ..Self::default()
        }
    }

    /// Describes a sample of a series.
    pub(crate) fn of_sample(labels: String, sample: Sample) -> Self {
        let text = format!("series {labels} at {}", sample.timestamp_ms);
        Self {
            text,
            labels,
            ..Self::default()
        }
        .with(Some(sample))
    }

    /// Adds a sample.
    pub(crate) fn with(self, sample: Option<Sample>) -> Self {
        Self {
            timestamp_ms: sample.map(|sample| sample.timestamp_ms),
            value: sample.map(|sample| sample.value),
            ..self
        }
    }

    /// Adds by how much the sample was out of `bounds`, if that was the reason of its rejection.
    pub(crate) fn out_of(mut self, bounds: Option<Bounds>, reason: RejectionReason) -> Self {
        let excess = bounds
            .zip(self.timestamp_ms)
            .and_then(|(bounds, timestamp_ms)| bounds.excess(timestamp_ms, reason));
        if let Some(excess) = excess {
            self.text.push_str(&format!(" ({excess})"));
        }
        self
    }
}

impl From<String> for Example {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl fmt::Display for Rejections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, reject) in self.counts.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{reject}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_once_with_its_first_example() {
        let mut rejections = Rejections::default();
        assert!(rejections.is_empty());
        for t in [5, 6, 7] {
            let example = || format!("series {{__name__=\"up\"}} at {t}");
            rejections.add(RejectionReason::OutOfOrder, 1, 1, example);
        }
        rejections.add(RejectionReason::EmptyLabelName, 1, 1, || {
            "series {\"\"=\"x\"}".to_owned()
        });
        rejections.add(RejectionReason::InvalidMetadata, 2, 0, || {
            "series {}".to_owned()
        });
        assert_eq!(
            rejections.to_string(),
            "out of order sample: 3 samples, e.g. series {__name__=\"up\"} at 5; \
             label name is empty: 1 series with 1 sample, e.g. series {\"\"=\"x\"}; \
             invalid metadata: 2 metric families, e.g. series {}"
        );
        assert_eq!((rejections.n_samples(), rejections.iter().len()), (4, 3));
    }
}
