//! From a request body to samples in the store, and the outcome for the sender.

use std::sync::Arc;

use varve_tsdb::{Db, Labels, Sample, SeriesHandle, WriteBatch};

use crate::admission::Admission;
use crate::append::{Source, append};
use crate::batch::{DecodedBatch, SeriesEntry, Span};
use crate::error::WriteError;
use crate::exemplars::{self, ExemplarCounts, ExemplarRefusal};
use crate::label_set;
use crate::limits::Limits;
use crate::metadata;
use crate::rejects::{Reason, Rejects};
use crate::remote_write::wire::Reader;
use crate::remote_write::{decode_v1, histogram, snappy, v1};
use crate::route::{Route, RouteCache, RouteHasher};
use crate::scratch::{Outgoing, Scratch, ScratchPool};
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
}

/// The outcome of a request that was not refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Samples stored, floats and histograms, exact repetitions of stored ones included.
    pub samples_stored: u64,
    /// What became of exemplars. None of them makes the answer a 400, as in Prometheus.
    pub exemplars: ExemplarCounts,
    /// What was not stored. Empty: the sender gets 204; else 400 with its text, since sending again cannot help.
    pub rejects: Rejects,
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

    /// Writes a remote-write 1.0 request: a snappy block that holds a `prometheus.WriteRequest`. On return what is not
    /// in [`Written::rejects`] is in the store's log.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write_v1(&self, body: &[u8]) -> Result<Written, WriteError> {
        let outcome = self.scratch.with(|scratch| self.receive_v1(body, scratch));
        self.counters.note(body.len(), &outcome);
        outcome
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

    fn receive_v1(&self, body: &[u8], scratch: &mut Scratch) -> Result<Written, WriteError> {
        self.limits.check_body(body.len())?;
        let size = snappy::declared_size(body, &self.limits)?;
        let mut permit = self.admission.admit(body.len() + size)?;
        let Scratch { message, batch, routes, order, outgoing } = scratch;
        let message = snappy::decompress(body, size, message)?;
        decode_v1(message, &self.hasher, &self.limits, batch)?;
        // Only now it is known what the samples take: here, and again on their way into the store.
        let histograms_size: usize = batch.histograms.iter().map(|of| histogram_size(*of)).sum();
        let flat_size = batch.samples.len() * DECODED_SAMPLE_SIZE + batch.series.len() * DECODED_SERIES_SIZE;
        let exemplars_size = batch.exemplars.len() * DECODED_EXEMPLAR_SIZE + batch.exemplars_size;
        permit.grow(flat_size + histograms_size + exemplars_size)?;
        self.routes.lookup(batch.series.iter().map(|series| series.key), routes, order);
        Request { receiver: self, message, batch, rejects: Rejects::default() }.write(routes, outgoing)
    }
}

/// A decoded request on its way into the store.
struct Request<'a> {
    receiver: &'a Receiver,
    message: &'a [u8],
    batch: &'a DecodedBatch,
    rejects: Rejects,
}

