//! Series on their way from where they are made to the operator that takes them, one after the other.
//!
//! A source (a selector, a function over ranges) makes series in batches, on all threads; what is done to each series by
//! itself, as by `abs` or `* 8`, is done there too, before it is handed on. So an operator that needs no more than one
//! series at a time, such as an aggregation, makes a query hold a few batches and what the operator holds.
//!
//! Invariants
//! 1. Series are handed on in ascending order of the labels that they have in the store.
//! 2. What a batch holds is charged until its series are handed on.

use varve_tsdb::context::Charge;
use varve_tsdb::labels::{LabelHint, METRIC_NAME};
use varve_tsdb::select::{SelectHints, SeriesSet};
use varve_tsdb::{Labels, MatchOp, Matcher};

use super::binary::element::Complaints;
use super::column::Column;
use super::companions::{Keeping, Keeps};
use super::grid::Grid;
use super::profile::Passed;
use super::scalar::Scalars;
use super::series::{Bounds, NAME_LABELS, Series, Vector, series_size};
use super::tally::Tally;
use super::{Evaluator, binary, call};
use crate::annotations::{Annotations, Note};
use crate::error::Result;
use crate::histogram::FloatHistogram;
use crate::plan::{Link, Plan, PlanKind, Selector};
use crate::promql::Features;
use crate::promql::ast::{Span, UnaryOp, ValueType};

/// Series of a batch, at most. To wake a thread takes as long as some dozens of series.
const BATCH_SERIES: usize = 256;
/// Values of a batch, at most, unless it is a single series.
const BATCH_VALUES: usize = 1 << 14;
/// Series of a batch of which only the newest sample is taken.
pub(super) const BATCH_OF_NEWEST: usize = 2048;

/// Returns how many series make a batch. This decides nothing but how the work is spread.
pub(super) fn batch_len(n_steps: usize) -> usize {
    (BATCH_VALUES / n_steps.max(1)).clamp(1, BATCH_SERIES)
}

/// Cuts a selection into batches of so many series.
pub(super) fn batches(
    mut set: SeriesSet,
    len: usize,
) -> impl FnMut() -> Result<Option<Vec<varve_tsdb::select::Series>>> {
    move || {
        let batch: Vec<_> = set.by_ref().take(len).collect::<Result<_, _>>()?;
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// What is done to every series by itself.
pub(super) struct Stage<'p> {
    /// The number of the expression that does it.
    pub(super) id: usize,
    pub(super) work: Work<'p>,
}

/// Changes the values of a series.
type Change<'p> = Box<dyn Fn(&mut Column) + Send + Sync + 'p>;

/// See [`Stage`].
pub(super) enum Work<'p> {
    /// A number of each number; histograms are passed over.
    Floats(Change<'p>),
    /// A number of each histogram; numbers are passed over.
    Histograms(fn(&FloatHistogram) -> f64),
    /// The other sign.
    Negate,
    /// An operator with a scalar, which stands on the left if `swapped`.
    Scalar { link: &'p Link, scalar: Scalars, swapped: bool },
}

impl Stage<'_> {
    /// Tells whether the result is no longer what the metric's name says.
    fn drops_name(&self) -> bool {
        match &self.work {
            Work::Floats(_) | Work::Histograms(_) | Work::Negate => true,
            Work::Scalar { link, .. } => binary::changes_meaning(link),
        }
    }

    /// Says what there is to say about it.
    pub(super) fn annotate(&self, complaints: Complaints, annotations: &mut Annotations) {
        if let Work::Scalar { link, .. } = &self.work {
            complaints.annotate(link.op, link.span, annotations);
        }
    }

    /// Does it to a series, the `order`-th; what is left may have no values.
    pub(super) fn apply(
        &self,
        series: &mut Series,
        order: usize,
        complaints: &mut Complaints,
        bounds: &Bounds,
        delayed: bool,
    ) -> Result<()> {
        match &self.work {
            Work::Floats(change) => {
                series.column.keep_floats();
                change(&mut series.column);
            }
            Work::Histograms(of) => {
                let mut numbers = bounds.column(series.column.values.len())?;
                series.column.histograms().for_each(|(step, histogram)| numbers.set(step, of(histogram)));
                series.column = numbers;
            }
            Work::Negate => negate(&mut series.column),
            Work::Scalar { link, scalar, swapped } => {
                binary::with_scalar(link, &mut series.column, scalar, *swapped, order, complaints, bounds)?;
            }
        }
        if self.drops_name() {
            series.drop_name(delayed);
        }
        Ok(())
    }
}

fn negate(column: &mut Column) {
    column.values.iter_mut().for_each(|value| *value = -*value);
    column.map_histograms(|histogram| {
        let mut negated = histogram.clone();
        negated.multiply(-1.0);
        negated
    });
}

/// What all batches of a stream have in common.
pub(super) struct Way<'p> {
    pub(super) stages: Vec<Stage<'p>>,
    pub(super) bounds: Bounds,
    pub(super) delayed: bool,
    /// A tally of the steps of the stream, to begin with.
    pub(super) tally: Tally,
    pub(super) n_steps: usize,
    /// The labels that are needed of the series.
    pub(super) labels: LabelHint,
    /// The source, if its series are to be kept as they come out of it.
    pub(super) keeps: Option<Keeps<'p>>,
    /// Ways without stages of what else is made of the same series.
    pub(super) beside: Vec<Way<'p>>,
}

