//! Vector matching: arithmetic, comparison and trimming operators between two vectors.
//!
//! Series match if their *signatures* are equal: the labels of `on`, or all labels except those of
//! `ignoring`. The "one" side is the left side with `group_right`, otherwise the right side. No two
//! of its series with the same signature may have a value at the same step.
//!
//! Prometheus matches series at each step. This implementation combines a pair of series for all
//! steps at once, and uses sets of steps to find which series are present and whether a match is
//! allowed.

use hashbrown::HashMap;
use varve_context::Charge;
use varve_model::Labels;
use varve_model::labels::{LabelsBuilder, NAME_LABELS};
use varve_promql::ast::{Cardinality, VectorMatching};
use varve_tsdb::select::LabelHint;

use super::matched_steps::MatchedSteps;
use crate::error::{Error, Result};
use crate::eval::columns::combine::{OperatorAnnotations, combine_floats, combine_steps, element};
use crate::eval::columns::{
    Column, GroupingKeys, HINT_NAMES_MAX, Limits, Series, StepSet, Vector, printed,
};
use crate::eval::evaluator::Evaluator;
use crate::functions::arithmetic;
use crate::functions::operators::{self, is_trim};
use crate::plan::{Link, contains_name, is_name_label};

/// Returns `true` if a label is part of the signature.
pub(super) fn is_of_signature(matching: &VectorMatching, name: &str) -> bool {
    let named = contains_name(&matching.labels, name);
    if matching.on {
        named
    } else {
        !is_name_label(name) && !named
    }
}

/// Returns the signature of a label set.
fn signature(labels: &Labels, matching: &VectorMatching) -> Labels {
    labels.filter(|name| is_of_signature(matching, name))
}

/// Series of one signature.
#[derive(Default)]
struct Group {
    /// Indexes of series on the "many" side.
    many: Vec<usize>,
    /// Indexes of series on the "one" side.
    one: Vec<usize>,
}

/// The series of two vectors by signature.
struct Groups {
    list: Vec<Group>,
    _charge: Charge,
}

/// Returns the matching of two vectors, and the labels of the "many" side that a consumer of the
/// labels in `hint` needs. Returns `None` if the consumer may need any label. Error messages
/// contain no labels of the "many" side.
pub(super) fn labels_of_many<'p>(
    link: &'p Link,
    hint: &LabelHint,
) -> Option<(&'p VectorMatching, LabelHint)> {
    let matching = link.matching.as_ref()?;
    let names = match hint {
        LabelHint::With(names) => &names[..],
        LabelHint::None => &[],
        LabelHint::All | LabelHint::Without(_) => return None,
    };
    let VectorMatching {
        cardinality,
        labels,
        on,
        include,
        fill_left,
        fill_right,
    } = matching;
    let is_simple = *on && include.is_empty() && fill_left.is_none() && fill_right.is_none();
    if labels.len() + names.len() > HINT_NAMES_MAX {
        return None;
    }
    let names = labels.iter().chain(names).cloned().collect();
    (is_simple && *cardinality != Cardinality::ManyToMany)
        .then_some((matching, LabelHint::With(names)))
}

