//! Labels of resources, scopes and data points.

use std::collections::{BTreeMap, BTreeSet};

use varve_model::labels::METRIC_NAME;

use super::message::{KeyValue, Scope};
use super::names::LabelNamer;
use super::settings::{OtlpSettings, PromotedAttributes};
use super::value::print;
use super::warnings::Warnings;

/// Labels by name. Setting an empty value removes a label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct LabelMap(BTreeMap<String, String>);

impl LabelMap {
    pub(super) fn set(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Removes the last labels by name, except the metric name, `job` and `instance`, until at most
    /// `n_max` are left. Returns `true` if some were removed.
    pub(super) fn cut(&mut self, n_max: usize) -> bool {
        const KEPT: [&str; 3] = [METRIC_NAME, "instance", "job"];
        let n_kept = KEPT.iter().filter(|name| self.has(name)).count();
        let n_before = self.0.len();
        let mut n_others = 0;
        self.0.retain(|name, _| {
            let is_kept = KEPT.contains(&name.as_str());
            n_others += usize::from(!is_kept);
            is_kept || n_kept + n_others <= n_max
        });
        self.0.len() < n_before
    }

    fn set_all(&mut self, labels: &Self) {
        for (name, value) in labels.iter() {
            self.set(name, value);
        }
    }
}

/// The labels of all series of a resource and of the current scope.
#[derive(Debug, Default)]
pub(super) struct Context {
    job: String,
    instance: String,
    promoted: LabelMap,
    /// The labels of the scope, if scopes are promoted.
    scope: Option<LabelMap>,
}

impl Context {
    /// Creates the context of a resource.
    pub(super) fn new(
        resource: &[KeyValue],
        settings: &OtlpSettings,
        namer: LabelNamer,
    ) -> Result<Self, String> {
        let name = print_attribute(resource, SERVICE_NAME);
        let namespace = print_attribute(resource, SERVICE_NAMESPACE);
        let job = match (namespace, name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (None, Some(name)) => name,
            (_, None) => String::new(),
        };
        let instance = print_attribute(resource, SERVICE_INSTANCE_ID).unwrap_or_default();
        let mut promoted = LabelMap::default();
        for attribute in resource {
            let key = attribute.key();
            let is_promoted = match &settings.promoted {
                PromotedAttributes::Only(names) => names.contains(&*key),
                PromotedAttributes::AllBut(names) => !names.contains(&*key),
            };
            if is_promoted {
                promoted.set(&namer.name(&key)?, &print(attribute.value.as_ref()));
            }
        }
        Ok(Self {
            job,
            instance,
            promoted,
            scope: None,
        })
    }

    /// Switches to the labels of another scope.
    pub(super) fn set_scope(
        &mut self,
        scope: &Scope,
        schema_url: &str,
        settings: &OtlpSettings,
        namer: LabelNamer,
    ) -> Result<(), String> {
        self.scope = None;
        if !settings.promote_scope_metadata || scope.name.is_empty() {
            return Ok(());
        }
        let mut labels = LabelMap::default();
        for attribute in &scope.attributes {
            labels.set(
                &namer.name(&format!("otel_scope_{}", attribute.key()))?,
                &print(attribute.value.as_ref()),
            );
        }
        labels.set("otel_scope_name", &String::from_utf8_lossy(&scope.name));
        labels.set(SCOPE_VERSION, &String::from_utf8_lossy(&scope.version));
        labels.set(SCOPE_SCHEMA_URL, schema_url);
        self.scope = Some(labels);
        Ok(())
    }

