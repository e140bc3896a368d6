//! From a request body to samples in the store, and the outcome for the sender.

use std::sync::{Arc, PoisonError, RwLock};

use varve_tsdb::{Db, Labels, Sample, SeriesHandle};

use crate::admission::{Admission, Permit};
use crate::append::{Source, append};
use crate::batch::{DecodedBatch, HistogramEntry, SeriesEntry, SeriesSamples};
use crate::compose::Composer;
use crate::compression::Compression;
use crate::error::WriteError;
use crate::exemplars::{self, ExemplarCounts, ExemplarRefusal};
use crate::label_set;
use crate::limits::Limits;
use crate::metadata;
use crate::otlp::{self, OtlpSettings};
use crate::rejects::{Reason, Rejects};
use crate::remote_write::wire::Reader;
use crate::remote_write::{Version, histogram, snappy, v1, v2};
use crate::route::{Route, RouteCache, RouteHasher};
use crate::scratch::{Outgoing, Passage, Scratch, ScratchPool};
use crate::stats::{Counters, Stats};

/// Accepts write requests for a store. Shared by all request threads.
#[derive(Debug)]
pub struct Receiver {
    db: Arc<Db>,
    limits: Limits,
    hasher: RouteHasher,
    routes: RouteCache,
    admission: Admission,
    scratch: ScratchPool,
    counters: Counters,
    otlp: RwLock<Arc<OtlpSettings>>,
}

/// The outcome of a request that was not refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Samples stored, floats and histograms, exact repetitions of stored ones included.
    pub samples_stored: u64,
    /// How many of them are histograms.
    pub histograms_stored: u64,
    /// What became of exemplars. Those that make the answer a 400 are in `rejects` as well.
    pub exemplars: ExemplarCounts,
    /// What was not stored. Empty: the sender gets 204; else 400 with its text, since sending again cannot help.
    pub rejects: Rejects,
    /// What was not stored and does not make the answer a 400: metadata in remote write 2.0, which comes with every sample.
    pub ignored: Rejects,
}

impl Receiver {
    /// Makes a receiver that writes to `db`.
    ///
    /// # Panics
    /// As [`RouteHasher::new`].
    #[must_use]
    pub fn new(db: Arc<Db>, limits: Limits) -> Self {
        Self {
            db,
            limits,
            hasher: RouteHasher::new(),
            routes: RouteCache::new(limits.route_cache_size_max),
            admission: Admission::new(limits.bytes_in_flight_max),
            scratch: ScratchPool::default(),
            counters: Counters::default(),
            otlp: RwLock::default(),
        }
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.read(self.routes.stats(), self.admission.in_flight())
    }

