use std::path::Path;
use std::sync::Arc;

use varve_tsdb::fs::damage::DamageReport;
use varve_tsdb::fs::{Fs, RealFs};
use varve_tsdb::{Sample, SampleColumns};

use super::*;
use crate::chunk::{Encoder, StartTimestamps};

type Series = (Vec<(String, String)>, Vec<(i64, u64)>);

fn samples(n: i64, step: i64) -> Vec<(i64, u64)> {
    (0..n).map(|i| (i * step, (i as f64).to_bits())).collect()
}

/// Writes a block of three series; chunk files are cut at `segment_size_max` bytes.
fn write(out: &Path, segment_size_max: u64) -> BlockMeta {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let symbols = ["", "__name__", "a", "b", "job", "up"];
    let mut writer = BlockWriter::with_segment_size(&fs, out, "test", &symbols, segment_size_max).unwrap();
    for (labels, n) in [(&[(1, 5)][..], 1), (&[(1, 5), (4, 2)], 500), (&[(1, 5), (4, 3)], 130)] {
        let mut encoder = Encoder::new(StartTimestamps::Drop);
        for (timestamp_ms, bits) in samples(n, 1000) {
            encoder.push(Sample { timestamp_ms, value: f64::from_bits(bits) }, 0);
        }
        let chunks = encoder.finish();
        let chunks: Vec<_> = chunks.iter().map(EncodedChunk::of).collect();
        writer.add(labels, &chunks).unwrap();
    }
    writer.finish(Description { min_ms: 0, max_ms: 500_000, ..Description::default() }).unwrap()
}

fn read(dir: &Path) -> (Vec<Series>, DamageReport) {
    let mut damage = DamageReport::default();
    let mut all = Vec::new();
    let mut of_series = DamageReport::default();
    match BlockReader::open(&RealFs, dir, &mut damage) {
        Ok(block) => block
            .for_each(&mut damage, |series| {
                let mut columns = SampleColumns::default();
                series.read(&mut columns, &mut of_series);
                let labels = series.labels().iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
                all.push((labels, columns.iter().map(|s| (s.timestamp_ms, s.value.to_bits())).collect()));
                Ok(())
            })
            .unwrap(),
        Err(error) => damage.push(dir, 0, varve_tsdb::fs::damage::DamageKind::Corrupt, error.to_string()),
    }
    damage.append(of_series);
    (all, damage)
}

fn lens(series: &[Series]) -> Vec<usize> {
    series.iter().map(|(_, samples)| samples.len()).collect()
}

#[test]
fn a_block_round_trips_and_is_reproducible() {
    let out = tempfile::tempdir().unwrap();
    let meta = write(out.path(), CHUNK_SEGMENT_SIZE_MAX);
    assert_eq!((meta.stats.n_samples, meta.stats.n_series, meta.stats.n_chunks), (631, 3, 8));
    let dir = out.path().join(meta.ulid.to_string());
    let (series, damage) = read(&dir);
    assert_eq!((lens(&series), damage.n_damaged()), (vec![1, 500, 130], 0));
    assert_eq!(series[1].1, samples(500, 1000));
    assert_eq!(series[2].0[1], ("job".to_owned(), "b".to_owned()));
    assert_eq!(write(out.path(), CHUNK_SEGMENT_SIZE_MAX), meta);
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1, "no second block, nothing unfinished");
}

#[test]
fn chunks_continue_in_the_next_file() {
    let out = tempfile::tempdir().unwrap();
    let meta = write(out.path(), 300);
    let dir = out.path().join(meta.ulid.to_string());
    assert!(std::fs::read_dir(dir.join("chunks")).unwrap().count() > 3);
    assert_eq!(lens(&read(&dir).0), [1, 500, 130]);
}

