use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use roaring::RoaringBitmap;
use varve_context::{Interrupt, Limit, MemoryBudget, QueryContext};
use varve_env::{Fs, RealFs};
use varve_model::{Labels, MatchOp, Matcher, StringSet};

use super::{Index, IndexWriter};
use crate::block::page::{Access, PageCache, PageRef, PageWriter, Pages};
use crate::block::symbol::Symbol;
use crate::error::{Error, Result};
use crate::label_hint::LabelHint;

/// An index on disk, and what was written to it.
struct Written {
    dir: tempfile::TempDir,
    path: PathBuf,
    root: PageRef,
    series: Vec<Labels>,
}

/// Pages that hold only a few symbols, and memory for three runs.
const TINY: (usize, usize) = (40, 40);

fn write_index(
    series: &BTreeSet<Labels>,
    unused: &[(&str, &str)],
    (page_size, memory_max): (usize, usize),
) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let mut pages = PageWriter::new(&path, RealFs.create(&path).unwrap()).unwrap();
    let mut writer = IndexWriter::with_page_size(
        Arc::new(RealFs),
        &dir.path().join("1"),
        memory_max,
        page_size,
    );
    let pairs: BTreeSet<_> = series
        .iter()
        .flatten()
        .chain(unused.iter().copied())
        .collect();
    let symbols: BTreeMap<_, _> = pairs
        .into_iter()
        .map(|(name, value)| {
            (
                (name, value),
                writer.symbol(&mut pages, name, value).unwrap(),
            )
        })
        .collect();
    for labels in series {
        let row: Vec<_> = labels.iter().map(|pair| symbols[&pair]).collect();
        writer.series(&mut pages, &row).unwrap();
    }
    let root = writer.finish(&mut pages).unwrap();
    pages.sync().unwrap();
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "spill files are gone"
    );
    Written {
        dir,
        path,
        root,
        series: series.iter().cloned().collect(),
    }
}

fn open(path: &Path, root: PageRef) -> Result<Index> {
    let pages = Pages::new(
        path,
        RealFs.open(path).unwrap(),
        Arc::new(PageCache::new(1 << 20)),
    );
    Index::open(Arc::new(pages), root)
}

fn strings(fill: impl FnOnce(&QueryContext, &mut StringSet) -> Result<()>) -> Vec<String> {
    let ctx = QueryContext::unbounded();
    let mut found = StringSet::new(&ctx);
    fill(&ctx, &mut found).unwrap();
    found.iter().map(str::to_owned).collect()
}

/// Returns the first strings of a set with a limit, which must not be filled far beyond it.
fn first_strings(
    n_first: usize,
    fill: impl FnOnce(&QueryContext, &mut StringSet) -> Result<()>,
) -> Vec<String> {
    let ctx = QueryContext::unbounded();
    let mut found = StringSet::of_first(&ctx, n_first);
    fill(&ctx, &mut found).unwrap();
    assert!(found.len() <= n_first, "strings of an index are in order");
    found.iter().map(str::to_owned).collect()
}

fn any_hint() -> impl Strategy<Value = LabelHint> {
    let names = proptest::collection::vec(
        proptest::sample::select(&["__name__", "a", "ab", "id", "absent"]),
        0..4,
    );
    let names = names.prop_map(|names| names.into_iter().map(str::to_owned).collect());
    (names, 0..3).prop_map(|(names, kind)| match kind {
        0 => LabelHint::All,
        1 => LabelHint::With(names),
        _ => LabelHint::Without(names),
    })
}

const NAMES: [&str; 4] = ["__name__", "a", "ab", "é"];
const VALUES: [&str; 8] = ["", "a", "ab", "abc", "b", "ö", "öa", "\u{10ffff}"];
const PATTERNS: &str = "a a|b a.* ab.+ ö.* .* .+ x (a|c) a? b| a[a-z]+ .*b ab[^b]* \u{10ffff}.*";

fn any_matcher() -> impl Strategy<Value = Matcher> {
    let name =
        prop_oneof![8 => proptest::sample::select(&NAMES), 1 => Just("absent"), 1 => Just("")];
    let patterns: Vec<_> = PATTERNS.split(' ').chain([""]).collect();
    let value = prop_oneof![
        (
            proptest::sample::select(&[MatchOp::Equal, MatchOp::NotEqual]),
            proptest::sample::select(&VALUES)
        ),
        (
            proptest::sample::select(&[MatchOp::Regexp, MatchOp::NotRegexp]),
            proptest::sample::select(patterns)
        ),
    ];
    (name, value).prop_map(|(name, (op, value))| Matcher::new(op, name, value).unwrap())
}

