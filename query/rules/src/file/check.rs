//! Checks a file as written, with the messages of Prometheus.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use varve_model::labels::METRIC_NAME;
use varve_promql::duration::parse_duration;
use varve_promql::quote::quoted;
use varve_promql::{Features, parse};

use super::document::RawFile;
use super::error::FileError;
use super::locate::Step;
use super::raw::{RawGroup, RawRule, given};
use super::{
    Alerting, Expression, GroupDefinition, GroupState, Options, RuleDefinition, RuleFile, RuleKind,
    Texts,
};
use varve_template::Template;

/// Fields of a group in a PrometheusRule that Prometheus does not have.
const FIELDS_OF_MANIFESTS: [&str; 1] = ["partial_response_strategy"];

/// Checks a file and parses its expressions and durations.
///
/// # Errors
/// All errors of the file. If there are unknown fields, only errors about these.
pub(super) fn check(file: &RawFile, options: &Options) -> Result<RuleFile, Vec<FileError>> {
    let mut checker = Checker::new(file, options.features);
    if !options.ignore_unknown_fields {
        checker.unknown_fields();
    }
    if checker.errors.is_empty() {
        let groups = checker.groups();
        if checker.errors.is_empty() {
            return Ok(RuleFile {
                manifest: file.manifest.clone(),
                groups,
            });
        }
    }
    let errors = checker.errors.into_iter();
    Err(match &file.manifest {
        Some(manifest) => errors.map(|error| error.within(manifest)).collect(),
        None => errors.collect(),
    })
}

/// Returns an error for each unknown field of a file.
pub(super) fn unknown_fields(file: &RawFile) -> Vec<FileError> {
    let mut checker = Checker::new(file, Features::default());
    checker.unknown_fields();
    checker.errors
}

/// Returns an error for each group whose name and manifest another group of the text has as well.
pub(super) fn repeated_in_manifests(files: &[RawFile]) -> Vec<FileError> {
    let mut first = BTreeMap::new();
    let mut errors = Vec::new();
    for (f, file) in files.iter().enumerate() {
        let Some(manifest) = &file.manifest else {
            continue;
        };
        for (g, group) in file.groups.iter().enumerate() {
            match first.entry((manifest, &group.name)) {
                Entry::Vacant(entry) => drop(entry.insert((f, g))),
                // A repetition in the same manifest is an error of its own.
                Entry::Occupied(entry) if entry.get().0 == f => {}
                Entry::Occupied(entry) => {
                    // Parses the texts again.
                    let (first_file, first_group) = *entry.get();
                    let first_position = files[first_file].locate(&group_path(first_group, []));
                    let position = file.locate(&group_path(g, []));
                    let positions = [first_position, position].into_iter().flatten().collect();
                    let message = format!(
                        "groupname: {} is repeated in two manifests",
                        quoted(&group.name)
                    );
                    errors.push(FileError::new(positions, message).within(manifest));
                }
            }
        }
    }
    errors
}

struct Checker<'a> {
    file: &'a RawFile,
    features: Features,
    /// The group, or group and rule, for messages.
    group: String,
    errors: Vec<FileError>,
}

impl<'a> Checker<'a> {
    fn new(file: &'a RawFile, features: Features) -> Self {
        Self {
            file,
            features,
            group: String::new(),
            errors: Vec::new(),
        }
    }

    /// Adds an error about fields.
    fn error(&mut self, paths: &[Vec<Step>], message: String) {
        let positions = paths
            .iter()
            .filter_map(|path| self.file.locate(path))
            .collect();
        let prefix = if self.group.is_empty() {
            String::new()
        } else {
            format!("{}: ", self.group)
        };
        self.errors
            .push(FileError::new(positions, prefix + &message));
    }

