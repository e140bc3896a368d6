//! The decoders of Prometheus' formats.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use varve_env::Fs;
use varve_env::damage::DamageReport;
use varve_env::testing::{MemFs, PowerCut};
use varve_prometheus::block::{BlockMeta, BlockReader};
use varve_prometheus::chunk::{self, Encoder, Encoding, StartTimestamps};
use varve_prometheus::export::{ExportOptions, export};
use varve_prometheus::head_chunks::HeadChunkFiles;
use varve_prometheus::wal::{RecordContent, RecordType, Segment, SegmentReader, WalCompression};
use varve_tsdb::ReadContext;
use varve_model::SampleColumns;

use crate::reseal::reseal_prometheus;
use crate::store::{damaged, everything, files, open};

/// Decodes a chunk; the first byte is its encoding. The decoded samples are encoded and decoded
/// again, to the same bits.
pub fn prometheus_chunk(input: &[u8]) {
    let Some((code, bytes)) = input.split_first() else {
        return;
    };
    let Some(encoding) = Encoding::from_code(1 + code % 6) else {
        return;
    };
    let mut columns = SampleColumns::default();
    // Samples before the damage are returned.
    let _ = chunk::decode(encoding, bytes, &mut columns);
    let mut encoder = Encoder::new(StartTimestamps::Keep);
    encoder.push_columns(&columns);
    let mut back = SampleColumns::default();
    for chunk in encoder.finish() {
        chunk::decode(chunk.encoding, &chunk.bytes, &mut back).expect("an encoded chunk is valid");
    }
    assert_eq!(back.timestamps_ms, columns.timestamps_ms);
    assert!(
        back.values
            .iter()
            .map(|v| v.to_bits())
            .eq(columns.values.iter().map(|v| v.to_bits()))
    );
    assert!((0..back.len()).all(|idx| back.start_ms(idx) == columns.start_ms(idx)));
}

/// Damages a Prometheus block, with valid checksums if the first byte is odd, and reads all of it.
pub fn prometheus_block(input: &[u8]) {
    static BLOCK: OnceLock<(MemFs, PathBuf)> = OnceLock::new();
    let (whole, dir) = BLOCK.get_or_init(exported);
    let Some((sealed, edits)) = input.split_first() else {
        return;
    };
    let fs = whole.crash(PowerCut::KeepsAll);
    for path in damaged(&fs, edits) {
        if sealed % 2 == 1 && !path.ends_with("meta.json") {
            fs.edit(&path, |bytes| reseal_prometheus(&path, bytes))
                .expect("the file exists");
        }
    }
    let mut damage = DamageReport::default();
    if let Ok(block) = BlockReader::open(&fs, dir, &mut damage) {
        // It may return an error.
        let _ = block.verify(&mut damage);
        let mut cursor = block.cursor();
        while let Some(series) = cursor.next(&mut damage) {
            series.chunks(&mut damage);
        }
    }
}

/// Returns a file system that contains only an exported block, and the directory of the block.
fn exported() -> (MemFs, PathBuf) {
    let (store, fs) = (everything(), MemFs::new());
    let to: Arc<dyn Fs> = Arc::new(fs.clone());
    let out = Path::new("/out");
    export(
        &open(&store),
        &to,
        &ReadContext::unbounded(),
        out,
        &ExportOptions::default(),
    )
    .expect("memory is large enough");
    let dirs = BlockReader::list(&fs, out).expect("the directory exists");
    for path in dirs[1..].iter().flat_map(|dir| files(&fs, dir)) {
        fs.remove(&path).expect("the file exists");
    }
    (fs, dirs[0].clone())
}

/// Decodes the input as a record of each type, a compressed record, a segment, head chunks and
/// `meta.json`.
pub fn prometheus_log(input: &[u8]) {
    for record_type in RecordType::ALL {
        let _ = RecordContent::decode(record_type, input);
    }
    for compression in [WalCompression::Snappy, WalCompression::Zstd] {
        let size_max = compression.decoded_size(input);
        assert!(
            compression
                .decode(input)
                .is_none_or(|decoded| decoded.len() <= size_max)
        );
    }
    let _ = BlockMeta::parse(input);
    let fs: Arc<dyn Fs> = Arc::new(MemFs::default());
    let dir = Path::new("/chunks_head");
    fs.create_dir(dir).expect("a folder in memory");
    let path = dir.join("000001");
    fs.create(&path)
        .and_then(|file| file.append(input))
        .expect("a file in memory");
    let mut damage = DamageReport::default();
    HeadChunkFiles::scan(&*fs, dir, &mut damage).expect("the directory exists");
    let segment = Segment {
        path,
        number: 1,
        is_last: true,
        is_checkpoint: false,
    };
    let mut reader = SegmentReader::open(&*fs, &segment).expect("the file was just made");
    let mut size = 0;
    while let Some(record) = reader.next(&mut damage) {
        size += record.bytes.len();
    }
    assert!(
        size <= input.len(),
        "records are not larger than their segment"
    );
}
