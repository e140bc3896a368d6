//! Operators between two vectors: which series meet, and what comes of it.
//!
//! Series meet if they agree in the labels of `on`, or in all but those of `ignoring`: their *signature*. On one side
//! no two series of a signature may have a value at the same step ("the one side"); with `group_right` that is the left
//! one, else the right one.
//!
//! All of this is decided per step in Prometheus. Here a pair of series is combined for all steps at once; who is there
//! at which step, and whether that is allowed, follows from sets of steps.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use varve_tsdb::Labels;
use varve_tsdb::context::Charge;
use varve_tsdb::labels::{LabelHint, METRIC_NAME};

use super::super::Evaluator;
use super::super::column::{Bits, Column};
use super::super::keys::Keys;
use super::super::series::{Bounds, NAME_LABELS, Series, Vector, is_name_label};
use super::arithmetic;
use super::element::{self, Complaints, Element, is_trim};
use crate::error::{Error, Result};
use crate::plan::Link;
use crate::promql::ast::{BinaryOp, Cardinality, VectorMatching};

/// Tells whether a label is one of those that decide with whom a series meets.
pub(super) fn is_of_signature(matching: &VectorMatching, name: &str) -> bool {
    let named = matching.labels.iter().any(|label| label == name);
    if matching.on { named } else { name != METRIC_NAME && !named }
}

/// Returns the labels that decide with whom a series meets.
fn signature(labels: &Labels, matching: &VectorMatching) -> Labels {
    labels.filter(|name| is_of_signature(matching, name))
}

/// Series of one signature.
#[derive(Default)]
struct Group {
    /// Indexes into the side of which many may be there.
    many: Vec<usize>,
    /// Indexes into the one side.
    one: Vec<usize>,
}

/// Returns how two vectors meet, and which labels of the side where many may meet one matter to somebody who looks only at
/// those asked for; `None` if that may be any. Messages name no labels of that side.
pub(super) fn asked_of_many<'p>(link: &'p Link, asked: &LabelHint) -> Option<(&'p VectorMatching, LabelHint)> {
    let (matching, LabelHint::With(names)) = (link.matching.as_ref()?, asked) else { return None };
    let VectorMatching { cardinality, labels, on, include, fill_left, fill_right } = matching;
    let is_simple = *on && include.is_empty() && fill_left.is_none() && fill_right.is_none();
    let names = labels.iter().chain(names).cloned().collect();
    (is_simple && *cardinality != Cardinality::ManyToMany).then_some((matching, LabelHint::With(names)))
}

/// Applies an operator of arithmetic, comparison or trimming to two vectors. The series of the side where many may meet one
/// may be `narrow`: they differ, and lack the labels in which they do.
pub(super) fn combine(
    link: &Link,
    matching: &VectorMatching,
    lhs: Vector,
    rhs: Vector,
    n_steps: usize,
    narrow: bool,
    evaluator: &mut Evaluator<'_>,
) -> Result<Vector> {
    let swapped = matching.cardinality == Cardinality::OneToMany;
    let (many, one) = if swapped { (rhs, lhs) } else { (lhs, rhs) };
    // Labels that go with the name may be all in which series differ; where there are any, no labels are left out.
    let goes_with_name = |series: &Series| NAME_LABELS.iter().any(|name| series.labels.get(name).is_some());
    let narrow = narrow && !many.series.iter().any(goes_with_name);
    let mut join = Join {
        link,
        matching,
        swapped,
        delayed: evaluator.settings.features.delayed_name_removal,
        active: active_steps(&many, &one, matching, n_steps),
        n_steps,
        narrow,
        out: evaluator.bounds.vector(),
        complaints: Complaints::default(),
        bounds: evaluator.bounds.clone(),
    };
    let mut charge = evaluator.bounds.ctx.charge();
    let groups = group(&many, &one, matching, &mut charge)?;
    join.refuse_two_on_one_side(&groups, &one)?;
    for group in &groups {
        evaluator.bounds.check()?;
        join.group(group, &many, &one)?;
    }
    let Join { mut out, complaints, .. } = join;
    complaints.annotate(link.op, link.span, &mut evaluator.annotations);
    if !narrow {
        out.merge_same_labels()?;
    }
    Ok(out)
}