/// Applies an operator to two vectors. If `has_partial_labels`, labels of the "many" side were not
/// read, so distinct series may have equal labels.
pub(super) fn combine(
    link: &Link,
    matching: &VectorMatching,
    lhs: Vector,
    rhs: Vector,
    n_steps: usize,
    has_partial_labels: bool,
    evaluator: &mut Evaluator<'_>,
) -> Result<Vector> {
    let is_swapped = matching.cardinality == Cardinality::OneToMany;
    let (many, one) = if is_swapped { (rhs, lhs) } else { (lhs, rhs) };
    // Series that differ only in labels that are removed with the name can be told apart only by
    // all labels.
    let has_partial_labels = has_partial_labels && !has_any_label(&many, &NAME_LABELS);
    let mut join = Join {
        link,
        matching,
        is_swapped,
        is_name_removal_delayed: evaluator.settings.features.delayed_name_removal,
        active: active_steps(&many, &one, matching, n_steps, &evaluator.limits)?,
        n_steps,
        has_partial_labels,
        out: evaluator.limits.vector(),
        order: Vec::new(),
        annotations: OperatorAnnotations::default(),
        limits: evaluator.limits.clone(),
    };
    let groups = group(&many, &one, matching, &evaluator.limits)?;
    join.check_one_side(&groups, &one)?;
    for group in &groups.list {
        join.group(group, &many, &one)?;
    }
    // Distinct series of the "many" side have distinct results unless a label of theirs is
    // replaced.
    // The series of a whole range query are sorted by labels at the end.
    let is_query = link.span == evaluator.query_span;
    evaluator.is_order_fixed &=
        is_query || matching.include.is_empty() || !has_any_label(&many, &matching.include);
    join.sort();
    let Join {
        mut out,
        annotations,
        ..
    } = join;
    let depends_on_order = annotations.add_to(&mut evaluator.annotations, link.span);
    evaluator.is_order_fixed &= !depends_on_order;
    if !has_partial_labels {
        out.merge_same_labels()?;
    }
    Ok(out)
}

/// Returns `true` if a series has one of these labels.
fn has_any_label(vector: &Vector, names: &[impl AsRef<str>]) -> bool {
    vector.series.iter().any(|series| {
        names
            .iter()
            .any(|name| series.labels.get(name.as_ref()).is_some())
    })
}

/// Returns the steps at which results are possible: without a fill value, those at which both sides
/// have a series.
fn active_steps(
    many: &Vector,
    one: &Vector,
    matching: &VectorMatching,
    n_steps: usize,
    limits: &Limits,
) -> Result<StepSet> {
    if matching.fill_left.is_some() || matching.fill_right.is_some() {
        return Ok(StepSet::full(n_steps));
    }
    let active_many = present_steps(many, n_steps, limits)?;
    let active_one = present_steps(one, n_steps, limits)?;
    Ok(active_many.intersection(&active_one))
}

/// Returns the steps at which any series has a value.
fn present_steps(vector: &Vector, n_steps: usize, limits: &Limits) -> Result<StepSet> {
    let mut steps = StepSet::empty(n_steps);
    for (series_idx, series) in vector.series.iter().enumerate() {
        limits.check_series(series_idx)?;
        steps.union_with(&series.column.present);
    }
    Ok(steps)
}

/// Groups the series of both sides by signature, in order of appearance.
fn group(
    many: &Vector,
    one: &Vector,
    matching: &VectorMatching,
    limits: &Limits,
) -> Result<Groups> {
    let mut list = Vec::<Group>::new();
    let mut charge = limits.ctx.charge();
    let mut keys = GroupingKeys::default();
    for (vector, is_many) in [(many, true), (one, false)] {
        charge.grow(vector.series.len() * 2 * size_of::<usize>())?;
        for (at, series) in vector.series.iter().enumerate() {
            limits.check_series(at)?;
            let (group, is_new) = keys.intern(&series.labels, limits, |name| {
                is_of_signature(matching, name)
            })?;
            if is_new {
                charge.grow(GroupingKeys::size(&keys.labels()[group]) + 2 * size_of::<Group>())?;
                list.push(Group::default());
            }
            let group = &mut list[group];
            if is_many {
                group.many.push(at)
            } else {
                group.one.push(at)
            }
        }
    }
    Ok(Groups {
        list,
        _charge: charge,
    })
}

/// The state of an operator between two vectors.
struct Join<'a> {
    link: &'a Link,
    matching: &'a VectorMatching,
    /// The "many" side is the right side.
    is_swapped: bool,
    is_name_removal_delayed: bool,
    active: StepSet,
    n_steps: usize,
    /// Labels of the "many" side were not read: distinct many-to-one results may have equal labels.
    has_partial_labels: bool,
    out: Vector,
    /// For each result, the position of its pair in Prometheus' order of evaluation.
    order: Vec<usize>,
    annotations: OperatorAnnotations,
    limits: Limits,
}

