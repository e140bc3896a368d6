//! A query whose steps may be in the cache: which of them are valid, and how the others are joined
//! to them.

use std::sync::Arc;

use varve_context::Charge;
use varve_model::TimeRange;
use varve_tsdb::changes::ReadVersion;
use varve_tsdb::{Db, ReadContext};

use super::dependencies::{Dependencies, WindowTimes};
use super::join::join;
use super::key::QueryKey;
use super::results::{ENTRY_OVERHEAD, Entry, ResultCache};
use crate::annotations::Annotations;
use crate::error::Result;
use crate::steps::Steps;
use crate::value::Value;

/// A query that may be cached.
#[derive(Debug)]
pub(crate) struct CachedQuery<'a> {
    pub(crate) cache: &'a ResultCache,
    pub(crate) db: &'a Db,
    /// The text of the query.
    pub(crate) query: &'a str,
    pub(crate) key: QueryKey,
    pub(crate) steps: Steps,
    pub(crate) dependencies: Dependencies,
}

/// The cached part of a result.
#[derive(Debug)]
pub(crate) struct CachedPart {
    entry: Arc<Entry>,
    /// Number of leading steps of the query that the entry has.
    pub(crate) n_steps: usize,
    /// The first step of the joined result: at or before the first step of the query.
    start_ms: i64,
}

