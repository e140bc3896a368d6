//! The annotations of a query, without duplicates and within a size.

use std::ops::Range;

use hashbrown::{HashMap, HashSet, HashTable};
use varve_promql::Position;
use varve_promql::ast::Span;
use xxhash_rust::xxh3::xxh3_64;

use super::annotation::{Annotation, RaisedExtent, Severity};
use super::occurrence::Occurrence;

/// Maximum number of annotations per severity in an HTTP response. A further line reports how many
/// are omitted.
pub const ANNOTATIONS_MAX: usize = 10;

/// Maximum size in bytes of the annotations that a list keeps. Further annotations are only
/// counted.
pub(super) const KEPT_SIZE_MAX: usize = 256 << 10;

/// Maximum size in bytes of the occurrences that a list keeps. The steps of further occurrences are
/// unknown.
pub(super) const OCCURRENCES_SIZE_MAX: usize = 256 << 10;

/// Maximum number of annotations per severity that a list counts without keeping them.
pub(super) const OMITTED_MAX: usize = 1 << 14;

/// The annotations of a query.
#[derive(Debug, Clone)]
pub struct Annotations {
    query: Box<str>,
    pub(super) list: AnnotationList,
    /// The expressions that are being evaluated have the steps of the query.
    is_at_query_steps: bool,
}

/// Distinct annotations with the positions of their expressions. Its size is bounded.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnnotationList {
    /// Each text once per position, in the order in which they were first added.
    pub(super) entries: Vec<AnnotationEntry>,
    /// Indexes of entries, by hash.
    index: HashTable<usize>,
    /// Size of the entries in bytes, without their occurrences.
    pub(super) size: usize,
    /// Size of the occurrences in bytes.
    pub(super) occurrences_size: usize,
    /// Annotations or positions were omitted.
    is_incomplete: bool,
    /// Hashes of annotations that exceeded [`KEPT_SIZE_MAX`], by severity.
    pub(super) omitted: [HashSet<u64>; 2],
}

/// An annotation at a position.
#[derive(Debug, Clone)]
pub(crate) struct AnnotationEntry {
    annotation: Annotation,
    /// The message without details. Two annotations are equal if their messages are.
    text: String,
    /// The hash of `text`.
    hash: u64,
    /// Position of the annotated expression.
    span: Span,
    pub(super) occurrence: Occurrence,
}

impl Annotations {
    pub(crate) fn new(query: &str) -> Self {
        Self {
            query: query.into(),
            list: AnnotationList::default(),
            is_at_query_steps: true,
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.query.len() + self.list.size + self.list.occurrences_size
    }

    /// Returns the number of annotations, each counted once per position.
    pub(crate) fn n_added(&self) -> usize {
        self.list.entries.len()
    }

    /// Returns the annotations added after the first `n`.
    pub(crate) fn added_since(&self, n: usize) -> &[AnnotationEntry] {
        &self.list.entries[n..]
    }

    /// Records whether the expressions that are evaluated next have the steps of the query. The
    /// steps of their annotations are unknown otherwise. Returns the previous value.
    pub(crate) fn set_at_query_steps(&mut self, is_at_query_steps: bool) -> bool {
        std::mem::replace(&mut self.is_at_query_steps, is_at_query_steps)
    }

    /// Adds an annotation about the expression at `span`.
    pub(crate) fn add(&mut self, annotation: Annotation, span: Span, occurrence: Occurrence) {
        self.add_entry(AnnotationEntry::new(annotation, span, occurrence));
    }

    pub(crate) fn add_entry(&mut self, mut entry: AnnotationEntry) {
        if !self.is_at_query_steps {
            entry.occurrence = Occurrence::Unknown;
        }
        self.list.add_entry(entry);
    }

    /// Returns `true` if there are no annotations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.entries.is_empty()
    }

    /// Returns `true` if the annotations of some steps can be told from those of the others, or
    /// from the annotations of an evaluation of these steps: [`Annotations::cut`] and
    /// [`Annotations::join`].
    pub(crate) fn are_divisible(&self) -> bool {
        !self.list.is_incomplete && self.list.entries.iter().all(AnnotationEntry::is_divisible)
    }

    /// Returns `true` if the steps of all annotations are known.
    pub(crate) fn have_steps(&self) -> bool {
        self.list
            .entries
            .iter()
            .all(|entry| !matches!(entry.occurrence, Occurrence::Unknown))
    }

    /// Returns the annotations of a range of steps. Keeps annotations whose steps are unknown. The
    /// annotations must be divisible.
    pub(crate) fn cut(&self, range: &Range<usize>) -> Self {
        let mut list = AnnotationList::default();
        for entry in &self.list.entries {
            if let Some(entry) = entry.cut(range) {
                list.add_entry(entry);
            }
        }
        Self {
            list,
            ..Self::new(&self.query)
        }
    }