impl Join<'_> {
    /// Fails if two series of the "one" side have the same signature and a value at the same step.
    /// Reports the two of the earliest such step.
    fn check_one_side(&self, groups: &Groups, one: &Vector) -> Result<()> {
        let mut earliest: Option<(usize, usize, usize)> = None;
        for group in groups.list.iter().filter(|group| group.one.len() > 1) {
            let mut seen = StepSet::empty(self.n_steps);
            for &at in &group.one {
                self.limits.check()?;
                let present = one.series[at].column.present.intersection(&self.active);
                if let Some(step) = seen.intersection(&present).first()
                    && earliest.is_none_or(|(known, ..)| step < known)
                {
                    let other = group
                        .one
                        .iter()
                        .find(|&&other| one.series[other].column.present.contains(step));
                    earliest = Some((
                        step,
                        at,
                        *other.expect("the step was seen in a series of the group"),
                    ));
                }
                seen.union_with(&present);
            }
        }
        let Some((_, a, b)) = earliest else {
            return Ok(());
        };
        let a = &one.series[a].labels;
        let b = &one.series[b].labels;
        let side = if self.is_swapped { "left" } else { "right" };
        let _building = self.limits.charge_building(2 * a.size())?;
        let mut duplicates = [printed(a), printed(b)];
        duplicates.sort_unstable();
        Err(Error::Execution(format!(
            "found duplicate series for the match group {} on the {side} hand-side of the operation: [{}, {}];\
             many-to-many matching not allowed: matching labels must be unique on one side",
            printed(&signature(a, self.matching)),
            duplicates[0],
            duplicates[1]
        )))
    }

    /// Combines all series of one signature.
    fn group(&mut self, group: &Group, many: &Vector, one: &Vector) -> Result<()> {
        let VectorMatching {
            fill_left,
            fill_right,
            ..
        } = *self.matching;
        let (fill_many, fill_one) = if self.is_swapped {
            (fill_right, fill_left)
        } else {
            (fill_left, fill_right)
        };
        // A single series of the "many" side has at most one result at a step.
        let may_collide = group.many.len() > 1 || fill_many.is_some();
        let mut matched_steps = may_collide.then(|| MatchedSteps {
            steps: HashMap::new(),
            charge: self.limits.ctx.charge(),
        });
        let mut matched = StepSet::empty(self.n_steps);
        // At most one series per step: `check_one_side` rejects series that overlap at active
        // steps.
        let mut active = Vec::new();
        for &index in &group.one {
            if one.series[index].column.present.overlaps(&self.active) {
                active.push(&one.series[index]);
            }
        }
        for &index in &group.many {
            let m = &many.series[index];
            let mut alone = m.column.present.intersection(&self.active);
            for &o in &active {
                self.limits.check()?;
                let steps = alone.intersection(&o.column.present);
                alone.subtract(&steps);
                matched.union_with(&self.pair(m, o, steps, index, &mut matched_steps)?);
            }
            if let Some(fill) = fill_one {
                let o = self.filled(&m.labels, fill)?;
                matched.union_with(&self.pair(m, &o, alone, index, &mut matched_steps)?);
            }
        }
        if let Some(fill) = fill_many {
            for &index in &group.one {
                self.limits.check()?;
                let o = &one.series[index];
                let mut alone = o.column.present.clone();
                alone.subtract(&matched);
                let m = self.filled(&o.labels, fill)?;
                let order = many.series.len() + index;
                self.pair(&m, o, alone, order, &mut matched_steps)?;
            }
        }
        Ok(())
    }

    /// Returns the series that replaces a missing one: the value `fill` at every step.
    fn filled(&self, labels: &Labels, fill: f64) -> Result<Series> {
        let _building = self.limits.charge_building(2 * labels.size())?;
        self.limits.check_column(self.n_steps)?;
        let column = Column::full(vec![fill; self.n_steps]);
        Ok(Series {
            labels: signature(labels, self.matching),
            drop_name: false,
            column,
        })
    }

    /// Combines two series at `steps`. Returns the steps that have a result, ignoring the filter of
    /// a comparison. `order` is the position of the pair in Prometheus' order of evaluation.
    /// `matched_steps` is `None` if no other pair can have the same result labels at these steps.
    fn pair(
        &mut self,
        many: &Series,
        one: &Series,
        steps: StepSet,
        order: usize,
        matched_steps: &mut Option<MatchedSteps>,
    ) -> Result<StepSet> {
        if steps.is_empty() {
            return Ok(steps);
        }
        // The set and its buffer.
        let labels_size = many.labels.size() + one.labels.size();
        let _building = self.limits.charge_building(2 * labels_size)?;
        self.limits.check_column(self.n_steps)?;
        let labels = self.result_labels(&many.labels, &one.labels);
        let (lhs, rhs) = if self.is_swapped {
            (&one.column, &many.column)
        } else {
            (&many.column, &one.column)
        };
        let Link {
            op, return_bool, ..
        } = *self.link;
        // Fast path: floats only.
        let (column, combined) =
            if lhs.histograms.is_empty() && rhs.histograms.is_empty() && !is_trim(op) {
                (
                    combine_floats(op, return_bool, lhs, rhs, steps.clone()),
                    steps,
                )
            } else {
                let mut column = Column::absent(self.n_steps);
                let combined = combine_steps(
                    &steps,
                    return_bool,
                    |step| operators::combine(op, element(lhs, step), element(rhs, step)),
                    |step, annotation| self.annotations.add(step, order, annotation),
                    &self.limits,
                    &mut column,
                )?;
                (column, combined)
            };
        let are_labels_whole =
            !self.has_partial_labels || self.matching.cardinality == Cardinality::OneToOne;
        if are_labels_whole && let Some(matched_steps) = matched_steps {
            matched_steps.add(self.matching.cardinality, &labels, &combined, self.n_steps)?;
        }
        self.out.push(Series {
            labels,
            drop_name: return_bool,
            column,
        })?;
        // A result without values is not pushed.
        self.order.resize(self.out.series.len(), order);
        Ok(combined)
    }

    /// Sorts the results by the position of their pairs, so that a sum over them does not depend on
    /// how the series of the "many" side are grouped. The results of a one-to-one match stay as
    /// they are.
    fn sort(&mut self) {
        if self.matching.cardinality == Cardinality::OneToOne || self.order.is_sorted() {
            return;
        }
        let series = std::mem::take(&mut self.out.series);
        let mut sorted: Vec<_> = self.order.iter().zip(series).collect();
        sorted.sort_by_key(|(order, _)| **order);
        self.out.series = sorted.into_iter().map(|(_, series)| series).collect();
    }

    /// Returns the labels of the result: the labels of the "many" side, reduced to the signature
    /// for one-to-one matches.
    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let VectorMatching {
            cardinality,
            labels: names,
            on,
            include,
            ..
        } = self.matching;
        let unnamed = (self.link.return_bool && !self.is_name_removal_delayed)
            || arithmetic::drops_metric_name(self.link.op);
        let one_to_one = *cardinality == Cardinality::OneToOne;
        let keeps = |name: &str| {
            !(unnamed && is_name_label(name)) && (!one_to_one || contains_name(names, name) == *on)
        };
        if include.is_empty() {
            // Fast path: no label is removed.
            let is_whole = many.iter().all(|(name, _)| keeps(name));
            return if is_whole {
                many.clone()
            } else {
                many.filter(keeps)
            };
        }
        let mut included = one
            .iter()
            .filter(|(name, _)| contains_name(include, name))
            .peekable();
        let mut result = LabelsBuilder::with_capacity(many.size());
        for (name, value) in many
            .iter()
            .filter(|(name, _)| keeps(name) && !contains_name(include, name))
        {
            while let Some((before, value)) = included.next_if(|(included, _)| *included < name) {
                result.push(before, value);
            }
            result.push(name, value);
        }
        for (name, value) in included {
            result.push(name, value);
        }
        result.finish()
    }
}
