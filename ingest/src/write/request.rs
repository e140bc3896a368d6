//! A request on its way into the store: what is written, the settings that hold for it, and its
//! outcome so far.

use std::ops::Range;
use std::sync::Arc;

use varve_model::{Labels, Rejection, RejectionReason};
use varve_tsdb::bounds::Bounds;

use super::buffers::{Outgoing, RequestBuffers};
use crate::admission::{Deferred, Permit, Team};
use crate::batch::{DecodedBatch, HistogramEntry, SeriesEntry, Symbol, Version};
use crate::error::WriteError;
use crate::ha::HaContext;
use crate::label_set;
use crate::outcome::{Rejections, SampleCounts};
use crate::receiver::Receiver;
use crate::relabel::ActiveRelabeling;
use crate::route::{CacheKey, Route, Scope};
use crate::sender_labels::SenderLabels;
use crate::sources::remote_write::label_pairs;

/// One request on its way into the store.
pub(crate) struct Write<'a> {
    pub(super) receiver: &'a Receiver,
    pub(super) permit: Permit<'a>,
    pub(super) request: Request<'a>,
    pub(super) settings: Settings<'a>,

    // Reused memory.
    /// The route of each series, `None` if it is not known.
    pub(super) routes: &'a mut Vec<Option<Route>>,
    pub(super) out: &'a mut Outgoing,
    /// The labels of one series.
    pub(super) strings: Vec<(&'a str, &'a str)>,
    /// Routes that are not yet in the cache.
    pub(super) new_routes: Vec<(CacheKey, Route)>,

    // The current pass.
    /// What this pass leaves to the next one.
    pub(super) deferred: Deferred,
    /// Number of series that this pass created.
    pub(super) n_created: usize,
    /// Number of series that this pass looked up without finding them.
    pub(super) n_unknown: usize,
    /// Bounds for the timestamps of this pass, once a series is new.
    pub(super) bounds: Option<Bounds>,
    /// The error after which this pass creates no more series.
    pub(super) creation_error: Option<WriteError>,

    // The outcome so far.
    pub(super) rejections: Rejections,
    /// Rejections that do not make the response a 400.
    pub(super) ignored: Rejections,
    /// Samples of rules that were not stored, by the index of their series.
    pub(super) rule_rejections: Vec<Rejection>,
    /// The samples of a sender that were rejected. `None` if nobody needs them.
    pub(super) rejected_samples: Option<RejectedSamples>,
    /// Whether the store was given samples: some of them may be stored, even if it failed.
    pub(super) has_appended: bool,
    pub(super) stored: SampleCounts,
    pub(super) dropped: SampleCounts,
    pub(super) deduplicated: SampleCounts,
    /// Deduplicated samples of the replica that sent the request, counted at the end of the
    /// request.
    pub(super) n_sender_deduplicated: u64,
}

/// What is written.
pub(crate) struct Request<'a> {
    pub(super) writer: Writer<'a>,
    /// The bytes that the spans of `batch` refer to.
    pub(super) message: &'a [u8],
    pub(super) batch: &'a DecodedBatch,
    /// The labels that all series of the sender get.
    pub(super) sender_labels: SenderLabels<'a>,
}

/// Who writes a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Writer<'a> {
    /// A sender. Its label sets are encoded in the message.
    Sender,
    /// Recording and alerting rules, in the series of their team. The label set of each series.
    Rules(&'a [&'a Labels], Team),
    /// The server itself. The label set of each series.
    Server(&'a [&'a Labels]),
}

/// What holds for the whole request, also if a reload comes in between.
pub(super) struct Settings<'a> {
    pub(super) relabeling: Arc<ActiveRelabeling>,
    pub(super) ha: HaContext<'a>,
    /// The scope of the request's routes in the cache.
    pub(super) scope: Scope,
}

/// The indexes of the samples of a request that are not stored: of the floats first, then of the
/// histograms.
#[derive(Debug, Default)]
pub(crate) struct RejectedSamples(Vec<usize>);

impl RejectedSamples {
    /// Bytes of memory for a sample, whose index may be added twice to a list that grows by
    /// doubling.
    pub(super) const INDEX_SIZE: usize = 4 * size_of::<usize>();

    pub(super) fn add(&mut self, index: usize) {
        self.0.push(index);
    }

    /// Sorts the indexes, for [`RejectedSamples::contains`].
    pub(super) fn sort(&mut self) {
        self.0.sort_unstable();
    }

    /// Returns `true` if one of these samples is not stored.
    pub(crate) fn has_one_of(&self, range: Range<usize>) -> bool {
        let first = self.0.partition_point(|index| *index < range.start);
        self.0.get(first).is_some_and(|index| *index < range.end)
    }

