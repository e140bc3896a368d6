//! `and`, `or`, `unless`: which series of either side are there at each step.

use varve_tsdb::context::Charge;

use super::super::column::Bits;
use super::super::keys::Keys;
use super::super::series::{Bounds, Vector};
use super::matching::is_of_signature;
use crate::error::Result;
use crate::promql::ast::{BinaryOp, VectorMatching};

/// Combines two vectors; only presence changes, values stay where they are.
pub(super) fn combine(
    op: BinaryOp,
    mut lhs: Vector,
    mut rhs: Vector,
    matching: &VectorMatching,
    n_steps: usize,
    bounds: &Bounds,
) -> Result<Vector> {
    match op {
        BinaryOp::And => keep_matched(&mut lhs, &presence(&rhs, matching, n_steps, bounds)?, matching, true),
        BinaryOp::Unless => keep_matched(&mut lhs, &presence(&rhs, matching, n_steps, bounds)?, matching, false),
        _ => {
            keep_matched(&mut rhs, &presence(&lhs, matching, n_steps, bounds)?, matching, false);
            lhs.append(rhs)?;
            lhs.merge_same_labels()?;
        }
    }
    Ok(lhs)
}

/// The steps at which any series has a signature.
struct Presence {
    _charge: Charge,
    signatures: Keys,
    /// By number of the signature.
    steps: Vec<Bits>,
}

fn presence(vector: &Vector, matching: &VectorMatching, n_steps: usize, bounds: &Bounds) -> Result<Presence> {
    let mut charge = bounds.ctx.charge();
    let (mut signatures, mut steps) = (Keys::default(), Vec::new());
    for series in &vector.series {
        bounds.check()?;
        let (number, new) = signatures.number(&series.labels, |name| is_of_signature(matching, name));
        if new {
            charge.grow(Keys::size(&signatures.labels()[number]) + Bits::size(n_steps))?;
            steps.push(Bits::none(n_steps));
        }
        steps[number].unite(&series.column.present);
    }
    Ok(Presence { _charge: charge, signatures, steps })
}

/// Keeps of each series the steps at which the other side has its signature, or has not.
fn keep_matched(vector: &mut Vector, other: &Presence, matching: &VectorMatching, matched: bool) {
    for series in &mut vector.series {
        let present = &mut series.column.present;
        let number = other.signatures.get(&series.labels, |name| is_of_signature(matching, name));
        match number.map(|number| &other.steps[number]) {
            Some(steps) if matched => present.intersect(steps),
            Some(steps) => present.subtract(steps),
            None if matched => present.subtract(&present.clone()),
            None => {}
        }
    }
    vector.drop_empty();
}
