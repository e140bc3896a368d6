use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use varve_codec::varint::{put_i64, put_u64};
use varve_env::damage::DamageReport;
use varve_env::testing::{Fault, MemFs, PowerCut};
use varve_env::{Fs, RealFs};

use super::*;
use crate::testing::{self, Samples, encoded, n_samples, read_block, recorded};

/// Writes a block of three series. Chunk files are cut at `segment_size_max` bytes.
fn write(out: &Path, segment_size_max: u64) -> BlockMeta {
    write_with(out, segment_size_max, &[])
}

/// As [`write`], with external labels.
fn write_with(out: &Path, segment_size_max: u64, external_labels: &[(&str, &str)]) -> BlockMeta {
    let symbols = ["", "__name__", "a", "b", "job", "up"];
    let mut writer =
        BlockWriter::with_segment_size(&testing::fs(), out, "test", &symbols, segment_size_max)
            .unwrap();
    for (labels, n) in [(&[][..], 1), (&[("job", "a")], 500), (&[("job", "b")], 130)] {
        let labels = [("__name__", "up")]
            .into_iter()
            .chain(labels.iter().copied());
        writer
            .add(labels, &encoded((0..n).map(|i| (i * 1000, i as f64))))
            .unwrap();
    }
    let external_labels = external_labels
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    writer
        .finish(Description {
            min_ms: 0,
            max_ms: 500_000,
            external_labels,
            ..Description::default()
        })
        .unwrap()
}

fn read(dir: &Path) -> (Samples, DamageReport) {
    let mut damage = DamageReport::default();
    (read_block(dir, &mut damage), damage)
}

fn lens(series: &Samples) -> Vec<usize> {
    series.values().map(BTreeMap::len).collect()
}

