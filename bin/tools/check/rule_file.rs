//! Parsing and validation of rule files, with the messages of Prometheus.
//!
//! In templates of labels and annotations only the braces are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_yaml_ng::Value;
use varve_query::promql::Features;
use varve_query::promql::parse;
use varve_tsdb::labels::METRIC_NAME;

use crate::quantity::parse_duration;

/// Labels and annotations.
pub(super) type Texts = BTreeMap<String, Text>;

/// A valid file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RuleFile {
    groups: Vec<Group>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Group {
    name: String,
    interval: Option<Text>,
    query_offset: Option<Text>,
    limit: Option<i64>,
    labels: Texts,
    rules: Vec<Rule>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rule {
    record: Text,
    alert: Text,
    expr: Text,
    #[serde(rename = "for")]
    hold: Option<Text>,
    keep_firing_for: Option<Text>,
    labels: Texts,
    annotations: Texts,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

/// A string. YAML numbers and booleans keep their spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text(String);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

/// The field that an error refers to.
#[derive(Debug, Clone, Copy)]
enum Field {
    Group,
    Record,
    Alert,
    Expr,
}

impl RuleFile {
    /// Parses and validates a file.
    ///
    /// # Errors
    /// All errors, each as `line:column: group "g", rule 1, "name": message`.
    pub(super) fn parse(text: &str, ignore_unknown: bool) -> Result<Self, Vec<String>> {
        // Prometheus reads only the first document. A file of comments has none.
        let first = serde_yaml_ng::Deserializer::from_str(text).next();
        let file = first.map_or(Ok(None), Option::<Self>::deserialize).map_err(|error| vec![error.to_string()])?;
        let file = file.unwrap_or_default();
        let mut errors = Vec::new();
        if !ignore_unknown {
            file.check_unknown_fields(&mut errors);
        }
        if errors.is_empty() {
            file.check(text, &mut errors);
        }
        if errors.is_empty() { Ok(file) } else { Err(errors) }
    }

    /// Returns the number of rules.
    pub(super) fn n_rules(&self) -> usize {
        self.groups.iter().map(|group| group.rules.len()).sum()
    }

    fn check_unknown_fields(&self, errors: &mut Vec<String>) {
        let mut check = |place: String, unknown: &BTreeMap<String, Value>| {
            errors.extend(unknown.keys().map(|field| format!("{place}: field {field} is unknown")));
        };
        check("file".to_owned(), &self.unknown);
        for group in &self.groups {
            check(format!("group {:?}", group.name), &group.unknown);
            for (rule, i) in group.rules.iter().zip(1..) {
                check(format!("group {:?}, rule {i}, {:?}", group.name, rule.name()), &rule.unknown);
            }
        }
    }

    fn check(&self, text: &str, errors: &mut Vec<String>) {
        let mut names = BTreeSet::new();
        for (group, g) in self.groups.iter().zip(0..) {
            let place = locate(text, g, 0, Field::Group);
            if group.name.is_empty() {
                errors.push(format!("{place}Groupname must not be empty"));
            }
            if !names.insert(&group.name) {
                errors.push(format!("{place}groupname: {:?} is repeated in the same file", group.name));
            }
            errors.extend(group.problems());
            for (rule, r) in group.rules.iter().zip(0..) {
                for (fields, what) in rule.problems() {
                    let place: String = fields.iter().map(|&field| locate(text, g, r, field)).collect();
                    errors.push(format!("{place}group {:?}, rule {}, {:?}: {what}", group.name, r + 1, rule.name()));
                }
            }
        }
    }
}

impl Group {
    fn problems(&self) -> Vec<String> {
        let mut problems = label_problems(&self.labels);
        for (key, text) in [("interval", &self.interval), ("query_offset", &self.query_offset)] {
            let refused = text.as_ref().and_then(|text| parse_duration(&text.0).err());
            problems.extend(refused.map(|reason| format!("group {:?}: {key}: {reason}", self.name)));
        }
        if self.limit.is_some_and(|limit| limit < 0) {
            problems.push(format!("group {:?}: limit: must not be negative", self.name));
        }
        problems
    }
}

impl Rule {
    fn name(&self) -> &str {
        if self.alert.0.is_empty() { &self.record.0 } else { &self.alert.0 }
    }

    fn is_recording(&self) -> bool {
        !self.record.0.is_empty()
    }

    /// Returns the errors and the fields that they refer to.
    fn problems(&self) -> Vec<(&'static [Field], String)> {
        const NAMES: &[Field] = &[Field::Record, Field::Alert];
        let mut problems = Vec::new();
        match (self.is_recording(), !self.alert.0.is_empty()) {
            (true, true) => problems.push((NAMES, "only one of 'record' and 'alert' must be set".to_owned())),
            (false, false) => problems.push((NAMES, "one of 'record' or 'alert' must be set".to_owned())),
            _ => {}
        }
        if self.expr.0.is_empty() {
            problems.push((&[Field::Expr], "field 'expr' must be set in rule".to_owned()));
        } else if let Err(error) = parse(&self.expr.0, &Features::all()) {
            problems.push((&[Field::Expr], format!("could not parse expression: {error}")));
        }
        if self.is_recording() {
            problems.extend(self.recording_problems().into_iter().map(|what| (&[Field::Record][..], what)));
        }
        let mut others = label_problems(&self.labels);
        others.extend(self.duration_problems());
        let empty = self.annotations.keys().filter(|name| name.is_empty());
        others.extend(empty.map(|name| format!("invalid annotation name: {name}")));
        others.extend(self.template_problems());
        problems.extend(others.into_iter().map(|what| (&[][..], what)));
        problems
    }

    fn recording_problems(&self) -> Vec<String> {
        let is_given = |text: &Option<Text>| text.as_ref().is_some_and(|text| !matches!(&*text.0, "" | "0" | "0s"));
        let fields = [
            ("annotations", !self.annotations.is_empty()),
            ("for", is_given(&self.hold)),
            ("keep_firing_for", is_given(&self.keep_firing_for)),
        ];
        let fields = fields.iter().filter(|(_, is_there)| *is_there);
        let mut problems: Vec<_> =
            fields.map(|(field, _)| format!("invalid field '{field}' in recording rule")).collect();
        if self.record.0.contains(['{', '}']) {
            let name = &self.record;
            problems.push(format!("braces present in the recording rule name; should it be in expr?: {name}"));
        }
        problems
    }

    fn duration_problems(&self) -> Vec<String> {
        let fields = [("for", &self.hold), ("keep_firing_for", &self.keep_firing_for)];
        let given = fields.iter().filter_map(|(field, text)| Some((field, text.as_ref()?)));
        given.filter_map(|(field, text)| Some(format!("{field}: {}", parse_duration(&text.0).err()?))).collect()
    }

    /// Checks that the actions of templates are closed.
    fn template_problems(&self) -> Vec<String> {
        if self.alert.0.is_empty() {
            return Vec::new();
        }
        let labels = self.labels.iter().map(|(name, text)| ("label", name, text));
        let all = labels.chain(self.annotations.iter().map(|(name, text)| ("annotation", name, text)));
        let open = all.filter(|(_, _, text)| has_open_action(&text.0));
        open.map(|(kind, name, _)| format!("{kind} {name:?}: template: __alert_{}: unclosed action", self.alert))
            .collect()
    }
}

fn has_open_action(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, action)) = rest.split_once("{{") {
        let Some((_, after)) = action.split_once("}}") else { return true };
        rest = after;
    }
    false
}