/// Generates label sets of few values and one label with many, so that a few candidates are cheaper
/// than all of them.
fn any_series() -> impl Strategy<Value = BTreeSet<Labels>> {
    let values = proptest::sample::select(&VALUES);
    let id = prop_oneof![
        Just(String::new()),
        (0..200_u32).prop_map(|i| format!("ab{i}")),
        "[a-c]{1,6}"
    ];
    let labels =
        ([values.clone(), values.clone(), values.clone(), values], id).prop_map(|(values, id)| {
            Labels::from_pairs(NAMES.into_iter().zip(values).chain([("id", &*id)])).unwrap()
        });
    proptest::collection::btree_set(labels, 0..150)
}

fn check(written: &Written, matchers: &[Matcher]) {
    let index = open(&written.path, written.root).unwrap();
    let passes = |labels: &Labels| {
        matchers
            .iter()
            .all(|m| m.matches(labels.get(m.name()).unwrap_or("")))
    };
    let expected: RoaringBitmap = (0..)
        .zip(&written.series)
        .filter(|(_, labels)| passes(labels))
        .map(|(ordinal, _)| ordinal)
        .collect();
    let selected = index.select(&QueryContext::unbounded(), matchers).unwrap();
    assert_eq!(selected, expected, "{matchers:?}");
    for start in (0..index.n_series).step_by(7) {
        let window = start..(start + 20).min(index.n_series);
        let found = index.select_in(&QueryContext::unbounded(), matchers, window.clone());
        let mut among = selected.clone();
        among.remove_range(..window.start);
        among.remove_range(window.end..);
        assert_eq!(found.unwrap(), among, "{matchers:?} {window:?}");
    }

    let every: RoaringBitmap = (0..index.n_series).collect();
    for (ordinals, among) in [(Some(&selected), &expected), (None, &every)] {
        let among: Vec<_> = among
            .iter()
            .map(|ordinal| &written.series[ordinal as usize])
            .collect();
        let names: BTreeSet<_> = among
            .iter()
            .flat_map(|labels| labels.iter().map(|(name, _)| name))
            .collect();
        assert!(
            strings(|ctx, found| index.label_names(ctx, ordinals, found))
                .iter()
                .eq(&names)
        );
        assert!(
            first_strings(2, |ctx, found| index.label_names(ctx, ordinals, found))
                .iter()
                .eq(names.iter().take(2))
        );
        for name in [&NAMES[..], &["id", "absent", ""]].concat() {
            let values: BTreeSet<_> = among.iter().filter_map(|labels| labels.get(name)).collect();
            assert!(
                strings(|ctx, found| index.label_values(ctx, name, ordinals, found))
                    .iter()
                    .eq(&values),
                "{name}"
            );
            for n_first in 1..4 {
                let first = first_strings(n_first, |ctx, found| {
                    index.label_values(ctx, name, ordinals, found)
                });
                assert!(first.iter().eq(values.iter().take(n_first)), "{name}");
            }
        }
    }
}

