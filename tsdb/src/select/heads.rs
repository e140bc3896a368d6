//! The series of a selection in the heads of all shards.
//!
//! The samples are copied when the selection begins. The series come from a [`ResolvedSeries`], in
//! which an earlier selection may have found them. Selections that are too large to be kept, or that
//! need only labels, merge their series while the caller reads ([`MergedHeads`]).

use std::sync::Arc;

use varve_context::{Charge, QueryContext, scheduler};
use varve_model::Labels;

use super::kept_selections::{KeptSelections, Resolution};
use super::merged_heads::MergedHeads;
use super::resolved::{ResolvedSeries, ResolvedStream};
use super::selection::{BATCH_SERIES, ESTIMATE_AFTER_SERIES, Need, Place, Selection};
use crate::error::Result;
use crate::head::HeadCopies;
use crate::label_hint::LabelHint;
use crate::store::Store;

/// The selected series of all heads.
pub(super) struct HeadStream {
    store: Arc<Store>,
    series: HeadSeries,
}

enum HeadSeries {
    Resolved(ResolvedStream),
    Merged(MergedHeads),
}

impl HeadStream {
    /// Copies the samples of a selection from all heads, and returns its series with the
    /// `requested` labels. Returns `None` if no series is selected.
    pub(super) fn new(
        selection: &Selection<'_>,
        kept_selections: &KeptSelections,
        requested: &LabelHint,
        charge: &mut Charge,
    ) -> Result<Option<(Self, Arc<[HeadCopies]>)>> {
        if !selection.is_any_in_range() {
            return Ok(None);
        }
        let Some((series, copies)) = open(selection, kept_selections, requested, charge)? else {
            return Ok(None);
        };
        let store = Arc::clone(selection.store);
        Ok(Some((Self { store, series }, copies)))
    }

    /// Returns an upper bound for the number of remaining series.
    pub(super) fn len(&self) -> u64 {
        match &self.series {
            HeadSeries::Resolved(series) => series.len(),
            HeadSeries::Merged(series) => series.len(),
        }
    }

    /// Returns the next series, with the requested labels.
    pub(super) fn next(
        &mut self,
        ctx: &QueryContext,
        requested: &LabelHint,
    ) -> Result<Option<(Labels, Place)>> {
        match &mut self.series {
            HeadSeries::Resolved(series) => Ok(series.next()),
            HeadSeries::Merged(series) => series.next(ctx, requested),
        }
    }

    /// Returns all series again, if the newest samples of all of them are floats that were decoded
    /// when they were copied.
    pub(super) fn newest_floats(&self) -> Option<ResolvedStream> {
        match &self.series {
            HeadSeries::Resolved(series) => series.newest_floats(),
            HeadSeries::Merged(_) => None,
        }
    }

    /// Returns `true` if the heads have labels of one of these names.
    pub(super) fn has_label(&self, names: &[&str]) -> bool {
        self.store.heads_have_label(names)
    }
}

/// Copies the samples of a selection. Returns `None` if no series is selected.
fn open(
    selection: &Selection<'_>,
    kept_selections: &KeptSelections,
    requested: &LabelHint,
    charge: &mut Charge,
) -> Result<Option<(HeadSeries, Arc<[HeadCopies]>)>> {
    let merged = match selection.need {
        Need::FirstLabels(n_max) => MergedHeads::of_first(selection, n_max, charge)?,
        Need::Labels => {
            let matching = selection.matching_series()?;
            MergedHeads::new(selection, matching, charge)?
        }
        Need::Samples | Need::Newest => {
            match kept_selections.resolve(selection, requested, charge)? {
                Resolution::Kept(resolved) => return copy_resolved(selection, resolved, charge),
                Resolution::TooLarge(matching) => MergedHeads::new(selection, matching, charge)?,
            }
        }
    };
    Ok(merged.map(|(series, copies)| (HeadSeries::Merged(series), copies.into())))
}

/// Copies the samples of resolved series from the heads.
fn copy_resolved(
    selection: &Selection<'_>,
    resolved: Arc<ResolvedSeries>,
    charge: &mut Charge,
) -> Result<Option<(HeadSeries, Arc<[HeadCopies]>)>> {
    let mut copies = Vec::with_capacity(resolved.n_shards());
    let mut n_evicted = 0;
    for shard in 0..resolved.n_shards() {
        copies.push(copy_shard(
            selection,
            &resolved,
            shard,
            charge,
            &mut n_evicted,
        )?);
    }
    // Heads without samples in the range are not visited.
    if (0..resolved.n_shards()).all(|shard| selection.is_in_range(shard)) {
        resolved.note_evicted(n_evicted);
    }
    if copies.iter().all(HeadCopies::is_empty) {
        return Ok(None);
    }
    let copies: Arc<[_]> = copies.into();
    let series = ResolvedStream::new(resolved, Arc::clone(&copies));
    Ok(Some((HeadSeries::Resolved(series), copies)))
}

/// Copies the samples of the resolved series of a shard. The copies have the indexes of the series.
/// Adds the number of evicted series to `n_evicted`.
fn copy_shard(
    selection: &Selection<'_>,
    resolved: &ResolvedSeries,
    shard: usize,
    charge: &mut Charge,
    n_evicted: &mut usize,
) -> Result<HeadCopies> {
    let Selection {
        ctx,
        store,
        range,
        need,
        view,
        ..
    } = *selection;
    let mut copies = selection.empty_copies();
    if !selection.is_in_range(shard) {
        return Ok(copies);
    }
    let slots = resolved.slots_of(shard);
    let mut tails = Vec::new();
    for (number, batch) in slots.chunks(BATCH_SERIES).enumerate() {
        ctx.check()?;
        // Otherwise many selections take the cores from writes, and lock the head in turn.
        scheduler::pause();
        if number * BATCH_SERIES == ESTIMATE_AFTER_SERIES {
            copies.reserve_for(ESTIMATE_AFTER_SERIES, slots.len(), charge);
        }
        let before = copies.size();
        let head = store.shards[shard].head();
        head.prefetch_rows(batch);
        if need == Need::Samples {
            head.prefetch_chunks(batch, range, &mut tails);
        }
        *n_evicted += head.n_outdated(batch);
        head.copy(batch, range, view, &mut copies);
        drop(head);
        charge.grow(copies.size() - before)?;
        copies.check_size()?;
    }
    Ok(copies)
}
