//! Scans that several instant queries with the same timestamp share: the rules of a group.
//!
//! [`ScanPlan`] finds selectors with equal matchers in several expressions, whatever their offsets
//! and ranges. The series of equal matchers are scanned once, over all times that the queries need.
//! A query reads its part.
//!
//! Invariants
//! 1. A query gets at least the samples of a scan of its own, unless a sample was appended after
//!    the shared scan. It may get more series: propagated matchers do not restrict shared scans.
//!    The caller ends scans that read what it appends ([`SharedScans::end`]). Only queries with the
//!    same restriction ([`ReadContext::restrict`]) share scans.
//! 2. A shared scan is charged to the context of all queries. If that fails, queries scan on their
//!    own.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;
use varve_model::{Matcher, TimeRange};
use varve_promql::ast::{Expr, RangeExtension};
use varve_promql::deep_stack;
use varve_tsdb::select::{SelectHints, Series, SeriesSet};
use varve_tsdb::{Db, ReadContext};

use crate::plan::{self, Plan, PlanKind, Selector};
use crate::steps::Steps;

/// The selectors that expressions have in common.
#[derive(Debug, Default)]
pub struct ScanPlan {
    by_matchers: HashMap<String, PlannedScan>,
}

/// The scan of equal matchers. Its times are those that the uses need, relative to the time of the
/// query.
#[derive(Debug, Clone)]
struct PlannedScan {
    matchers: Vec<Matcher>,
    n_uses: usize,
    /// Earliest start of the uses without lookback.
    start_ms: i64,
    /// Earliest start of the uses from whose start the lookback delta is subtracted.
    lookback_start_ms: i64,
    /// Latest end of the uses without lookahead.
    end_ms: i64,
    /// Latest end of the uses to whose end the lookback delta is added.
    lookahead_end_ms: i64,
    /// All uses need only the newest sample.
    only_newest: bool,
}

/// The scans of queries with one timestamp.
#[derive(Debug)]
pub struct SharedScans {
    plan: Arc<ScanPlan>,
    ctx: ReadContext,
    time_ms: i64,
    lookback_ms: i64,
    by_matchers: Mutex<HashMap<String, Arc<Scan>>>,
    n_scans: AtomicU64,
}

/// A scan. It is dropped after as many uses as were planned, by [`SharedScans::end`], or with the
/// [`SharedScans`].
#[derive(Debug)]
struct Scan {
    /// The series, or `None` if the scan failed. The first query runs it, and others wait for it.
    series: OnceLock<Option<Arc<[Series]>>>,
    n_uses_left: AtomicUsize,
}

/// The series of a selector for one query.
#[derive(Debug)]
pub(in crate::eval) enum Selected {
    Own(Box<SeriesSet>),
    Shared {
        series: Arc<[Series]>,
        next: usize,
        ctx: ReadContext,
        range: TimeRange,
    },
}

impl ScanPlan {
    /// Finds the selectors that expressions have in common.
    #[must_use]
    pub fn new<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> Self {
        let mut found = Self::default();
        for expr in exprs {
            // A deep expression, or an expression that cannot be planned, has no scans to share.
            if !deep_stack::is_deep(expr)
                && let Ok(plan) = plan::build(expr, Steps::instant(0))
            {
                found.add(&plan, (0, 0));
            }
        }
        found.by_matchers.retain(|_, planned| planned.n_uses > 1);
        found
    }

    /// Adds the selectors of an expression that is evaluated at these times.
    fn add(&mut self, plan: &Plan, times: (i64, i64)) {
        match &plan.kind {
            PlanKind::Selector(selector) => self.add_selector(selector, times, None),
            PlanKind::Range(range) => {
                self.add_selector(&range.selector, times, Some(range.range_ms))
            }
            PlanKind::Subquery(subquery) if subquery.shift.at_ms.is_some() => {}
            PlanKind::Subquery(subquery) => {
                let offset_ms = subquery.shift.offset_ms;
                let start_ms = times
                    .0
                    .saturating_sub(offset_ms)
                    .saturating_sub(subquery.range_ms);
                self.add(
                    &subquery.expr,
                    (start_ms, times.1.saturating_sub(offset_ms)),
                );
            }
            _ => {
                for child in plan.children() {
                    self.add(child, times);
                }
            }
        }
    }

    fn add_selector(&mut self, selector: &Selector, times: (i64, i64), range_ms: Option<i64>) {
        // A selector with `@` reads at other times than the query.
        if selector.shift.at_ms.is_some() {
            return;
        }
        let offset_ms = selector.shift.offset_ms;
        let start_ms = times.0.saturating_sub(offset_ms);
        let end_ms = times.1.saturating_sub(offset_ms);
        let matchers = &selector.matchers;
        let planned = self
            .by_matchers
            .entry(key(matchers))
            .or_insert_with(|| PlannedScan {
                matchers: matchers.clone(),
                n_uses: 0,
                start_ms: i64::MAX,
                lookback_start_ms: i64::MAX,
                end_ms: i64::MIN,
                lookahead_end_ms: i64::MIN,
                only_newest: true,
            });
        let looks_back = range_ms.is_none() || selector.extension.is_some();
        let looks_ahead = selector.extension == Some(RangeExtension::Smoothed);
        let is_first_or_same = planned.n_uses == 0 || planned.end_ms == end_ms;
        planned.only_newest &=
            range_ms.is_none() && start_ms == end_ms && !looks_ahead && is_first_or_same;
        planned.n_uses += 1;
        let earliest = if looks_back {
            &mut planned.lookback_start_ms
        } else {
            &mut planned.start_ms
        };
        *earliest = (*earliest).min(start_ms.saturating_sub(range_ms.unwrap_or(0)));
        let latest = if looks_ahead {
            &mut planned.lookahead_end_ms
        } else {
            &mut planned.end_ms
        };
        *latest = (*latest).max(end_ms);
    }
}