fn check_round_trip(written: &Written) {
    let index = open(&written.path, written.root).unwrap();
    index.verify(&QueryContext::unbounded()).unwrap();
    let mut cursor = index.symbol_cursor();
    let pairs: BTreeSet<_> = written.series.iter().flatten().collect();
    for (number, pair) in (0..).zip(pairs) {
        assert_eq!(cursor.next_pair().unwrap(), Some(pair));
        let (name, value) = index.pair(Symbol(number)).unwrap();
        assert_eq!((&*name, &*value), pair);
    }
    assert_eq!(cursor.next_pair().unwrap(), None);
    let (mut forward, mut scan) = (
        index.series_cursor(Access::Cached),
        index.series_cursor(Access::Scan),
    );
    for (ordinal, labels) in (0..).zip(&written.series) {
        forward.seek(ordinal).unwrap();
        scan.seek(ordinal).unwrap();
        assert_eq!(
            (&forward.labels().unwrap(), scan.symbols()),
            (labels, forward.symbols())
        );
    }
    for (ordinal, labels) in (0..)
        .zip(&written.series)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
    {
        forward.seek(ordinal).unwrap();
        assert_eq!(&forward.labels().unwrap(), labels);
    }
    let n = index.n_series;
    assert!(
        matches!(forward.seek(n), Err(Error::Corrupt { .. })),
        "after the last"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn index_and_scan_agree(
        series in any_series(),
        matchers in proptest::collection::vec(proptest::collection::vec(any_matcher(), 0..4), 1..8),
    ) {
        for sizes in [TINY, (16 << 10, 1 << 20)] {
            let written = write_index(&series, &[], sizes);
            for matchers in matchers.iter() { check(&written, matchers); }
        }
    }

    #[test]
    fn symbols_and_series_round_trip(series in any_series()) {
        for sizes in [TINY, (300, 1 << 10), (16 << 10, 1 << 20)] {
            check_round_trip(&write_index(&series, &[], sizes));
        }
    }

    #[test]
    fn only_requested_labels_are_returned(series in any_series(), hints in proptest::collection::vec(any_hint(), 1..4)) {
        let written = write_index(&series, &[], TINY);
        let index = open(&written.path, written.root).unwrap();
        for hint in hints {
            let (requested, mut cursor) = (index.projection(&hint).unwrap(), index.series_cursor(Access::Cached));
            for (ordinal, labels) in (0..).zip(&written.series) {
                cursor.seek(ordinal).unwrap();
                cursor.make_labels(requested.as_ref()).unwrap();
                let expected = labels.filter(|name| hint.includes(name));
                prop_assert_eq!(cursor.packed_labels(), expected.as_packed(), "{:?}", hint);
            }
        }
        let has = |name: &str| series.iter().any(|labels| labels.get(name).is_some());
        for name in ["a", "id", "absent"] {
            prop_assert_eq!(index.has_label(name).unwrap(), has(name), "{}", name);
        }
    }

    #[test]
    fn unused_values_are_not_reported(series in any_series()) {
        let unused = [("a", "unused"), ("b", "unused"), ("zz", "x")];
        check(&write_index(&series, &unused, TINY), &[]);
    }

    /// A damaged page with a correct checksum is rejected or decoded to other data, but never
    /// causes a panic.
    #[test]
    fn invalid_pages_with_correct_checksums_never_panic(
        series in any_series(), at: proptest::sample::Index, byte: u8, matchers in proptest::collection::vec(any_matcher(), 1..3),
    ) {
        let written = write_index(&series, &[], (100, 1 << 20));
        let bytes = std::fs::read(&written.path).unwrap();
        std::fs::write(&written.path, with_byte_in_a_page(&bytes, at, byte)).unwrap();
        let Ok(index) = open(&written.path, written.root) else { return Ok(()) };
        let ctx = QueryContext::unbounded();
        let _either = index.verify(&ctx);
        let (mut names, mut values) = (StringSet::new(&ctx), StringSet::new(&ctx));
        let selected = index.select(&ctx, &matchers).unwrap_or_else(|_| RoaringBitmap::from_iter(0..5));
        let _either = index.label_names(&ctx, Some(&selected), &mut names);
        let _either = index.label_values(&ctx, "id", Some(&selected), &mut values);
        let _either = index.label_values(&ctx, "id", None, &mut values);
        let mut cursor = index.series_cursor(Access::Cached);
        for ordinal in selected {
            let _either = cursor.seek(ordinal).and_then(|()| cursor.labels());
        }
    }
}

/// Replaces a byte behind the checksum and the size of a page, and corrects the checksum.
fn with_byte_in_a_page(file: &[u8], at: proptest::sample::Index, byte: u8) -> Vec<u8> {
    let mut file = file.to_vec();
    let (mut start, mut bytes) = (0, Vec::new());
    while start < file.len() {
        let size = u32::from_le_bytes(file[start + 4..start + 8].try_into().unwrap()) as usize;
        bytes.extend((start + 8..start + size).map(|i| (i, start..start + size)));
        start += size;
    }
    let (i, page) = at.get(&bytes).clone();
    file[i] = byte;
    let crc = crc32c::crc32c(&file[page.start + 4..page.end]);
    file[page.start..page.start + 4].copy_from_slice(&crc.to_le_bytes());
    file
}

fn fleet(n: usize) -> BTreeSet<Labels> {
    let labels = |i: usize| {
        let (pod, metric) = (
            format!("pod-{:x}", i / 5 * 7919 % 10_007),
            format!("metric_{}", i % 5),
        );
        Labels::from_pairs([("__name__", &*metric), ("cluster", "c"), ("pod", &pod)]).unwrap()
    };
    (0..n).map(labels).collect()
}

#[test]
fn a_list_larger_than_a_page_has_a_page_of_its_own() {
    // Every other series has the label, so that it has many runs.
    let series = (0..5000).map(|i| {
        let (name, odd) = (format!("{i:05}"), if i % 2 == 1 { "odd" } else { "" });
        Labels::from_pairs([("__name__", &*name), ("x", odd)]).unwrap()
    });
    let written = write_index(&series.collect(), &[], (1 << 10, 1 << 10));
    check_round_trip(&written);
    let matchers = [
        (MatchOp::Equal, "odd"),
        (MatchOp::NotEqual, "odd"),
        (MatchOp::Regexp, "o.*"),
    ];
    for (op, value) in matchers {
        check(&written, &[Matcher::new(op, "x", value).unwrap()]);
    }
    // Reading the labels of one candidate is cheaper than the list.
    for name in ["00007", "00008", "absent"] {
        check(
            &written,
            &[Matcher::equal("x", "odd"), Matcher::equal("__name__", name)],
        );
    }
}

#[test]
fn strings_with_long_common_prefixes_are_distinguished() {
    let far = "x".repeat(100);
    let series = (0..200).map(|i| {
        Labels::from_pairs([(&*format!("{far}{}", i % 7), &*format!("{far}{i:03}"))]).unwrap()
    });
    let written = write_index(&series.collect(), &[], TINY);
    check_round_trip(&written);
    for i in [0, 1, 99, 100, 199, 200] {
        let name = format!("{far}{}", i % 7);
        check(&written, &[Matcher::equal(&name, &format!("{far}{i:03}"))]);
        check(
            &written,
            &[Matcher::new(MatchOp::Regexp, &name, &format!("{far}{i:02}.*")).unwrap()],
        );
    }
}

#[test]
fn labels_are_the_same_however_much_of_the_dictionary_is_cached() {
    // Long enough that not all labels are cached at first, and several times the limit.
    for (n, value_size) in [(4000, 150), (4000, 3000)] {
        let labels = |i: usize| {
            Labels::from_pairs([("i", &*format!("{i:04}{}", "x".repeat(value_size)))]).unwrap()
        };
        let written = write_index(&(0..n).map(labels).collect(), &[], (16 << 10, 1 << 20));
        let index = open(&written.path, written.root).unwrap();
        for (limit, has_room) in [(1 << 30, true), (1 << 20, true), (1 << 10, false)] {
            let budget = MemoryBudget::new(Limit::Other("a test"), limit);
            let mut cursor = index.series_cursor(Access::Cached);
            cursor.keep_more(budget.charge());
            for ordinal in (0..n as u32).cycle().take(2 * n) {
                cursor.seek(ordinal).unwrap();
                assert_eq!(cursor.labels().unwrap(), written.series[ordinal as usize]);
            }
            assert_eq!(budget.peak() > 0, has_room, "{limit}");
            assert!(
                budget.peak() <= (limit / 2).min(16 << 20),
                "{limit}: {}",
                budget.peak()
            );
            drop(cursor);
            assert_eq!(budget.used(), 0);
        }
    }
}

#[test]
fn an_index_without_series_is_an_index() {
    let written = write_index(&BTreeSet::new(), &[], TINY);
    check_round_trip(&written);
    check(&written, &[]);
    check(
        &written,
        &[
            Matcher::equal("a", "b"),
            Matcher::new(MatchOp::Regexp, "x", "a.*").unwrap(),
        ],
    );
}

#[test]
fn every_flipped_bit_and_every_truncation_is_an_error() {
    let written = write_index(&fleet(60), &[], (200, 1 << 10));
    let good = std::fs::read(&written.path).unwrap();
    let verified = |bytes: &[u8]| {
        std::fs::write(&written.path, bytes).unwrap();
        open(&written.path, written.root).and_then(|index| index.verify(&QueryContext::unbounded()))
    };
    verified(&good).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(
            matches!(verified(&bad), Err(Error::Corrupt { .. })),
            "bit {} of byte {at}",
            at % 8
        );
        assert!(
            matches!(verified(&good[..at]), Err(Error::Corrupt { .. })),
            "truncated to {at}"
        );
    }
}