    /// Returns the annotations that one evaluation of the first `n` steps and of later steps has.
    /// `first` are those of the first steps, `later` those of the later ones. Returns `None` if
    /// they are unknown.
    pub(crate) fn join(first: &Self, n: usize, later: &Self) -> Option<Self> {
        if !first.are_divisible() || !later.are_divisible() {
            return None;
        }
        for entry in &first.list.entries {
            // All of its steps may have been before the first one.
            if matches!(entry.occurrence, Occurrence::Unknown) && later.list.find(entry).is_none() {
                return None;
            }
        }
        let mut shifted = AnnotationList::default();
        for entry in &later.list.entries {
            let occurrence = entry.occurrence.later_by(n);
            shifted.add_entry(AnnotationEntry {
                occurrence,
                ..entry.clone()
            });
        }
        let list = first
            .list
            .joined(&shifted)
            .or_else(|| shifted.joined(&first.list))?;
        Some(Self {
            list,
            ..Self::new(&later.query)
        })
    }

    /// Returns the warnings in the format of the HTTP API: `PromQL warning: ... (1:5)`, in the
    /// order of their positions. Returns at most [`ANNOTATIONS_MAX`] warnings and a line with the
    /// number of omitted ones.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Warning, "warning")
    }

    /// Returns the infos; format, order and limit are those of [`Annotations::warnings`].
    pub fn infos(&self) -> impl Iterator<Item = String> + '_ {
        self.limited(Severity::Info, "info")
    }

    /// Returns all warnings and infos that the list keeps.
    pub fn all(&self) -> impl Iterator<Item = String> + '_ {
        self.list
            .by_text()
            .into_iter()
            .map(|entry| self.print(&entry))
    }

    fn limited<'a>(
        &'a self,
        severity: Severity,
        name: &'a str,
    ) -> impl Iterator<Item = String> + 'a {
        let mut entries = self.list.by_text();
        entries.retain(|entry| entry.annotation.severity() == severity);
        let n_all = entries.len() + self.list.omitted[severity as usize].len();
        let rest = if n_all > ANNOTATIONS_MAX {
            let n_omitted = n_all - ANNOTATIONS_MAX;
            Some(format!("{n_omitted} more {name} annotations omitted"))
        } else {
            None
        };
        entries
            .into_iter()
            .take(ANNOTATIONS_MAX)
            .map(|entry| self.print(&entry))
            .chain(rest)
    }

    fn print(&self, entry: &AnnotationEntry) -> String {
        let start = entry.span.start.min(self.query.len());
        let position = Position::of(&self.query, start);
        format!("{}{} ({position})", entry.text, entry.annotation.details())
    }
}

impl AnnotationEntry {
    fn new(annotation: Annotation, span: Span, occurrence: Occurrence) -> Self {
        let text = annotation.text();
        Self {
            annotation,
            hash: xxh3_64(text.as_bytes()),
            text,
            span,
            occurrence,
        }
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Returns the annotation at another position.
    pub(crate) fn moved_to(&self, span: Span) -> Self {
        Self {
            span,
            ..self.clone()
        }
    }

    /// Returns an upper bound of the size in bytes, without the occurrence.
    fn size(&self) -> usize {
        2 * size_of::<Self>() + 2 * self.text.len()
    }

    /// Returns `true` if an evaluation of some of the steps adds this annotation exactly if it is
    /// about one of them, and if its details at these steps are known.
    fn is_divisible(&self) -> bool {
        match &self.annotation {
            // The hint that there was no reset depends on the sample before, which may be before
            // the first step.
            Annotation::CounterResetCollision(_) => false,
            annotation => {
                !annotation.has_details() || matches!(self.occurrence, Occurrence::Raised(_))
            }
        }
    }

    /// Merges an equal annotation.
    fn merge(&mut self, other: Self) {
        self.annotation.merge(other.annotation);
        self.occurrence.merge(other.occurrence);
    }

    /// Returns the annotation with the details of a range of steps, or `None` if it is about others.
    fn cut(&self, range: &Range<usize>) -> Option<Self> {
        let occurrence = self.occurrence.cut(range)?;
        let mut annotation = self.annotation.clone();
        if let Annotation::ForcedMonotonicity(forced) = &mut annotation
            && let Occurrence::Raised(extents) = &occurrence
        {
            forced.extent = RaisedExtent::of_all(extents)?;
        }
        Some(Self {
            annotation,
            occurrence,
            ..self.clone()
        })
    }
}

impl AnnotationList {
    /// Adds an annotation, or merges it into an equal one at the same position.
    pub(crate) fn add(&mut self, annotation: Annotation, span: Span, occurrence: Occurrence) {
        self.add_entry(AnnotationEntry::new(annotation, span, occurrence));
    }

