//! The annotations of a query, without duplicates and within a size.

use hashbrown::{HashSet, HashTable};
use varve_promql::Position;
use varve_promql::ast::Span;
use xxhash_rust::xxh3::xxh3_64;

use super::annotation::{Annotation, Severity};

/// Maximum number of annotations per severity in an HTTP response. A further line reports how many
/// are omitted.
pub const ANNOTATIONS_MAX: usize = 10;

/// Maximum size in bytes of the annotations that a list keeps. Further annotations are only
/// counted.
pub(super) const KEPT_SIZE_MAX: usize = 256 << 10;

/// Maximum number of annotations per severity that a list counts without keeping them.
pub(super) const OMITTED_MAX: usize = 1 << 14;

/// The annotations of a query.
#[derive(Debug, Clone, Default)]
pub struct Annotations {
    query: Box<str>,
    /// Each text once.
    pub(super) list: AnnotationList,
    /// All added annotations, each text once per position; `None` if recording is off.
    record: Option<AnnotationList>,
}

/// Distinct annotations with the positions of their expressions. Its size is bounded.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnnotationList {
    pub(super) entries: Vec<Entry>,
    /// Indexes of entries, by hash.
    index: HashTable<usize>,
    /// Size of the entries in bytes.
    pub(super) size: usize,
    /// Hashes of annotations that exceeded [`KEPT_SIZE_MAX`], by severity.
    pub(super) omitted: [HashSet<u64>; 2],
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    annotation: Annotation,
    /// The message without details. Two annotations are equal if their messages are.
    text: String,
    /// The hash of `text`.
    hash: u64,
    /// Position of the annotated expression.
    span: Span,
}

impl Annotations {
    pub(crate) fn new(query: &str) -> Self {
        Self {
            query: query.into(),
            ..Self::default()
        }
    }

    /// Records every annotation that is added from now on.
    pub(crate) fn record(&mut self) {
        self.record.get_or_insert_default();
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        let record_size = self.record.as_ref().map_or(0, |record| record.size);
        self.query.len() + self.list.size + record_size
    }

    /// Returns the number of recorded annotations.
    pub(crate) fn n_recorded(&self) -> usize {
        self.record
            .as_ref()
            .map_or(0, |record| record.entries.len())
    }

    /// Returns the annotations recorded after the first `n`.
    pub(crate) fn recorded_since(&self, n: usize) -> impl Iterator<Item = (Annotation, Span)> + '_ {
        let recorded = self.record.iter().flat_map(|record| &record.entries);
        recorded
            .skip(n)
            .map(|entry| (entry.annotation.clone(), entry.span))
    }

    /// Adds an annotation about the expression at `span`.
    pub(crate) fn add(&mut self, annotation: Annotation, span: Span) {
        self.add_entry(Entry::new(annotation, span));
    }

    fn add_entry(&mut self, entry: Entry) {
        if let Some(record) = &mut self.record {
            record.add_entry(entry.clone(), true);
        }
        self.list.add_entry(entry, false);
    }

    /// Returns `true` if there are no annotations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.entries.is_empty()
    }

    /// Returns `true` if steps with these annotations may be joined to others with the same
    /// annotations: there is none, or only the info that a metric might not be a counter.
    pub(crate) fn allow_joins(&self) -> bool {
        let AnnotationList {
            entries, omitted, ..
        } = &self.list;
        entries.len() <= 1
            && entries
                .iter()
                .all(|entry| matches!(entry.annotation, Annotation::PossibleNonCounter(_)))
            && omitted.iter().all(HashSet::is_empty)
    }

    /// Returns `true` if the annotations, their order and their positions are the same. Details may
    /// differ.
    pub(crate) fn are_equal(&self, other: &Self) -> bool {
        let own = &self.list.entries;
        let others = &other.list.entries;
        own.len() == others.len()
            && own
                .iter()
                .zip(others)
                .all(|(a, b)| a.text == b.text && a.span == b.span)
    }

    /// Returns the warnings in the format of the HTTP API: `PromQL warning: ... (1:5)`. Returns at
    /// most [`ANNOTATIONS_MAX`] warnings and a line with the number of omitted ones.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Warning, "warning")
    }

    /// Returns the infos; format and limit are those of [`Annotations::warnings`].
    pub fn infos(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Info, "info")
    }

    /// Returns all warnings and infos that the list keeps.
    pub fn all(&self) -> impl Iterator<Item = String> + '_ {
        self.list.entries.iter().map(|entry| self.print(entry))
    }

    fn limited<'a>(
        &'a self,
        severity: Severity,
        name: &'a str,
    ) -> impl Iterator<Item = String> + 'a {
        let entries = self
            .list
            .entries
            .iter()
            .filter(move |entry| entry.annotation.severity() == severity);
        let n_all = entries.clone().count() + self.list.omitted[severity as usize].len();
        let rest = if n_all > ANNOTATIONS_MAX {
            let n_omitted = n_all - ANNOTATIONS_MAX;
            Some(format!("{n_omitted} more {name} annotations omitted"))
        } else {
            None
        };
        entries
            .take(ANNOTATIONS_MAX)
            .map(|entry| self.print(entry))
            .chain(rest)
    }

    fn print(&self, entry: &Entry) -> String {
        let start = entry.span.start.min(self.query.len());
        let position = Position::of(&self.query, start);
        format!("{}{} ({position})", entry.text, entry.annotation.details())
    }
}

