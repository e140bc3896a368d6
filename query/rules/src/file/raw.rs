//! Groups and rules as written, before any check of their contents.

use serde::de::MapAccess;

use super::mapping::{Fields, Integer, Mapping, Text, Texts, next_mapping, next_mappings, skip};

/// A group as written.
#[derive(Debug, Default)]
pub struct RawGroup {
    /// The name.
    pub name: String,
    pub(super) interval: Option<String>,
    pub(super) query_offset: Option<String>,
    pub(super) limit: Option<i64>,
    pub(super) state: Option<String>,
    pub(super) labels: Texts,
    /// The rules.
    pub rules: Vec<RawRule>,
    pub(super) unknown: Vec<String>,
}

/// A rule as written.
#[derive(Debug, Clone, Default)]
pub struct RawRule {
    /// Name of the metric of a recording rule.
    pub record: Option<String>,
    /// Name of an alert.
    pub alert: Option<String>,
    /// The expression.
    pub expr: Option<String>,
    pub(super) hold: Option<String>,
    pub(super) keep_firing_for: Option<String>,
    /// The labels of the rule, without the labels of its group.
    pub labels: Texts,
    /// The annotations.
    pub annotations: Texts,
    pub(super) unknown: Vec<String>,
}

/// The keys of a group.
pub(super) const GROUP_KEYS: [&str; 7] = [
    "name",
    "interval",
    "query_offset",
    "limit",
    "state",
    "labels",
    "rules",
];
/// The keys of a rule.
pub(super) const RULE_KEYS: [&str; 7] = [
    "record",
    "alert",
    "expr",
    "for",
    "keep_firing_for",
    "labels",
    "annotations",
];

impl RawRule {
    /// Returns the name of the alert or of the metric.
    #[must_use]
    pub fn name(&self) -> &str {
        given(&self.alert)
            .or(given(&self.record))
            .unwrap_or_default()
    }
}

/// Returns a text that is present and not empty.
pub(super) fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

impl Fields for RawGroup {
    const WHAT: &str = "a group";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "name" => self.name = values.next_value::<Text>()?.0,
            "interval" => self.interval = values.next_value()?,
            "query_offset" => self.query_offset = values.next_value()?,
            "limit" => {
                self.limit = values
                    .next_value::<Option<Integer>>()?
                    .map(|Integer(limit)| limit)
            }
            "state" => self.state = values.next_value()?,
            "labels" => self.labels = next_mapping(values)?,
            "rules" => self.rules = next_mappings(values)?,
            _ => {
                self.unknown.push(key.to_owned());
                skip(values)?;
            }
        }
        Ok(())
    }
}

impl Mapping for RawGroup {
    fn merge(&mut self, other: Self) {
        if self.name.is_empty() {
            self.name = other.name;
        }
        self.interval = self.interval.take().or(other.interval);
        self.query_offset = self.query_offset.take().or(other.query_offset);
        self.limit = self.limit.or(other.limit);
        self.state = self.state.take().or(other.state);
        if self.labels.is_empty() {
            self.labels = other.labels;
        }
        if self.rules.is_empty() {
            self.rules = other.rules;
        }
        self.unknown.extend(other.unknown);
    }
}

impl Fields for RawRule {
    const WHAT: &str = "a rule";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "record" => self.record = values.next_value()?,
            "alert" => self.alert = values.next_value()?,
            "expr" => self.expr = values.next_value()?,
            "for" => self.hold = values.next_value()?,
            "keep_firing_for" => self.keep_firing_for = values.next_value()?,
            "labels" => self.labels = next_mapping(values)?,
            "annotations" => self.annotations = next_mapping(values)?,
            _ => {
                self.unknown.push(key.to_owned());
                skip(values)?;
            }
        }
        Ok(())
    }
}

impl Mapping for RawRule {
    fn merge(&mut self, other: Self) {
        self.record = self.record.take().or(other.record);
        self.alert = self.alert.take().or(other.alert);
        self.expr = self.expr.take().or(other.expr);
        self.hold = self.hold.take().or(other.hold);
        self.keep_firing_for = self.keep_firing_for.take().or(other.keep_firing_for);
        if self.labels.is_empty() {
            self.labels = other.labels;
        }
        if self.annotations.is_empty() {
            self.annotations = other.annotations;
        }
        self.unknown.extend(other.unknown);
    }
}