    fn add_entry(&mut self, entry: AnnotationEntry) {
        if let Some(at) = self.find(&entry) {
            self.occurrences_size -= self.entries[at].occurrence.size();
            self.entries[at].merge(entry);
            self.bound_occurrence(at);
        } else if self.size + entry.size() > KEPT_SIZE_MAX {
            self.add_beyond_size(entry);
        } else {
            self.size += entry.size();
            let at = self.entries.len();
            self.index
                .insert_unique(entry.hash, at, |&at| self.entries[at].hash);
            self.entries.push(entry);
            self.bound_occurrence(at);
        }
    }

    /// Returns the index of the equal annotation at the same position.
    fn find(&self, entry: &AnnotationEntry) -> Option<usize> {
        self.index
            .iter_hash(entry.hash)
            .copied()
            .find(|&at| self.entries[at].span == entry.span && self.entries[at].text == entry.text)
    }

    /// Returns the index of the last equal annotation, at any position.
    fn last_of_text(&self, entry: &AnnotationEntry) -> Option<usize> {
        self.index
            .iter_hash(entry.hash)
            .copied()
            .filter(|&at| self.entries[at].text == entry.text)
            .max()
    }

    /// Counts the size of an occurrence that was added or changed, or removes it if there is no
    /// room.
    fn bound_occurrence(&mut self, at: usize) {
        let size = self.entries[at].occurrence.size();
        if self.occurrences_size + size > OCCURRENCES_SIZE_MAX {
            self.entries[at].occurrence = Occurrence::Unknown;
        } else {
            self.occurrences_size += size;
        }
    }

    /// Counts an annotation without keeping it. If it is kept for another position, that position
    /// becomes the new one.
    fn add_beyond_size(&mut self, entry: AnnotationEntry) {
        self.is_incomplete = true;
        let Some(at) = self.last_of_text(&entry) else {
            self.omit(entry.annotation.severity() as usize, entry.hash);
            return;
        };
        let known = &mut self.entries[at];
        if !entry.annotation.has_details() {
            known.span = entry.span;
        }
        known.annotation.merge(entry.annotation);
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

    fn omit_all(&mut self, other_is_incomplete: bool, omitted: [HashSet<u64>; 2]) {
        self.is_incomplete |= other_is_incomplete;
        for (severity, hashes) in omitted.into_iter().enumerate() {
            for hash in hashes {
                self.omit(severity, hash);
            }
        }
    }

    /// Adds all annotations of another list.
    pub(crate) fn merge(&mut self, other: Self) {
        for entry in other.entries {
            self.add_entry(entry);
        }
        self.omit_all(other.is_incomplete, other.omitted);
    }

    /// Returns the annotations of both lists, those of this one first. Returns `None` if they
    /// exceed the size, or if the other list has an annotation of this one at another position:
    /// then the order of the two positions is unknown.
    fn joined(&self, other: &Self) -> Option<Self> {
        let mut joined = self.clone();
        for entry in &other.entries {
            if self.find(entry).is_none() && self.last_of_text(entry).is_some() {
                return None;
            }
            joined.add_entry(entry.clone());
        }
        (!joined.is_incomplete).then_some(joined)
    }

    /// Returns each text once, ordered by position. Of several positions, the last one counts, or
    /// the first one of an annotation with details, as in Prometheus.
    fn by_text(&self) -> Vec<AnnotationEntry> {
        let mut distinct: Vec<AnnotationEntry> = Vec::new();
        let mut index_of: HashMap<&str, usize> = HashMap::new();
        for entry in &self.entries {
            let at = *index_of.entry(&entry.text).or_insert(distinct.len());
            let Some(known) = distinct.get_mut(at) else {
                distinct.push(AnnotationEntry {
                    occurrence: Occurrence::Unknown,
                    ..entry.clone()
                });
                continue;
            };
            if !entry.annotation.has_details() {
                known.span = entry.span;
            }
            known.annotation.merge(entry.annotation.clone());
        }
        distinct.sort_by(|a, b| (a.span.start, &a.text).cmp(&(b.span.start, &b.text)));
        distinct
    }

    /// Returns the annotations with their positions.
    pub(crate) fn into_entries(self) -> Vec<AnnotationEntry> {
        self.entries
    }

    /// Adds all annotations of this list to the annotations of the query.
    pub(crate) fn add_to(self, annotations: &mut Annotations) {
        for entry in self.entries {
            annotations.add_entry(entry);
        }
        annotations.list.omit_all(self.is_incomplete, self.omitted);
    }
}