    /// Writes a remote-write request: a snappy block that holds the version's message. On return what is not in
    /// [`Written::rejects`] is in the store's log.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, version: Version, body: &[u8]) -> Result<Written, WriteError> {
        let outcome = self.scratch.with(|scratch| self.receive(version, body, scratch));
        self.counters.note(body.len(), &outcome);
        outcome
    }

    /// Writes an OTLP export request of metrics in protobuf, compressed or not.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_otlp(&self, compression: Compression, body: &[u8]) -> Result<Written, WriteError> {
        let outcome = self.scratch.with(|scratch| self.receive_otlp(compression, body, scratch));
        self.counters.note(body.len(), &outcome);
        outcome
    }

    /// Sets how OTLP is translated from now on.
    pub fn set_otlp(&self, settings: OtlpSettings) {
        *self.otlp.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn receive_otlp(
        &self,
        compression: Compression,
        body: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Written, WriteError> {
        self.limits.check_body(body.len())?;
        let mut permit = self.admission.admit(body.len())?;
        let settings = Arc::clone(&self.otlp.read().unwrap_or_else(PoisonError::into_inner));
        let message = compression.decompress(body, &self.limits, &mut permit)?;
        let Scratch { message: text, batch, passage } = scratch;
        let mut rejects = Rejects::default();
        let mut composer = Composer::new(batch, text, &mut permit, &self.hasher, &self.limits);
        otlp::translate(&message, &settings, &mut composer, &mut rejects)?;
        self.store(text, batch, permit, rejects, passage)
    }

    /// Appends samples that the process itself has made, such as its own metrics.
    ///
    /// # Errors
    /// [`WriteError::Store`] and [`WriteError::Moved`].
    pub fn append_own<'a>(
        &self,
        samples: impl IntoIterator<Item = (&'a Labels, Sample)>,
    ) -> Result<Written, WriteError> {
        let mut out = Outgoing::default();
        let mut own = Own { db: &self.db, series: Vec::new() };
        for (tag, (labels, sample)) in (0u32..).zip(samples) {
            out.batch.push(self.db.series(labels)?, sample, tag);
            own.series.push(labels);
        }
        let mut rejects = Rejects::default();
        let samples_stored = append(&self.db, &own, &mut out, &mut rejects)?;
        Ok(Written { samples_stored, rejects, ..Written::default() })
    }

    fn receive(&self, version: Version, body: &[u8], scratch: &mut Scratch) -> Result<Written, WriteError> {
        self.limits.check_body(body.len())?;
        let size = snappy::declared_size(body, &self.limits)?;
        let permit = self.admission.admit(body.len() + size)?;
        let Scratch { message, batch, passage } = scratch;
        let message = snappy::decompress(body, size, message)?;
        match version {
            Version::V1 => v1::decode(message, &self.hasher, &self.limits, batch)?,
            Version::V2 => v2::decode(message, &self.hasher, &self.limits, batch)?,
        }
        self.store(message, batch, permit, Rejects::default(), passage)
    }

    /// Writes a decoded request, whatever it came as.
    pub(crate) fn store(
        &self,
        message: &[u8],
        batch: &DecodedBatch,
        mut permit: Permit<'_>,
        rejects: Rejects,
        passage: &mut Passage,
    ) -> Result<Written, WriteError> {
        // Only now it is known what the samples take: here, and again on their way into the store.
        permit.grow(decoded_size(batch))?;
        let Passage { routes, order, outgoing } = passage;
        self.routes.lookup(batch.series.iter().map(|series| series.key), routes, order);
        let request = Request { receiver: self, message, batch, rejects, n_histograms: 0 };
        request.write(routes, outgoing)
    }
}

/// A decoded request on its way into the store.
struct Request<'a> {
    receiver: &'a Receiver,
    message: &'a [u8],
    batch: &'a DecodedBatch,
    rejects: Rejects,
    /// Histograms that were handed to the store.
    n_histograms: u64,
}

