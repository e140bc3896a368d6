//! A decoded request on its way into the store: each series by its route, or resolved, then its samples and exemplars.
//!
//! Used by `pipeline`. Known series do not wait for new ones: where the store creates none, theirs are stored all the same.

use std::sync::Arc;

use varve_tsdb::{Db, Labels, SeriesHandle};

use crate::append::{Source, append};
use crate::batch::{DecodedBatch, HistogramEntry, SeriesEntry, SeriesSamples};
use crate::error::WriteError;
use crate::exemplars::{self, ExemplarRefusal};
use crate::ha::{Judged, Standing};
use crate::label_set;
use crate::limits::Limits;
use crate::metadata;
use crate::pipeline::Written;
use crate::rejects::{Example, Reason, Rejects};
use crate::relabel::{Ruled, Ruling};
use crate::remote_write::wire::Reader;
use crate::remote_write::{LabelPairs, Version, histogram, v1};
use crate::route::{Route, RouteCache};
use crate::scratch::Outgoing;

/// What requests share, and where this one stands.
type Context<'a> = (&'a Db, &'a Limits, &'a RouteCache, &'a Ruling, &'a Standing<'a>);

/// A decoded request on its way into the store.
pub(crate) struct Request<'a> {
    db: &'a Db,
    limits: &'a Limits,
    routes: &'a RouteCache,
    ruling: &'a Ruling,
    standing: &'a Standing<'a>,
    message: &'a [u8],
    batch: &'a DecodedBatch,
    rejects: Rejects,
    /// Histograms that were handed to the store.
    n_histograms: u64,
    /// Samples that rules have dropped, and how many of them are histograms.
    n_dropped: u64,
    n_dropped_histograms: u64,
    /// Likewise of those that another replica of their pair stores.
    n_left_out: u64,
    n_left_out_histograms: u64,
}

impl<'a> Request<'a> {
    /// Begins with a decoded message; `rejects` has what was refused before.
    pub(crate) fn new(
        (db, limits, routes, ruling, standing): Context<'a>,
        (message, batch): (&'a [u8], &'a DecodedBatch),
        rejects: Rejects,
    ) -> Self {
        Self {
            db,
            limits,
            routes,
            ruling,
            standing,
            message,
            batch,
            rejects,
            n_histograms: 0,
            n_dropped: 0,
            n_dropped_histograms: 0,
            n_left_out: 0,
            n_left_out_histograms: 0,
        }
    }