fn label_problems(labels: &Texts) -> Vec<String> {
    let is_bad = |name: &&String| name.is_empty() || *name == METRIC_NAME;
    labels.keys().filter(is_bad).map(|name| format!("invalid label name: {name}")).collect()
}

/// Returns the duplicate rules of a file. Duplicates have the same name and the same labels, including the labels of
/// the group.
pub(super) fn duplicates(file: &RuleFile) -> Vec<(String, Texts)> {
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    for group in &file.groups {
        for rule in &group.rules {
            let mut labels = group.labels.clone();
            labels.extend(rule.labels.clone());
            let key = (rule.name().to_owned(), labels);
            if seen.contains(&key) {
                found.insert(key);
            } else {
                seen.insert(key);
            }
        }
    }
    found.into_iter().collect()
}

/// Returns the location of a field of a rule as `line:column: `.
///
/// The parser reports locations only in errors, so the file is parsed again with a visitor that fails at the field.
fn locate(text: &str, group: usize, rule: usize, field: Field) -> String {
    let path = match field {
        Field::Group => vec![Step::Key("groups"), Step::Item(group)],
        _ => vec![Step::Key("groups"), Step::Item(group), Step::Key("rules"), Step::Item(rule), Step::Key(field.key())],
    };
    let Some(document) = serde_yaml_ng::Deserializer::from_str(text).next() else { return String::new() };
    let place = Seek(&path).deserialize(document).err().and_then(|error| error.location());
    // A missing field has no location. Prometheus prints 0:0.
    place.map_or_else(|| "0:0: ".to_owned(), |place| format!("{}:{}: ", place.line(), place.column()))
}

