//! [`PackedBuilder`]: label sets from parts of packed strings, one after the other.

use std::ops::Range;

use crate::label_set::{Labels, push_text};

/// The position of a label in a packed string.
#[derive(Debug, Clone, Copy)]
pub struct PackedLabel {
    start: usize,
    name_start: usize,
    name_end: usize,
    end: usize,
}

impl PackedLabel {
    /// Appends a label to a packed string and returns its position.
    pub fn append(packed: &mut String, name: &str, value: &str) -> Self {
        let start = packed.len();
        push_text(packed, name);
        let name_end = packed.len();
        if !value.is_empty() {
            push_text(packed, value);
        }
        Self {
            start,
            name_start: name_end - name.len(),
            name_end,
            end: packed.len(),
        }
    }
}

/// Builds one [`Labels`] after the other, reusing a common prefix.
#[derive(Debug, Default)]
pub struct PackedBuilder {
    packed: String,
    /// The range of each label's name, and the end of the label.
    labels: Vec<(Range<usize>, usize)>,
}

impl PackedBuilder {
    /// Starts the next set.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Starts the next set with the first `n_labels` labels of the last one, or all if it has
    /// fewer.
    pub fn truncate(&mut self, n_labels: usize) {
        self.labels.truncate(n_labels);
        self.packed
            .truncate(self.labels.last().map_or(0, |&(_, end)| end));
    }

    /// Appends a label with a name above the last one and a non-empty value.
    #[inline]
    pub fn push(&mut self, name: &str, value: &str) {
        push_text(&mut self.packed, name);
        let name = self.packed.len() - name.len()..self.packed.len();
        push_text(&mut self.packed, value);
        self.labels.push((name, self.packed.len()));
    }

    /// Appends a label at a position in `text`. Returns `false` if it is invalid, or if its name is
    /// not above the last one.
    #[inline]
    pub fn push_packed(&mut self, text: &str, label: PackedLabel) -> bool {
        let name = &text.as_bytes()[label.name_start..label.name_end];
        if name <= self.last_name() || label.name_end == label.end {
            return false;
        }
        let offset = self.packed.len();
        self.packed.push_str(&text[label.start..label.end]);
        let name =
            offset + (label.name_start - label.start)..offset + (label.name_end - label.start);
        self.labels.push((name, self.packed.len()));
        true
    }

    /// Appends labels of another set by index. Returns `false` if the name of the first is not
    /// above the last one.
    #[inline]
    pub fn push_from(&mut self, other: &Self, places: Range<usize>) -> bool {
        let pushed = &other.labels[places.clone()];
        let ([(first, _), ..], [.., (_, end)]) = (pushed, pushed) else {
            return true;
        };
        if other.packed.as_bytes()[first.clone()] <= *self.last_name() {
            return false;
        }
        let start = places
            .start
            .checked_sub(1)
            .map_or(0, |before| other.labels[before].1);
        let offset = self.packed.len();
        self.packed.push_str(&other.packed[start..*end]);
        let moved = |at: usize| at - start + offset;
        self.labels.extend(
            pushed
                .iter()
                .map(|(name, end)| (moved(name.start)..moved(name.end), moved(*end))),
        );
        true
    }

    fn last_name(&self) -> &[u8] {
        self.labels
            .last()
            .map_or(&[], |(name, _)| &self.packed.as_bytes()[name.clone()])
    }

    /// Returns the set.
    pub fn labels(&self) -> Labels {
        Labels::from_packed(&self.packed)
    }

    /// Returns the size of the buffers in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.packed.capacity() + self.labels.capacity() * size_of::<(Range<usize>, usize)>()
    }

    /// Returns the canonical string of the set.
    pub fn as_packed(&self) -> &str {
        &self.packed
    }
}