/// Returns the steps at which anything is computed: without a value to fill in, those at which both sides have a series.
fn active_steps(many: &Vector, one: &Vector, matching: &VectorMatching, n_steps: usize) -> Bits {
    if matching.fill_left.is_some() || matching.fill_right.is_some() {
        return Bits::all(n_steps);
    }
    let any = |vector: &Vector| {
        let mut steps = Bits::none(n_steps);
        vector.series.iter().for_each(|series| steps.unite(&series.column.present));
        steps
    };
    any(many).common(&any(one))
}

/// Groups the series of both sides by signature, in the order in which signatures appear.
fn group(many: &Vector, one: &Vector, matching: &VectorMatching, charge: &mut Charge) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut keys = Keys::default();
    let mut place = |labels: &Labels, groups: &mut Vec<Group>| -> Result<usize> {
        let (group, new) = keys.number(labels, |name| is_of_signature(matching, name));
        if new {
            charge.grow(Keys::size(&keys.labels()[group]) + size_of::<Group>())?;
            groups.push(Group::default());
        }
        charge.grow(size_of::<usize>())?;
        Ok(group)
    };
    for (at, series) in many.series.iter().enumerate() {
        let group = place(&series.labels, &mut groups)?;
        groups[group].many.push(at);
    }
    for (at, series) in one.series.iter().enumerate() {
        let group = place(&series.labels, &mut groups)?;
        groups[group].one.push(at);
    }
    Ok(groups)
}

/// An operator at work on two vectors.
struct Join<'a> {
    link: &'a Link,
    matching: &'a VectorMatching,
    /// The many side stands on the right.
    swapped: bool,
    delayed: bool,
    active: Bits,
    n_steps: usize,
    /// Where many meet one, results have different labels but for those that they lack.
    narrow: bool,
    out: Vector,
    complaints: Complaints,
    bounds: Bounds,
}

