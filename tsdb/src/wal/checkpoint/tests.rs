//! Checkpoints round-trip. Damage is detected, and the valid frames are read.

use hashbrown::HashMap;
use proptest::prelude::*;
use varve_env::RealFs;
use varve_model::Labels;
use varve_model::metadata::Metadata;

use super::*;
use crate::batch::SeriesRef;
use crate::error::{Error, Result};
use crate::index::SymbolId;
use crate::wal::file_name::CheckpointPosition;
use crate::wal::reader::LargeFrameLock;

/// Ref, labels and last timestamp.
pub(crate) type Series = (u64, Labels, i64);

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied()).unwrap()
}

fn write_all(
    dir: &Path,
    number: u64,
    next_ref: u64,
    all: &[Series],
    metadata: &[(&str, Metadata)],
) {
    // Two heads give the same ids to other labels.
    let heads = all.split_at(all.len() / 2);
    let series = |writer: &mut CheckpointWriter<'_, '_>| {
        add_head(writer, heads.0).and_then(|()| add_head(writer, heads.1))
    };
    let metadata = metadata
        .iter()
        .map(|(family, metadata)| (*family, metadata));
    write(
        &RealFs,
        dir,
        CheckpointPosition(number),
        next_ref,
        metadata,
        series,
        &[],
    )
    .unwrap();
}

/// Adds the series of a head that numbers its labels in the order of their first series.
pub(crate) fn add_head(writer: &mut CheckpointWriter<'_, '_>, all: &[Series]) -> Result<()> {
    let (mut ids, mut texts) = (HashMap::new(), Vec::new());
    for (_, labels, _) in all {
        for label in labels.iter() {
            ids.entry(label).or_insert_with(|| {
                texts.push(label);
                (SymbolId(0), SymbolId(texts.len() as u32 - 1))
            });
        }
    }
    for (series, labels, last_ms) in all {
        writer.make_room()?;
        let labels = labels.iter().map(|label| ids[&label]);
        writer.add(SeriesRef(*series), *last_ms, labels, |(_, id)| {
            texts[id.0 as usize]
        })?;
    }
    writer.end_head()
}

#[derive(Debug, Default, PartialEq)]
struct Loaded {
    series: Vec<Series>,
    n_lost: usize,
    metadata: Vec<(String, Metadata)>,
    exemplars: Vec<(Labels, usize)>,
    next_ref: u64,
}

fn load_all(path: &Path, number: u64) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut texts = Texts::default();
    let large = LargeFrameLock::default();
    load(&RealFs, path, number, &large, &mut texts, |entry| {
        match entry {
            Entry::Series(found) => {
                loaded
                    .series
                    .push((found.series.0, found.labels(), found.last_ms))
            }
            Entry::LostSeries => loaded.n_lost += 1,
            Entry::Metadata(family, metadata) => loaded.metadata.push((family, metadata)),
            Entry::Exemplars((labels, exemplars)) => {
                loaded.exemplars.push((labels, exemplars.len()))
            }
            Entry::NextRef(next_ref) => loaded.next_ref = loaded.next_ref.max(next_ref),
        }
        Ok(())
    })?;
    Ok(loaded)
}

fn fleet(n: u64) -> Vec<Series> {
    let mut all: Vec<_> = (0..n)
        .map(|i| {
            let (pod, uid) = (
                format!("pod-{}", i % 50),
                format!("{:016x}", (i % 50 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            );
            let metric = format!("metric_{:03}", i / 50);
            let set = labels(&[
                ("__name__", &metric),
                ("job", "kubelet"),
                ("pod", &pod),
                ("uid", &uid),
            ]);
            (
                i * 3,
                set,
                if i % 7 == 0 {
                    i64::MIN
                } else {
                    1_700_000_000_000
                },
            )
        })
        .collect();
    all.sort_by(|a, b| a.1.cmp(&b.1));
    all
}

#[test]
fn a_checkpoint_of_many_frames_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let all = fleet(20_000);
    let metadata: Vec<_> = ["up", "x"]
        .map(|family| {
            (
                family,
                Metadata {
                    help: family.repeat(200),
                    ..Metadata::default()
                },
            )
        })
        .into();
    write_all(dir.path(), 7, 99_999, &all, &metadata);
    let path = dir.path().join("checkpoint-00000007");
    assert_eq!(
        examine(&RealFs, &path, &LargeFrameLock::default()).unwrap(),
        None
    );
    let loaded = load_all(&path, 7).unwrap();
    assert!(loaded.series == all && loaded.n_lost == 0);
    assert_eq!(
        loaded.metadata,
        metadata
            .iter()
            .map(|(f, m)| ((*f).to_owned(), m.clone()))
            .collect::<Vec<_>>()
    );
    assert_eq!(loaded.next_ref, 99_999);
    assert!(std::fs::metadata(&path).unwrap().len() < 20_000 * 6);
    assert!(
        matches!(load_all(&path, 8), Err(Error::Corrupt { .. })),
        "it has the name of another checkpoint"
    );
}

/// Frames with series of many labels end before they are too large to be read, and the tables grow.
#[test]
fn series_with_many_labels_are_in_several_frames() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..1500).map(|i| format!("n{i:04}")).collect();
    let values: Vec<String> = (0..20).map(|i| format!("v{i}")).collect();
    let mut n_full = 0;
    let series = |writer: &mut CheckpointWriter<'_, '_>| {
        for i in 0..600 {
            writer.make_room()?;
            assert!(writer.has_room());
            // Most symbols differ by more than 64 from that of the series before, so they take two
            // bytes.
            let labels = (0..1500).map(|name| (SymbolId(name), SymbolId(i % 20)));
            let text = |(name, value): (SymbolId, SymbolId)| {
                (&*names[name.0 as usize], &*values[value.0 as usize])
            };
            writer.add(SeriesRef(i.into()), 5, labels, text)?;
            // After 20 series there are no new labels, so only the frame can be full.
            n_full += usize::from(i >= 20 && !writer.has_room());
        }
        writer.end_head()
    };
    write(
        &RealFs,
        dir.path(),
        CheckpointPosition(1),
        0,
        std::iter::empty(),
        series,
        &[],
    )
    .unwrap();
    let path = dir.path().join("checkpoint-00000001");
    let loaded = load_all(&path, 1).unwrap();
    assert!((0..600).all(|i| loaded.series[i].0 == i as u64
        && loaded.series[i].1.get("n1499") == Some(&*values[i % 20])));
    // 1.7 MB of symbols.
    assert_eq!(n_full, 3);
}