impl Entry {
    fn new(annotation: Annotation, span: Span) -> Self {
        let text = annotation.text();
        Self {
            annotation,
            hash: xxh3_64(text.as_bytes()),
            text,
            span,
        }
    }

    /// Returns an upper bound of the size in bytes.
    fn size(&self) -> usize {
        2 * size_of::<Self>() + 2 * self.text.len()
    }
}

impl AnnotationList {
    /// Adds an annotation, or merges it into an equal one at the same position.
    pub(crate) fn add(&mut self, annotation: Annotation, span: Span) {
        self.add_entry(Entry::new(annotation, span), true);
    }

    /// Adds an annotation, or merges it into an equal one. Annotations at different positions are
    /// different if `by_span`. Otherwise the last position is kept, except for annotations with
    /// details.
    fn add_entry(&mut self, entry: Entry, by_span: bool) {
        let Self { entries, index, .. } = self;
        if let Some(&at) = index.find(entry.hash, |&at| {
            entries[at].text == entry.text && (!by_span || entries[at].span == entry.span)
        }) {
            let known = &mut entries[at];
            if !entry.annotation.has_details() {
                known.span = entry.span;
            }
            known.annotation.merge(entry.annotation);
        } else if self.size + entry.size() > KEPT_SIZE_MAX {
            self.omit(entry.annotation.severity() as usize, entry.hash);
        } else {
            self.size += entry.size();
            index.insert_unique(entry.hash, entries.len(), |&at| entries[at].hash);
            entries.push(entry);
        }
    }

    /// Counts an annotation without keeping it.
    fn omit(&mut self, severity: usize, hash: u64) {
        let omitted = &mut self.omitted[severity];
        if omitted.len() < OMITTED_MAX
            && self
                .index
                .find(hash, |&at| self.entries[at].hash == hash)
                .is_none()
        {
            omitted.insert(hash);
        }
    }

    fn omit_all(&mut self, omitted: [HashSet<u64>; 2]) {
        for (severity, hashes) in omitted.into_iter().enumerate() {
            for hash in hashes {
                self.omit(severity, hash);
            }
        }
    }

    /// Adds all annotations of another list.
    pub(crate) fn merge(&mut self, other: Self) {
        for entry in other.entries {
            self.add_entry(entry, true);
        }
        self.omit_all(other.omitted);
    }

    /// Returns the annotations with their positions.
    pub(crate) fn into_list(self) -> Vec<(Annotation, Span)> {
        self.entries
            .into_iter()
            .map(|entry| (entry.annotation, entry.span))
            .collect()
    }

    /// Adds all annotations of this list to the annotations of the query.
    pub(crate) fn add_to(self, annotations: &mut Annotations) {
        for entry in self.entries {
            annotations.add_entry(entry);
        }
        annotations.list.omit_all(self.omitted);
    }
}