impl Field {
    fn key(self) -> &'static str {
        match self {
            Self::Group => "name",
            Self::Record => "record",
            Self::Alert => "alert",
            Self::Expr => "expr",
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Key(&'static str),
    Item(usize),
}

/// Descends a path and fails at its end.
#[derive(Clone, Copy)]
struct Seek<'a>(&'a [Step]);

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the field")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted), rest)) = self.0.split_first() else { return Err(A::Error::custom("found")) };
        while let Some(key) = map.next_key::<Text>()? {
            if key.0 == *wanted {
                map.next_value_seed(Seek(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((Step::Item(wanted), rest)) = self.0.split_first() else { return Err(A::Error::custom("found")) };
        for _ in 0..*wanted {
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        items.next_element_seed(Seek(rest))?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    // Scalars are the end of the path.
    fn visit_str<E: de::Error>(self, _text: &str) -> Result<(), E> {
        Err(E::custom("found"))
    }

    fn visit_i64<E: de::Error>(self, _number: i64) -> Result<(), E> {
        Err(E::custom("found"))
    }

    fn visit_u64<E: de::Error>(self, _number: u64) -> Result<(), E> {
        Err(E::custom("found"))
    }

    fn visit_f64<E: de::Error>(self, _number: f64) -> Result<(), E> {
        Err(E::custom("found"))
    }

    fn visit_bool<E: de::Error>(self, _value: bool) -> Result<(), E> {
        Err(E::custom("found"))
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Err(E::custom("found"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &str) -> String {
        format!("groups:\n- name: g\n  rules:\n{rules}")
    }

    fn check(text: &str, expect: &[&str]) {
        let errors = RuleFile::parse(text, false).err().unwrap_or_default();
        assert_eq!(errors, expect, "{text}");
    }

    #[test]
    fn rules_that_prometheus_accepts_are_valid() {
        check("", &[]);
        check("# nothing\n", &[]);
        check("groups: []", &[]);
        check(&rules("  - record: a:b\n    expr: sum(up)\n    labels: {x: 1}\n"), &[]);
        check(&rules("  - alert: A\n    expr: 1\n    for: 5m\n    annotations: {x: '{{ $value }}'}\n"), &[]);
        let file = RuleFile::parse(&rules("  - {record: a, expr: up}\n  - {record: b, expr: up}"), false).unwrap();
        assert_eq!(file.n_rules(), 2);
    }

    #[test]
    fn errors_name_location_and_rule() {
        check(
            &rules("  - record: a\n    expr: sum(\n"),
            &[
                "5:11: group \"g\", rule 1, \"a\": could not parse expression: 1:5: parse error: unclosed left parenthesis",
            ],
        );
        check(
            &rules("  - record: a\n    alert: b\n    expr: up\n"),
            &["4:13: 5:12: group \"g\", rule 1, \"b\": only one of 'record' and 'alert' must be set"],
        );
        check(&rules("  - record: a\n"), &["0:0: group \"g\", rule 1, \"a\": field 'expr' must be set in rule"]);
        check(
            &rules("  - {expr: up, alert: A, annotations: {x: '{{ up'}}"),
            &["group \"g\", rule 1, \"A\": annotation \"x\": template: __alert_A: unclosed action"],
        );
        check(
            &rules("  - {expr: up, record: 'a{b}', for: 5m}"),
            &[
                "4:24: group \"g\", rule 1, \"a{b}\": invalid field 'for' in recording rule",
                "4:24: group \"g\", rule 1, \"a{b}\": braces present in the recording rule name; should it be in expr?: a{b}",
            ],
        );
        check("groups:\n- name: g\n- name: g\n", &["3:3: groupname: \"g\" is repeated in the same file"]);
        check("groups:\n- {name: g, limits: 3}\n", &["group \"g\": field limits is unknown"]);
        assert!(RuleFile::parse("groups:\n- {name: g, limits: 3}\n", true).is_ok());
        check(
            "groups:\n- {name: g, interval: 5 minutes}\n",
            &["group \"g\": interval: unknown unit \" minutes\" in duration \"5 minutes\""],
        );
        assert!(RuleFile::parse("groups: [", false).is_err());
        assert!(RuleFile::parse("[]", false).is_err());
    }

    #[test]
    fn duplicates_have_the_same_name_and_labels() {
        let text = "groups:\n- name: g\n  labels: {x: '1'}\n  rules:\n  - {record: a, expr: up}\n- name: h\n  rules:\n\
                    \x20 - {record: a, expr: up, labels: {x: 1}}\n  - {record: a, expr: up}\n";
        let found = duplicates(&RuleFile::parse(text, false).unwrap());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0.as_str(), found[0].1["x"].to_string()), ("a", "1".to_owned()));
    }
}
