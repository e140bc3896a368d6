//! `label_replace`, `label_join`: functions of label sets, whatever the values.

use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::labels::regexp::Rewrite;

use super::Evaluator;
use super::grid::Grid;
use super::series::Vector;
use crate::error::{Error, Result};
use crate::plan::{Plan, PlanKind};

impl Evaluator<'_> {
    /// `label_replace(v, dst, replacement, src, regex)`
    pub(super) fn label_replace(&mut self, args: &[Plan], grid: Grid) -> Result<Vector> {
        let [dst, src] = [name_arg(&args[1])?, name_arg(&args[3])?];
        let [template, pattern] = [text_arg(&args[2])?, text_arg(&args[4])?];
        let invalid = |what: &str, text: &str| Error::Execution(format!("invalid {what} in label_replace(): {text}"));
        let rewrite = Rewrite::parse(pattern, template).map_err(|_| invalid("regular expression", pattern))?;
        let dst = dst.filter(|dst| !dst.is_empty());
        let dst = dst.ok_or_else(|| invalid("destination label name", &printed(&args[1])))?;
        let mut vector = self.vector(&args[0], grid)?;
        for series in &mut vector.series {
            self.bounds.check()?;
            let value = src.and_then(|src| series.labels.get(src)).unwrap_or("");
            if let Some(text) = rewrite.apply(value) {
                series.labels = series.labels.with(dst, &text);
                series.drop_name &= dst != METRIC_NAME;
            }
        }
        vector.merge_same_labels()?;
        Ok(vector)
    }

    /// `label_join(v, dst, separator, src, ...)`
    pub(super) fn label_join(&mut self, args: &[Plan], grid: Grid) -> Result<Vector> {
        let invalid = |what: &str, arg: &Plan| {
            Error::Execution(format!("invalid {what} label name in label_join(): {}", printed(arg)))
        };
        let name = |what: &'static str, arg: &Plan| -> Result<String> {
            let name = name_arg(arg)?.filter(|name| !name.is_empty());
            name.map(str::to_owned).ok_or_else(|| invalid(what, arg))
        };
        let sources = args[3..].iter().map(|arg| name("source", arg)).collect::<Result<Vec<_>>>()?;
        let (dst, separator) = (name("destination", &args[1])?, text_arg(&args[2])?);
        let mut vector = self.vector(&args[0], grid)?;
        for series in &mut vector.series {
            self.bounds.check()?;
            let values: Vec<_> = sources.iter().map(|source| series.labels.get(source).unwrap_or("")).collect();
            series.labels = series.labels.with(&dst, &values.join(separator));
            series.drop_name &= dst != METRIC_NAME;
        }
        vector.merge_same_labels()?;
        Ok(vector)
    }
}

/// Returns a text that becomes a label value. Texts that are not UTF-8 cannot be stored in a label.
pub(super) fn text_arg(arg: &Plan) -> Result<&str> {
    name_arg(arg)?.ok_or_else(|| Error::Unsupported(format!("text is not UTF-8: {}", printed(arg))))
}

/// Returns a text that names a label; `None` if it is not UTF-8, as no label is called so.
fn name_arg(arg: &Plan) -> Result<Option<&str>> {
    match &arg.kind {
        PlanKind::String(text) => Ok(std::str::from_utf8(text).ok()),
        _ => Err(Error::Execution("expected a string literal".into())),
    }
}

/// Returns a text for a message.
fn printed(arg: &Plan) -> String {
    match &arg.kind {
        PlanKind::String(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    }
}