impl Request<'_> {
    fn write(mut self, routes: &[Option<Route>], out: &mut Outgoing) -> Result<Written, WriteError> {
        self.check_unknown(routes)?;
        out.clear();
        let creation = self.push(routes, out);
        self.push_exemplars(routes, out);
        let mut rejects = std::mem::take(&mut self.rejects);
        let samples_stored = append(&self.receiver.db, &self, out, &mut rejects)?;
        // Known series do not wait for new ones: theirs are stored, and the sender repeats the request.
        creation?;
        let histograms_stored = self.n_histograms - out.histograms_rejected;
        let exemplars = std::mem::take(&mut out.exemplars);
        let mut written =
            Written { samples_stored, histograms_stored, exemplars, rejects, ignored: Rejects::default() };
        let refused = if self.is_v2() { &mut written.ignored } else { &mut written.rejects };
        metadata::write(&self.receiver.db, self.message, &self.batch.families, refused)?;
        Ok(written)
    }

    fn is_v2(&self) -> bool {
        self.batch.version == Version::V2
    }

    /// Checks the labels that nobody has looked into yet, before anything is stored.
    fn check_unknown(&self, routes: &[Option<Route>]) -> Result<(), WriteError> {
        // References are checked when they are decoded.
        let series = if self.is_v2() { &[][..] } else { &self.batch.series };
        for (series, _) in series.iter().zip(routes).filter(|(_, route)| route.is_none()) {
            v1::check_labels(self.message, series.labels)?;
        }
        Ok(())
    }

    /// Pushes the samples of all series that can be had. Fails with the first series that the store did not create;
    /// no other is created after that.
    fn push(&mut self, routes: &[Option<Route>], to: &mut Outgoing) -> Result<(), WriteError> {
        let mut creation = Ok(());
        for ((tag, (series, samples)), route) in (0u32..).zip(self.batch.series()).zip(routes) {
            let route = match route {
                Some(route) => *route,
                None if self.is_empty(tag, samples) => match self.labels(series) {
                    Ok(_) => {
                        self.note_empty(series);
                        continue;
                    }
                    Err(reason) => Route::Refused(reason),
                },
                None if creation.is_ok() => match self.find(series) {
                    Ok(route) => route,
                    Err(error) => {
                        creation = Err(error);
                        continue;
                    }
                },
                None => continue,
            };
            match route {
                Route::Series(_) if self.is_empty(tag, samples) => self.note_empty(series),
                Route::Series(handle) => {
                    for (sample, start_ms) in samples.with_starts() {
                        to.batch.push_with_start(handle, sample, start_ms, tag);
                    }
                    self.push_histograms(handle, tag, to)?;
                }
                Route::Refused(reason) => {
                    let n_samples = samples.samples.len() + self.batch.histograms_of(tag as usize).len();
                    let example = || format!("series {}", print(self.message, self.batch, series));
                    self.rejects.add(reason, 1, n_samples as u64, example);
                }
            }
        }
        creation
    }

    /// Pushes the histograms of a series but for those that are none.
    fn push_histograms(&mut self, handle: SeriesHandle, tag: u32, to: &mut Outgoing) -> Result<(), WriteError> {
        for entry in self.batch.histograms_of(tag as usize) {
            let (timestamp_ms, start_ms, checked) = match entry {
                HistogramEntry::Sent(span) => {
                    let sent = histogram::decode(Reader::over(self.message, *span), self.batch.version)?;
                    (sent.timestamp_ms, sent.start_ms, sent.check().map(Arc::new))
                }
                HistogramEntry::Made { timestamp_ms, start_ms, histogram } => {
                    (*timestamp_ms, *start_ms, Ok(Arc::clone(histogram)))
                }
            };
            match checked {
                Ok(histogram) => {
                    to.batch.push_histogram_with_start(handle, timestamp_ms, histogram, start_ms, tag);
                    self.n_histograms += 1;
                }
                Err(invalid) => {
                    let series = self.print(tag);
                    let example = || format!("series {series} at {timestamp_ms}: {invalid}");
                    self.rejects.add(Reason::InvalidHistogram, 1, 1, example);
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self, tag: u32, samples: SeriesSamples<'_>) -> bool {
        samples.samples.is_empty() && self.batch.histograms_of(tag as usize).is_empty()
    }

    /// Version 2.0 does not take a series without samples; 1.0 has them for nothing.
    fn note_empty(&mut self, series: &SeriesEntry) {
        if self.is_v2() {
            let example = || format!("series {}", print(self.message, self.batch, series));
            self.rejects.add(Reason::NoSamples, 1, 0, example);
        }
    }

    /// Pushes the exemplars of all series that the store has by now.
    fn push_exemplars(&self, routes: &[Option<Route>], out: &mut Outgoing) {
        for of_series in self.batch.exemplars.chunk_by(|a, b| a.series_idx == b.series_idx) {
            let tag = of_series[0].series_idx;
            if self.is_v2() && self.batch.has_no_samples(tag as usize) {
                of_series.iter().for_each(|_| out.exemplars.refuse(ExemplarRefusal::NoSamples));
                continue;
            }
            let handle = match routes[tag as usize] {
                Some(Route::Series(handle)) => Some(handle),
                Some(Route::Refused(_)) => None,
                None => Source::find(self, tag),
            };
            for entry in of_series {
                match (handle, exemplars::parse(self.message, self.batch, entry)) {
                    (None, _) => out.exemplars.refuse(ExemplarRefusal::UnknownSeries),
                    (_, None) => out.exemplars.refuse(ExemplarRefusal::InvalidLabels),
                    (Some(handle), Some(exemplar)) => out.batch.push_exemplar(handle, exemplar, tag),
                }
            }
        }
    }

    /// Resolves a series by its labels and notes where it is.
    fn find(&self, series: &SeriesEntry) -> Result<Route, WriteError> {
        let route = match self.labels(series) {
            Ok(labels) => Route::Series(self.receiver.db.series(&labels)?),
            Err(reason) => Route::Refused(reason),
        };
        if let Some(key) = series.key {
            self.receiver.routes.insert(key, route);
        }
        Ok(route)
    }

    fn labels(&self, series: &SeriesEntry) -> Result<Labels, Reason> {
        label_set::parse(self.batch.label_pairs(self.message, series.labels), &self.receiver.limits)
    }
}

impl Source for Request<'_> {
    fn resolve(&self, tag: u32) -> Result<SeriesHandle, WriteError> {
        match self.find(&self.batch.series[tag as usize])? {
            Route::Series(handle) => Ok(handle),
            Route::Refused(_) => Err(WriteError::Moved),
        }
    }

    fn find(&self, tag: u32) -> Option<SeriesHandle> {
        let labels = self.labels(&self.batch.series[tag as usize]).ok()?;
        self.receiver.db.find(&labels)
    }

    fn print(&self, tag: u32) -> String {
        print(self.message, self.batch, &self.batch.series[tag as usize])
    }

    fn tells_exemplars(&self) -> bool {
        self.is_v2()
    }
}

/// Samples of the process itself.
struct Own<'a> {
    db: &'a Db,
    series: Vec<&'a Labels>,
}