#[test]
fn a_block_round_trips_and_is_reproducible() {
    let out = tempfile::tempdir().unwrap();
    let meta = write(out.path(), CHUNK_SEGMENT_SIZE_MAX);
    assert_eq!(
        (
            meta.stats.n_samples,
            meta.stats.n_series,
            meta.stats.n_chunks
        ),
        (631, 3, 8)
    );
    let dir = out.path().join(meta.ulid.to_string());
    let (series, damage) = read(&dir);
    assert_eq!((lens(&series), damage.n_damaged()), (vec![500, 130, 1], 0));
    let samples = &series[r#"[("__name__", "up"), ("job", "a")]"#];
    assert!(
        samples
            .iter()
            .map(|(&time, &bits)| (time, bits))
            .eq((0..500).map(|i| (i * 1000, (i as f64).to_bits())))
    );
    assert_eq!(write(out.path(), CHUNK_SEGMENT_SIZE_MAX), meta);
    assert_eq!(
        std::fs::read_dir(out.path()).unwrap().count(),
        1,
        "no second block, nothing unfinished"
    );
}

#[test]
fn a_finished_block_survives_a_power_cut_whatever_operation_of_an_earlier_run_failed() {
    let out = Path::new("/out");
    for operation in 0.. {
        let fs = MemFs::new();
        fs.create_dir(out).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        fs.fail_at(fs.n_operations() + operation, Fault::Cut);
        let shared: Arc<dyn Fs> = Arc::new(fs.clone());
        let write = || {
            let mut writer = BlockWriter::create(&shared, out, "test", &["a", "b"])?;
            writer.add([("a", "b")].into_iter(), &encoded([(0, 1.0)]))?;
            writer.finish(Description {
                min_ms: 0,
                max_ms: 1,
                ..Description::default()
            })
        };
        let earlier = write();
        let Some(failed) = fs.failed() else { break };
        let ulid = write().unwrap().ulid.to_string();
        let names = fs.crash(PowerCut::LosesAll).list(out).unwrap();
        assert!(
            names.contains(&ulid),
            "{failed}, then {earlier:?}: {names:?}"
        );
    }
}

#[test]
fn blocks_of_replicas_have_their_own_names_and_the_sizes_that_thanos_needs() {
    let out = tempfile::tempdir().unwrap();
    let write = |labels: &[(&str, &str)]| write_with(out.path(), CHUNK_SEGMENT_SIZE_MAX, labels);
    let blocks = [
        &[][..],
        &[("a", "x")],
        &[("a", "y")],
        &[("a", "x"), ("b", "x")],
        &[("b", "x")],
    ]
    .map(write);
    let names: std::collections::BTreeSet<_> = blocks.iter().map(|meta| meta.ulid).collect();
    assert_eq!(names.len(), blocks.len());
    let thanos = blocks[1].thanos.as_ref().unwrap();
    let size = |path: &str| {
        out.path()
            .join(blocks[1].ulid.to_string())
            .join(path)
            .metadata()
            .unwrap()
            .len()
    };
    for (path, bytes) in thanos.files.iter().filter(|(path, _)| path != "meta.json") {
        assert_eq!(size(path), *bytes, "{path}");
    }
    // The largest series has five chunks. Prometheus' chunks of 120 such floats take some 100 bytes
    // or more.
    assert!(
        (16..200).contains(&thanos.series_size_max),
        "{}",
        thanos.series_size_max
    );
    assert!(
        (60..size("chunks/000001") / 3).contains(&thanos.chunk_size_max),
        "{}",
        thanos.chunk_size_max
    );
}

#[test]
fn chunks_continue_in_the_next_file() {
    let out = tempfile::tempdir().unwrap();
    let meta = write(out.path(), 300);
    let dir = out.path().join(meta.ulid.to_string());
    assert!(std::fs::read_dir(dir.join("chunks")).unwrap().count() > 3);
    assert_eq!(lens(&read(&dir).0), [500, 130, 1]);
}

/// Changes each byte of index and chunks, and truncates the files everywhere.
#[test]
fn damage_costs_only_what_is_damaged() {
    let out = tempfile::tempdir().unwrap();
    let dir = out
        .path()
        .join(write(out.path(), CHUNK_SEGMENT_SIZE_MAX).ulid.to_string());
    let (whole, _) = read(&dir);
    for file in ["index", "chunks/000001"] {
        let path = dir.join(file);
        let bytes = std::fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(3) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            std::fs::write(&path, &damaged).unwrap();
            let (series, damage) = read(&dir);
            // Postings are not read, and padding has no meaning.
            assert!(series == whole || damage.n_damaged() > 0, "{file} {at}");
            assert!(
                n_samples(&series) + 121 >= 631 || file == "index",
                "{file} {at}: {series:?}"
            );
            for (labels, samples) in &series {
                let is_sound = |whole: &_| {
                    samples
                        .iter()
                        .all(|(time, bits)| BTreeMap::get(whole, time) == Some(bits))
                };
                assert!(whole.get(labels).is_none_or(is_sound), "{file} {at}");
            }
            std::fs::write(&path, &bytes[..at]).unwrap();
            let _ = read(&dir);
        }
        std::fs::write(&path, &bytes).unwrap();
    }
}

/// Reads recorded blocks: they have the samples that their descriptions claim.
#[test]
fn recorded_blocks_are_read() {
    let Some(data) = recorded() else { return };
    let blocks = BlockReader::list(&RealFs, &data).unwrap();
    assert_eq!(blocks.len(), 3);
    for dir in blocks {
        let mut damage = DamageReport::default();
        let block = BlockReader::open(&RealFs, &dir, &mut damage).unwrap();
        assert_eq!(
            block.verify(&mut damage),
            block.meta().stats.n_samples,
            "{dir:?}"
        );
        assert_eq!(damage.entries(), []);
    }
}

/// Labels of a series, and first timestamp, last timestamp and ref of each of its chunks.
type Indexed<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, i64, u64)]);