impl Way<'_> {
    /// Returns what a selection can do without.
    pub(super) fn hints(&self) -> SelectHints {
        SelectHints { only_newest: false, labels: self.labels.clone(), whole_where: &NAME_LABELS }
    }
}

/// What a source makes of a batch.
pub(super) struct Made<'w> {
    way: &'w Way<'w>,
    series: Vec<Series>,
    /// Labels before and after the source took names off.
    pub(super) unnamed: Vec<(Labels, Labels)>,
    /// What there is to say, each thing once.
    pub(super) said: Said,
    pub(super) tally: Tally,
    /// Of each stage.
    complaints: Vec<Complaints>,
    /// Series and values that came out of the source, and of each stage.
    passed: Vec<Passed>,
    n_pushed: usize,
    /// Series as they came out of the source, where they are kept.
    kept: Vec<Series>,
    /// What is made of the same batch on the ways beside; `None` where that failed.
    pub(super) beside: Vec<Option<Made<'w>>>,
    charge: Charge,
}

/// Notes and the places that they are about.
#[derive(Debug, Default)]
pub(super) struct Said {
    list: Vec<(Note, Span)>,
}

impl Said {
    fn copy(&self) -> Self {
        Self { list: self.list.clone() }
    }

    /// Adds a note, if it is not there.
    pub(super) fn add(&mut self, note: Note, span: Span) {
        let is_known = |(known, known_span): &&mut (Note, Span)| *known_span == span && known.is_same(&note);
        match self.list.iter_mut().find(is_known) {
            Some((known, _)) => known.absorb(note),
            None => self.list.push((note, span)),
        }
    }

    /// Takes over others.
    pub(super) fn absorb(&mut self, other: Self) {
        other.list.into_iter().for_each(|(note, span)| self.add(note, span));
    }

    pub(super) fn into_list(self) -> Vec<(Note, Span)> {
        self.list
    }

    /// Says all.
    pub(super) fn annotate(self, annotations: &mut Annotations) {
        self.list.into_iter().for_each(|(note, span)| annotations.add(note, span));
    }
}