    fn unknown_fields(&mut self) {
        let file = self.file;
        self.unknown(&[], &file.unknown);
        for (g, group) in file.groups.iter().enumerate() {
            let unknown: Vec<_> = group
                .unknown
                .iter()
                .filter(|field| {
                    self.file.manifest.is_none() || !FIELDS_OF_MANIFESTS.contains(&field.as_str())
                })
                .cloned()
                .collect();
            self.group = format!("group {}", quoted(&group.name));
            self.unknown(&group_path(g, []), &unknown);
            for (r, rule) in group.rules.iter().enumerate() {
                self.group = place(group, r, rule);
                self.unknown(&rule_path(g, r, []), &rule.unknown);
            }
        }
    }

    fn unknown(&mut self, path: &[Step], unknown: &[String]) {
        for field in unknown {
            let path = [path, &[Step::Name(field.clone())]].concat();
            self.error(&[path], format!("field {field} is unknown"));
        }
    }

    fn groups(&mut self) -> Vec<GroupDefinition> {
        let file = self.file;
        let mut names = BTreeSet::new();
        let mut groups = Vec::with_capacity(file.groups.len());
        for (g, raw) in file.groups.iter().enumerate() {
            self.group.clear();
            if raw.name.is_empty() {
                self.error(
                    &[group_path(g, [])],
                    "Groupname must not be empty".to_owned(),
                );
            }
            if !names.insert(&raw.name) {
                let message = format!("groupname: \"{}\" is repeated in the same file", raw.name);
                self.error(&[group_path(g, [])], message);
            }
            groups.push(self.one_group(g, raw));
        }
        groups
    }

    fn one_group(&mut self, g: usize, raw: &RawGroup) -> GroupDefinition {
        self.labels(&group_path(g, ["labels"]), &raw.labels);
        self.group = format!("group {}", quoted(&raw.name));
        let interval_ms = self.duration(&group_path(g, ["interval"]), "interval", &raw.interval);
        let query_offset_ms = self.duration(
            &group_path(g, ["query_offset"]),
            "query_offset",
            &raw.query_offset,
        );
        let state = match raw.state.as_deref() {
            None | Some("active") => GroupState::Active,
            Some("dry_run") => GroupState::DryRun,
            Some(other) => {
                let message = format!("state: {} is neither active nor dry_run", quoted(other));
                self.error(&[group_path(g, ["state"])], message);
                GroupState::Active
            }
        };
        let mut rules = Vec::with_capacity(raw.rules.len());
        for (r, rule) in raw.rules.iter().enumerate() {
            self.group = place(raw, r, rule);
            rules.extend(self.rule(&rule_path(g, r, []), raw, rule));
        }
        // Prometheus reads a negative limit as no limit, and an interval of zero as the global one.
        let limit = raw
            .limit
            .map_or(0, |limit| usize::try_from(limit).unwrap_or(0));
        let interval_ms = interval_ms.filter(|&interval_ms| interval_ms > 0);
        GroupDefinition {
            name: raw.name.clone(),
            interval_ms,
            query_offset_ms,
            limit,
            state,
            rules,
        }
    }

    /// Returns the rule, or `None` if it has an error.
    fn rule(&mut self, path: &[Step], group: &RawGroup, raw: &RawRule) -> Option<RuleDefinition> {
        let path_of = |field: &str| [path, &[field.into()]].concat();
        let record = given(&raw.record);
        let alert = given(&raw.alert);
        let both = [path_of("record"), path_of("alert")];
        if record.is_some() && alert.is_some() {
            let message = "only one of 'record' and 'alert' must be set";
            self.error(&both, message.to_owned());
        } else if record.is_none() && alert.is_none() {
            let message = "one of 'record' or 'alert' must be set";
            self.error(&both[..1], message.to_owned());
        }
        let expr = self.expression(&path_of("expr"), raw);
        let for_ms = self
            .duration(&path_of("for"), "for", &raw.hold)
            .unwrap_or(0);
        let keep_firing_for_ms = self.duration(
            &path_of("keep_firing_for"),
            "keep_firing_for",
            &raw.keep_firing_for,
        );
        let keep_firing_for_ms = keep_firing_for_ms.unwrap_or(0);
        if let Some(name) = record {
            let fields = [
                ("annotations", !raw.annotations.is_empty()),
                ("for", for_ms != 0),
                ("keep_firing_for", keep_firing_for_ms != 0),
            ];
            self.recording_rule(&both[..1], name, &fields);
        }
        self.labels(&path_of("labels"), &raw.labels);
        if raw.annotations.contains_key("") {
            self.error(
                &[path_of("annotations")],
                "invalid annotation name: ".to_owned(),
            );
        }
        if let Some(alert) = alert {
            self.templates(&path_of("labels"), alert, "label", &raw.labels);
            let path = path_of("annotations");
            self.templates(&path, alert, "annotation", &raw.annotations);
        }
        let mut labels = group.labels.clone();
        labels.extend(raw.labels.clone());
        let kind = match alert {
            Some(_) => RuleKind::Alerting(Alerting {
                for_ms,
                keep_firing_for_ms,
                annotations: raw.annotations.clone(),
            }),
            None => RuleKind::Recording,
        };
        Some(RuleDefinition {
            name: raw.name().to_owned(),
            expr: expr?,
            labels,
            kind,
        })
    }

