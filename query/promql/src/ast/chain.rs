//! Chains of binary operators: `a or b or c`.
//!
//! Operators of equal or descending precedence form a tree that leans to the left and is as deep as
//! the chain is long. The traits here iterate over the links instead of recursing. They recurse
//! only into right sides, whose depth is bounded by [`DEPTH_MAX`](crate::DEPTH_MAX).

use std::fmt;

use super::{Binary, Expr, ExprKind, NumberLiteral, Span};

impl Binary {
    /// Returns the leftmost operand and the operators from left to right. The last operator is
    /// `self`.
    ///
    /// For `a + b - c`, returns `a` and the links `+ b`, `- c`.
    #[must_use]
    pub fn chain(&self) -> (&Expr, Vec<&Self>) {
        let mut links = vec![self];
        let mut first = &*self.lhs;
        while let ExprKind::Binary(link) = &first.kind {
            links.push(link);
            first = &link.lhs;
        }
        links.reverse();
        (first, links)
    }

    /// Returns `true` if two links are equal, ignoring their left sides.
    fn same_link(&self, other: &Self) -> bool {
        self.op == other.op
            && self.return_bool == other.return_bool
            && self.matching == other.matching
            && self.rhs == other.rhs
    }

    fn clone_onto(&self, lhs: Expr) -> Self {
        Self {
            op: self.op,
            lhs: Box::new(lhs),
            rhs: self.rhs.clone(),
            matching: self.matching.clone(),
            return_bool: self.return_bool,
        }
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let mut below = take_link(&mut self.lhs);
        while let Some(mut expr) = below {
            below = match &mut expr.kind {
                ExprKind::Binary(link) => take_link(&mut link.lhs),
                _ => None,
            };
        }
    }
}

/// Takes the expression out of `slot` if it is another link.
fn take_link(slot: &mut Expr) -> Option<Expr> {
    if !matches!(slot.kind, ExprKind::Binary(_)) {
        return None;
    }
    let placeholder = Expr {
        kind: ExprKind::Number(NumberLiteral {
            value: 0.0,
            is_duration: false,
        }),
        span: Span::default(),
    };
    Some(std::mem::replace(slot, placeholder))
}

impl Clone for Binary {
    fn clone(&self) -> Self {
        let (first, links) = self.chain();
        let (last, links) = links
            .split_last()
            .expect("a chain has at least the operator itself");
        let mut lhs = first.clone();
        for (idx, link) in links.iter().enumerate() {
            // The span of a link equals the span of the left side of the next link.
            let span = links.get(idx + 1).unwrap_or(last).lhs.span;
            lhs = Expr {
                kind: ExprKind::Binary(link.clone_onto(lhs)),
                span,
            };
        }
        last.clone_onto(lhs)
    }
}

impl PartialEq for Binary {
    fn eq(&self, other: &Self) -> bool {
        let (a, a_links) = self.chain();
        let (b, b_links) = other.chain();
        a_links.len() == b_links.len()
            && a == b
            && a_links
                .iter()
                .zip(&b_links)
                .all(|(a, b)| a.lhs.span == b.lhs.span && a.same_link(b))
    }
}

impl fmt::Debug for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binary({self})")
    }
}
