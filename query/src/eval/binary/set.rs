//! `and`, `or`, `unless`: select the series that are present at each step, without changing values.

use varve_context::Charge;
use varve_promql::ast::{BinaryOp, VectorMatching};

use super::matching::is_of_signature;
use crate::error::Result;
use crate::eval::columns::{GroupingKeys, Limits, StepSet, Vector};

/// Applies a set operator to two vectors. Only the presence of values changes.
pub(super) fn combine(
    op: BinaryOp,
    mut lhs: Vector,
    mut rhs: Vector,
    matching: &VectorMatching,
    n_steps: usize,
    limits: &Limits,
) -> Result<Vector> {
    match op {
        BinaryOp::And => keep_matched(
            &mut lhs,
            &presence(&rhs, matching, n_steps, limits)?,
            matching,
            true,
            limits,
        )?,
        BinaryOp::Unless => keep_matched(
            &mut lhs,
            &presence(&rhs, matching, n_steps, limits)?,
            matching,
            false,
            limits,
        )?,
        _ => {
            keep_matched(
                &mut rhs,
                &presence(&lhs, matching, n_steps, limits)?,
                matching,
                false,
                limits,
            )?;
            lhs.append(rhs)?;
            lhs.merge_same_labels()?;
        }
    }
    Ok(lhs)
}

/// For each signature, the steps at which any of its series is present.
struct Presence {
    _charge: Charge,
    signatures: GroupingKeys,
    /// The steps of each signature, by its index.
    steps: Vec<StepSet>,
}

fn presence(
    vector: &Vector,
    matching: &VectorMatching,
    n_steps: usize,
    limits: &Limits,
) -> Result<Presence> {
    let mut charge = limits.ctx.charge();
    let mut signatures = GroupingKeys::default();
    let mut steps = Vec::new();
    for series in &vector.series {
        limits.check()?;
        let (signature, is_new) = signatures.intern(&series.labels, limits, |name| {
            is_of_signature(matching, name)
        })?;
        if is_new {
            charge.grow(
                GroupingKeys::size(&signatures.labels()[signature]) + StepSet::size(n_steps),
            )?;
            steps.push(StepSet::empty(n_steps));
        }
        steps[signature].union_with(&series.column.present);
    }
    Ok(Presence {
        _charge: charge,
        signatures,
        steps,
    })
}

/// Keeps the values of each series at the steps at which its signature is present on the other side
/// (`matched`), or at the steps at which it is not.
fn keep_matched(
    vector: &mut Vector,
    other: &Presence,
    matching: &VectorMatching,
    matched: bool,
    limits: &Limits,
) -> Result<()> {
    for series in &mut vector.series {
        limits.check()?;
        let present = &mut series.column.present;
        let signature = other.signatures.get(&series.labels, limits, |name| {
            is_of_signature(matching, name)
        })?;
        match signature.map(|signature| &other.steps[signature]) {
            Some(steps) if matched => present.intersect_with(steps),
            Some(steps) => present.subtract(steps),
            None if matched => present.clear(),
            None => {}
        }
    }
    vector.drop_empty();
    Ok(())
}