    /// Returns the labels of a data point, without a metric name.
    pub(super) fn data_point_labels(
        &self,
        attributes: &[KeyValue],
        namer: LabelNamer,
        warnings: &mut Warnings,
    ) -> Result<LabelMap, String> {
        let mut labels = escaped(attributes, &[METRIC_NAME], namer, warnings)?;
        for (name, value) in self.promoted.iter() {
            if !labels.has(name) {
                labels.set(name, value);
            }
        }
        self.set_identity(&mut labels);
        if let Some(scope) = &self.scope {
            // As in Prometheus: an attribute of this name of a data point is dropped, even if the
            // scope has no version or schema URL.
            labels.set(SCOPE_VERSION, "");
            labels.set(SCOPE_SCHEMA_URL, "");
            labels.set_all(scope);
        }
        Ok(labels)
    }

    /// Returns the labels of a resource's `target_info`, or `None` if the resource has no further
    /// attributes, or neither `job` nor `instance`.
    pub(super) fn target_info_labels(
        &self,
        resource: &[KeyValue],
        settings: &OtlpSettings,
        namer: LabelNamer,
        warnings: &mut Warnings,
    ) -> Result<Option<LabelMap>, String> {
        if resource
            .iter()
            .all(|attribute| IDENTIFYING.contains(&&*attribute.key()))
        {
            return Ok(None);
        }
        let ignored: &[&str] = if settings.keep_identifying_resource_attributes {
            &[]
        } else {
            &IDENTIFYING
        };
        let mut labels = escaped(resource, ignored, namer, warnings)?;
        self.set_identity(&mut labels);
        labels.set(METRIC_NAME, TARGET_INFO);
        Ok((labels.has("job") || labels.has("instance")).then_some(labels))
    }

    fn set_identity(&self, labels: &mut LabelMap) {
        for (name, value) in [("job", &self.job), ("instance", &self.instance)] {
            if !value.is_empty() {
                labels.set(name, value);
            }
        }
    }
}

/// Prints the value of an attribute, or returns `None` if it is missing.
fn print_attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes
        .iter()
        .find(|attribute| attribute.key == key.as_bytes())?;
    Some(print(attribute.value.as_ref()))
}

/// Escapes the names of attributes. If several become the same name, their values are joined in the
/// order of the original names.
///
/// # Errors
/// If two have the same original name, which the specification forbids; if a name cannot be
/// translated.
fn escaped(
    attributes: &[KeyValue],
    ignored: &[&str],
    namer: LabelNamer,
    warnings: &mut Warnings,
) -> Result<LabelMap, String> {
    let mut sorted: Vec<_> = attributes
        .iter()
        .filter(|attribute| !ignored.contains(&&*attribute.key()))
        .collect();
    sorted.sort_by_key(|attribute| &attribute.key);
    if let Some([same, _]) = sorted
        .array_windows()
        .find(|[before, after]| before.key == after.key)
    {
        return Err(format!("the attribute {:?} occurs twice", same.key()));
    }
    let mut labels = LabelMap::default();
    let mut collided = BTreeSet::new();
    for attribute in &sorted {
        let value = print(attribute.value.as_ref());
        if !namer.escapes {
            labels.set(&attribute.key(), &value);
            continue;
        }
        let name = namer.name(&attribute.key())?;
        match labels.0.get_mut(&name) {
            Some(before) => {
                *before = format!("{before};{value}");
                collided.insert(name);
            }
            None => labels.set(&name, &value),
        }
    }
    for name in collided {
        let same = sorted
            .iter()
            .filter(|attribute| namer.name(&attribute.key()).as_ref() == Ok(&name));
        warnings.note_collision(same.map(|attribute| &*attribute.key));
    }
    Ok(labels)
}

pub(super) const TARGET_INFO: &str = "target_info";
const SCOPE_VERSION: &str = "otel_scope_version";
const SCOPE_SCHEMA_URL: &str = "otel_scope_schema_url";
const SERVICE_NAME: &str = "service.name";
const SERVICE_NAMESPACE: &str = "service.namespace";
const SERVICE_INSTANCE_ID: &str = "service.instance.id";
const IDENTIFYING: [&str; 3] = [SERVICE_NAMESPACE, SERVICE_NAME, SERVICE_INSTANCE_ID];
