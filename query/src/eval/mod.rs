//! Evaluation: from a plan and a grid of steps to series of columns.
//!
//! ```text
//! selector, range -> abs, * 8, ...  ->  one series after the other  ->  sum, avg, topk, ...  ->  groups
//!        made in batches, on all threads                          '-> Vector -> joins, sort, ... -> Vector
//! ```
//!
//! Every expression is evaluated once for all steps. Series of selectors and range functions come one at a time, in
//! ascending order of labels ([`Evaluator::each_series`]), so that an aggregation over them holds groups only. `workers`
//! and `stream` say how they are made.
//!
//! Invariants
//! 1. Each stored series is decoded once per selector, however many steps there are.
//! 2. The order of every computation across series is that of their labels: answers do not depend on how data lies.

mod aggregate;
pub(crate) mod binary;
mod call;
pub(crate) mod column;
mod companions;
pub(crate) mod grid;
mod histogram;
mod info;
mod keys;
mod label;
mod names;
pub(crate) mod profile;
mod range;
mod samples;
mod scalar;
mod selector;
pub(crate) mod series;
mod shared;
mod sort;
mod stream;
pub(crate) mod tally;
pub(crate) mod workers;

use hashbrown::{HashMap, HashSet};
use varve_tsdb::Db;
use varve_tsdb::context::Charge;
use varve_tsdb::labels::LabelHint;

use binary::element::Complaints;
use column::Column;
use grid::Grid;
use profile::Profile;
use series::{Bounds, Series, Vector};
use shared::Kept;
use stream::{Stage, Way};
use tally::Tally;
use workers::Workers;

use crate::annotations::Annotations;
use crate::error::{Error, Result};
use crate::plan::{Plan, PlanKind, Sharing, Subquery};
use crate::promql::Features;
use crate::promql::ast::ValueType;

/// What decides an evaluation besides plan and data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// How old a sample may be to stand for a step; an exactly so old one may not.
    pub(crate) lookback_ms: i64,
    /// Distance of the steps of a subquery that names none.
    pub(crate) subquery_step_ms: i64,
    pub(crate) features: Features,
}