impl Join<'_> {
    /// Fails if two series of a signature are on the one side at the same step; names those of the earliest step.
    fn refuse_two_on_one_side(&self, groups: &[Group], one: &Vector) -> Result<()> {
        let mut earliest: Option<(usize, usize, usize)> = None;
        for group in groups.iter().filter(|group| group.one.len() > 1) {
            let mut seen = Bits::none(self.n_steps);
            for &at in &group.one {
                let present = one.series[at].column.present.common(&self.active);
                if let Some(step) = seen.common(&present).first()
                    && earliest.is_none_or(|(known, ..)| step < known)
                {
                    let other = group.one.iter().find(|&&other| one.series[other].column.present.contains(step));
                    earliest = Some((step, at, *other.expect("the step was seen in a series of the group")));
                }
                seen.unite(&present);
            }
        }
        let Some((_, a, b)) = earliest else { return Ok(()) };
        let (a, b) = (&one.series[a].labels, &one.series[b].labels);
        let side = if self.swapped { "left" } else { "right" };
        let mut printed = [a.to_string(), b.to_string()];
        printed.sort_unstable();
        Err(Error::Execution(format!(
            "found duplicate series for the match group {} on the {side} hand-side of the operation: [{}, {}];\
             many-to-many matching not allowed: matching labels must be unique on one side",
            signature(a, self.matching),
            printed[0],
            printed[1]
        )))
    }

    /// Combines all series of one signature.
    fn group(&mut self, group: &Group, many: &Vector, one: &Vector) -> Result<()> {
        let mut taken = Taken::default();
        let mut met = Bits::none(self.n_steps);
        for &place in &group.many {
            let m = &many.series[place];
            let mut alone = m.column.present.common(&self.active);
            for &o in &group.one {
                let o = &one.series[o];
                let steps = alone.common(&o.column.present);
                alone.subtract(&steps);
                met.unite(&self.pair((m, o), steps, place, &mut taken)?);
            }
            // Which fill value is whose does not follow the sides with `group_right`, as in Prometheus.
            if let Some(fill) = self.matching.fill_right {
                let o = self.filled(&m.labels, fill);
                met.unite(&self.pair((m, &o), alone, place, &mut taken)?);
            }
        }
        if let Some(fill) = self.matching.fill_left {
            for &place in &group.one {
                let o = &one.series[place];
                let mut alone = o.column.present.clone();
                alone.subtract(&met);
                let m = self.filled(&o.labels, fill);
                self.pair((&m, o), alone, many.series.len() + place, &mut taken)?;
            }
        }
        Ok(())
    }

    /// Returns the series that stands in for one that is missing.
    fn filled(&self, labels: &Labels, fill: f64) -> Series {
        let column = Column::full(vec![fill; self.n_steps]);
        Series { labels: signature(labels, self.matching), drop_name: false, column }
    }

    /// Combines two series at the steps given, and returns those at which they could be; `order` tells when Prometheus gets
    /// to them.
    fn pair(&mut self, (many, one): (&Series, &Series), steps: Bits, order: usize, taken: &mut Taken) -> Result<Bits> {
        if steps.is_empty() {
            return Ok(steps);
        }
        let labels = self.result_labels(&many.labels, &one.labels);
        let (lhs, rhs) = if self.swapped { (&one.column, &many.column) } else { (&many.column, &one.column) };
        let Link { op, return_bool, .. } = *self.link;
        // Fast path: numbers only.
        let (column, combined) = if lhs.histograms.is_empty() && rhs.histograms.is_empty() && !is_trim(op) {
            (numbers(op, return_bool, lhs, rhs, steps.clone()), steps)
        } else {
            let mut column = Column::absent(self.n_steps);
            let outcome = |step| element::combine(op, Element::of(lhs, step), Element::of(rhs, step));
            let complain = |step, complaint| self.complaints.add(step, order, complaint);
            let combined = element::combine_steps(&steps, return_bool, outcome, complain, &self.bounds, &mut column)?;
            (column, combined)
        };
        if !self.narrow || self.matching.cardinality == Cardinality::OneToOne {
            taken.take(self.matching.cardinality, &labels, &combined)?;
        }
        self.out.push(Series { labels, drop_name: return_bool, column })?;
        Ok(combined)
    }

    /// Returns the labels of the result: those of the many side, reduced to the signature if one meets one.
    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let VectorMatching { cardinality, labels: names, on, include, .. } = self.matching;
        let unnamed = (self.link.return_bool && !self.delayed) || arithmetic::changes_meaning(self.link.op);
        let one_to_one = *cardinality == Cardinality::OneToOne;
        let keeps = |name: &str| {
            let named = names.iter().any(|label| label == name);
            !(unnamed && is_name_label(name)) && (!one_to_one || named == *on)
        };
        // Fast path: nothing is taken off.
        let is_whole = many.iter().all(|(name, _)| keeps(name));
        let mut result = if is_whole { many.clone() } else { many.filter(keeps) };
        for name in include {
            result = result.with(name, one.get(name).unwrap_or(""));
        }
        result
    }
}

/// Combines the numbers of two columns at the steps given.
fn numbers(op: BinaryOp, return_bool: bool, lhs: &Column, rhs: &Column, steps: Bits) -> Column {
    let mut column = Column { values: lhs.values.clone(), present: steps, histograms: Vec::new() };
    if let Some(compare) = arithmetic::comparison(op) {
        if return_bool {
            arithmetic::scalars(op, &mut column.values, &rhs.values);
        } else {
            let values = &column.values;
            column.present.retain(|step| compare(values[step], rhs.values[step]));
        }
    } else {
        arithmetic::columns(op, &mut column.values, &rhs.values, false);
    }
    column
}

/// The steps at which a signature has given results so far: all together if one meets one, else by label set.
#[derive(Default)]
struct Taken {
    steps: HashMap<Option<Labels>, Bits>,
}

impl Taken {
    /// Fails if there is a result already at one of the steps.
    fn take(&mut self, cardinality: Cardinality, labels: &Labels, steps: &Bits) -> Result<()> {
        let (key, rule) = match cardinality {
            Cardinality::OneToOne => (None, "many-to-one matching must be explicit (group_left/group_right)"),
            _ => (Some(labels.clone()), "grouping labels must ensure unique matches"),
        };
        match self.steps.entry(key) {
            Entry::Occupied(known) if known.get().overlaps(steps) => {
                Err(Error::Execution(format!("multiple matches for labels: {rule}")))
            }
            Entry::Occupied(mut known) => {
                known.get_mut().unite(steps);
                Ok(())
            }
            Entry::Vacant(free) => {
                free.insert(steps.clone());
                Ok(())
            }
        }
    }
}