    /// Returns `true` if a sample is not stored.
    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.binary_search(&index).is_ok()
    }
}

/// A decoded request of a sender.
pub(crate) struct Decoded<'a> {
    /// The bytes that the spans of `batch` refer to.
    pub(crate) message: &'a [u8],
    pub(crate) batch: &'a DecodedBatch,
    /// What could not be decoded.
    pub(crate) rejections: Rejections,
}

impl<'a> Write<'a> {
    /// Starts to write a request of a sender. Looks up the routes of all its series.
    ///
    /// # Errors
    /// If the decoded request takes too much memory, or the leader of the sender's HA pair is not
    /// known yet.
    pub(crate) fn of_sender(
        receiver: &'a Receiver,
        mut permit: Permit<'a>,
        decoded: Decoded<'a>,
        buffers: &'a mut RequestBuffers,
    ) -> Result<Self, WriteError> {
        let Decoded {
            message,
            batch,
            rejections,
        } = decoded;
        permit.memory.grow(memory_size(batch))?;

        let sender_labels = SenderLabels::new(permit.added_label, permit.labels, &receiver.hasher);
        let first_labels = batch.series.first().map(|first| {
            sender_labels.with_added_and_forced(label_pairs(batch, message, first.labels))
        });
        let ha_pairs = receiver.ha.read().clone();
        let ha = HaContext::new(ha_pairs, &sender_labels, first_labels, &receiver.hasher);
        ha.ensure_decided()?;
        let relabeling = receiver.relabeling();
        let scope = Scope::new(
            &receiver.hasher,
            relabeling.generation,
            ha.salt(),
            receiver.admission.budgets().generation(),
            permit.team().unwrap_or_default(),
        );

        let request = Request {
            writer: Writer::Sender,
            message,
            batch,
            sender_labels,
        };
        let settings = Settings {
            relabeling,
            ha,
            scope,
        };
        let mut write = Self::new(receiver, permit, request, settings, buffers);
        write.rejections = rejections;
        Ok(write)
    }

    /// Starts to write samples of rules, or of the server itself: one sample for each series of
    /// `batch`. Relabeling and HA deduplication do not apply to them, since nobody sent them.
    pub(crate) fn internal(
        receiver: &'a Receiver,
        permit: Permit<'a>,
        writer: Writer<'a>,
        batch: &'a DecodedBatch,
        buffers: &'a mut RequestBuffers,
    ) -> Self {
        let team = match writer {
            Writer::Rules(_, team) => team,
            Writer::Sender | Writer::Server(_) => Team::NONE,
        };
        let settings = Settings {
            relabeling: receiver.relabeling(),
            ha: HaContext::none(),
            scope: Scope::new(
                &receiver.rule_hasher,
                0,
                0,
                receiver.admission.budgets().generation(),
                team,
            ),
        };
        let request = Request {
            writer,
            message: &[],
            batch,
            sender_labels: SenderLabels::new(None, &[], &receiver.hasher),
        };
        Self::new(receiver, permit, request, settings, buffers)
    }

    fn new(
        receiver: &'a Receiver,
        permit: Permit<'a>,
        request: Request<'a>,
        settings: Settings<'a>,
        buffers: &'a mut RequestBuffers,
    ) -> Self {
        let RequestBuffers {
            routes,
            order,
            outgoing,
        } = buffers;
        // Known series: one look-up for all of them. A standby's series have no cached routes.
        let uses_route_cache = settings.ha.uses_route_cache();
        let keys = request.batch.series.iter().map(|series| match series.key {
            Some(key) if uses_route_cache => {
                Some(request.sender_labels.cache_key(key, settings.scope))
            }
            _ => None,
        });
        receiver.routes.lookup(keys, routes, order);
        // The previous request may have failed and left samples, whose attributions may belong to
        // other relabel rules.
        outgoing.clear();

        Self {
            receiver,
            permit,
            request,
            settings,
            routes,
            out: outgoing,
            strings: Vec::new(),
            new_routes: Vec::new(),
            deferred: Deferred::default(),
            n_created: 0,
            n_unknown: 0,
            bounds: None,
            creation_error: None,
            rejections: Rejections::default(),
            ignored: Rejections::default(),
            rule_rejections: Vec::new(),
            rejected_samples: None,
            has_appended: false,
            stored: SampleCounts::default(),
            dropped: SampleCounts::default(),
            deduplicated: SampleCounts::default(),
            n_sender_deduplicated: 0,
        }
    }
}