impl<'w> Made<'w> {
    pub(super) fn new(way: &'w Way<'w>) -> Result<Self> {
        let mut charge = way.bounds.ctx.charge();
        if way.tally.is_on() {
            charge.grow(Tally::size(way.n_steps))?;
        }
        Ok(Self {
            way,
            series: Vec::new(),
            unnamed: Vec::new(),
            said: Said::default(),
            tally: way.tally.empty(way.n_steps),
            complaints: way.stages.iter().map(|_| Complaints::default()).collect(),
            passed: vec![Passed::default(); way.stages.len() + 1],
            n_pushed: 0,
            kept: Vec::new(),
            beside: way.beside.iter().map(|way| Self::new(way).map(Some)).collect::<Result<_>>()?,
            charge,
        })
    }

    /// Makes of a batch what the `at`-th way beside is for. What fails there is forgotten.
    pub(super) fn make_beside(&mut self, at: usize, make: impl FnOnce(&mut Self) -> Result<()>) {
        if let Some(Some(made)) = self.beside.get_mut(at)
            && make(made).is_err()
        {
            self.beside[at] = None;
        }
    }

    /// Returns the series, what there is to say and the tally.
    pub(super) fn into_parts(self) -> (Vec<Series>, Said, Tally) {
        (self.series, self.said, self.tally)
    }

    /// Takes a series that the source has made through the stages; one without values is dropped.
    pub(super) fn push(&mut self, mut series: Series) -> Result<()> {
        let Way { stages, bounds, delayed, .. } = self.way;
        self.n_pushed += 1;
        if self.way.keeps.is_some() {
            self.charge.grow(series_size(&series))?;
            self.kept.push(series.clone());
        }
        for (at, stage) in stages.iter().enumerate() {
            self.pass(at, &series);
            stage.apply(&mut series, self.n_pushed, &mut self.complaints[at], bounds, *delayed)?;
            if series.column.present.is_empty() {
                return Ok(());
            }
        }
        if !series.column.present.is_empty() {
            self.pass(stages.len(), &series);
            self.charge.grow(series_size(&series))?;
            self.series.push(series);
        }
        Ok(())
    }

    fn pass(&mut self, at: usize, series: &Series) {
        if self.way.tally.is_on() {
            self.passed[at].n_series += 1;
            self.passed[at].n_samples += series.column.n_samples();
        }
    }
}