    /// Checks what only recording rules must not have: `fields` that are set, and a name that looks
    /// like an expression.
    fn recording_rule(&mut self, paths: &[Vec<Step>], name: &str, fields: &[(&str, bool)]) {
        for (field, is_set) in fields {
            if *is_set {
                self.error(paths, format!("invalid field '{field}' in recording rule"));
            }
        }
        if name.contains(['{', '}']) {
            let message =
                format!("braces present in the recording rule name; should it be in expr?: {name}");
            self.error(paths, message);
        }
    }

    fn expression(&mut self, path: &[Step], raw: &RawRule) -> Option<Expression> {
        let Some(text) = given(&raw.expr) else {
            self.error(
                &[path.to_vec()],
                "field 'expr' must be set in rule".to_owned(),
            );
            return None;
        };
        match parse(text, &self.features) {
            Ok(tree) => Some(Expression {
                text: text.to_owned(),
                tree,
            }),
            Err(error) => {
                self.error(
                    &[path.to_vec()],
                    format!("could not parse expression: {error}"),
                );
                None
            }
        }
    }

    fn duration(&mut self, path: &[Step], field: &str, text: &Option<String>) -> Option<i64> {
        match parse_duration(text.as_deref()?) {
            Ok(duration_ms) => Some(duration_ms),
            Err(reason) => {
                self.error(&[path.to_vec()], format!("{field}: {reason}"));
                None
            }
        }
    }

    fn templates(&mut self, path: &[Step], alert: &str, kind: &str, texts: &Texts) {
        for (name, text) in texts {
            if let Some(error) = Template::new(alert, text).parse_error() {
                let path = [path, &[name.as_str().into()]].concat();
                self.error(&[path], format!("{kind} {}: {error}", quoted(name)));
            }
        }
    }

    fn labels(&mut self, path: &[Step], labels: &Texts) {
        for name in labels
            .keys()
            .filter(|name| name.is_empty() || *name == METRIC_NAME)
        {
            let path = [path, &[Step::Name(name.clone())]].concat();
            self.error(&[path], format!("invalid label name: {name}"));
        }
    }
}

/// Returns the name of a rule for messages. Rules are counted from 1.
fn place(group: &RawGroup, rule_idx: usize, rule: &RawRule) -> String {
    format!(
        "group {}, rule {}, {}",
        quoted(&group.name),
        rule_idx + 1,
        quoted(rule.name())
    )
}

fn group_path<const N: usize>(group_idx: usize, fields: [&str; N]) -> Vec<Step> {
    ["groups".into(), Step::Item(group_idx)]
        .into_iter()
        .chain(fields.map(Step::from))
        .collect()
}

fn rule_path<const N: usize>(group_idx: usize, rule_idx: usize, fields: [&str; N]) -> Vec<Step> {
    let path = group_path(group_idx, ["rules"]);
    path.into_iter()
        .chain([Step::Item(rule_idx)])
        .chain(fields.map(Step::from))
        .collect()
}