#[test]
fn an_error_leaves_no_file_and_incomplete_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("checkpoint-00000001.tmp"), "half").unwrap();
    let failing = |_: &mut CheckpointWriter<'_, '_>| Err(Error::Options("no".into()));
    assert!(
        write(
            &RealFs,
            dir.path(),
            CheckpointPosition(2),
            0,
            std::iter::empty(),
            failing,
            &[]
        )
        .is_err()
    );
    assert_eq!(RealFs.list(dir.path()).unwrap(), [""; 0]);
}

#[test]
fn every_flipped_bit_and_every_cut_is_detected_and_valid_frames_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let all = fleet(30);
    write_all(dir.path(), 1, 1000, &all, &[("up", Metadata::default())]);
    let path = dir.path().join("checkpoint-00000001");
    let good = std::fs::read(&path).unwrap();
    let check = |bad: &[u8], what: &str| {
        std::fs::write(&path, bad).unwrap();
        match examine(&RealFs, &path, &LargeFrameLock::default()) {
            Ok(damage) => assert!(damage.is_some(), "{what}"),
            Err(e) => assert!(matches!(e, Error::Version { .. }), "{what}: {e}"),
        }
        if let Ok(loaded) = load_all(&path, 1) {
            assert!(
                loaded.series.iter().all(|series| all.contains(series)),
                "{what}: no series comes from nowhere"
            );
            assert!(
                loaded.series.len().is_multiple_of(15),
                "{what}: each head has a frame"
            );
        }
    };
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        check(&bad, &format!("bit {bit}"));
    }
    for size in 0..good.len() {
        check(&good[..size], &format!("cut to {size}"));
    }
}

/// Such a file took hours to read, and its tail was copied to the quarantine.
#[test]
fn an_extended_checkpoint_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let all = fleet(30);
    write_all(dir.path(), 1, 1000, &all, &[]);
    let path = dir.path().join("checkpoint-00000001");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_eq!(
        examine(&RealFs, &path, &LargeFrameLock::default()).unwrap(),
        None
    );
    assert_eq!(load_all(&path, 1).unwrap().series, all);
}

#[test]
fn a_lost_frame_of_symbols_costs_the_series_that_need_it() {
    let dir = tempfile::tempdir().unwrap();
    let all = fleet(20_000);
    write_all(dir.path(), 1, 70_000, &all, &[]);
    let path = dir.path().join("checkpoint-00000001");
    let good = std::fs::read(&path).unwrap();
    let (mut n_whole, mut n_partial) = (0, 0);
    for at in (24..good.len()).step_by(13) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        let damage = examine(&RealFs, &path, &LargeFrameLock::default())
            .unwrap()
            .unwrap();
        assert!((24..good.len() as u64).contains(&damage.offset) && damage.offset <= at as u64);
        let loaded = load_all(&path, 1).unwrap();
        assert!(loaded.series.iter().all(|s| {
            all.binary_search_by(|a| a.1.cmp(&s.1))
                .is_ok_and(|i| all[i] == *s)
        }));
        assert_eq!(loaded.next_ref, 70_000, "it stands at both ends");
        if loaded.n_lost > 0 {
            n_partial += 1
        } else {
            n_whole += 1
        }
    }
    assert!(n_whole > 0 && n_partial > 0, "{n_whole} {n_partial}");
}

proptest! {
    #[test]
    fn any_series_round_trip(
        sets in proptest::collection::vec(
            (any::<u64>(), proptest::collection::btree_map("[a-c]{1,2}", "[a-c\u{e9}]{1,3}|x{300}", 0..6), any::<i64>()), 0..40,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<Series> = sets.into_iter().map(|(series, pairs, last)| {
            (series, Labels::from_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()))).unwrap(), last)
        }).collect();
        write_all(dir.path(), 0, 5, &all, &[]);
        prop_assert_eq!(load_all(&dir.path().join("checkpoint-00000000"), 0).unwrap().series, all);
    }

    #[test]
    fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut symbols = symbols::Symbols::default();
        let _ = symbols.add(&bytes);
        let _ = symbols.index(u64::MAX);
        let _ = series::decode(&bytes, &symbols, |_| Ok::<_, ()>(()));
    }
}