impl Request<'_> {
    fn write(mut self, routes: &[Option<Route>], out: &mut Outgoing) -> Result<Written, WriteError> {
        self.check_unknown(routes)?;
        out.batch.clear();
        out.exemplars = ExemplarCounts::default();
        let creation = self.push(routes, &mut out.batch);
        self.push_exemplars(routes, out);
        let mut rejects = std::mem::take(&mut self.rejects);
        let samples_stored = append(&self.receiver.db, &self, out, &mut rejects)?;
        // Known series do not wait for new ones: theirs are stored, and the sender repeats the request.
        creation?;
        self.rejects = rejects;
        metadata::write(&self.receiver.db, self.message, &self.batch.families, &mut self.rejects)?;
        let exemplars = std::mem::take(&mut out.exemplars);
        Ok(Written { samples_stored, exemplars, rejects: self.rejects })
    }

    /// Checks the labels that nobody has looked into yet, before anything is stored.
    fn check_unknown(&self, routes: &[Option<Route>]) -> Result<(), WriteError> {
        for (series, _) in self.batch.series.iter().zip(routes).filter(|(_, route)| route.is_none()) {
            v1::check_labels(self.message, series.labels)?;
        }
        Ok(())
    }

    /// Pushes the samples of all series that can be had. Fails with the first series that the store did not create;
    /// no other is created after that.
    fn push(&mut self, routes: &[Option<Route>], to: &mut WriteBatch) -> Result<(), WriteError> {
        let mut creation = Ok(());
        for ((tag, (series, samples)), route) in (0u32..).zip(self.batch.series()).zip(routes) {
            let route = match route {
                Some(route) => *route,
                None if samples.is_empty() && self.batch.histograms_of(tag as usize).is_empty() => {
                    match self.labels(series) {
                        Ok(_) => continue,
                        Err(reason) => Route::Refused(reason),
                    }
                }
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
                Route::Series(handle) => {
                    samples.iter().for_each(|&sample| to.push(handle, sample, tag));
                    self.push_histograms(handle, tag, to)?;
                }
                Route::Refused(reason) => {
                    let n_samples = samples.len() + self.batch.histograms_of(tag as usize).len();
                    let example = || format!("series {}", print(self.message, series));
                    self.rejects.add(reason, 1, n_samples as u64, example);
                }
            }
        }
        creation
    }

    /// Pushes the histograms of a series but for those that are none.
    fn push_histograms(&mut self, handle: SeriesHandle, tag: u32, to: &mut WriteBatch) -> Result<(), WriteError> {
        for &span in self.batch.histograms_of(tag as usize) {
            let sent = histogram::decode(Reader::over(self.message, span))?;
            let timestamp_ms = sent.timestamp_ms;
            match sent.check() {
                Ok(histogram) => to.push_histogram(handle, timestamp_ms, Arc::new(histogram), tag),
                Err(invalid) => {
                    let series = &self.batch.series[tag as usize];
                    let example = || format!("series {} at {timestamp_ms}: {invalid}", print(self.message, series));
                    self.rejects.add(Reason::InvalidHistogram, 1, 1, example);
                }
            }
        }
        Ok(())
    }

    /// Pushes the exemplars of all series that the store has by now.
    fn push_exemplars(&self, routes: &[Option<Route>], out: &mut Outgoing) {
        for of_series in self.batch.exemplars.chunk_by(|a, b| a.series_idx == b.series_idx) {
            let tag = of_series[0].series_idx;
            let handle = match routes[tag as usize] {
                Some(Route::Series(handle)) => Some(handle),
                Some(Route::Refused(_)) => None,
                None => Source::find(self, tag),
            };
            for entry in of_series {
                match (handle, exemplars::parse(self.message, entry)) {
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
        label_set::parse(v1::label_pairs(self.message, series.labels), &self.receiver.limits)
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
        print(self.message, &self.batch.series[tag as usize])
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

fn print(message: &[u8], series: &SeriesEntry) -> String {
    label_set::print(v1::label_pairs(message, series.labels))
}

/// Bytes of memory for each sample: decoded, and in the store's batch.
const DECODED_SAMPLE_SIZE: usize = 16 + 32;
/// Bytes of memory for a histogram besides its numbers: decoded, and in the store's batch.
const DECODED_HISTOGRAM_SIZE: usize = 512;
/// Bytes of memory for each byte of a histogram's message: a bucket or a span may take one or two there, and eight in a
/// list that grows by doubling.
const DECODED_HISTOGRAM_FACTOR: usize = 16;

/// Bytes of memory for each exemplar besides those of its labels: its entry, and in the store's batch.
const DECODED_EXEMPLAR_SIZE: usize = 12 + 64;
/// Bytes of memory for each series: its entry, its route and its key in order.
const DECODED_SERIES_SIZE: usize = 32 + 16 + 20;

fn histogram_size(of: Span) -> usize {
    DECODED_HISTOGRAM_SIZE + of.len() * DECODED_HISTOGRAM_FACTOR
}

#[cfg(test)]
mod tests;