impl CachedQuery<'_> {
    /// Finds the leading steps of the query that are in the cache and valid.
    pub(crate) fn find(&self) -> Option<CachedPart> {
        let found = match self.cache.get(&self.key) {
            Some(entry) => self.valid_part(entry),
            None => None,
        };
        let n_found = found.as_ref().map_or(0, |found| found.n_steps);
        self.cache.note_lookup(n_found, self.steps.n_steps);
        found
    }

    /// Returns the valid part of an entry, or `None` if no step of the query is in it.
    fn valid_part(&self, entry: Arc<Entry>) -> Option<CachedPart> {
        let steps = self.steps;
        // The positions of annotations depend on the text.
        if !entry.annotations.is_empty() && &*entry.query != self.query {
            return None;
        }

        // Fast path: the entry has the same steps, and no sample has changed.
        if entry.steps == steps && self.n_valid(entry.version, steps) == steps.n_steps {
            return Some(CachedPart {
                entry,
                n_steps: steps.n_steps,
                start_ms: steps.start_ms,
            });
        }

        // An instant query has no part.
        if steps.is_instant()
            || !entry.is_divisible
            || !self.dependencies.are_steps_independent
            || self.db.has_name_labels()
        {
            return None;
        }
        let cached = entry.steps;
        if cached.start_ms > steps.start_ms || cached.last_ms() < steps.start_ms {
            return None;
        }

        // Keeps earlier steps for queries of a longer range that share the entry.
        let cached_length_ms = steps.step_ms.saturating_mul(cached.n_steps as i64 - 1);
        let first_ms = steps.last_ms().saturating_sub(cached_length_ms);
        let earlier_start_ms = cached.start_ms.max(first_ms).min(steps.start_ms);
        for start_ms in [earlier_start_ms, steps.start_ms] {
            let last_ms = cached.last_ms().min(steps.last_ms());
            let part = Steps::range(start_ms, last_ms, steps.step_ms);
            let n_before = steps_between(start_ms, steps.start_ms, steps);
            let mut n_steps = self.n_valid(entry.version, part).saturating_sub(n_before);
            // The last step is evaluated: if it has an annotation whose steps are unknown, the whole
            // result has it.
            if !entry.annotations.have_steps() {
                n_steps = n_steps.min(steps.n_steps - 1);
            }
            if n_steps > 0 {
                return Some(CachedPart {
                    entry,
                    n_steps,
                    start_ms,
                });
            }
        }
        None
    }

    /// Returns the number of leading steps of `steps` that depend on no sample that changed since
    /// `version`.
    fn n_valid(&self, version: ReadVersion, steps: Steps) -> usize {
        let mut n_valid = steps.n_steps;
        // That of an instant query is 0.
        let step_ms = steps.step_ms.max(1);
        for window in &self.dependencies.samples {
            let (before_ms, after_ms) = match window.times {
                WindowTimes::OfStep {
                    before_ms,
                    after_ms,
                } => (before_ms, after_ms),
                WindowTimes::Fixed(range) => {
                    if self.db.changes(version, window.names, range).is_empty() {
                        continue;
                    }
                    return 0;
                }
            };
            let range = TimeRange {
                start_ms: steps.start_ms.saturating_sub(before_ms),
                end_ms: steps.last_ms().saturating_add(after_ms),
            };
            for changed in self.db.changes(version, window.names, range) {
                // The first step whose window ends at the change or later. It is affected if its
                // window also starts at the change or earlier. If it is not, no later step is.
                let first_ms = changed.start_ms.saturating_sub(after_ms);
                let elapsed_ms = first_ms.saturating_sub(steps.start_ms).max(0);
                let step = elapsed_ms / step_ms + i64::from(elapsed_ms % step_ms > 0);
                if let Ok(step) = usize::try_from(step)
                    && step < n_valid
                    && steps.time_ms(step).saturating_sub(before_ms) <= changed.end_ms
                {
                    n_valid = step;
                }
            }
        }
        n_valid
    }

    /// Returns `true` if the cached part is still valid.
    pub(crate) fn is_still_valid(&self, found: &CachedPart) -> bool {
        let end_ms = self.split_ms(found).saturating_sub(self.steps.step_ms);
        let part = Steps::range(found.start_ms, end_ms, self.steps.step_ms);
        self.n_valid(found.entry.version, part) == part.n_steps
    }

    /// Returns the time of the first step after the cached part.
    fn split_ms(&self, found: &CachedPart) -> i64 {
        self.steps
            .start_ms
            .saturating_add(self.steps.step_ms.saturating_mul(found.n_steps as i64))
    }

    /// Returns the value and the annotations of a query whose steps are all cached. Charges the
    /// value.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn whole(
        &self,
        ctx: &ReadContext,
        found: &CachedPart,
        charge: &mut Charge,
    ) -> Result<(Value, Annotations)> {
        let entry = &found.entry;
        let value = match &entry.value {
            Value::Matrix(matrix) if entry.steps != self.steps => {
                let times = self.steps.start_ms..self.split_ms(found);
                Value::Matrix(join(ctx, matrix, times, Vec::new(), charge)?)
            }
            value => {
                charge.grow(value.size())?;
                value.clone()
            }
        };
        let annotations = if entry.steps == self.steps {
            entry.annotations.clone()
        } else {
            let first = steps_between(entry.steps.start_ms, self.steps.start_ms, entry.steps);
            entry.annotations.cut(&(first..first + found.n_steps))
        };
        Ok((value, annotations))
    }

    /// Joins the cached steps and an evaluation of the others that saw `version`, and caches the
    /// result. Returns the value, which it charges, and the annotations. Returns `None` if the two
    /// cannot be joined.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(crate) fn join(
        &self,
        ctx: &ReadContext,
        found: &CachedPart,
        version: ReadVersion,
        fresh: Value,
        annotations: &Annotations,
        charge: &mut Charge,
    ) -> Result<Option<(Value, Annotations)>> {
        let (Value::Matrix(cached), Value::Matrix(fresh)) = (&found.entry.value, fresh) else {
            return Ok(None);
        };
        let Some(annotations) = self.join_annotations(found, annotations) else {
            return Ok(None);
        };
        let mut joined_charge = ctx.charge();
        let times = found.start_ms..self.split_ms(found);
        let joined = join(ctx, cached, times, fresh, &mut joined_charge)?;

        // The evaluation has ended, so it sees no change that is recorded after this check.
        if !self.is_still_valid(found) || self.db.has_name_labels() {
            return Ok(None);
        }
        let joined_steps = Steps::range(found.start_ms, self.steps.end_ms, self.steps.step_ms);
        let joined = Value::Matrix(joined);
        let is_divisible = annotations.are_divisible();
        if self.fits(&joined) {
            self.insert(
                joined_steps,
                version,
                joined.clone(),
                annotations.clone(),
                is_divisible,
            );
        }

        // Fast path: the joined steps are those of the query.
        if found.start_ms == self.steps.start_ms {
            charge.absorb(joined_charge);
            return Ok(Some((joined, annotations)));
        }
        let Value::Matrix(joined) = joined else {
            return Ok(None);
        };
        if !is_divisible {
            return Ok(None);
        }
        let times = self.steps.start_ms..i64::MAX;
        let cut = join(ctx, &joined, times, Vec::new(), charge)?;
        let first = steps_between(found.start_ms, self.steps.start_ms, self.steps);
        let annotations = annotations.cut(&(first..joined_steps.n_steps));
        Ok(Some((Value::Matrix(cut), annotations)))
    }

    /// Returns the annotations of the cached steps, from the first step of the joined result, and of
    /// an evaluation of the others; `None` if they are unknown.
    fn join_annotations(&self, found: &CachedPart, fresh: &Annotations) -> Option<Annotations> {
        let CachedPart {
            entry, start_ms, ..
        } = found;
        let first = steps_between(entry.steps.start_ms, *start_ms, self.steps);
        let n_cached = steps_between(*start_ms, self.split_ms(found), self.steps);
        let cached = entry.annotations.cut(&(first..first + n_cached));
        Annotations::join(&cached, n_cached, fresh)
    }

    /// Caches the result of an evaluation that saw `version`. `is_order_fixed` if no operator found
    /// series whose order depends on the steps.
    pub(crate) fn store(
        &self,
        ctx: &ReadContext,
        version: ReadVersion,
        value: &Value,
        annotations: &Annotations,
        is_order_fixed: bool,
    ) {
        if ctx.partial().is_some() || !self.fits(value) {
            return;
        }
        let is_divisible = is_order_fixed
            && self.dependencies.are_steps_independent
            && annotations.are_divisible()
            && !self.db.has_name_labels();
        self.insert(
            self.steps,
            version,
            value.clone(),
            annotations.clone(),
            is_divisible,
        );
    }

    /// Returns `true` if the cache accepts an entry of this size.
    fn fits(&self, value: &Value) -> bool {
        value.size() <= self.cache.entry_size_max()
    }

    fn insert(
        &self,
        steps: Steps,
        version: ReadVersion,
        value: Value,
        annotations: Annotations,
        is_divisible: bool,
    ) {
        let size = ENTRY_OVERHEAD
            + 2 * self.key.size()
            + self.query.len()
            + value.size()
            + annotations.size();
        let entry = Entry {
            query: self.query.into(),
            steps,
            version,
            value,
            annotations,
            is_divisible,
            size,
        };
        self.cache.insert(self.key.clone(), entry);
    }
}

/// Returns the number of steps between two times.
fn steps_between(start_ms: i64, end_ms: i64, steps: Steps) -> usize {
    (end_ms.saturating_sub(start_ms) / steps.step_ms) as usize
}
