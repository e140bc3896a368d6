//! `label_replace` and `label_join`: functions that change labels and keep values.

use varve_context::{Charge, QueryContext};
use varve_model::Labels;
use varve_model::labels::METRIC_NAME;
use varve_regexp::Rewrite;

use crate::error::{Error, Result};
use crate::eval::columns::Vector;
use crate::eval::evaluator::Evaluator;
use crate::plan::{Plan, PlanKind};
use crate::steps::Steps;

impl Evaluator<'_> {
    /// `label_replace(v, dst, replacement, src, regex)`
    pub(super) fn label_replace(&mut self, args: &[Plan], steps: Steps) -> Result<Vector> {
        let [dst, src] = [label_arg(&args[1])?, label_arg(&args[3])?];
        let [template, pattern] = [string_arg(&args[2])?, string_arg(&args[4])?];
        let invalid = |what: &str, text: &str| {
            Error::Execution(format!("invalid {what} in label_replace(): {text}"))
        };
        let rewrite = Rewrite::parse(pattern, template)
            .map_err(|_| invalid("regular expression", pattern))?;
        let dst = dst.filter(|dst| !dst.is_empty());
        let dst = dst.ok_or_else(|| invalid("destination label name", &printed(&args[1])))?;
        let ctx = QueryContext::clone(&self.limits.ctx);
        let n_references = template.matches('$').count();
        self.relabeled(&args[0], steps, dst, |labels, charge| {
            let value = src.and_then(|src| labels.get(src)).unwrap_or("");
            // Each reference expands to at most the whole value.
            charge.grow(
                template
                    .len()
                    .saturating_add(n_references.saturating_mul(value.len())),
            )?;
            Ok(rewrite.apply_in(&ctx, value)?)
        })
    }

    /// `label_join(v, dst, separator, src, ...)`
    pub(super) fn label_join(&mut self, args: &[Plan], steps: Steps) -> Result<Vector> {
        let sources = args[3..]
            .iter()
            .map(|arg| joined_label("source", arg))
            .collect::<Result<Vec<_>>>()?;
        let dst = joined_label("destination", &args[1])?;
        let separator = string_arg(&args[2])?;
        let limits = self.limits.clone();
        self.relabeled(&args[0], steps, dst, |labels, charge| {
            charge.grow(sources.len() * size_of::<&str>())?;
            let mut values = Vec::with_capacity(sources.len());
            let mut size = 0;
            for source in &sources {
                // Finding a label takes time that is linear in the number of labels.
                limits.check()?;
                let value = labels.get(source).unwrap_or("");
                size += value.len() + separator.len();
                values.push(value);
            }
            charge.grow(size)?;
            Ok(Some(values.join(separator)))
        })
    }

    /// Evaluates a vector, and sets the label `dst` of each series to the result of `value` for its
    /// labels. `value` must charge its result before building it.
    fn relabeled(
        &mut self,
        arg: &Plan,
        steps: Steps,
        dst: &str,
        value: impl Fn(&Labels, &mut Charge) -> Result<Option<String>>,
    ) -> Result<Vector> {
        let mut vector = self.vector(arg, steps)?;
        vector.update_labels(|series| {
            self.limits.check()?;
            let mut charge = self.limits.ctx.charge();
            if let Some(value) = value(&series.labels, &mut charge)? {
                // The new set is built twice, in a buffer and in its final form, before the value
                // is dropped.
                charge.grow(2 * (series.labels.size() + value.len()))?;
                series.labels = series.labels.with(dst, &value);
                series.drop_name &= dst != METRIC_NAME;
            }
            Ok(())
        })?;
        vector.merge_same_labels()?;
        Ok(vector)
    }
}

/// Returns a label name argument of `label_join`.
fn joined_label<'p>(what: &str, arg: &'p Plan) -> Result<&'p str> {
    label_arg(arg)?
        .filter(|name| !name.is_empty())
        .ok_or_else(|| {
            Error::Execution(format!(
                "invalid {what} label name in label_join(): {}",
                printed(arg)
            ))
        })
}

/// Returns a string argument that becomes a label value. Fails if it is not UTF-8, because label
/// values are.
pub(super) fn string_arg(arg: &Plan) -> Result<&str> {
    label_arg(arg)?
        .ok_or_else(|| Error::Unsupported(format!("string is not UTF-8: {}", printed(arg))))
}

/// Returns a string argument that is a label name; `None` if it is not UTF-8, as no label has such
/// a name.
fn label_arg(arg: &Plan) -> Result<Option<&str>> {
    match &arg.kind {
        PlanKind::String(text) => Ok(std::str::from_utf8(text).ok()),
        _ => Err(Error::Execution("expected a string literal".into())),
    }
}

/// Returns a string argument for an error message.
fn printed(arg: &Plan) -> String {
    match &arg.kind {
        PlanKind::String(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    }
}
