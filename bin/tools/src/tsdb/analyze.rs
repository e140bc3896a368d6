//! `varve tsdb analyze`: the cost of labels, metrics and encodings in a block.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use varve_env::RealFs;
use varve_env::damage::DamageReport;
use varve_model::{Matcher, SampleColumns};
use varve_prometheus::block::{BlockReader, BlockSeries, Ulid};
use varve_prometheus::chunk::{self, Chunk, Encoding};
use varve_tsdb::ReadContext;
use varve_tsdb::stats::BlockSummary;

use super::args::TsdbAnalyzeArgs;
use super::chunk_sizes::ChunkSizes;
use super::columns::duration;
use super::label_stats::LabelStats;
use super::source::OfflineDb;
use crate::data_dir::{Owner, owner};
use crate::selector::{matches, parse_optional};

/// Prints the statistics of a block.
pub(super) fn analyze(args: &TsdbAnalyzeArgs) -> Result<DamageReport> {
    let matchers = parse_optional(args.selector.as_deref())?;
    let mut damage = DamageReport::default();
    let analysis = match owner(&args.path)? {
        Owner::Prometheus => analyze_prometheus(args, &matchers, &mut damage)?,
        Owner::Varve => analyze_varve(args, &matchers, &mut damage)?,
    };
    args.output
        .print(|| analysis.text(args), || analysis.json(args));
    Ok(damage)
}

