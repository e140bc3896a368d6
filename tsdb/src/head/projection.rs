//! Label sets of series, complete or limited to requested labels.
//!
//! If few labels are requested, there are few distinct sets, even for many series. Each set is
//! built once and cached by the symbols of its values. The caller charges the cache and the buffers
//! ([`Projection::size`]).

use hashbrown::HashMap;
use varve_model::Labels;
use varve_model::labels::PackedBuilder;

use super::head::Head;
use crate::index::Pair;
use crate::label_hint::LabelHint;

/// Maximum number of cached label sets. A full cache is cleared.
const CACHED_MAX: usize = 4096;
/// Size in bytes of the cached label sets above which the cache is cleared.
const CACHED_SIZE_MAX: usize = 4 << 20;

/// Builds label sets of series of one head. The series must not be evicted while it is used.
#[derive(Debug, Default)]
pub(crate) struct Projection {
    /// Indexes of the requested names, by shape.
    requested_by_shape: HashMap<u32, Box<[usize]>>,
    /// Label sets, by shape and values of the requested names.
    cache: HashMap<Box<[u32]>, Labels>,
    /// The size of both maps in bytes.
    cached_size: usize,
    key: Vec<u32>,
    builder: PackedBuilder,
    empty: Labels,
    /// The last labels built, if all labels are requested.
    built: Vec<Pair>,
}

impl Projection {
    /// Returns the requested labels of a series. `requested` must be the same in all calls.
    pub(crate) fn labels(&mut self, head: &Head, slot: u32, requested: &LabelHint) -> Labels {
        match requested {
            // Fast path: all labels are requested, so no two series share a set.
            LabelHint::All => return self.all(head, slot),
            // Fast path: `count(...)`.
            LabelHint::None => return self.empty.clone(),
            LabelHint::With(_) | LabelHint::Without(_) => {}
        }
        let words = head.table.label_words(slot);
        let Self {
            requested_by_shape,
            cache,
            cached_size,
            key,
            builder,
            ..
        } = self;
        if cache.len() >= CACHED_MAX || *cached_size > CACHED_SIZE_MAX {
            cache.clear();
            requested_by_shape.clear();
            *cached_size = 0;
        }

        // The first word is the shape, which is the list of names. The others are their values.
        let requested_idx = requested_by_shape.entry(words[0]).or_insert_with(|| {
            let mut found = Vec::new();
            for (idx, (name, _)) in head.pairs(slot).enumerate() {
                if requested.includes(head.symbol(name)) {
                    found.push(idx);
                }
            }
            *cached_size += size_of_val(&*found) + 2 * size_of::<(u32, Box<[usize]>)>();
            found.into_boxed_slice()
        });
        key.clear();
        key.push(words[0]);
        key.extend(requested_idx.iter().map(|idx| words[1 + idx]));
        if let Some(known) = cache.get(&**key) {
            return known.clone();
        }

        builder.clear();
        for (idx, (name, value)) in head.pairs(slot).enumerate() {
            if requested_idx.contains(&idx) {
                builder.push(head.symbol(name), head.symbol(value));
            }
        }
        let labels = builder.labels();
        *cached_size += labels.size() + size_of_val(&**key) + 2 * size_of::<(Box<[u32]>, Labels)>();
        cache.insert(key.as_slice().into(), labels.clone());
        labels
    }

    /// Returns the memory of the cache and of the buffers in bytes.
    pub(crate) fn size(&self) -> usize {
        self.cached_size + self.builder.size() + self.built.capacity() * size_of::<Pair>()
    }

    fn all(&mut self, head: &Head, slot: u32) -> Labels {
        // Neighbors in label order usually share their first labels.
        let n_same = self
            .built
            .iter()
            .copied()
            .zip(head.pairs(slot))
            .take_while(|(built, pair)| built == pair)
            .count();
        self.built.truncate(n_same);
        self.builder.truncate(n_same);
        for (name, value) in head.pairs(slot).skip(n_same) {
            self.builder.push(head.symbol(name), head.symbol(value));
            self.built.push((name, value));
        }
        self.builder.labels()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SeriesRef;

    #[test]
    fn series_with_equal_requested_labels_share_a_set() {
        let mut head = Head::new(0);
        let labels = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied()).unwrap();
        let mut slot = |number, pairs: &[(&str, &str)]| {
            head.find_or_create(&labels(pairs), SeriesRef(number))
                .unwrap()
                .0
        };
        let slots = [
            slot(1, &[("a", "1"), ("b", "1"), ("c", "1")]),
            slot(2, &[("a", "1"), ("b", "2"), ("c", "1")]),
            slot(3, &[("b", "3"), ("c", "1")]),
            slot(4, &[("a", "2"), ("c", "2")]),
        ];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (requested, expect) in [
            (
                LabelHint::All,
                [
                    r#"{a="1", b="1", c="1"}"#,
                    r#"{a="1", b="2", c="1"}"#,
                    r#"{b="3", c="1"}"#,
                    r#"{a="2", c="2"}"#,
                ],
            ),
            (
                LabelHint::With(names(&["c", "a", "x"])),
                [
                    r#"{a="1", c="1"}"#,
                    r#"{a="1", c="1"}"#,
                    r#"{c="1"}"#,
                    r#"{a="2", c="2"}"#,
                ],
            ),
            (
                LabelHint::Without(names(&["b", "c"])),
                [r#"{a="1"}"#, r#"{a="1"}"#, "{}", r#"{a="2"}"#],
            ),
            (LabelHint::None, ["{}"; 4]),
        ] {
            let mut projection = Projection::default();
            let sets = slots.map(|slot| projection.labels(&head, slot, &requested));
            assert_eq!(
                sets.each_ref().map(Labels::to_string),
                expect,
                "{requested:?}"
            );
            assert_eq!(
                sets[0].is_shared_with(&sets[1]),
                !matches!(requested, LabelHint::All)
            );
        }
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut head = Head::new(0);
        let mut projection = Projection::default();
        let requested = LabelHint::With(vec!["a".to_owned()]);
        for i in 0..=CACHED_MAX as u64 + 10 {
            let labels = Labels::from_pairs([("a", &*i.to_string())]).unwrap();
            let (slot, _) = head.find_or_create(&labels, SeriesRef(i)).unwrap();
            assert_eq!(projection.labels(&head, slot, &requested), labels);
            assert!(projection.cache.len() <= CACHED_MAX);
        }
    }

    #[test]
    fn long_labels_are_cached_up_to_a_size() {
        let mut head = Head::new(0);
        let mut projection = Projection::default();
        let requested = LabelHint::With(vec!["a".to_owned()]);
        let long = "x".repeat(60_000);
        let mut size_max = 0;
        for i in 0..200 {
            let labels = Labels::from_pairs([("a", &*format!("{i}{long}"))]).unwrap();
            let (slot, _) = head.find_or_create(&labels, SeriesRef(i)).unwrap();
            assert_eq!(projection.labels(&head, slot, &requested), labels);
            size_max = size_max.max(projection.size());
            let cached: usize = projection.cache.values().map(Labels::size).sum();
            assert!(cached <= projection.size());
        }
        assert!((CACHED_SIZE_MAX..CACHED_SIZE_MAX + (1 << 20)).contains(&size_max));
    }
}