#[test]
fn a_dropped_writer_leaves_no_spill_files() {
    let written = write_index(&fleet(10), &[], TINY);
    let path = written.dir.path().join("other");
    let mut pages = PageWriter::new(&path, RealFs.create(&path).unwrap()).unwrap();
    let mut writer = IndexWriter::with_page_size(Arc::new(RealFs), &path, 1, 100);
    let symbols: Vec<_> = (0..10)
        .map(|i| writer.symbol(&mut pages, "x", &i.to_string()).unwrap())
        .collect();
    for &symbol in symbols.iter() {
        writer.series(&mut pages, &[symbol]).unwrap();
    }
    assert!(written.dir.path().join("other.0.tmp").exists());
    drop(writer);
    assert_eq!(std::fs::read_dir(written.dir.path()).unwrap().count(), 2);
}

#[test]
fn an_interrupted_request_gets_an_error() {
    let written = write_index(&fleet(100), &[], TINY);
    let index = open(&written.path, written.root).unwrap();
    let ctx = QueryContext::unbounded();
    ctx.interrupt(Interrupt::Canceled);
    let mut found = StringSet::new(&ctx);
    let all = RoaringBitmap::from_iter(0..100);
    for result in [
        index.select(&ctx, &[]).map(|_| ()),
        index.label_names(&ctx, None, &mut found),
        index.label_names(&ctx, Some(&all), &mut found),
        index.label_values(&ctx, "pod", None, &mut found),
        index.verify(&ctx),
    ] {
        assert!(matches!(
            result,
            Err(Error::Interrupted(Interrupt::Canceled))
        ));
    }
}