impl Evaluator<'_> {
    /// Returns the source of an expression whose series can be handed on one by one: what is done to them on the way is
    /// done to each by itself, and no two can come to have the same labels that have not been told apart at the source.
    pub(super) fn source<'p>(&self, plan: &'p Plan) -> Option<&'p Plan> {
        let mut source = plan;
        while let Some(inner) = inner(source) {
            source = inner;
            // What is kept for others is not read again.
            if self.sharing.is_held(source) {
                return None;
            }
        }
        if self.is_kept(source) {
            return None;
        }
        let Features { delayed_name_removal, type_and_unit_labels, .. } = self.settings.features;
        let (is_source, distinct) = match &source.kind {
            PlanKind::Selector(selector) => (true, is_of_one_name(selector) && !type_and_unit_labels),
            PlanKind::Call(call) => (call::is_over_range(call), !call::keeps_name(call)),
            _ => (false, false),
        };
        let untouched = std::ptr::eq(source, plan) || delayed_name_removal;
        (is_source && (untouched || distinct)).then_some(source)
    }

    /// Returns the stages from a source to an expression, the first first.
    pub(super) fn stages<'p>(&mut self, plan: &'p Plan, source: &Plan, grid: Grid) -> Result<Vec<Stage<'p>>> {
        let (mut stages, mut at) = (Vec::new(), plan);
        while !std::ptr::eq(at, source) {
            let Some(below) = inner(at) else { break };
            let mut own = self.own_stages(at, grid)?;
            own.append(&mut stages);
            (stages, at) = (own, below);
        }
        Ok(stages)
    }

    /// Returns what an expression does to the series of the one inside of it.
    pub(super) fn own_stages<'p>(&mut self, plan: &'p Plan, grid: Grid) -> Result<Vec<Stage<'p>>> {
        let id = plan.id;
        match &plan.kind {
            PlanKind::Sign(UnaryOp::Minus, _) => Ok(vec![Stage { id, work: Work::Negate }]),
            PlanKind::Sign(UnaryOp::Plus, _) => Ok(Vec::new()),
            PlanKind::Call(call) => {
                Ok(self.call_stage(call, grid)?.map(|work| Stage { id, work }).into_iter().collect())
            }
            PlanKind::Chain(chain) => {
                let swapped = chain.first.value_type == ValueType::Scalar;
                let mut stages = Vec::with_capacity(chain.links.len());
                for (at, link) in chain.links.iter().enumerate() {
                    let swapped = swapped && at == 0;
                    let scalar = self.scalar(if swapped { &chain.first } else { &link.rhs }, grid)?;
                    stages.push(Stage { id, work: Work::Scalar { link, scalar, swapped } });
                }
                Ok(stages)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns a way with these stages.
    pub(super) fn way<'p>(&self, stages: Vec<Stage<'p>>, grid: Grid) -> Way<'p> {
        Way {
            stages,
            bounds: self.bounds.clone(),
            delayed: self.settings.features.delayed_name_removal,
            tally: self.tally.empty(grid.n_steps),
            n_steps: grid.n_steps,
            labels: LabelHint::All,
            keeps: None,
            beside: Vec::new(),
        }
    }

    /// Returns the labels that are needed of a source's series where `asked` are those that the series must have in the end.
    /// All of them, if series may be told apart by others on the way.
    pub(super) fn labels_of_source(&self, source: &Plan, stages: &[Stage<'_>], asked: &LabelHint) -> LabelHint {
        let Features { delayed_name_removal, type_and_unit_labels, .. } = self.settings.features;
        let is_of_one_name = !delayed_name_removal && has_one_name(source);
        let drops_name = stages.iter().any(Stage::drops_name);
        let (keeps_names, needs_name) = match &source.kind {
            PlanKind::Selector(selector) => (!drops_name, !drops_name || selector.extension.is_some()),
            PlanKind::Call(call) => (false, call::keeps_name(call) && !drops_name),
            _ => (false, true),
        };
        match asked {
            _ if type_and_unit_labels || !(keeps_names || is_of_one_name) => LabelHint::All,
            asked if needs_name => asked.clone(),
            asked => without_name(asked),
        }
    }

    /// Lets batches become series on all threads, and hands these on in order; `source` is the number of the expression
    /// that makes them. `check` sees what a batch has become first.
    pub(super) fn run<B: Send>(
        &mut self,
        source: usize,
        way: &Way<'_>,
        next: impl FnMut() -> Result<Option<B>>,
        make: impl for<'m> Fn(B, &mut Made<'m>) -> Result<()> + Sync,
        mut check: impl FnMut(&mut Made<'_>) -> Result<()>,
        sink: &mut dyn FnMut(Series) -> Result<()>,
    ) -> Result<()> {
        let workers = self.workers.clone();
        let mut said = Said::default();
        let mut complaints: Vec<_> = way.stages.iter().map(|_| Complaints::default()).collect();
        let mut passed = vec![Passed::default(); way.stages.len() + 1];
        let mut keeping = way.keeps.map(|keeps| self.keeping(keeps, way.n_steps));
        let work = |batch| {
            way.bounds.check()?;
            let mut made = Made::new(way)?;
            make(batch, &mut made)?;
            Ok(made)
        };
        workers.in_order(next, work, |mut made: Made<'_>| {
            way.bounds.check()?;
            check(&mut made)?;
            keeping.iter_mut().for_each(|keeping: &mut Keeping<'_>| {
                keeping.take(Some((std::mem::take(&mut made.kept), made.said.copy(), made.tally.clone())));
            });
            said.absorb(std::mem::take(&mut made.said));
            self.tally.absorb(&made.tally);
            complaints.iter_mut().zip(made.complaints).for_each(|(all, of_batch)| all.absorb(of_batch));
            for (all, of_batch) in passed.iter_mut().zip(&made.passed) {
                all.n_series += of_batch.n_series;
                all.n_samples += of_batch.n_samples;
            }
            made.series.into_iter().try_for_each(&mut *sink)
        })?;
        keeping.into_iter().for_each(|keeping| self.keep_if_done(keeping));
        said.annotate(&mut self.annotations);
        let ids = [source].into_iter().chain(way.stages.iter().map(|stage| stage.id));
        ids.zip(passed).for_each(|(id, passed)| self.profile.streamed(id, passed));
        let of_stages = way.stages.iter().zip(complaints);
        of_stages.for_each(|(stage, complaints)| stage.annotate(complaints, &mut self.annotations));
        Ok(())
    }
}