impl Write<'_> {
    /// Notes that all samples of a series were rejected.
    pub(super) fn note_rejected_series(&mut self, series_idx: u32) {
        let Some(rejected) = &mut self.rejected_samples else {
            return;
        };
        let batch = self.request.batch;
        let series_idx = series_idx as usize;
        for entry in batch.samples_of(series_idx).entries() {
            rejected.add(entry.index as usize);
        }
        for histogram_idx in 0..batch.histograms_of(series_idx).len() {
            rejected.add(batch.histogram_index(series_idx, histogram_idx) as usize);
        }
    }
}

impl Write<'_> {
    /// Notes the samples that are not stored after an error: those of series that were not found or
    /// created, and of those that are deferred.
    pub(super) fn note_unstored(&mut self) {
        for series_idx in 0..self.routes.len() {
            if !self.has_appended || self.routes[series_idx].is_none() {
                self.note_rejected_series(series_idx as u32);
            }
        }
        let deferred = std::mem::take(&mut self.deferred.series);
        for series in &deferred {
            let has_route = self.routes[series.series_idx as usize].is_some();
            if self.has_appended && has_route {
                self.note_rejected_series(series.series_idx);
            }
        }
    }
}

impl<'a> Request<'a> {
    /// Returns `true` if a sender writes the request.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.writer, Writer::Sender)
    }

    pub(super) fn is_v2(&self) -> bool {
        self.batch.version == Version::V2
    }

    pub(super) fn series(&self, series_idx: u32) -> &'a SeriesEntry {
        &self.batch.series[series_idx as usize]
    }

    /// Returns the labels of a series as sent, with the added label of the sender.
    pub(super) fn pairs(&self, series: &SeriesEntry) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.sender_labels
            .with_added(label_pairs(self.batch, self.message, series.labels))
    }

    /// Returns the labels of a series as HA deduplication sees them.
    pub(super) fn pairs_of_ha(
        &self,
        series: &SeriesEntry,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.sender_labels.with_added_and_forced(label_pairs(
            self.batch,
            self.message,
            series.labels,
        ))
    }

    /// Says by how much the labels of a series exceed the limit of `reason`.
    pub(super) fn excess(&self, series_idx: u32, reason: RejectionReason) -> Option<String> {
        match self.writer {
            Writer::Sender => label_set::excess(self.pairs(self.series(series_idx)), reason),
            Writer::Rules(..) | Writer::Server(_) => None,
        }
    }

    /// Prints the labels of a series.
    pub(super) fn print(&self, series_idx: u32) -> String {
        match self.writer {
            Writer::Sender => label_set::print(self.pairs(self.series(series_idx))),
            Writer::Rules(labels, _) | Writer::Server(labels) => {
                labels[series_idx as usize].to_string()
            }
        }
    }
}

/// Returns the bytes of memory of a decoded request: `batch`, and the batch for the store.
fn memory_size(batch: &DecodedBatch) -> usize {
    let histograms_size: usize = batch.histograms.iter().map(histogram_size).sum();
    batch.samples.len() * DECODED_SAMPLE_SIZE
        + batch.start_timestamps.len() * DECODED_START_SIZE
        + batch.series.len() * DECODED_SERIES_SIZE
        + batch.symbols.len() * size_of::<Symbol>()
        + batch.exemplars.len() * DECODED_EXEMPLAR_SIZE
        + batch.exemplars_size
        + histograms_size
}

fn histogram_size(entry: &HistogramEntry) -> usize {
    match entry {
        HistogramEntry::Encoded(span) => {
            DECODED_HISTOGRAM_SIZE + span.len() * DECODED_HISTOGRAM_FACTOR
        }
        HistogramEntry::Decoded { histogram, .. } => DECODED_HISTOGRAM_SIZE + histogram.size(),
    }
}

/// Bytes of memory of a sample: decoded, plus in the batch for the store.
const DECODED_SAMPLE_SIZE: usize = 16 + 32;
/// Bytes of memory of a start timestamp.
const DECODED_START_SIZE: usize = 16 + 16;
/// Bytes of memory of a histogram besides its buckets.
const DECODED_HISTOGRAM_SIZE: usize = 512;
/// Bytes of memory for each byte of an encoded histogram: an encoded bucket or span may have one or
/// two bytes, but takes eight in a list that grows by doubling.
const DECODED_HISTOGRAM_FACTOR: usize = 16;
/// Bytes of memory of an exemplar besides its labels.
const DECODED_EXEMPLAR_SIZE: usize = 12 + 64;
/// Bytes of memory of a series: its entry, its route and its key.
const DECODED_SERIES_SIZE: usize = 32 + 16 + 20;
