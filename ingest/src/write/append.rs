//! Appends samples and exemplars to the store, and repeats the append for series that were moved in
//! memory.

use varve_model::Exemplar;
use varve_tsdb::exemplars::RejectExemplar;
use varve_tsdb::{RejectReason, Rejected, WriteBatch};

use crate::admission::Team;
use crate::error::WriteError;
use crate::outcome::{Example, ExemplarCounts, ExemplarRejection, Reason, Rejections};
use crate::relabel::AttributedSamples;
use crate::write::resolve::Resolver;

/// The buffers of an append.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) batch: WriteBatch,
    /// Samples whose series have moved.
    pub(crate) moved: Vec<Rejected>,
    /// Exemplars whose series have moved, with the indexes of the series.
    pub(crate) moved_exemplars: Vec<(u32, Exemplar)>,
    /// The outcome of exemplars, over all passes so far.
    pub(crate) exemplars: ExemplarCounts,
    /// Number of rejected histograms, over all passes so far.
    pub(crate) histograms_rejected: u64,
    /// Pushed samples of teams and rules.
    pub(crate) attributed: AttributedSamples,
    /// Samples of this pass that budgets must admit.
    pub(crate) requested: AttributedSamples,
    /// Number of samples per team; reused memory.
    pub(crate) by_team: Vec<(Team, u64)>,
    /// Indexes of series that were evicted from the store while the request was written.
    pub(crate) evicted: Vec<u32>,
}

impl Outgoing {
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.exemplars = ExemplarCounts::default();
        self.histograms_rejected = 0;
        // A request that fails leaves samples behind, and other rules may be in force now.
        self.attributed.clear();
        self.requested.clear();
        self.by_team.clear();
    }
}

/// Appends the samples and exemplars in `out`, and repeats this for series that have moved. Returns
/// the number of stored samples. Adds the rejected samples to `rejects`. Samples and exemplars of
/// series in `out.evicted` are neither stored nor rejected. Calls `before_sync` before each wait
/// for a sync of the log.
///
/// # Errors
/// [`WriteError::Store`] if the store fails; [`WriteError::Moved`] if series moved [`ROUNDS_MAX`]
/// times.
pub(crate) fn append(
    resolver: &Resolver<'_>,
    out: &mut Outgoing,
    rejections: &mut Rejections,
    mut before_sync: impl FnMut(),
) -> Result<u64, WriteError> {
    let mut n_stored = 0;
    out.evicted.clear();
    for _ in 0..ROUNDS_MAX {
        if out.batch.is_empty() {
            return Ok(n_stored);
        }
        n_stored += append_once(resolver, out, rejections, &mut before_sync)?;
        push_moved(resolver, out)?;
    }
    if out.batch.is_empty() {
        Ok(n_stored)
    } else {
        Err(WriteError::Moved)
    }
}

fn append_once(
    resolver: &Resolver<'_>,
    out: &mut Outgoing,
    rejections: &mut Rejections,
    before_sync: impl FnOnce(),
) -> Result<u64, WriteError> {
    let n_samples = out.batch.len();
    resolver.db.append_with(&mut out.batch, before_sync)?;
    out.moved.clear();
    for rejected in out.batch.rejected() {
        if rejected.reason == RejectReason::Moved {
            out.moved.push(rejected.clone());
        } else {
            let example = || Example::of_sample(resolver.print(rejected.tag), rejected.sample);
            rejections.add(Reason::Sample(rejected.reason), 1, 1, example);
            out.histograms_rejected += u64::from(rejected.histogram.is_some());
        }
    }
    note_exemplars(resolver, out, rejections);
    Ok((n_samples - out.batch.rejected().len()) as u64)
}

/// Counts stored and rejected exemplars. Collects the exemplars whose series have moved.
fn note_exemplars(resolver: &Resolver<'_>, out: &mut Outgoing, rejections: &mut Rejections) {
    let rejected = out.batch.rejected_exemplars();
    out.exemplars.stored += (out.batch.n_exemplars() - rejected.len()) as u64;
    out.moved_exemplars.clear();
    for rejected in rejected {
        if rejected.reason == RejectExemplar::Moved {
            out.moved_exemplars
                .push((rejected.tag, rejected.exemplar.clone()));
        } else {
            if rejected.reason == RejectExemplar::OutOfOrder && resolver.is_v2() {
                rejections.add(Reason::ExemplarOutOfOrder, 1, 0, || {
                    Example::of_series(resolver.print(rejected.tag))
                });
            }
            out.exemplars
                .reject(ExemplarRejection::Store(rejected.reason));
        }
    }
}

/// Fills the batch with the samples and exemplars whose series have moved.
fn push_moved(resolver: &Resolver<'_>, out: &mut Outgoing) -> Result<(), WriteError> {
    out.batch.clear();
    let mut last = None;
    for Rejected {
        tag,
        sample,
        start_ms,
        histogram,
        ..
    } in out.moved.drain(..)
    {
        let handle = match last {
            Some((last_tag, handle)) if last_tag == tag => handle,
            _ => resolver.relocate(tag)?,
        };
        last = Some((tag, handle));
        let Some(handle) = handle else {
            if out.evicted.last() != Some(&tag) {
                out.evicted.push(tag);
            }
            // The next pass pushes and counts the histogram again.
            out.histograms_rejected += u64::from(histogram.is_some());
            continue;
        };
        match histogram {
            None => out.batch.push_with_start(handle, sample, start_ms, tag),
            Some(histogram) => {
                out.batch.push_histogram_with_start(
                    handle,
                    sample.timestamp_ms,
                    histogram,
                    start_ms,
                    tag,
                );
            }
        }
    }
    for (tag, exemplar) in out.moved_exemplars.drain(..) {
        match resolver.handle(None, tag).ok() {
            Some(handle) => out.batch.push_exemplar(handle, exemplar, tag),
            None if out.evicted.contains(&tag) => {}
            None => out.exemplars.reject(ExemplarRejection::UnknownSeries),
        }
    }
    // The histograms of a series follow its floats, with other series in between.
    out.evicted.sort_unstable();
    out.evicted.dedup();
    Ok(())
}

/// Maximum number of appends. A series moves when it leaves the head, hours after its last sample.
/// Twice in one request is unlikely, three times is an error.
pub(crate) const ROUNDS_MAX: usize = 3;