impl SharedScans {
    /// Creates the scans of the queries at `time_ms`. They are charged to `ctx`, whose deadline
    /// should be later than the deadlines of all queries.
    pub(crate) fn new(
        plan: Arc<ScanPlan>,
        ctx: ReadContext,
        time_ms: i64,
        lookback_ms: i64,
    ) -> Self {
        Self {
            plan,
            ctx,
            time_ms,
            lookback_ms,
            by_matchers: Mutex::default(),
            n_scans: AtomicU64::new(0),
        }
    }

    /// Returns the number of selections from the store so far.
    #[must_use]
    pub fn n_scans(&self) -> u64 {
        self.n_scans.load(Ordering::Relaxed)
    }

    /// Ends the scans whose selector passes `reads`: later queries scan again.
    pub fn end(&self, reads: impl Fn(&[Matcher]) -> bool) {
        let mut scans = self.by_matchers.lock();
        scans.retain(|key, _| {
            self.plan
                .by_matchers
                .get(key)
                .is_none_or(|planned| !reads(&planned.matchers))
        });
    }

    /// Returns the series of a selector from a shared scan. Returns `None` if the query must scan
    /// on its own.
    pub(in crate::eval) fn select(
        &self,
        db: &Db,
        ctx: &ReadContext,
        selector: &Selector,
        range: TimeRange,
        only_newest: bool,
    ) -> Option<Selected> {
        let is_same_restriction = key(ctx.restriction()) == key(self.ctx.restriction());
        let found = if is_same_restriction {
            self.find(db, selector, range, only_newest)
        } else {
            None
        };
        if found.is_none() {
            self.n_scans.fetch_add(1, Ordering::Relaxed);
        }
        Some(Selected::Shared {
            series: found?,
            next: 0,
            ctx: ctx.clone(),
            range,
        })
    }

    fn find(
        &self,
        db: &Db,
        selector: &Selector,
        range: TimeRange,
        only_newest: bool,
    ) -> Option<Arc<[Series]>> {
        // `ScanPlan::new` builds plans without matcher propagation.
        let key = key(&selector.matchers[..selector.n_written]);
        let planned = self.plan.by_matchers.get(&key)?;
        let whole = planned.at(self.time_ms, self.lookback_ms);
        let is_part = range.start_ms >= whole.start_ms && range.end_ms <= whole.end_ms;
        // The newest sample of the whole range may lie outside of a part.
        if !is_part || (planned.only_newest && !(only_newest && range == whole)) {
            return None;
        }
        let scan = {
            let mut scans = self.by_matchers.lock();
            let scan = Arc::clone(scans.entry_ref(key.as_str()).or_insert_with(|| {
                Arc::new(Scan {
                    series: OnceLock::new(),
                    n_uses_left: AtomicUsize::new(planned.n_uses),
                })
            }));
            if scan.n_uses_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                scans.remove(&key);
            }
            scan
        };
        scan.series
            .get_or_init(|| self.scan(db, planned, whole))
            .clone()
    }

    fn scan(&self, db: &Db, planned: &PlannedScan, range: TimeRange) -> Option<Arc<[Series]>> {
        let hints = SelectHints {
            only_newest: planned.only_newest,
            ..SelectHints::default()
        };
        let set = db
            .select_with(&self.ctx, &planned.matchers, range, hints)
            .ok()?;
        let series = set.collect::<Result<Arc<[Series]>, _>>().ok()?;
        self.n_scans.fetch_add(1, Ordering::Relaxed);
        Some(series)
    }
}

impl PlannedScan {
    /// Returns the range of a scan for queries at `time_ms`.
    fn at(&self, time_ms: i64, lookback_ms: i64) -> TimeRange {
        let start_ms = self
            .start_ms
            .min(self.lookback_start_ms.saturating_sub(lookback_ms));
        let end_ms = self
            .end_ms
            .max(self.lookahead_end_ms.saturating_add(lookback_ms));
        TimeRange {
            start_ms: time_ms.saturating_add(start_ms).saturating_add(1),
            end_ms: time_ms.saturating_add(end_ms),
        }
    }
}

impl Selected {
    /// Returns an upper bound for the number of remaining series.
    pub(in crate::eval) fn len_max(&self) -> usize {
        match self {
            Self::Own(set) => set.len_max(),
            Self::Shared { series, next, .. } => series.len() - next,
        }
    }
}

impl Iterator for Selected {
    type Item = Result<Series, varve_tsdb::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Own(set) => set.next(),
            Self::Shared {
                series,
                next,
                ctx,
                range,
            } => {
                let found = series.get(*next)?;
                *next += 1;
                Some(found.within(ctx, *range))
            }
        }
    }
}

/// Returns the matchers as a key. Lists of the same matchers, in any order, have equal keys.
fn key(matchers: &[Matcher]) -> String {
    let mut parts: Vec<_> = matchers
        .iter()
        .map(|matcher| {
            format!(
                "{:?}{}\0{}",
                matcher.op(),
                matcher.name(),
                matcher.value_bytes().escape_ascii()
            )
        })
        .collect();
    parts.sort_unstable();
    parts.join("\n")
}