/// Returns the expression whose series another one takes one by one.
pub(super) fn inner(plan: &Plan) -> Option<&Plan> {
    match &plan.kind {
        PlanKind::Sign(_, inner) if inner.value_type == ValueType::Vector => Some(inner),
        PlanKind::Call(call) => call::inner(call),
        PlanKind::Chain(chain) => {
            let vectors = |links: &[Link]| links.iter().all(|link| link.rhs.value_type == ValueType::Scalar);
            match chain.first.value_type {
                ValueType::Vector if vectors(&chain.links) => Some(&chain.first),
                ValueType::Scalar if chain.links[0].rhs.value_type == ValueType::Vector => {
                    vectors(&chain.links[1..]).then_some(&chain.links[0].rhs)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl Evaluator<'_> {
    /// Tells whether the series of an expression are read for it alone and have one metric name, so that they differ however
    /// few labels are made of them.
    pub(super) fn is_of_one_name(&self, plan: &Plan) -> bool {
        let Features { delayed_name_removal, type_and_unit_labels, .. } = self.settings.features;
        let is_plain = !delayed_name_removal && !type_and_unit_labels && self.sharing.uses(plan).1 <= 1;
        is_plain && self.source(plan).is_some_and(has_one_name)
    }

    /// Holds the series of an expression that has a source, with no more labels than asked for.
    pub(super) fn narrow(&mut self, plan: &Plan, grid: Grid, asked: &LabelHint) -> Result<Vector> {
        self.bounds.check()?;
        let started = self.profile.now();
        let mut vector = self.bounds.vector();
        if grid.n_steps > 0 {
            self.stream(plan, grid, asked, usize::MAX, &mut |series| vector.push(series))?;
        }
        self.profile.took(plan.id, started);
        self.profile.held(plan.id, &vector);
        Ok(vector)
    }
}

/// Takes the metric name out of what is asked for.
fn without_name(asked: &LabelHint) -> LabelHint {
    match asked {
        LabelHint::All => LabelHint::All,
        LabelHint::With(names) => LabelHint::With(names.iter().filter(|name| *name != METRIC_NAME).cloned().collect()),
        LabelHint::Without(names) => {
            LabelHint::Without(names.iter().cloned().chain([METRIC_NAME.to_owned()]).collect())
        }
    }
}

/// Tells whether all series that a source reads have the same metric name.
fn has_one_name(source: &Plan) -> bool {
    match &source.kind {
        PlanKind::Selector(selector) => is_of_one_name(selector),
        PlanKind::Range(range) => is_of_one_name(&range.selector),
        PlanKind::Call(call) => call.args.iter().any(has_one_name),
        _ => false,
    }
}

/// Tells whether all series of a selector have the same metric name.
fn is_of_one_name(selector: &Selector) -> bool {
    one_name(selector).is_some()
}

/// Returns the metric name that all series of a selector have.
pub(super) fn one_name(selector: &Selector) -> Option<&str> {
    let is_name = |m: &&Matcher| m.name() == METRIC_NAME && m.op() == MatchOp::Equal && !m.value().is_empty();
    selector.matchers.iter().find(is_name).map(Matcher::value)
}