/// Writes an index of version 1 for chunks in one file: it refers to symbols and series by
/// unaligned offsets. Source: Prometheus `tsdb/docs/format/index.md` and the readers of
/// `tsdb/index/index.go`.
fn write_v1(path: &Path, series: &[Indexed<'_>]) {
    let section = |dst: &mut Vec<u8>, content: &[u8]| {
        dst.extend_from_slice(&(content.len() as u32).to_be_bytes());
        dst.extend_from_slice(content);
        dst.extend_from_slice(&crc32c::crc32c(content).to_be_bytes());
    };
    let mut strings: Vec<&str> = series
        .iter()
        .flat_map(|it| it.0)
        .flat_map(|&(name, value)| [name, value])
        .collect();
    strings.sort_unstable();
    strings.dedup();
    let mut index = 0xbaaa_d700_u32.to_be_bytes().to_vec();
    index.push(1);
    let mut symbols = (strings.len() as u32).to_be_bytes().to_vec();
    let mut names = BTreeMap::new();
    for text in strings {
        // After magic, version and size of the section.
        names.insert(text, (index.len() + 4 + symbols.len()) as u64);
        put_u64(&mut symbols, text.len() as u64);
        symbols.extend_from_slice(text.as_bytes());
    }
    let symbols_offset = index.len() as u64;
    section(&mut index, &symbols);
    let series_offset = index.len() as u64;
    let mut all = (series.len() as u32).to_be_bytes().to_vec();
    for (labels, chunks) in series {
        all.extend_from_slice(&(index.len() as u32).to_be_bytes());
        let mut entry = Vec::new();
        put_u64(&mut entry, labels.len() as u64);
        labels
            .iter()
            .flat_map(|(name, value)| [name, value])
            .for_each(|text| put_u64(&mut entry, names[text]));
        put_u64(&mut entry, chunks.len() as u64);
        let (first, mut before) = (chunks[0], chunks[0]);
        put_i64(&mut entry, first.0);
        put_u64(&mut entry, (first.1 - first.0) as u64);
        put_u64(&mut entry, first.2);
        for &(min_ms, max_ms, chunk) in &chunks[1..] {
            put_u64(&mut entry, (min_ms - before.1) as u64);
            put_u64(&mut entry, (max_ms - min_ms) as u64);
            put_i64(&mut entry, chunk as i64 - before.2 as i64);
            before = (min_ms, max_ms, chunk);
        }
        put_u64(&mut index, entry.len() as u64);
        index.extend_from_slice(&entry);
        index.extend_from_slice(&crc32c::crc32c(&entry).to_be_bytes());
    }
    let postings_offset = index.len() as u64;
    section(&mut index, &all);
    let table_offset = index.len() as u64;
    let mut table = 1_u32.to_be_bytes().to_vec();
    table.extend_from_slice(&[2, 0, 0]);
    put_u64(&mut table, postings_offset);
    section(&mut index, &table);
    let offsets = [
        symbols_offset,
        series_offset,
        postings_offset,
        table_offset,
        postings_offset,
        table_offset,
    ];
    let contents: Vec<u8> = offsets
        .iter()
        .flat_map(|offset| offset.to_be_bytes())
        .collect();
    index.extend_from_slice(&contents);
    index.extend_from_slice(&crc32c::crc32c(&contents).to_be_bytes());
    std::fs::write(path, index).unwrap();
}

#[test]
fn an_index_of_version_1_is_read() {
    let out = tempfile::tempdir().unwrap();
    let dir = out
        .path()
        .join(write(out.path(), CHUNK_SEGMENT_SIZE_MAX).ulid.to_string());
    let (whole, _) = read(&dir);
    // The same series and chunks as in the index of version 2.
    let mut damage = DamageReport::default();
    let block = BlockReader::open(&RealFs, &dir, &mut damage).unwrap();
    let (mut series, mut cursor) = (Vec::new(), block.cursor());
    while let Some(found) = cursor.next(&mut damage) {
        series.push((
            found.labels().to_vec(),
            found.chunk_refs().collect::<Vec<_>>(),
        ));
    }
    let series: Vec<_> = series
        .iter()
        .map(|(labels, chunks)| (&labels[..], &chunks[..]))
        .collect();
    write_v1(&dir.join("index"), &series);
    let (found, damage) = read(&dir);
    assert_eq!(damage.entries(), []);
    assert!(found == whole);
    let block = BlockReader::open(&RealFs, &dir, &mut DamageReport::default()).unwrap();
    let mut damage = DamageReport::default();
    assert_eq!((block.verify(&mut damage), damage.n_damaged()), (631, 0));
}
