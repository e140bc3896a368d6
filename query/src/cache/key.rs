//! [`QueryKey`]: the key of a result in the cache.

use std::sync::Arc;

use varve_model::Matcher;
use varve_promql::ast::Expr;
use varve_promql::print;

use crate::eval::Settings;
use crate::steps::Steps;

/// The key of a query. Everything that changes the result is part of it: the expression, the
/// settings, the times, and the matchers of the tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QueryKey(Arc<str>);

impl QueryKey {
    /// Returns the key of a query whose tenant has the matchers `restriction`.
    pub(crate) fn new(
        expr: &Expr,
        settings: &Settings,
        steps: Steps,
        restriction: &[Matcher],
    ) -> Self {
        let step_ms = steps.step_ms;
        // Range queries share an entry if the time between their starts is a multiple of the step.
        // Each instant has its own.
        let phase_ms = if step_ms == 0 {
            steps.start_ms
        } else {
            steps.start_ms.rem_euclid(step_ms)
        };
        let restriction: Vec<_> = restriction
            .iter()
            .map(|matcher| (matcher.name(), matcher.op(), matcher.value()))
            .collect();
        let text = format!(
            "{step_ms} {phase_ms} {settings:?} {restriction:?} {}",
            print(expr)
        );
        Self(text.into())
    }

    /// Returns the size of the text in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }
}