impl Source for Own<'_> {
    fn resolve(&self, tag: u32) -> Result<SeriesHandle, WriteError> {
        Ok(self.db.series(self.series[tag as usize])?)
    }

    fn find(&self, tag: u32) -> Option<SeriesHandle> {
        self.db.find(self.series[tag as usize])
    }

    fn print(&self, tag: u32) -> String {
        self.series[tag as usize].to_string()
    }
}

fn print(message: &[u8], batch: &DecodedBatch, series: &SeriesEntry) -> String {
    label_set::print(batch.label_pairs(message, series.labels))
}

/// Returns the memory that a decoded request takes, here and on its way into the store.
fn decoded_size(batch: &DecodedBatch) -> usize {
    let histograms_size: usize = batch.histograms.iter().map(histogram_size).sum();
    batch.samples.len() * DECODED_SAMPLE_SIZE
        + batch.starts.len() * DECODED_START_SIZE
        + batch.series.len() * DECODED_SERIES_SIZE
        + batch.symbols.len() * size_of::<v2::Symbol>()
        + batch.exemplars.len() * DECODED_EXEMPLAR_SIZE
        + batch.exemplars_size
        + histograms_size
}

/// Bytes of memory for each sample: decoded, and in the store's batch.
const DECODED_SAMPLE_SIZE: usize = 16 + 32;
/// Bytes of memory for each start timestamp, likewise.
const DECODED_START_SIZE: usize = 16 + 16;
/// Bytes of memory for a histogram besides its numbers: decoded, and in the store's batch.
const DECODED_HISTOGRAM_SIZE: usize = 512;
/// Bytes of memory for each byte of a histogram's message: a bucket or a span may take one or two there, and eight in a
/// list that grows by doubling.
const DECODED_HISTOGRAM_FACTOR: usize = 16;

/// Bytes of memory for each exemplar besides those of its labels: its entry, and in the store's batch.
const DECODED_EXEMPLAR_SIZE: usize = 12 + 64;
/// Bytes of memory for each series: its entry, its route and its key in order.
const DECODED_SERIES_SIZE: usize = 32 + 16 + 20;

fn histogram_size(of: &HistogramEntry) -> usize {
    match of {
        HistogramEntry::Sent(span) => DECODED_HISTOGRAM_SIZE + span.len() * DECODED_HISTOGRAM_FACTOR,
        HistogramEntry::Made { histogram, .. } => DECODED_HISTOGRAM_SIZE + histogram.size(),
    }
}

#[cfg(test)]
mod tests;
