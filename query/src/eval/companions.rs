//! What else is made of series that are read anyway: a selector that occurs twice is read once.
//!
//! `max_over_time(x[1h]) - min_over_time(x[1h])`: whichever function comes first reads the series, and has the value of the
//! other, its companion, made of the same samples, which is kept until it is asked for. `sum(x) + max(abs(x))`: what comes
//! first keeps the series. Where no other use needs all series at once anyhow, what is kept is bounded: queries that
//! aggregate many series do not hold them, but read them again.
//!
//! Invariants
//! 1. A companion that fails, or grows too large, is forgotten, and evaluated by itself when it is asked for: so errors,
//!    annotations and statistics are those of an evaluation of its own.
//! 2. An expression has companions once, whatever becomes of them.

use super::Evaluator;
use super::grid::Grid;
use super::names::Names;
use super::range::OverRange;
use super::series::{Bounds, Series, Vector};
use super::shared::Aside;
use super::stream::{Made, Said};
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::plan::{Call, Plan, PlanKind};
use crate::promql::ast::ValueType;

/// Bytes that a value may take which is kept only so that its series are not read again.
const KEPT_SIZE_MAX: usize = 16 << 20;

/// An expression whose value is to be kept, and how often that will be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeps<'p> {
    class: usize,
    n_left: usize,
    plan: &'p Plan,
    size_max: usize,
}

/// A value on its way to being kept.
pub(super) struct Keeping<'p> {
    keeps: Keeps<'p>,
    /// `None` once it has failed.
    value: Option<(Vector, Said, Tally)>,
}

/// The value of a function of the same range as the one that reads it.
pub(super) struct Companion<'p> {
    names: Names,
    keeping: Keeping<'p>,
}

impl<'p> Keeping<'p> {
    fn new(keeps: Keeps<'p>, bounds: &Bounds, tally: Tally) -> Self {
        Self { keeps, value: Some((bounds.vector(), Said::default(), tally)) }
    }

    /// Takes what a batch has become; `None` if that failed.
    pub(super) fn take(&mut self, batch: Option<(Vec<Series>, Said, Tally)>) {
        let Some((vector, all_said, all_tally)) = &mut self.value else { return };
        let is_taken = batch.is_some_and(|(series, said, tally)| {
            all_said.absorb(said);
            all_tally.absorb(&tally);
            series.into_iter().try_for_each(|series| vector.push(series)).is_ok()
        });
        if !is_taken || vector.size() > self.keeps.size_max {
            self.value = None;
        }
    }
}

impl Companion<'_> {
    /// Takes what was made of a batch; `None` if that failed.
    pub(super) fn take(&mut self, made: Option<Made<'_>>) {
        let made = made.filter(|made| self.names.check(&made.unnamed).is_ok());
        self.keeping.take(made.map(Made::into_parts));
    }
}

impl<'a> Evaluator<'a> {
    /// Tells whether the series of a source, of whose uses so many are served, are to be kept for others.
    pub(super) fn keeps<'p>(&mut self, source: &'p Plan, n_served: usize) -> Option<Keeps<'p>> {
        let (class, n_uses) = self.sharing.uses(source);
        let n_left = n_uses.saturating_sub(n_served);
        let is_kept = n_left > 0 && !self.kept.contains_key(&class) && self.was_kept.insert(class);
        is_kept.then_some(Keeps { class, n_left, plan: source, size_max: KEPT_SIZE_MAX })
    }

    /// Returns the functions of the range that `source` is a function of whose values are to be made along with its own.
    pub(super) fn companions(&self, source: &Plan) -> Vec<(usize, &'a Plan)> {
        let PlanKind::Call(call) = &source.kind else { return Vec::new() };
        // Only some functions look at start timestamps, which are read where they do.
        if self.settings.features.use_start_timestamps {
            return Vec::new();
        }
        let (own, _) = self.sharing.uses(source);
        let others = self.sharing.over_range_with(call).iter().copied();
        let is_open = |class: &usize| !self.kept.contains_key(class) && !self.accompanied.contains(class);
        let others = others.filter(|(class, _)| *class != own && is_open(class));
        if self.accompanied.contains(&own) { Vec::new() } else { others.filter(|(_, plan)| is_plain(plan)).collect() }
    }

    /// Returns how the companions of a function are evaluated, and what takes their values.
    pub(super) fn accompany(&mut self, source: &Plan, grid: Grid) -> (Vec<OverRange<'a>>, Vec<Companion<'a>>) {
        let plans = self.companions(source);
        self.accompanied.extend(plans.iter().map(|(class, _)| class));
        if !plans.is_empty() {
            self.accompanied.insert(self.sharing.uses(source).0);
        }
        // What cannot be evaluated says so when it is asked for.
        plans.into_iter().filter_map(|(class, plan)| self.companion(class, plan, grid).ok()).unzip()
    }

    fn companion(&mut self, class: usize, plan: &'a Plan, grid: Grid) -> Result<(OverRange<'a>, Companion<'a>)> {
        let call = call_of(plan)?;
        let (_, n_left) = self.sharing.uses(plan);
        let size_max = if self.sharing.needs_all(plan) { usize::MAX } else { KEPT_SIZE_MAX };
        let over = self.over_range(call, grid)?;
        let keeping = self.keeping(Keeps { class, n_left, plan, size_max }, grid.n_steps);
        Ok((over, Companion { names: Names::new(self.bounds.ctx.charge()), keeping }))
    }

    /// Keeps the values of companions.
    pub(super) fn keep_companions(&mut self, companions: Vec<Companion<'_>>) {
        companions.into_iter().for_each(|companion| self.keep_if_done(companion.keeping));
    }

    /// Begins to keep a value.
    pub(super) fn keeping<'p>(&self, keeps: Keeps<'p>, n_steps: usize) -> Keeping<'p> {
        Keeping::new(keeps, &self.bounds, self.tally.empty(n_steps))
    }

    /// Keeps a value, unless it has failed.
    pub(super) fn keep_if_done(&mut self, keeping: Keeping<'_>) {
        let Keeps { class, n_left, plan, .. } = keeping.keeps;
        if let Some((vector, said, tally)) = keeping.value {
            self.keep(class, n_left, plan, vector, Aside::new(said.into_list(), tally));
        }
    }
}

/// Tells whether all that a function takes besides the range are numbers, which can be computed at any time.
fn is_plain(plan: &Plan) -> bool {
    let is_plain = |arg: &Plan| matches!(arg.kind, PlanKind::Number(_) | PlanKind::Range(_));
    call_of(plan).is_ok_and(|call| call.args.iter().all(is_plain))
}

fn call_of(plan: &Plan) -> Result<&Call> {
    match &plan.kind {
        PlanKind::Call(call) => Ok(call),
        _ => Err(Error::Execution(format!("the plan has no value of type {:?}", ValueType::Vector))),
    }
}