/// Changes each byte of index and chunks, and truncates the files everywhere.
#[test]
fn damage_costs_only_what_is_damaged() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join(write(out.path(), CHUNK_SEGMENT_SIZE_MAX).ulid.to_string());
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
            let n: usize = lens(&series).iter().sum();
            assert!(n + 121 >= 631 || file == "index", "{file} {at}: {n}");
            for (labels, samples) in &series {
                let same = whole.iter().find(|(whole_labels, _)| whole_labels == labels);
                assert!(same.is_none_or(|same| samples.iter().all(|sample| same.1.contains(sample))), "{file} {at}");
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
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/prometheus-data/mixed");
    let Ok(blocks) = BlockReader::list(&RealFs, &data) else { return };
    assert_eq!(blocks.len(), 3);
    for dir in blocks {
        let mut damage = DamageReport::default();
        let block = BlockReader::open(&RealFs, &dir, &mut damage).unwrap();
        assert_eq!(block.verify(&mut damage).unwrap(), block.meta().stats.n_samples, "{dir:?}");
        assert_eq!(damage.entries(), []);
    }
}

/// Labels of a series; first timestamp, last timestamp and ref of each of its chunks.
type Indexed<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, i64, u64)]);

/// Writes an index of version 1 for chunks in one file: it refers to symbols and series by unaligned offsets. Source:
/// Prometheus `tsdb/docs/format/index.md` and the readers of `tsdb/index/index.go`.
fn write_v1(path: &Path, series: &[Indexed<'_>]) {
    use varve_tsdb::varint::{put_i64, put_u64};
    let section = |dst: &mut Vec<u8>, content: &[u8]| {
        dst.extend_from_slice(&(content.len() as u32).to_be_bytes());
        dst.extend_from_slice(content);
        dst.extend_from_slice(&crc32c::crc32c(content).to_be_bytes());
    };
    let mut strings: Vec<&str> = series.iter().flat_map(|it| it.0).flat_map(|&(name, value)| [name, value]).collect();
    strings.sort_unstable();
    strings.dedup();
    let mut index = 0xbaaa_d700_u32.to_be_bytes().to_vec();
    index.push(1);
    let mut symbols = (strings.len() as u32).to_be_bytes().to_vec();
    let mut names = std::collections::BTreeMap::new();
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
        labels.iter().flat_map(|(name, value)| [name, value]).for_each(|text| put_u64(&mut entry, names[text]));
        put_u64(&mut entry, chunks.len() as u64);
        let (mut end, mut name) = (0, 0);
        for (i, &(min_ms, max_ms, chunk)) in chunks.iter().enumerate() {
            if i == 0 {
                put_i64(&mut entry, min_ms);
                put_u64(&mut entry, (max_ms - min_ms) as u64);
                put_u64(&mut entry, chunk);
            } else {
                put_u64(&mut entry, (min_ms - end) as u64);
                put_u64(&mut entry, (max_ms - min_ms) as u64);
                put_i64(&mut entry, chunk as i64 - name as i64);
            }
            (end, name) = (max_ms, chunk);
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
    let offsets = [symbols_offset, series_offset, postings_offset, table_offset, postings_offset, table_offset];
    let contents: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_be_bytes()).collect();
    index.extend_from_slice(&contents);
    index.extend_from_slice(&crc32c::crc32c(&contents).to_be_bytes());
    std::fs::write(path, index).unwrap();
}

#[test]
fn an_index_of_version_1_is_read() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join(write(out.path(), CHUNK_SEGMENT_SIZE_MAX).ulid.to_string());
    let (whole, _) = read(&dir);
    // The same series and chunks as in the index of version 2.
    let mut damage = DamageReport::default();
    let block = BlockReader::open(&RealFs, &dir, &mut damage).unwrap();
    let mut series = Vec::new();
    block
        .for_each(&mut damage, |of| {
            series.push((of.labels().to_vec(), of.chunk_places().collect::<Vec<_>>()));
            Ok(())
        })
        .unwrap();
    let series: Vec<_> = series.iter().map(|(labels, chunks)| (&labels[..], &chunks[..])).collect();
    write_v1(&dir.join("index"), &series);
    let (found, damage) = read(&dir);
    assert_eq!(damage.entries(), []);
    assert!(found == whole);
    let mut damage = DamageReport::default();
    let block = BlockReader::open(&RealFs, &dir, &mut damage).unwrap();
    assert_eq!((block.verify(&mut damage).unwrap(), damage.n_damaged()), (631, 0));
}
