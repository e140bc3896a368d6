//! Reads: selections, labels, exemplars, and which samples changed.

use std::sync::Arc;

use varve_context::QueryContext;
use varve_model::labels::NAME_LABELS;
use varve_model::metadata::Families;
use varve_model::{Matcher, StringSet, TimeRange};

use super::Db;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::head::Head;
use crate::isolation::Reader;
use crate::isolation::changes::{NameGroups, ReadVersion};
use crate::read_context::ReadContext;
use crate::select::{FIRST_SERIES_MAX, LabelSets, Need, SelectHints, SelectionSource, SeriesSet};
use crate::shard::Shard;
use crate::shard::exemplars::ExemplarSet;

impl Db {
    /// Selects the series that pass all matchers (all series if there are none) and have samples in
    /// `range`, ascending by labels. Sees all requests that were acknowledged before the call, and
    /// no part of later ones.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`] if the request exceeds a limit of its context,
    /// [`Error::Io`] and [`Error::Corrupt`] if a block cannot be read, [`Error::Replaying`] and
    /// [`Error::ReplayFailed`].
    pub fn select(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<SeriesSet> {
        self.select_with(ctx, matchers, range, SelectHints::default())
    }

    /// Selects series as [`Db::select`] does, for callers that need only some labels or samples.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn select_with(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
        hints: SelectHints,
    ) -> Result<SeriesSet> {
        self.select_as(&mut None, ctx, matchers, range, hints)
    }

    /// Selects series as [`Db::select`] does, by each of the `selectors`.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn select_each(
        &self,
        ctx: &ReadContext,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<Vec<SeriesSet>> {
        let mut reader = None;
        let mut sets = Vec::with_capacity(selectors.len());
        for matchers in selectors {
            let hints = SelectHints::default();
            sets.push(self.select_as(&mut reader, ctx, matchers, range, hints)?);
        }
        Ok(sets)
    }

    /// Selects series as [`Db::select_with`] does, for `reader`. Registers it if it is `None`.
    fn select_as(
        &self,
        reader: &mut Option<Arc<Reader>>,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
        hints: SelectHints,
    ) -> Result<SeriesSet> {
        ctx.check_range(range)?;
        let matchers = &*ctx.restrict(matchers);
        self.prepare(ctx, matchers, range)?;
        let need = if hints.only_newest {
            Need::Newest
        } else {
            Need::Samples
        };
        let reader = match reader {
            Some(reader) => reader,
            None => reader.insert(self.reader(ctx)?),
        };
        SeriesSet::new(ctx, self.source(reader), matchers, range, need, hints)
    }

    fn source<'a>(&'a self, reader: &'a Arc<Reader>) -> SelectionSource<'a> {
        SelectionSource {
            store: &self.store,
            kept_selections: &self.kept_selections,
            reader,
        }
    }

    /// Registers a reader of series.
    fn reader(&self, ctx: &QueryContext) -> Result<Arc<Reader>> {
        self.store.series_readers.enter(ctx).map(Arc::new)
    }

