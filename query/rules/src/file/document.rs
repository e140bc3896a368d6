//! Documents of a text: rule files, and Kubernetes manifests that contain rule files.

use serde::Deserialize as _;
use serde::de::MapAccess;
use varve_context::QueryContext;

use super::error::{FileError, Position};
use super::locate::{Source, Step};
use super::mapping::{Fields, Mapped, Mapping, Text, Texts, next_mapping, next_mappings, skip};
use super::raw::RawGroup;

/// A rule file as written.
#[derive(Debug)]
pub struct RawFile {
    /// `namespace/name` of the manifest; `None` for Prometheus' own format.
    pub manifest: Option<String>,
    /// The groups.
    pub groups: Vec<RawGroup>,
    pub(super) unknown: Vec<String>,
    /// Number of the document in the text.
    pub(super) document: usize,
    /// Path to the mapping with `groups`.
    path: Vec<Step>,
    source: Source,
}

impl RawFile {
    /// Creates a rule file that is not in a manifest.
    pub(super) fn new(
        groups: Vec<RawGroup>,
        unknown: Vec<String>,
        document: usize,
        source: Source,
    ) -> Self {
        Self {
            manifest: None,
            groups,
            unknown,
            document,
            path: Vec::new(),
            source,
        }
    }

    /// Returns the position of a field below the mapping with `groups`.
    pub(super) fn locate(&self, path: &[Step]) -> Option<Position> {
        let path = [&self.path, path].concat();
        self.source.locate(self.document, &path)
    }
}

/// Reads all rule files of a text: YAML or JSON.
///
/// # Errors
/// The first syntax error, value of a wrong type, or repeated key.
pub fn read(text: &str) -> Result<Vec<RawFile>, FileError> {
    read_for(text, None)
}

/// Reads all rule files of a text, which `request` sent.
pub(super) fn read_for(
    text: &str,
    request: Option<&QueryContext>,
) -> Result<Vec<RawFile>, FileError> {
    let source = source_of(text, request)?;
    let mut files = Vec::new();
    for (number, document) in serde_yaml_ng::Deserializer::from_str(source.text()).enumerate() {
        let document = Option::<Mapped<Document>>::deserialize(document);
        let Some(Mapped(document)) = document.map_err(|error| source.error(error))? else {
            continue;
        };
        Reader {
            source: &source,
            request,
            document: number,
            files: &mut files,
        }
        .add(document, Vec::new())?;
    }
    Ok(files)
}

/// Returns the text to parse, of a file or of a request.
pub(super) fn source_of(text: &str, request: Option<&QueryContext>) -> Result<Source, FileError> {
    // YAML allows a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match request {
        Some(ctx) => Source::of_request(ctx, text),
        None => Ok(Source::new(text)),
    }
}

struct Reader<'a> {
    source: &'a Source,
    request: Option<&'a QueryContext>,
    document: usize,
    files: &'a mut Vec<RawFile>,
}

impl Reader<'_> {
    fn add(&mut self, document: Document, mut path: Vec<Step>) -> Result<(), FileError> {
        let Document {
            kind,
            name,
            groups,
            spec,
            items,
            data,
            mut unknown,
        } = document;
        match kind.as_str() {
            "" => {
                unknown.retain(|key| key != "groups");
                self.push(None, groups, unknown, path);
            }
            "PrometheusRule" => {
                path.push("spec".into());
                self.push(Some(name), spec.groups, Vec::new(), path);
            }
            "ConfigMap" => return self.add_config_map(&name, &data),
            list if list.ends_with("List") => {
                for (i, item) in items.into_iter().enumerate() {
                    self.add(item, [&path[..], &["items".into(), Step::Item(i)]].concat())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        manifest: Option<String>,
        groups: Vec<RawGroup>,
        unknown: Vec<String>,
        path: Vec<Step>,
    ) {
        self.files.push(RawFile {
            manifest,
            groups,
            unknown,
            document: self.document,
            path,
            source: self.source.clone(),
        });
    }

    /// Adds the values that look like rule files.
    fn add_config_map(&mut self, name: &str, data: &Texts) -> Result<(), FileError> {
        for (key, text) in data
            .iter()
            .filter(|(key, text)| text.contains("groups:") && !key.ends_with(".json"))
        {
            let manifest = format!("{name}: {key}");
            let source = source_of(text, self.request);
            let source = source.map_err(|error| error.within(&manifest))?;
            let document = serde_yaml_ng::Deserializer::from_str(source.text()).next();
            let document = document.map_or(Ok(None), Option::<Mapped<Document>>::deserialize);
            let document = document.map_err(|error| source.error(error).within(&manifest))?;
            let Some(Mapped(Document { groups, .. })) = document else {
                continue;
            };
            self.files.push(RawFile {
                manifest: Some(manifest),
                groups,
                unknown: Vec::new(),
                document: 0,
                path: Vec::new(),
                source,
            });
        }
        Ok(())
    }
}

/// A document of any kind.
#[derive(Default)]
struct Document {
    kind: String,
    /// `namespace/name`.
    name: String,
    groups: Vec<RawGroup>,
    spec: Spec,
    items: Vec<Document>,
    data: Texts,
    /// All keys except `groups`.
    unknown: Vec<String>,
}

impl Fields for Document {
    const WHAT: &str = "rule groups or a manifest";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        self.unknown.push(key.to_owned());
        // Manifests of other kinds may have anything in these fields.
        let may_be = |kind: &str| self.kind.is_empty() || self.kind.ends_with(kind);
        match key {
            "kind" => self.kind = values.next_value::<Text>()?.0,
            "metadata" => {
                let Metadata { namespace, name } = next_mapping(values)?;
                self.name = if namespace.is_empty() {
                    name
                } else {
                    format!("{namespace}/{name}")
                };
            }
            "groups" if self.kind.is_empty() => self.groups = next_mappings(values)?,
            "spec" if may_be("PrometheusRule") => self.spec = next_mapping(values)?,
            "items" if may_be("List") => self.items = next_mappings(values)?,
            "data" if may_be("ConfigMap") => self.data = next_mapping(values)?,
            _ => skip(values)?,
        }
        Ok(())
    }
}

impl Mapping for Document {
    fn merge(&mut self, other: Self) {
        if self.groups.is_empty() {
            self.groups = other.groups;
        }
        self.unknown.extend(other.unknown);
    }
}

/// `spec` of a PrometheusRule.
#[derive(Default)]
struct Spec {
    groups: Vec<RawGroup>,
}

impl Fields for Spec {
    const WHAT: &str = "a specification";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "groups" => self.groups = next_mappings(values)?,
            _ => skip(values)?,
        }
        Ok(())
    }
}

impl Mapping for Spec {
    fn merge(&mut self, other: Self) {
        self.groups.extend(other.groups);
    }
}

/// `metadata` of a manifest.
#[derive(Default)]
struct Metadata {
    namespace: String,
    name: String,
}

impl Fields for Metadata {
    const WHAT: &str = "metadata";

    fn set<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "namespace" => self.namespace = values.next_value::<Text>()?.0,
            "name" => self.name = values.next_value::<Text>()?.0,
            _ => skip(values)?,
        }
        Ok(())
    }
}

impl Mapping for Metadata {
    fn merge(&mut self, _other: Self) {}
}
