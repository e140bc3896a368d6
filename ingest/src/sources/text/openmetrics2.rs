//! One line of OpenMetrics 2.0.
//!
//! What a line means depends on the type of its metric, so the parser keeps the [`CurrentFamily`].
//! What is valid is what the parser of Prometheus 3.16 accepts
//! (`model/textparse/openmetrics2parse.go`). As in version 1.0, spaces may be repeated, and a space
//! that separates nothing may be missing; a time must fit into the milliseconds of a double.
//!
//! Bounds: a line has at most [`EXEMPLARS_MAX`] exemplars. Those of values are in `composite`.

use varve_model::metadata::MetricType;

use super::composite;
use super::cursor::{Cursor, excerpt};
use super::line::{CompositeLine, ExemplarPart, Line, MetadataLine, Pairs, SampleLine};
use super::number::{float, milliseconds};

/// The metric family of the last line.
#[derive(Debug, Default)]
pub(super) struct CurrentFamily {
    name: String,
    pub(super) kind: MetricType,
    has_unit: bool,
}

/// Parses a line without its line break.
///
/// # Errors
/// The reason why the line is invalid.
pub(super) fn parse<'a>(text: &'a str, family: &mut CurrentFamily) -> Result<Line<'a>, String> {
    if text.ends_with('\r') {
        return Err("unexpected carriage return at the end of the line".to_owned());
    }
    if let Some(rest) = text.strip_prefix('#') {
        let line = Cursor::openmetrics(rest).comment()?;
        if let Line::Metadata(metadata) = &line {
            family.describe(metadata)?;
        }
        return Ok(line);
    }

    let mut cursor = Cursor::openmetrics(text);
    let mut labels = cursor.metric_name();
    // Behind a space, a brace starts a composite value.
    if cursor.rest.starts_with('{') {
        cursor.labels(&mut labels)?;
    }
    family.enter(cursor.metric_name_of(&labels)?);

    cursor.skip_space();
    if cursor.rest.starts_with('{') {
        let value = composite::parse(&mut cursor, family.kind)?;
        let mut end = LineEnd::parse(&mut cursor)?;
        // A NaN is above all numbers.
        end.exemplars.sort_by(|a, b| a.value.total_cmp(&b.value));
        return Ok(Line::Composite(CompositeLine {
            labels,
            value,
            timestamp_ms: end.timestamp_ms,
            start_ms: end.start_ms,
            exemplars: end.exemplars,
        }));
    }

    let value = cursor.value("sample")?;
    family.check_value(value, &labels)?;
    let end = LineEnd::parse(&mut cursor)?;
    Ok(Line::Sample(SampleLine {
        labels,
        value,
        timestamp_ms: end.timestamp_ms,
        start_ms: end.start_ms,
        exemplars: end.exemplars,
    }))
}

impl CurrentFamily {
    /// Takes the name of the family of a line, which is the name of its metric. Another name starts
    /// another family, whose type is unknown.
    fn enter(&mut self, name: &str) {
        if self.name != name {
            name.clone_into(&mut self.name);
            self.kind = MetricType::Unknown;
            self.has_unit = false;
        }
    }

    fn describe(&mut self, line: &MetadataLine<'_>) -> Result<(), String> {
        if line.name().is_empty() {
            return Err("metadata without a metric name".to_owned());
        }
        self.enter(line.name());
        match line {
            MetadataLine::Type(name, MetricType::Info) if !name.ends_with("_info") => {
                let name = excerpt(name);
                return Err(format!(
                    "the name {name:?} of an info does not end with _info"
                ));
            }
            MetadataLine::Type(_, kind) => self.kind = *kind,
            MetadataLine::Unit(_, unit) => self.has_unit = !unit.is_empty(),
            MetadataLine::Help(..) => {}
        }
        if self.has_unit && matches!(self.kind, MetricType::Info | MetricType::StateSet) {
            return Err(format!("a metric of type {} has a unit", self.kind.name()));
        }
        Ok(())
    }

    /// Checks a value that is not composite.
    fn check_value(&self, value: f64, labels: &Pairs<'_>) -> Result<(), String> {
        let kind = self.kind.name();
        let is_state = value == 0.0 || value == 1.0;
        match self.kind {
            MetricType::Counter if value.is_nan() => Err("a counter is NaN".to_owned()),
            MetricType::Histogram | MetricType::GaugeHistogram | MetricType::Summary => {
                Err(format!("a {kind} without a composite value"))
            }
            MetricType::Info if value != 1.0 => {
                Err(format!("the value {value} of an {kind} is not 1"))
            }
            MetricType::StateSet if !is_state => {
                Err(format!("the value {value} of a {kind} is not 0 or 1"))
            }
            MetricType::StateSet if labels.iter().all(|(name, _)| *name != self.name) => {
                let name = excerpt(&self.name);
                Err(format!(
                    "a {kind} without the label {name:?}, the name of the metric"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// What follows the value of a sample.
struct LineEnd<'a> {
    timestamp_ms: Option<i64>,
    /// 0 if unknown.
    start_ms: i64,
    exemplars: Vec<ExemplarPart<'a>>,
}

impl<'a> LineEnd<'a> {
    fn parse(cursor: &mut Cursor<'a>) -> Result<Self, String> {
        cursor.skip_space();
        let mut timestamp_ms = None;
        if !cursor.rest.starts_with(START) {
            timestamp_ms = cursor.time("sample")?;
            cursor.skip_space();
        }
        let mut start_ms = 0;
        if let Some(rest) = cursor.rest.strip_prefix(START) {
            cursor.rest = rest;
            let word = cursor.word();
            start_ms = float(word)
                .and_then(milliseconds)
                .ok_or_else(|| format!("invalid start timestamp {:?}", excerpt(word)))?;
            cursor.skip_space();
        }
        let exemplars = exemplars(cursor)?;
        cursor.end()?;
        Ok(Self {
            timestamp_ms,
            start_ms,
            exemplars,
        })
    }
}

fn exemplars<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<ExemplarPart<'a>>, String> {
    let mut exemplars = Vec::new();
    while cursor.eat('#') {
        if exemplars.len() == EXEMPLARS_MAX {
            let n = EXEMPLARS_MAX + 1;
            return Err(format!(
                "{n} exemplars or more, the limit is {EXEMPLARS_MAX}"
            ));
        }
        let exemplar = cursor.exemplar()?;
        if exemplar.timestamp_ms.is_none() {
            return Err("an exemplar without a timestamp".to_owned());
        }
        exemplars.push(exemplar);
    }
    Ok(exemplars)
}

/// What a start timestamp begins with.
const START: &str = "st@";
/// Maximum number of exemplars of a line. Client libraries send one for each bucket, or ten for a
/// native histogram.
pub(super) const EXEMPLARS_MAX: usize = 1024;

#[cfg(test)]
mod tests;