    /// Selects series as [`Db::select`] does, and returns only their labels. Does not copy samples of
    /// the heads. A range above the limit of the request is shortened to its end, not rejected.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn select_labels(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<LabelSets> {
        self.select_first_labels(ctx, matchers, range, usize::MAX)
    }

    /// Returns the labels of series as [`Db::select_labels`] does, for callers that need only the
    /// first `n_series`. May return more. Does not visit all series that match.
    ///
    /// The series are the first ones in label order. An exception are new series, if more than about
    /// a thousand have been created in a shard since its series were last ranked: any of these may
    /// be missing if there are others instead.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn select_first_labels(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
        n_series: usize,
    ) -> Result<LabelSets> {
        let matchers = &*ctx.restrict(matchers);
        let range = ctx.clamp_range(range, self.own_now_ms());
        self.prepare(ctx, matchers, range)?;
        let need = if n_series <= FIRST_SERIES_MAX {
            Need::FirstLabels(n_series)
        } else {
            Need::Labels
        };
        let reader = self.reader(ctx)?;
        let set = SeriesSet::new(
            ctx,
            self.source(&reader),
            matchers,
            range,
            need,
            SelectHints::default(),
        )?;
        Ok(LabelSets::new(set))
    }

    /// Returns an upper bound for the number of series that [`Db::select`] returns. Returns `None`
    /// if the selection has to wait for the replay of the WAL or for a writer, or reads a block.
    /// Cost: up to a few dozen lookups per matcher and shard.
    pub fn series_in_heads_max(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Option<u64> {
        let matchers = &*ctx.restrict(matchers);
        self.sum_of_heads(ctx, matchers, range, |head| head.series_max(matchers))
    }

    /// Returns an upper bound for the strings and series that [`Db::label_names`] visits, or
    /// [`Db::label_values`] if there is a `name`. Returns `None` in the same cases as
    /// [`Db::series_in_heads_max`], and costs the same.
    pub fn label_strings_in_heads_max(
        &self,
        ctx: &ReadContext,
        name: Option<&str>,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Option<u64> {
        let matchers = &*ctx.restrict(matchers);
        let range = ctx.clamp_range(range, self.own_now_ms());
        self.sum_of_heads(ctx, matchers, range, |head| {
            head.label_strings_max(name, matchers)
        })
    }

    /// Sums up a property of all heads that depends on `matchers`. Returns `None` if a read of `range`
    /// has to wait or reads a block, or if the matchers exceed the memory limit of the request.
    fn sum_of_heads(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        range: TimeRange,
        property: impl Fn(&Head) -> u64,
    ) -> Option<u64> {
        if !self.store.replay.is_done() {
            return None;
        }
        let list = self.store.blocks.list();
        if list
            .iter()
            .any(|stored| stored.meta().range.overlaps(range))
        {
            return None;
        }
        for matcher in matchers {
            matcher.compile(ctx).ok()?;
        }
        self.store
            .shards
            .iter()
            .map(|shard| Some(property(&*shard.try_head()?)))
            .sum()
    }

    /// Returns the exemplars in `range` of the series that pass all matchers of one of the
    /// `selectors`.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`] if the request exceeds its memory limit,
    /// [`Error::Replaying`] and [`Error::ReplayFailed`].
    pub fn exemplars(
        &self,
        ctx: &ReadContext,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<ExemplarSet> {
        ctx.check_range(range)?;
        let selectors: Vec<_> = selectors
            .iter()
            .map(|matchers| ctx.restrict(matchers).into_owned())
            .collect();
        // The WAL may have exemplars of any time.
        self.wait_for_heads(ctx, selectors.iter().flatten(), TimeRange::ALL)?;
        self.store.exemplars.select(ctx, &selectors, range)
    }

    /// Returns the label names of all series that pass all matchers, ascending.
    ///
    /// As in Prometheus, `range` only selects the heads and blocks to read: those with samples in
    /// `range`.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn label_names(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<StringSet> {
        self.first_label_names(ctx, matchers, range, usize::MAX)
    }

    /// Returns label names as [`Db::label_names`] does, for callers that need only the first
    /// `n_names`. May return more.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn first_label_names(
        &self,
        ctx: &ReadContext,
        matchers: &[Matcher],
        range: TimeRange,
        n_names: usize,
    ) -> Result<StringSet> {
        let matchers = &*ctx.restrict(matchers);
        let range = ctx.clamp_range(range, self.own_now_ms());
        self.prepare(ctx, matchers, range)?;
        let mut names = StringSet::of_first(ctx, n_names);
        for shard in self.shards_in(range) {
            shard.head().label_names(ctx, matchers, &mut names)?;
        }
        for stored in self
            .store
            .blocks
            .list()
            .iter()
            .filter(|stored| stored.meta().range.overlaps(range))
        {
            stored.label_names(ctx, matchers, &mut names)?;
        }
        Ok(names)
    }

    /// Returns the values of a label in all series that pass all matchers, ascending. `range` has
    /// the same meaning as in [`Db::label_names`].
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn label_values(
        &self,
        ctx: &ReadContext,
        name: &str,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<StringSet> {
        self.first_label_values(ctx, name, matchers, range, usize::MAX)
    }

    /// Returns label values as [`Db::label_values`] does, for callers that need only the first
    /// `n_values`. May return more.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn first_label_values(
        &self,
        ctx: &ReadContext,
        name: &str,
        matchers: &[Matcher],
        range: TimeRange,
        n_values: usize,
    ) -> Result<StringSet> {
        let matchers = &*ctx.restrict(matchers);
        let range = ctx.clamp_range(range, self.own_now_ms());
        self.prepare(ctx, matchers, range)?;
        let mut values = StringSet::of_first(ctx, n_values);
        for shard in self.shards_in(range) {
            shard
                .head()
                .label_values(ctx, name, matchers, &mut values)?;
        }
        for stored in self
            .store
            .blocks
            .list()
            .iter()
            .filter(|stored| stored.meta().range.overlaps(range))
        {
            stored.label_values(ctx, name, matchers, &mut values)?;
        }
        Ok(values)
    }

    /// Returns `true` if a series may have one of [`NAME_LABELS`]: without them, several series of
    /// a metric may have the same labels.
    #[must_use]
    pub fn has_name_labels(&self) -> bool {
        if self.store.heads_have_label(&NAME_LABELS) {
            return true;
        }
        let list = self.store.blocks.list();
        list.iter().any(|stored| stored.block.has_name_labels())
    }

    /// Forgets the series lists of recent selections, to free their memory.
    pub fn forget_selections(&self) {
        self.kept_selections.clear();
    }

    /// Returns the current metadata of all metric families without copying it.
    #[must_use]
    pub fn metadata(&self) -> Arc<Families> {
        self.store.metadata()
    }

    /// Returns the current read version. Reads that begin after this call see at least every change
    /// before it. Returns `None` until the WAL is replayed.
    #[must_use]
    pub fn read_version(&self) -> Option<ReadVersion> {
        self.store
            .replay
            .is_done()
            .then(|| ReadVersion(self.store.isolation.all_ended_before()))
    }

    /// Returns the parts of `range` in which samples of metrics in `names` may have changed: a read
    /// that began after `since` was taken may return other samples than a read that begins after
    /// this call. Samples in other parts are the same for both.
    #[must_use]
    pub fn changes(
        &self,
        since: ReadVersion,
        names: NameGroups,
        range: TimeRange,
    ) -> Vec<TimeRange> {
        self.store.changes.since(since, names, range)
    }

    /// Prepares a read of heads and blocks as [`Db::wait_for_heads`] does. The context records that
    /// the result is partial if a block of the range cannot be read.
    pub(super) fn prepare<'a>(
        &self,
        ctx: &QueryContext,
        matchers: impl IntoIterator<Item = &'a Matcher>,
        range: TimeRange,
    ) -> Result<()> {
        self.wait_for_heads(ctx, matchers, range)?;
        if let Some(missing) = self.store.blocks.missing_in(range) {
            ctx.note_missing(missing);
        }
        Ok(())
    }

    /// Compiles the matchers, before any lock is taken, and waits for the replay of a range.
    fn wait_for_heads<'a>(
        &self,
        ctx: &QueryContext,
        matchers: impl IntoIterator<Item = &'a Matcher>,
        range: TimeRange,
    ) -> Result<()> {
        for matcher in matchers {
            matcher.compile(ctx)?;
        }
        self.store.replay.wait_for(ctx, range)
    }

    fn shards_in(&self, range: TimeRange) -> &[Shard] {
        let shards = &self.store.shards;
        let covered = shards.iter().any(|shard| {
            shard
                .head()
                .range()
                .is_some_and(|head| head.overlaps(range))
        });
        if covered { shards } else { &[] }
    }
}