    /// Writes it; `routes` has the route of each series that has one.
    pub(crate) fn write(mut self, routes: &[Option<Route>], out: &mut Outgoing) -> Result<Written, WriteError> {
        self.check_unknown(routes)?;
        out.clear();
        let creation = self.push(routes, out);
        self.push_exemplars(routes, out);
        let mut rejects = std::mem::take(&mut self.rejects);
        let samples_stored = append(self.db, &self, out, &mut rejects)?;
        // Known series do not wait for new ones: theirs are stored, and the sender repeats the request.
        creation?;
        let histograms_stored = self.n_histograms - out.histograms_rejected;
        let exemplars = std::mem::take(&mut out.exemplars);
        let mut written = Written {
            samples_stored,
            histograms_stored,
            samples_dropped: self.n_dropped,
            histograms_dropped: self.n_dropped_histograms,
            samples_left_out: self.n_left_out,
            histograms_left_out: self.n_left_out_histograms,
            exemplars,
            rejects,
            ignored: Rejects::default(),
        };
        let refused = if self.is_v2() { &mut written.ignored } else { &mut written.rejects };
        metadata::write(self.db, self.message, &self.batch.families, refused)?;
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
        let (mut creation, mut texts) = (Ok(()), Vec::new());
        // Samples left out of the request's own pair, whose count is noted once.
        let mut n_own = 0;
        for ((tag, (series, samples)), route) in (0u32..).zip(self.batch.series()).zip(routes) {
            let is_left_out = route.is_none() && self.standing.leaves_out(self.pairs(series));
            let route = match route {
                Some(route) => *route,
                None if is_left_out => Route::Standby,
                None if self.is_empty(tag, samples) => match self.labels(series, &mut texts) {
                    Ok(_) => {
                        self.note_empty(series);
                        continue;
                    }
                    Err(reason) => Route::Refused(reason),
                },
                None if creation.is_ok() => match self.find(series, &mut texts) {
                    Ok(route) => route,
                    Err(error) => {
                        creation = Err(error);
                        continue;
                    }
                },
                None => continue,
            };
            let n_histograms = self.batch.histograms_of(tag as usize).len();
            let n_samples = samples.samples.len() + n_histograms;
            match route {
                Route::Series(..) | Route::Dropped(_) if n_samples == 0 => self.note_empty(series),
                Route::Series(handle, verdict) => {
                    to.tally.add(verdict, n_samples);
                    for (sample, start_ms) in samples.with_starts() {
                        to.batch.push_with_start(handle, sample, start_ms, tag);
                    }
                    self.push_histograms(handle, tag, to)?;
                }
                Route::Dropped(verdict) => {
                    to.tally.add(verdict, n_samples);
                    self.n_dropped += n_samples as u64;
                    self.n_dropped_histograms += n_histograms as u64;
                }
                Route::Standby => {
                    self.n_left_out += n_samples as u64;
                    self.n_left_out_histograms += n_histograms as u64;
                    if is_left_out {
                        n_own += n_samples as u64;
                    } else {
                        self.standing.count(self.pairs(series), n_samples as u64);
                    }
                }
                Route::Refused(reason) => {
                    let labels = || print(self.message, self.batch, series);
                    let example = || Example::of_series(labels()).with(samples.samples.first().copied());
                    self.rejects.add(reason, 1, n_samples as u64, example);
                }
            }
        }
        self.ruling.verdicts.count(&mut to.tally);
        self.standing.count_own(n_own);
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
                    let labels = self.print(tag);
                    let text = format!("series {labels} at {timestamp_ms}: {invalid}");
                    let example = || Example { text, labels, timestamp_ms: Some(timestamp_ms), value: None };
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
            let example = || Example::of_series(print(self.message, self.batch, series));
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
            let handle = self.handle_of(routes[tag as usize], tag);
            for entry in of_series {
                match (handle, exemplars::parse(self.message, self.batch, entry)) {
                    (Err(refusal), _) => out.exemplars.refuse(refusal),
                    (_, None) => out.exemplars.refuse(ExemplarRefusal::InvalidLabels),
                    (Ok(handle), Some(exemplar)) => out.batch.push_exemplar(handle, exemplar, tag),
                }
            }
        }
    }

    /// Returns where the exemplars of a series go; its samples have made it, if it had any.
    fn handle_of(&self, route: Option<Route>, tag: u32) -> Result<SeriesHandle, ExemplarRefusal> {
        let unknown = ExemplarRefusal::UnknownSeries;
        match route {
            Some(Route::Series(handle, _)) => Ok(handle),
            Some(Route::Dropped(_)) => Err(ExemplarRefusal::Dropped),
            Some(Route::Standby) => Err(ExemplarRefusal::Standby),
            Some(Route::Refused(_)) => Err(unknown),
            None => {
                let labels = self.labels(&self.batch.series[tag as usize], &mut Vec::new()).map_err(|_| unknown)?;
                let labels = match self.standing.judge(labels) {
                    Judged::Taken { labels, .. } => labels,
                    Judged::Standby => return Err(ExemplarRefusal::Standby),
                    Judged::Refused(_) => return Err(unknown),
                };
                match self.ruling.rules.apply(labels, &mut Vec::new()) {
                    Ruled::Kept(labels) => self.db.find(&labels).ok_or(unknown),
                    Ruled::Dropped => Err(ExemplarRefusal::Dropped),
                    Ruled::Invalid(_) => Err(unknown),
                }
            }
        }
    }

    /// Resolves a series by its labels and notes where it is. `texts` is scratch.
    fn find(&self, series: &SeriesEntry, texts: &mut Vec<(&'a str, &'a str)>) -> Result<Route, WriteError> {
        let (route, is_lasting) = match self.labels(series, texts).map(|labels| self.standing.judge(labels)) {
            Ok(Judged::Taken { labels, is_lasting }) => (self.rule(labels)?, is_lasting),
            Ok(Judged::Standby) => (Route::Standby, false),
            Ok(Judged::Refused(reason)) => (Route::Refused(reason), false),
            Err(reason) => (Route::Refused(reason), self.standing.trusts_routes()),
        };
        if let Some(key) = series.key.filter(|_| is_lasting) {
            self.routes.insert(key.under(self.ruling.generation ^ self.standing.salt()), route);
        }
        Ok(route)
    }

    /// Puts a label set through the rules and resolves what is left.
    fn rule(&self, labels: Labels) -> Result<Route, WriteError> {
        let mut acted = Vec::new();
        let ruled = self.ruling.rules.apply(labels, &mut acted);
        let verdict = self.ruling.verdicts.of(&acted);
        Ok(match ruled {
            Ruled::Kept(labels) => match label_set::check(labels) {
                Ok(labels) => Route::Series(self.db.series(&labels)?, verdict),
                Err(reason) => Route::Refused(reason),
            },
            Ruled::Dropped => Route::Dropped(verdict),
            Ruled::Invalid(refused) => Route::Refused(label_set::reason(&refused)),
        })
    }

    fn labels(&self, series: &SeriesEntry, texts: &mut Vec<(&'a str, &'a str)>) -> Result<Labels, Reason> {
        // Fast path: labels as most senders write them.
        if !self.is_v2() && v1::plain_texts(self.message, series.labels, texts) {
            return label_set::parse_texts(texts, self.limits);
        }
        label_set::parse(self.pairs(series), self.limits, texts)
    }

    fn pairs(&self, series: &SeriesEntry) -> LabelPairs<'a> {
        self.batch.label_pairs(self.message, series.labels)
    }
}

impl Source for Request<'_> {
    fn resolve(&self, tag: u32) -> Result<SeriesHandle, WriteError> {
        match self.find(&self.batch.series[tag as usize], &mut Vec::new())? {
            Route::Series(handle, _) => Ok(handle),
            Route::Dropped(_) | Route::Standby | Route::Refused(_) => Err(WriteError::Moved),
        }
    }

    fn find(&self, tag: u32) -> Option<SeriesHandle> {
        self.handle_of(None, tag).ok()
    }

    fn print(&self, tag: u32) -> String {
        print(self.message, self.batch, &self.batch.series[tag as usize])
    }

    fn tells_exemplars(&self) -> bool {
        self.is_v2()
    }
}

fn print(message: &[u8], batch: &DecodedBatch, series: &SeriesEntry) -> String {
    label_set::print(batch.label_pairs(message, series.labels))
}
