//! Positions of fields.
//!
//! The library that reads files reports positions only in errors of its own. So a text with other
//! errors is parsed again, once, for the positions of all its nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use granit_parser::{Event, Parser};
use varve_context::QueryContext;

use super::error::{FileError, Position};
use super::yaml::CanonicalYaml;

/// One step from a YAML node to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The value of a key.
    Key(String),
    /// The key itself. Only at the end of a path.
    Name(String),
    /// An item of a sequence.
    Item(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

/// A text, and the positions of its nodes once one is needed.
#[derive(Debug, Clone)]
pub(super) struct Source(Arc<Text>);

#[derive(Debug)]
struct Text {
    text: String,
    /// The text of which `text` is a rewritten form, if a client sent it.
    rewritten: Option<CanonicalYaml>,
    documents: OnceLock<Vec<Nodes>>,
}

impl Source {
    /// Returns a text of the configuration.
    pub(super) fn new(text: &str) -> Self {
        Self(Arc::new(Text {
            text: text.to_owned(),
            rewritten: None,
            documents: OnceLock::new(),
        }))
    }

    /// Returns a text that a client sent.
    ///
    /// # Errors
    /// The errors of [`CanonicalYaml::new`].
    pub(super) fn of_request(ctx: &QueryContext, text: &str) -> Result<Self, FileError> {
        Ok(Self(Arc::new(Text {
            text: String::new(),
            rewritten: Some(CanonicalYaml::new(ctx, text)?),
            documents: OnceLock::new(),
        })))
    }

    /// Returns the text to read.
    pub(super) fn text(&self) -> &str {
        match &self.0.rewritten {
            Some(rewritten) => rewritten.text(),
            None => &self.0.text,
        }
    }

    /// Returns an error of reading the text.
    pub(super) fn error(&self, error: serde_yaml_ng::Error) -> FileError {
        let error = FileError::from(error);
        match &self.0.rewritten {
            Some(rewritten) => error.at(|position| rewritten.original(position)),
            None => error,
        }
    }

    /// Returns the position of the longest prefix of `path` that exists in a document of the text.
    pub(super) fn locate(&self, document: usize, path: &[Step]) -> Option<Position> {
        let documents = self.0.documents.get_or_init(|| documents_of(self.text()));
        let position = documents.get(document)?.locate(path)?;
        Some(match &self.0.rewritten {
            Some(rewritten) => rewritten.original(position),
            None => position,
        })
    }
}

/// The nodes of a document. The first one is its root.
#[derive(Debug, Default)]
struct Nodes(Vec<Node>);

#[derive(Debug)]
struct Node {
    position: Position,
    parts: Parts,
}

/// The parts of a node, by their index.
#[derive(Debug)]
enum Parts {
    /// None that a path names.
    None,
    /// With the positions of keys. The first of equal keys counts.
    Mapping(BTreeMap<String, (Position, usize)>),
    Sequence(Vec<usize>),
}

impl Nodes {
    fn locate(&self, path: &[Step]) -> Option<Position> {
        let mut node = self.0.first()?;
        for step in path {
            let part = match (step, &node.parts) {
                (Step::Name(name), Parts::Mapping(entries)) => {
                    return Some(entries.get(name).map_or(node.position, |entry| entry.0));
                }
                (Step::Key(key), Parts::Mapping(entries)) => entries.get(key).map(|entry| entry.1),
                (Step::Item(idx), Parts::Sequence(items)) => items.get(*idx).copied(),
                _ => None,
            };
            match part {
                Some(idx) => node = &self.0[idx],
                None => break,
            }
        }
        Some(node.position)
    }
}

/// A mapping or a sequence whose end has not come yet.
struct Open {
    node: usize,
    /// The key whose value comes next.
    key: Option<(String, Position)>,
}

/// Builds the nodes of a document.
#[derive(Default)]
struct Builder {
    nodes: Nodes,
    open: Vec<Open>,
    /// Nodes by the numbers of their anchors.
    anchors: HashMap<usize, usize>,
}

impl Builder {
    fn add(&mut self, event: Event<'_>, position: Position) {
        match event {
            Event::Alias(anchor) => {
                if let Some(&node) = self.anchors.get(&anchor) {
                    self.attach(node, String::new(), position);
                }
            }
            Event::Scalar(value, _, anchor, _) => {
                let node = self.push(anchor, position, Parts::None);
                self.attach(node, value.into_owned(), position);
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(anchor, position, Parts::Sequence(Vec::new()));
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(anchor, position, Parts::Mapping(BTreeMap::new()));
            }
            Event::SequenceEnd | Event::MappingEnd => drop(self.open.pop()),
            _ => {}
        }
    }

    fn push(&mut self, anchor: usize, position: Position, parts: Parts) -> usize {
        let node = self.nodes.0.len();
        self.nodes.0.push(Node { position, parts });
        self.anchors.insert(anchor, node);
        node
    }

    fn open(&mut self, anchor: usize, position: Position, parts: Parts) {
        let node = self.push(anchor, position, parts);
        self.attach(node, String::new(), position);
        self.open.push(Open { node, key: None });
    }

    /// Adds a node to the innermost open one: as an item, as a key with this text, or as a value.
    fn attach(&mut self, node: usize, text: String, position: Position) {
        let Some(outer) = self.open.last_mut() else {
            return;
        };
        match &mut self.nodes.0[outer.node].parts {
            Parts::Sequence(items) => items.push(node),
            Parts::Mapping(entries) => match outer.key.take() {
                None => outer.key = Some((text, position)),
                Some((key, position)) => {
                    entries.entry(key).or_insert((position, node));
                }
            },
            Parts::None => {}
        }
    }
}

/// Returns the nodes of all documents of a text, up to the first syntax error.
fn documents_of(text: &str) -> Vec<Nodes> {
    let mut documents = Vec::new();
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        match event {
            Ok((Event::DocumentEnd, _)) => documents.push(std::mem::take(&mut builder).nodes),
            Ok((event, span)) => builder.add(event, Position::of_marker(span.start)),
            Err(_) => break,
        }
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, document: usize, path: &[Step], expect: &str) {
        let position = Source::new(text).locate(document, path).unwrap();
        assert_eq!(position.to_string(), expect, "{path:?}");
    }

    #[test]
    fn the_longest_prefix_of_a_path_is_found() {
        let text = "a: [b, {c: d, ? [x] : y, é: z}]\n---\n- &l {k: v}\n- *l\n";
        let steps = |key: &str| vec!["a".into(), Step::Item(1), key.into()];
        check(text, 0, &[], "1:1");
        check(text, 0, &["a".into()], "1:4");
        check(text, 0, &["b".into()], "1:1");
        check(text, 0, &["a".into(), Step::Item(0)], "1:5");
        check(text, 0, &steps("c"), "1:12");
        check(text, 0, &steps("é"), "1:29");
        check(text, 0, &steps("none"), "1:8");
        let name = [Step::from("a"), Step::Item(1), Step::Name("é".to_owned())];
        check(text, 0, &name, "1:26");
        check(text, 1, &[Step::Item(1), "k".into()], "3:10");
    }

    /// Each error parsed the text again, some times: a file of 1 MB took hours.
    #[test]
    fn many_errors_take_one_pass() {
        let n_rules = 20_000;
        let rules = "  - {expr: up, record: a, x: y}\n".repeat(n_rules);
        let text = format!("groups:\n- name: g\n  rules:\n{rules}");
        for request in [None, Some(QueryContext::unbounded())] {
            let options = crate::file::Options {
                request,
                ..crate::file::Options::default()
            };
            let errors = crate::file::parse(&text, &options).unwrap_err();
            assert_eq!(errors.len(), n_rules);
            let last = errors.last().unwrap().to_string();
            assert!(last.starts_with("20003:27: "), "{last}");
        }
    }
}
