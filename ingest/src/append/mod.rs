//! Handing samples and exemplars to the store, whose series may move in memory meanwhile.

pub(crate) mod exemplars;
pub(crate) mod metadata;

use varve_tsdb::exemplars::{Exemplar, RejectExemplar};
use varve_tsdb::{Db, RejectReason, Rejected, SeriesHandle, WriteBatch};

use crate::admission::Team;
use crate::error::WriteError;
use crate::outcome::{Example, ExemplarCounts, ExemplarRefusal, Reason, Rejects};
use crate::relabel::Tally;

/// Where samples and exemplars come from; `tag` is what they were pushed with.
pub(crate) trait Source {
    /// Returns where the series of a sample is now; `None` if it is nowhere and must not be made here.
    fn resolve(&self, tag: u32) -> Result<Option<SeriesHandle>, WriteError>;
    /// Returns where it is if the store has it; makes none.
    fn find(&self, tag: u32) -> Option<SeriesHandle>;
    /// Prints the labels of a sample's series.
    fn print(&self, tag: u32) -> String;
    /// Tells whether the sender is told of exemplars that are out of order.
    fn tells_exemplars(&self) -> bool {
        false
    }
}

/// What one append to the store works with.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) batch: WriteBatch,
    /// Samples whose series has moved.
    pub(crate) moved: Vec<Rejected>,
    /// Exemplars whose series has moved, with their tags.
    pub(crate) moved_exemplars: Vec<(u32, Exemplar)>,
    /// What has become of the exemplars so far.
    pub(crate) exemplars: ExemplarCounts,
    /// Histograms that were refused so far.
    pub(crate) histograms_rejected: u64,
    /// Samples of teams, and those in which rules had a hand.
    pub(crate) tally: Tally,
    /// Samples that are asked for.
    pub(crate) asked: Tally,
    /// Samples by team.
    pub(crate) by_team: Vec<(Team, u64)>,
    /// Tags of series that left the store while the request was written.
    pub(crate) homeless: Vec<u32>,
}

impl Outgoing {
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.exemplars = ExemplarCounts::default();
        self.histograms_rejected = 0;
        self.by_team.clear();
    }
}

/// Appends what is in `out` and resolves series that have moved again. Counts in `rejects` what is not stored and
/// returns how many samples are; exemplars are counted in `out`, which also gets the tags of series that are nowhere any
/// more: all of their samples and exemplars are to come again.
///
/// # Errors
/// [`WriteError::Store`] if the store fails; [`WriteError::Moved`] if series moved [`ROUNDS_MAX`] times.
pub(crate) fn append(
    db: &Db,
    source: &impl Source,
    out: &mut Outgoing,
    rejects: &mut Rejects,
) -> Result<u64, WriteError> {
    let mut n_stored = 0;
    out.homeless.clear();
    for _ in 0..ROUNDS_MAX {
        if out.batch.is_empty() {
            return Ok(n_stored);
        }
        n_stored += append_once(db, source, out, rejects)?;
        push_moved(source, out)?;
    }
    if out.batch.is_empty() { Ok(n_stored) } else { Err(WriteError::Moved) }
}

fn append_once(db: &Db, source: &impl Source, out: &mut Outgoing, rejects: &mut Rejects) -> Result<u64, WriteError> {
    let n_samples = out.batch.len();
    db.append(&mut out.batch)?;
    out.moved.clear();
    for rejected in out.batch.rejected() {
        if rejected.reason == RejectReason::Moved {
            out.moved.push(rejected.clone());
        } else {
            let example = || Example::of_sample(source.print(rejected.tag), rejected.sample);
            rejects.add(Reason::Sample(rejected.reason), 1, 1, example);
            out.histograms_rejected += u64::from(rejected.histogram.is_some());
        }
    }
    note_exemplars(source, out, rejects);
    Ok((n_samples - out.batch.rejected().len()) as u64)
}

/// Counts the exemplars that were stored, and notes those whose series have moved.
fn note_exemplars(source: &impl Source, out: &mut Outgoing, rejects: &mut Rejects) {
    let rejected = out.batch.rejected_exemplars();
    out.exemplars.stored += (out.batch.n_exemplars() - rejected.len()) as u64;
    out.moved_exemplars.clear();
    for rejected in rejected {
        if rejected.reason == RejectExemplar::Moved {
            out.moved_exemplars.push((rejected.tag, rejected.exemplar.clone()));
        } else {
            if rejected.reason == RejectExemplar::OutOfOrder && source.tells_exemplars() {
                rejects.add(Reason::ExemplarOutOfOrder, 1, 0, || Example::of_series(source.print(rejected.tag)));
            }
            out.exemplars.refuse(ExemplarRefusal::Store(rejected.reason));
        }
    }
}

/// Fills the batch with the samples and exemplars whose series have moved.
fn push_moved(source: &impl Source, out: &mut Outgoing) -> Result<(), WriteError> {
    out.batch.clear();
    let mut last = None;
    for Rejected { tag, sample, start_ms, histogram, .. } in out.moved.drain(..) {
        let handle = match last {
            Some((of, handle)) if of == tag => handle,
            _ => source.resolve(tag)?,
        };
        last = Some((tag, handle));
        let Some(handle) = handle else {
            if out.homeless.last() != Some(&tag) {
                out.homeless.push(tag);
            }
            // It counts when it comes again.
            out.histograms_rejected += u64::from(histogram.is_some());
            continue;
        };
        match histogram {
            None => out.batch.push_with_start(handle, sample, start_ms, tag),
            Some(histogram) => {
                out.batch.push_histogram_with_start(handle, sample.timestamp_ms, histogram, start_ms, tag);
            }
        }
    }
    for (tag, exemplar) in out.moved_exemplars.drain(..) {
        match source.find(tag) {
            Some(handle) => out.batch.push_exemplar(handle, exemplar, tag),
            None if out.homeless.contains(&tag) => {}
            None => out.exemplars.refuse(ExemplarRefusal::UnknownSeries),
        }
    }
    Ok(())
}

/// A series moves when it leaves the head, which is hours after its last sample: a second time in one request is
/// unlikely, a third means that something is wrong.
const ROUNDS_MAX: usize = 3;
