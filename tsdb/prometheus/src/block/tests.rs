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
    let series: [(&[(&str, &str)], _); 3] = [
        (&[], 5000..5001),
        (&[("job", "a")], 0..500),
        (&[("job", "b")], 7000..7130),
    ];
    for (labels, values) in series {
        let labels = [("__name__", "up")]
            .into_iter()
            .chain(labels.iter().copied());
        let samples = (0..).zip(values);
        let samples = samples.map(|(i, value)| (i * 1000, f64::from(value)));
        writer.add(labels, &encoded(samples)).unwrap();
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

/// Changes of a byte. The last one makes another version of the version.
const CHANGES: [u8; 4] = [0x01, 0x80, 0x55, 0x03];

/// Asserts that a block has only samples of `whole`, under the same labels, and that damage is
/// reported if it has not all of them. Returns the number of samples.
fn check_rest(dir: &Path, whole: &Samples, what: &str) -> u64 {
    let (series, damage) = read(dir);
    assert!(series == *whole || damage.n_damaged() > 0, "{what}");
    for (labels, samples) in &series {
        let in_whole = whole.get(labels);
        let is_sound = |(time, bits)| in_whole.and_then(|all| all.get(time)) == Some(bits);
        assert!(samples.iter().all(is_sound), "{what}: {labels}");
    }
    n_samples(&series)
}

/// Changes each byte of the files with a checksum, and truncates them everywhere. Symbols and
/// tombstones were used although their checksum was wrong, and the version of the index was not
/// checked: samples had the labels of other series, and deleted ones reappeared.
#[test]
fn damage_costs_samples_but_makes_none() {
    let out = tempfile::tempdir().unwrap();
    let dir = out
        .path()
        .join(write(out.path(), CHUNK_SEGMENT_SIZE_MAX).ulid.to_string());
    let series_ref = delete_some(&dir);
    assert!(series_ref > 0);
    let (whole, damage) = read(&dir);
    assert_eq!((lens(&whole), damage.n_damaged()), (vec![400, 130, 1], 0));
    for file in ["index", "chunks/000001", "tombstones"] {
        let path = dir.join(file);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            for change in CHANGES {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                std::fs::write(&path, &damaged).unwrap();
                let n_left = check_rest(&dir, &whole, &format!("{file} {at} {change}"));
                let n_lost_max = if file == "chunks/000001" { 120 } else { 531 };
                assert!(n_left + n_lost_max >= 531, "{file} {at}: {n_left}");
            }
            std::fs::write(&path, &bytes[..at]).unwrap();
            check_rest(&dir, &whole, &format!("{at} bytes of {file}"));
        }
        std::fs::write(&path, &bytes).unwrap();
    }
}

/// Deletes the samples from 100 s to 199 s of the second series of a block. Returns its ref.
fn delete_some(dir: &Path) -> u64 {
    let mut damage = DamageReport::default();
    let block = BlockReader::open(&RealFs, dir, &mut damage).unwrap();
    let mut cursor = block.cursor();
    cursor.next(&mut damage).unwrap();
    let series_ref = cursor.next(&mut damage).unwrap().series_ref();
    let mut tombstone = Vec::new();
    put_u64(&mut tombstone, series_ref);
    put_i64(&mut tombstone, 100_000);
    put_i64(&mut tombstone, 199_999);
    let mut file = 0x0130_ba30_u32.to_be_bytes().to_vec();
    file.push(1);
    file.extend_from_slice(&tombstone);
    file.extend_from_slice(&crc32c::crc32c(&tombstone).to_be_bytes());
    std::fs::write(dir.join("tombstones"), file).unwrap();
    series_ref
}

