//! Unknown fields of a text that has an error of another kind, such as a value of a wrong type.
//!
//! promtool names both. The text is read once more, without its values.

use serde::Deserialize as _;
use serde::de::MapAccess;
use serde_yaml_ng::Value;
use varve_context::QueryContext;

use super::check;
use super::document::{RawFile, source_of};
use super::error::FileError;
use super::mapping::{Fields, Mapped, Mapping, next_mappings, skip};
use super::raw::{GROUP_KEYS, RULE_KEYS, RawGroup, RawRule};

/// Returns an error for each unknown field of the rule files of a text, apart from manifests. Returns
/// none if the groups or rules are no lists.
pub(super) fn find(text: &str, request: Option<&QueryContext>) -> Vec<FileError> {
    let Ok(source) = source_of(text, request) else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    for (number, document) in serde_yaml_ng::Deserializer::from_str(source.text()).enumerate() {
        let Ok(Some(Mapped(document))) = Option::<Mapped<Keys>>::deserialize(document) else {
            return errors;
        };
        if document.is_manifest {
            continue;
        }
        let groups = document.groups.into_iter().map(|group| group.0).collect();
        let file = RawFile::new(groups, document.unknown, number, source.clone());
        errors.extend(check::unknown_fields(&file));
    }
    errors
}

/// The keys of a document.
#[derive(Default)]
struct Keys {
    is_manifest: bool,
    groups: Vec<KeysOfGroup>,
    unknown: Vec<String>,
}

/// A group without values, apart from its name.
#[derive(Default)]
struct KeysOfGroup(RawGroup);

/// A rule without values, apart from its name.
#[derive(Default)]
struct KeysOfRule(RawRule);

impl Fields for Keys {
    const WHAT: &str = "rule groups";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "groups" => self.groups = next_mappings(values)?,
            _ => {
                self.is_manifest |= key == "kind";
                self.unknown.push(key.to_owned());
                skip(values)?;
            }
        }
        Ok(())
    }
}

impl Mapping for Keys {
    fn merge(&mut self, _other: Self) {}
}

impl Fields for KeysOfGroup {
    const WHAT: &str = RawGroup::WHAT;

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "name" => self.0.name = next_text(values)?.unwrap_or_default(),
            "rules" => {
                let rules: Vec<KeysOfRule> = next_mappings(values)?;
                self.0.rules = rules.into_iter().map(|rule| rule.0).collect();
            }
            _ => {
                if !GROUP_KEYS.contains(&key) {
                    self.0.unknown.push(key.to_owned());
                }
                skip(values)?;
            }
        }
        Ok(())
    }
}

impl Mapping for KeysOfGroup {
    fn merge(&mut self, _other: Self) {}
}

impl Fields for KeysOfRule {
    const WHAT: &str = RawRule::WHAT;

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "record" => self.0.record = next_text(values)?,
            "alert" => self.0.alert = next_text(values)?,
            _ => {
                if !RULE_KEYS.contains(&key) {
                    self.0.unknown.push(key.to_owned());
                }
                skip(values)?;
            }
        }
        Ok(())
    }
}

impl Mapping for KeysOfRule {
    fn merge(&mut self, _other: Self) {}
}

/// Reads a value, which counts only if it is a text.
fn next_text<'de, A: MapAccess<'de>>(values: &mut A) -> Result<Option<String>, A::Error> {
    let value: Value = values.next_value()?;
    Ok(value.as_str().map(str::to_owned))
}