/// Evaluates the plan of one query.
#[derive(Debug)]
pub(crate) struct Evaluator<'a> {
    db: &'a Db,
    settings: Settings,
    bounds: Bounds,
    workers: Workers,
    /// What was found to say about the answer.
    pub(crate) annotations: Annotations,
    sharing: Sharing<'a>,
    /// By class.
    kept: HashMap<usize, Kept>,
    /// Functions of ranges that have been evaluated with their companions, and these, by class.
    accompanied: HashSet<usize>,
    /// Sources whose series were kept, or were too many for that, by class.
    was_kept: HashSet<usize>,
    /// Of the steps that are evaluated.
    pub(crate) tally: Tally,
    pub(crate) profile: Profile,
    /// What tally and profile take.
    counting: Charge,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(
        db: &'a Db,
        settings: Settings,
        bounds: Bounds,
        workers: Workers,
        sharing: Sharing<'a>,
        mut annotations: Annotations,
    ) -> Self {
        let (kept, tally, profile) = (HashMap::new(), Tally::default(), Profile::default());
        if sharing.is_any() {
            annotations.record();
        }
        let counting = bounds.ctx.charge();
        let (accompanied, was_kept) = (HashSet::new(), HashSet::new());
        Self {
            db,
            settings,
            bounds,
            workers,
            annotations,
            sharing,
            kept,
            accompanied,
            was_kept,
            tally,
            profile,
            counting,
        }
    }

    /// Counts samples by step, and what each of `n_plans` expressions does.
    ///
    /// # Errors
    /// [`Error::Limit`] if there is no memory for that.
    pub(crate) fn count(&mut self, n_steps: usize, n_plans: usize) -> Result<()> {
        self.counting.grow(Tally::size(n_steps) + Profile::size(n_plans))?;
        (self.tally, self.profile) = (Tally::new(true, n_steps), Profile::new(true, n_plans));
        Ok(())
    }

    /// Returns the most samples that were held at once.
    pub(crate) fn peak_samples(&self) -> usize {
        self.bounds.samples.peak()
    }

    /// Evaluates an expression of type vector.
    pub(crate) fn vector(&mut self, plan: &Plan, grid: Grid) -> Result<Vector> {
        self.bounds.check()?;
        if grid.n_steps == 0 {
            return Ok(self.bounds.vector());
        }
        let (class, n_uses) = self.sharing.uses(plan);
        if let Some(vector) = self.take_kept(class, plan)? {
            self.profile.held(plan.id, &vector);
            return Ok(vector);
        }
        if n_uses <= 1 {
            return self.own_vector(plan, grid);
        }
        let before = self.before();
        let vector = self.own_vector(plan, grid)?;
        let aside = self.aside(&before);
        self.keep(class, n_uses - 1, plan, vector.copy(&self.bounds)?, aside);
        Ok(vector)
    }

    fn own_vector(&mut self, plan: &Plan, grid: Grid) -> Result<Vector> {
        let started = self.profile.now();
        let vector = match &plan.kind {
            PlanKind::Selector(_) => self.collect(plan, grid),
            PlanKind::StepInvariant(inner) => self.step_invariant(inner, grid),
            PlanKind::Call(call) => self.call(plan, call, grid),
            PlanKind::Aggregate(aggregate) => self.aggregate(plan, aggregate, grid),
            PlanKind::Chain(_) | PlanKind::Sign(..) if stream::inner(plan).is_some() => self.staged(plan, grid),
            PlanKind::Chain(chain) => self.chain_of_vectors(chain, grid, &LabelHint::All),
            PlanKind::Sign(..)
            | PlanKind::Number(_)
            | PlanKind::String(_)
            | PlanKind::Range(_)
            | PlanKind::Subquery(_) => Err(mistyped(ValueType::Vector)),
        }?;
        self.profile.took(plan.id, started);
        self.profile.held(plan.id, &vector);
        Ok(vector)
    }

    /// Evaluates an expression of type vector, handing out its series one after the other. Those of selectors and range
    /// functions are made one at a time, and come in ascending order of labels.
    pub(crate) fn each_series(
        &mut self,
        plan: &Plan,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        self.each_with_labels(plan, grid, &LabelHint::All, 1, sink)
    }

    /// As [`Evaluator::each_series`], for `n_uses` of the uses that the series have; they may lack labels that are not
    /// asked for.
    fn each_with_labels(
        &mut self,
        plan: &Plan,
        grid: Grid,
        asked: &LabelHint,
        n_uses: usize,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        self.bounds.check()?;
        if grid.n_steps == 0 {
            return Ok(());
        }
        if self.sharing.is_held(plan) || self.source(plan).is_none() {
            return self.vector_with_labels(plan, grid, asked)?.series.into_iter().try_for_each(sink);
        }
        let started = self.profile.now();
        self.stream(plan, grid, asked, n_uses, sink)?;
        self.profile.took(plan.id, started);
        Ok(())
    }

    /// Evaluates an expression for an operator that looks at no other labels than those asked for: the series may lack others,
    /// and need not differ in what is left.
    fn vector_with_labels(&mut self, plan: &Plan, grid: Grid, asked: &LabelHint) -> Result<Vector> {
        match &plan.kind {
            PlanKind::Chain(chain) if self.sharing.uses(plan).1 <= 1 && stream::inner(plan).is_none() => {
                let started = self.profile.now();
                let vector = self.chain_of_vectors(chain, grid, asked)?;
                self.profile.took(plan.id, started);
                self.profile.held(plan.id, &vector);
                Ok(vector)
            }
            _ => self.vector(plan, grid),
        }
    }

    /// Hands out the series of an expression that has a source.
    fn stream(
        &mut self,
        plan: &Plan,
        grid: Grid,
        asked: &LabelHint,
        n_uses: usize,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let source = self.source(plan).ok_or_else(|| mistyped(ValueType::Vector))?;
        let stages = self.stages(plan, source, grid)?;
        let keeps = self.keeps(source, if std::ptr::eq(source, plan) { n_uses } else { 1 });
        let beside: Vec<_> = self.companions(source).iter().map(|_| self.way(Vec::new(), grid)).collect();
        let labels = match (&keeps, &beside[..]) {
            (None, []) => self.labels_of_source(source, &stages, asked),
            _ => LabelHint::All,
        };
        let way = Way { labels, keeps, beside, ..self.way(stages, grid) };
        self.each_of_source(source, &way, grid, sink)
    }

    fn each_of_source(
        &mut self,
        source: &Plan,
        way: &Way<'_>,
        grid: Grid,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        match &source.kind {
            PlanKind::Selector(selector) => self.each_selected(source, selector, way, grid, sink),
            PlanKind::Call(call) => self.each_over_range(source, call, way, grid, sink),
            _ => Err(mistyped(ValueType::Vector)),
        }
    }

    /// Holds all series of an expression that has a source.
    fn collect(&mut self, plan: &Plan, grid: Grid) -> Result<Vector> {
        let mut vector = self.bounds.vector();
        self.stream(plan, grid, &LabelHint::All, usize::MAX, &mut |series| vector.push(series))?;
        Ok(vector)
    }

    /// Evaluates an expression that works on the series of another one by one.
    fn staged(&mut self, plan: &Plan, grid: Grid) -> Result<Vector> {
        if self.source(plan).is_some() {
            return self.collect(plan, grid);
        }
        let inner = stream::inner(plan).ok_or_else(|| mistyped(ValueType::Vector))?;
        // Operands are evaluated from the left: of annotations that say the same the last one's place stands.
        let (vector, stages) = if begins_with_scalar(plan) {
            let stages = self.own_stages(plan, grid)?;
            (self.vector(inner, grid)?, stages)
        } else {
            let vector = self.vector(inner, grid)?;
            (vector, self.own_stages(plan, grid)?)
        };
        stages.iter().try_fold(vector, |vector, stage| self.at_once(vector, stage))
    }

    /// Does to all series of a vector what a stage does to each, and joins those that have the same labels then.
    fn at_once(&mut self, mut vector: Vector, stage: &Stage<'_>) -> Result<Vector> {
        let delayed = self.settings.features.delayed_name_removal;
        let mut complaints = Complaints::default();
        for (order, series) in vector.series.iter_mut().enumerate() {
            self.bounds.check()?;
            stage.apply(series, order, &mut complaints, &self.bounds, delayed)?;
        }
        stage.annotate(complaints, &mut self.annotations);
        vector.drop_empty();
        let mut vector = self.recharged(vector)?;
        vector.merge_same_labels()?;
        Ok(vector)
    }

    /// Charges a vector anew if it has histograms, as these may have changed.
    fn recharged(&self, vector: Vector) -> Result<Vector> {
        // Fast path: numbers only, which take what they took.
        if vector.series.iter().all(|series| series.column.histograms.is_empty()) {
            return Ok(vector);
        }
        let mut out = self.bounds.vector();
        vector.series.into_iter().try_for_each(|series| out.push(series))?;
        Ok(out)
    }

    /// Evaluates at the first step, and repeats the values at all others.
    fn step_invariant(&mut self, inner: &Plan, grid: Grid) -> Result<Vector> {
        let once = self.once(grid, |evaluator, at_start| evaluator.vector(inner, at_start))?;
        let mut vector = self.bounds.vector();
        for Series { labels, drop_name, column } in once.series {
            self.bounds.check()?;
            let charge = self.bounds.charge_column(grid.n_steps)?;
            let column = Column::repeated(&column, grid.n_steps);
            drop(charge);
            vector.push(Series { labels, drop_name, column })?;
        }
        Ok(vector)
    }

    /// Evaluates something at the first step of a grid that is the same at all of them.
    fn once<T>(&mut self, grid: Grid, evaluate: impl FnOnce(&mut Self, Grid) -> Result<T>) -> Result<T> {
        let (value, once) = self.tallied(1, |evaluator| evaluate(evaluator, Grid::instant(grid.start_ms)))?;
        self.tally.absorb_invariant(&once);
        Ok(value)
    }

    /// Evaluates something over other steps, as many as given, and returns the tally of these.
    fn tallied<T>(&mut self, n_steps: usize, evaluate: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, Tally)> {
        let mut charge = self.bounds.ctx.charge();
        if self.tally.is_on() {
            charge.grow(Tally::size(n_steps))?;
        }
        let inner = self.tally.empty(n_steps);
        let outer = std::mem::replace(&mut self.tally, inner);
        let value = evaluate(self);
        let inner = std::mem::replace(&mut self.tally, outer);
        Ok((value?, inner))
    }

    /// Evaluates the expression of a subquery at the steps that the steps of `grid` look at; returns these, its value and
    /// what was looked at for it.
    fn evaluate_subquery(&mut self, subquery: &Subquery, grid: Grid) -> Result<(Grid, Vector, Tally)> {
        let (first_ms, last_ms) = match subquery.shift.at_ms {
            Some(_) => (subquery.shift.apply(0), subquery.shift.apply(0)),
            None => (subquery.shift.apply(grid.start_ms), subquery.shift.apply(grid.end_ms)),
        };
        let step_ms = subquery.step_ms.unwrap_or(self.settings.subquery_step_ms);
        let inner = grid.subquery(subquery.range_ms, step_ms, first_ms, last_ms);
        let (vector, tally) = self.tallied(inner.n_steps, |evaluator| evaluator.vector(&subquery.expr, inner))?;
        Ok((inner, vector, tally))
    }

    /// Evaluates a subquery for a function, which counts the values that it takes.
    fn subquery(&mut self, subquery: &Subquery, grid: Grid) -> Result<(Grid, Vector)> {
        let (inner, vector, tally) = self.evaluate_subquery(subquery, grid)?;
        self.tally.absorb_reads(&tally, inner, grid, subquery.shift.offset_ms, subquery.range_ms);
        Ok((inner, vector))
    }

    /// Evaluates a subquery that is the query.
    pub(crate) fn whole_subquery(&mut self, subquery: &Subquery, grid: Grid) -> Result<(Grid, Vector)> {
        let (inner, vector, tally) = self.evaluate_subquery(subquery, grid)?;
        self.tally.absorb_whole(&tally);
        Ok((inner, vector))
    }

    /// Ends an evaluation: takes off the metric names that were kept until now.
    pub(crate) fn finish(&self, vector: &mut Vector) -> Result<()> {
        if !self.settings.features.delayed_name_removal {
            return Ok(());
        }
        for series in vector.series.iter_mut().filter(|series| series.drop_name) {
            series.labels = series::without_name(&series.labels);
        }
        vector.merge_same_labels()
    }
}

/// Tells whether the first operand of a chain of operators is a scalar.
fn begins_with_scalar(plan: &Plan) -> bool {
    matches!(&plan.kind, PlanKind::Chain(chain) if chain.first.value_type == ValueType::Scalar)
}

/// The checker of types lets no such plan through.
fn mistyped(expected: ValueType) -> Error {
    Error::Execution(format!("the plan has no value of type {expected:?}"))
}