/// A chunk was read from the file that had the position of the missing one. A chunk of another file
/// is found by its times.
#[test]
fn chunk_files_that_are_missing_or_exchanged_cost_samples_but_make_none() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join(write(out.path(), 300).ulid.to_string());
    let (whole, _) = read(&dir);
    let chunks = dir.join("chunks");
    let n_files = std::fs::read_dir(&chunks).unwrap().count();
    let path = |number: usize| chunks.join(format!("{number:06}"));
    let away = out.path().join("away");
    for number in 1..=n_files {
        std::fs::rename(path(number), &away).unwrap();
        assert!(check_rest(&dir, &whole, &format!("without {number}")) < 631);
        if number < n_files {
            std::fs::rename(path(number + 1), path(number)).unwrap();
            assert!(
                check_rest(
                    &dir,
                    &whole,
                    &format!("{number} has the content of the next")
                ) < 631
            );
            std::fs::rename(path(number), path(number + 1)).unwrap();
        }
        std::fs::rename(&away, path(number)).unwrap();
    }
    assert!(read(&dir).0 == whole);
}

/// A sample that a tombstone deletes counted as readable.
#[test]
fn deleted_samples_of_a_block_are_not_readable() {
    let out = tempfile::tempdir().unwrap();
    let dir = out
        .path()
        .join(write(out.path(), CHUNK_SEGMENT_SIZE_MAX).ulid.to_string());
    delete_some(&dir);
    let mut damage = DamageReport::default();
    let block = BlockReader::open(&RealFs, &dir, &mut damage).unwrap();
    let totals = block.verify(&mut damage);
    assert_eq!(
        (totals.n_found, totals.n_kept, totals.n_deleted),
        (631, 531, 100)
    );
    assert_eq!((totals.n_unaccounted(), damage.n_damaged()), (0, 0));
}

/// A block of an earlier run that lost bytes was kept, and printed as if it were complete.
#[test]
fn a_damaged_block_of_an_earlier_run_is_written_anew() {
    let out = tempfile::tempdir().unwrap();
    let meta = write(out.path(), CHUNK_SEGMENT_SIZE_MAX);
    let dir = out.path().join(meta.ulid.to_string());
    let (whole, _) = read(&dir);
    for file in ["index", "chunks/000001", "tombstones", "meta.json"] {
        let path = dir.join(file);
        let bytes = std::fs::read(&path).unwrap();
        let mut changed = bytes.clone();
        changed[bytes.len() - 2] ^= 1;
        for damaged in [&bytes[..bytes.len() / 2], &changed] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(write(out.path(), CHUNK_SEGMENT_SIZE_MAX), meta);
            let (series, damage) = read(&dir);
            assert_eq!(damage.entries(), [], "{file}");
            assert!(series == whole, "{file}");
        }
        std::fs::remove_file(&path).unwrap();
        write(out.path(), CHUNK_SEGMENT_SIZE_MAX);
        assert!(read(&dir).0 == whole, "no {file}");
    }
    // What Prometheus changed in a sound block stays.
    delete_some(&dir);
    write(out.path(), CHUNK_SEGMENT_SIZE_MAX);
    assert_eq!(n_samples(&read(&dir).0), 531);
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1);
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
            block.verify(&mut damage).n_kept,
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

/// Asserts that an index with the other version is not opened. Its symbols and series would be
/// others.
fn check_other_version(dir: &Path) {
    let path = dir.join("index");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] ^= 1 ^ 2;
    std::fs::write(&path, &bytes).unwrap();
    let opened = BlockReader::open(&RealFs, dir, &mut DamageReport::default());
    let error = opened.unwrap_err().to_string();
    assert!(
        error.contains("the version of the index contradicts"),
        "{error}"
    );
    bytes[4] ^= 1 ^ 2;
    std::fs::write(&path, &bytes).unwrap();
}

#[test]
fn an_index_of_version_1_is_read() {
    let out = tempfile::tempdir().unwrap();
    let dir = out
        .path()
        .join(write(out.path(), CHUNK_SEGMENT_SIZE_MAX).ulid.to_string());
    let (whole, _) = read(&dir);
    check_other_version(&dir);
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
    let totals = block.verify(&mut damage);
    assert_eq!((totals.n_kept, damage.n_damaged()), (631, 0));
    drop(block);
    check_other_version(&dir);
}
