//! The deltas of one request, which are rolled back if the store rejects them.
//!
//! A delta moves its stream while the request is translated, since a later delta of the request
//! needs the total. What the store then rejects must not stay in a total that it stores later, nor
//! make a delta at an earlier time out of order.

use std::ops::Range;
use std::time::{Duration, Instant};

use varve_model::TenantLabels;

use super::delta::{Added, AppliedDelta, DeltaRequest, DeltaStreams};
use super::delta_point::DeltaPoint;
use super::labels::LabelMap;
use super::sink::Position;
use super::stream_key::StreamKey;

/// The deltas of a request so far, each with the samples that it became.
#[derive(Debug)]
pub struct RequestDeltas<'a> {
    streams: &'a DeltaStreams,
    request: DeltaRequest<'a>,
    /// The delta of the data point that is being translated.
    current: Option<AppliedDelta>,
    applied: Vec<(AppliedDelta, Range<Position>)>,
}

/// What is to be done with a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accumulated {
    /// Store the total. The request holds `size` bytes of memory for it.
    Store { size: usize },
    /// The total that contains it has a sample.
    StoreNothing,
    /// Ask the store for an earlier total, and try again.
    AskStore,
}

impl<'a> RequestDeltas<'a> {
    /// Starts a request of a tenant. A delta may end by at most `late_delta_max` before the newest one
    /// of its stream.
    #[must_use]
    pub fn new(
        streams: &'a DeltaStreams,
        tenant: &'a TenantLabels,
        late_delta_max: Duration,
    ) -> Self {
        let id = streams.start_request();
        Self {
            streams,
            request: DeltaRequest {
                id,
                tenant,
                late_delta_max,
            },
            current: None,
            applied: Vec::new(),
        }
    }

    /// Returns the key of a stream.
    pub(super) fn key(&self, name: &str, labels: &LabelMap) -> StreamKey {
        self.streams.key(self.request.tenant, name, labels)
    }

    /// Adds a delta to the total of its stream, and replaces it by the total. `earlier_ns` is the
    /// time of the newest sample in the store, 0 without one; `None` if the store was not asked.
    ///
    /// # Errors
    /// The reason why the data point is rejected.
    pub(super) fn accumulate(
        &mut self,
        key: StreamKey,
        point: &mut impl DeltaPoint,
        earlier_ns: Option<u64>,
        now: Instant,
    ) -> Result<Accumulated, String> {
        let added = self
            .streams
            .accumulate(self.request, key, point, earlier_ns, now)?;
        self.current = match added {
            Added::Done(applied) => applied,
            Added::Nothing => return Ok(Accumulated::StoreNothing),
            Added::AskStore => return Ok(Accumulated::AskStore),
        };
        Ok(Accumulated::Store {
            size: match &self.current {
                // The list grows by doubling.
                Some(applied) => applied.size() + 2 * size_of::<(AppliedDelta, Range<Position>)>(),
                None => 0,
            },
        })
    }

    /// Returns `true` if the current data point starts its stream.
    pub(super) fn starts_stream(&self) -> bool {
        self.current.as_ref().is_some_and(AppliedDelta::is_first)
    }

    /// Notes the samples that the current data point became.
    pub(super) fn end_point(&mut self, samples: Range<Position>) {
        if let Some(applied) = self.current.take() {
            self.applied.push((applied, samples));
        }
    }

    /// Rolls the delta of the current data point back, which cannot be translated.
    pub(super) fn roll_back_point(&mut self) {
        if let Some(applied) = self.current.take() {
            self.streams.roll_back(applied);
        }
    }

    /// Rolls all deltas back, after a request that stored nothing.
    pub fn roll_back_all(self) {
        self.roll_back(|_| true);
    }

    /// Rolls the deltas back whose samples are not stored. A delta stays in its stream if the
    /// samples of a later one, whose total contains it, are.
    pub fn roll_back(mut self, is_rejected: impl Fn(&Range<Position>) -> bool) {
        self.roll_back_point();
        // The last one first: it is based on the others.
        for (applied, samples) in self.applied.into_iter().rev() {
            if is_rejected(&samples) {
                self.streams.roll_back(applied);
            }
        }
    }
}