/// The statistics of a block.
#[derive(Debug)]
struct Analysis {
    block: String,
    length_ms: u64,
    n_series: u64,
    labels: LabelStats,
    encodings: Vec<(&'static str, EncodingStats)>,
    /// What an encoding is counted by: chunks, or series if a block has one page of each series.
    unit: &'static str,
    /// `None` without `--extended`.
    chunk_sizes: Option<ChunkSizes>,
    /// Bytes of the file by part.
    parts: Vec<(&'static str, u64)>,
}

/// The chunks of one encoding.
#[derive(Debug, Clone, Copy, Default)]
struct EncodingStats {
    n_chunks: u64,
    n_samples: u64,
    bytes: u64,
}

impl Analysis {
    /// Returns the output of promtool, with bytes.
    fn text(&self, args: &TsdbAnalyzeArgs) -> String {
        let length = duration(i64::try_from(self.length_ms).unwrap_or(i64::MAX));
        let mut text = format!(
            "Block ID: {}\nDuration: {length}\nTotal Series: {}\n",
            self.block, self.n_series
        );
        if let Some(selector) = &args.selector {
            text.push_str(&format!("Matcher: {selector}\n"));
        }
        text.push_str(&format!("Label names: {}\n", self.labels.n_names()));
        if args.selector.is_some() {
            text.push_str(&format!("Matched series: {}\n", self.labels.n_series));
        }
        let (n_pairs, n_entries) = self.labels.n_postings();
        text.push_str(&format!("Postings (unique label pairs): {n_pairs}\n"));
        text.push_str(&format!(
            "Postings entries (total label pairs): {n_entries}\n"
        ));
        for list in self.labels.lists(self.length_ms, args.limit) {
            text.push_str(&format!("\n{}:\n", list.title));
            for (n, name) in &list.entries {
                text.push_str(&format!("{n} {name}\n"));
            }
        }
        text.push_str("\nBytes of samples by encoding:\n");
        for (name, stats) in &self.encodings {
            text.push_str(&format!(
                "{} {name} ({} {}, {} samples, {:.2} bytes each)\n",
                stats.bytes,
                stats.n_chunks,
                self.unit,
                stats.n_samples,
                stats.bytes as f64 / stats.n_samples.max(1) as f64
            ));
        }
        if !self.parts.is_empty() {
            text.push_str("\nBytes of the file by part:\n");
            for (name, bytes) in &self.parts {
                text.push_str(&format!("{bytes} {name}\n"));
            }
        }
        if let Some(sizes) = &self.chunk_sizes {
            text.push_str(&sizes.print());
        }
        text
    }

    fn json(&self, args: &TsdbAnalyzeArgs) -> Value {
        let mut lists = Map::new();
        for list in self.labels.lists(self.length_ms, args.limit) {
            let entries = list.entries.iter();
            let entries = entries.map(|(n, name)| json!({"name": name, "value": n}));
            lists.insert(list.key.to_owned(), entries.collect());
        }
        let mut encodings = Vec::new();
        for (name, stats) in &self.encodings {
            encodings.push(json!({
                "encoding": name,
                self.unit: stats.n_chunks,
                "samples": stats.n_samples,
                "bytes": stats.bytes,
            }));
        }
        let mut parts = Map::new();
        for (name, bytes) in &self.parts {
            parts.insert((*name).to_owned(), json!(bytes));
        }
        let (n_pairs, n_entries) = self.labels.n_postings();
        json!({
            "block": self.block,
            "durationMs": self.length_ms,
            "series": self.n_series,
            "matchedSeries": self.labels.n_series,
            "labelNames": self.labels.n_names(),
            "labelPairs": n_pairs,
            "postings": n_entries,
            "top": lists,
            "encodings": encodings,
            "partBytes": parts,
            "chunkSizes": self.chunk_sizes.as_ref().map(ChunkSizes::json),
        })
    }
}

fn analyze_prometheus(
    args: &TsdbAnalyzeArgs,
    matchers: &[Matcher],
    damage: &mut DamageReport,
) -> Result<Analysis> {
    let name = match &args.block {
        Some(name) => name.clone(),
        None => last_block(&args.path)?,
    };
    let block = BlockReader::open(&RealFs, &args.path.join(&name), damage)
        .with_context(|| format!("open the block {name:?}"))?;
    let meta = block.meta();
    let length_ms = meta.max_ms.abs_diff(meta.min_ms);
    let mut chunk_sizes = args.extended.then(ChunkSizes::default);
    let mut labels = LabelStats::default();
    let mut encodings = BTreeMap::new();
    let mut cursor = block.cursor();
    while let Some(series) = cursor.next(damage) {
        if matches(matchers, series.labels()) {
            let uncovered_ms = uncovered_ms(&series, length_ms);
            let mut bytes = 0;
            for chunk in series.chunks(damage) {
                bytes += chunk.bytes.len() as u64;
                count(&chunk, &mut encodings, chunk_sizes.as_mut());
            }
            labels.add(series.labels().iter().copied(), uncovered_ms, bytes);
        }
    }
    Ok(Analysis {
        block: meta.ulid.to_string(),
        length_ms,
        n_series: meta.stats.n_series,
        labels,
        encodings: encodings
            .into_iter()
            .map(|(code, stats)| (encoding_name(code), stats))
            .collect(),
        unit: "chunks",
        chunk_sizes,
        parts: Vec::new(),
    })
}

/// Returns the name of the block that was created last.
fn last_block(path: &Path) -> Result<String> {
    let blocks = BlockReader::list(&RealFs, path).context("list the blocks")?;
    let names = blocks
        .iter()
        .filter_map(|block| block.file_name()?.to_str());
    // The first ten characters are the time; promtool takes the first of several blocks of one
    // time.
    let last = names
        .rev()
        .max_by_key(|name| name.get(..10).map(str::to_owned))
        .filter(|name| Ulid::parse(name).is_some());
    last.map(str::to_owned).context("no blocks found")
}

/// Returns the part of a block's range before the first and after the last sample of a series.
fn uncovered_ms(series: &BlockSeries<'_>, length_ms: u64) -> u64 {
    let mut ranges = series.chunk_ranges();
    let Some(first) = ranges.next() else {
        return length_ms;
    };
    let last = ranges.last().unwrap_or(first);
    length_ms.saturating_sub(last.end_ms.abs_diff(first.start_ms))
}

fn count(
    chunk: &Chunk,
    encodings: &mut BTreeMap<u8, EncodingStats>,
    sizes: Option<&mut ChunkSizes>,
) {
    let n_samples = u64::from(chunk.n_samples);
    let bytes = chunk.bytes.len() as u64;
    let stats = encodings.entry(chunk.encoding.code()).or_default();
    stats.n_chunks += 1;
    stats.n_samples += n_samples;
    stats.bytes += bytes;
    let Some(sizes) = sizes else { return };
    sizes.n_chunks += 1;
    if chunk.encoding.is_float() {
        sizes.float_samples.add(n_samples);
        sizes.float_bytes.add(bytes);
    } else {
        sizes.histogram_samples.add(n_samples);
        sizes.histogram_bytes.add(bytes);
        sizes.histogram_buckets.add(n_buckets(chunk));
    }
}

/// Returns the number of buckets of all histograms of a chunk.
fn n_buckets(chunk: &Chunk) -> u64 {
    let mut columns = SampleColumns::default();
    // Damage was recorded when the chunk was read. A partly decoded chunk counts as far as it was
    // decoded.
    let _ = chunk::decode(chunk.encoding, &chunk.bytes, &mut columns);
    columns
        .histograms
        .iter()
        .map(|(_, histogram)| histogram.n_buckets() as u64)
        .sum()
}

/// Returns the name of an encoding in Prometheus.
fn encoding_name(code: u8) -> &'static str {
    match Encoding::from_code(code) {
        Some(Encoding::Xor) => "XOR",
        Some(Encoding::Histogram) => "histogram",
        Some(Encoding::FloatHistogram) => "floathistogram",
        Some(Encoding::Xor2) => "XOR2",
        Some(Encoding::HistogramSt) => "histogramST",
        Some(Encoding::FloatHistogramSt) => "floathistogramST",
        None => "unknown",
    }
}

fn analyze_varve(
    args: &TsdbAnalyzeArgs,
    matchers: &[Matcher],
    damage: &mut DamageReport,
) -> Result<Analysis> {
    ensure!(
        !args.extended,
        "--extended shows the fill of chunks, which Varve's blocks do not have"
    );
    let store = OfflineDb::open(&args.path, None)?;
    damage.append(store.damage);
    let db = &store.db;
    let block = find_block(db.blocks(), args.block.as_deref())?;
    let length_ms = block
        .range
        .end_ms
        .saturating_add(1)
        .abs_diff(block.range.start_ms);
    let mut labels = LabelStats::default();
    let mut floats = EncodingStats::default();
    let mut histograms = EncodingStats::default();
    db.scan_block(
        &ReadContext::unbounded(),
        block.number,
        &mut |series, cost| {
            let pairs: Vec<_> = series.iter().collect();
            if !matches(matchers, &pairs) {
                return;
            }
            let covered_ms = cost.range.end_ms.abs_diff(cost.range.start_ms);
            let uncovered_ms = length_ms.saturating_sub(covered_ms);
            labels.add(pairs.into_iter(), uncovered_ms, cost.values_bytes);
            let stats = if cost.n_histograms > 0 {
                &mut histograms
            } else {
                &mut floats
            };
            stats.n_chunks += 1;
            stats.n_samples += cost.n_samples;
            stats.bytes += cost.values_bytes;
        },
    )
    .context("read the block")?;

    Ok(Analysis {
        block: block.number.to_string(),
        length_ms,
        n_series: block.n_series,
        labels,
        encodings: vec![("floats", floats), ("histograms", histograms)],
        unit: "series",
        chunk_sizes: None,
        parts: parts(&block),
    })
}

/// Returns the bytes of a block by part.
fn parts(block: &BlockSummary) -> Vec<(&'static str, u64)> {
    let known_bytes = block.values_bytes + block.timestamps_bytes + block.index_bytes;
    vec![
        ("values", block.values_bytes),
        ("timestamps", block.timestamps_bytes),
        ("index", block.index_bytes),
        ("others", block.size_bytes.saturating_sub(known_bytes)),
    ]
}

fn find_block(blocks: Vec<BlockSummary>, number: Option<&str>) -> Result<BlockSummary> {
    let Some(number) = number else {
        return blocks
            .into_iter()
            .next_back()
            .context("no blocks found: `varve tsdb compact` writes the WAL to blocks");
    };
    let Ok(number) = number.parse::<u64>() else {
        bail!("block {number:?}: expected a number of `varve tsdb list`")
    };
    blocks
        .into_iter()
        .find(|block| block.number == number)
        .with_context(|| format!("there is no block {number}"))
}
