//! The description of a block, `meta.json`.

use serde_json::{Map, Value, json};
use varve_model::TimeRange;

use super::ulid::Ulid;
use crate::chunk::Encoding;

/// Maximum size of a description that is read.
pub const META_SIZE_MAX: u64 = 16 << 20;
/// Compaction hint of a block of out-of-order samples.
pub const FROM_OUT_OF_ORDER: &str = "from-out-of-order";
/// Compaction hints of blocks that do not have all in-order samples of their time range: of
/// out-of-order samples, of stale series, and of selected series.
const PARTIAL: [&str; 3] = [
    FROM_OUT_OF_ORDER,
    "from-stale-series",
    "from-selected-series",
];

/// Content of `meta.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockMeta {
    /// Name of the block.
    pub ulid: Ulid,
    /// First timestamp.
    pub min_ms: i64,
    /// Last timestamp plus 1.
    pub max_ms: i64,
    /// Statistics.
    pub stats: BlockStats,
    /// Compaction level; a block of level 1 is not compacted.
    pub level: u32,
    /// Blocks from which it was compacted, or the block itself at level 1.
    pub sources: Vec<Ulid>,
    /// Compaction hints, such as [`FROM_OUT_OF_ORDER`].
    pub hints: Vec<String>,
    /// Thanos section.
    pub thanos: Option<ThanosMeta>,
}

/// Statistics of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockStats {
    /// Number of floats and histograms.
    pub n_samples: u64,
    /// Number of floats.
    pub n_floats: u64,
    /// Number of histograms.
    pub n_histograms: u64,
    /// Number of series.
    pub n_series: u64,
    /// Number of chunks.
    pub n_chunks: u64,
    /// Number of tombstones that have not been applied.
    pub n_tombstones: u64,
}

impl BlockStats {
    /// Counts a chunk.
    pub(super) fn add(&mut self, encoding: Encoding, n_samples: u32) {
        self.n_chunks += 1;
        self.n_samples += u64::from(n_samples);
        if encoding.is_float() {
            self.n_floats += u64::from(n_samples);
        } else {
            self.n_histograms += u64::from(n_samples);
        }
    }

    /// Adds statistics of other chunks and series.
    pub(super) fn merge(&mut self, other: &Self) {
        self.n_samples += other.n_samples;
        self.n_floats += other.n_floats;
        self.n_histograms += other.n_histograms;
        self.n_series += other.n_series;
        self.n_chunks += other.n_chunks;
    }
}

/// The Thanos section: external labels, and files with their sizes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThanosMeta {
    /// External labels.
    pub labels: Vec<(String, String)>,
    /// Paths relative to the block, and sizes in bytes.
    pub files: Vec<(String, u64)>,
    /// Size in bytes of the largest entry of a series in the index. 0 if unknown.
    pub series_size_max: u64,
    /// Size in bytes of the largest chunk in a chunk file. 0 if unknown.
    pub chunk_size_max: u64,
    /// Resolution in milliseconds of a downsampled block. 0 for a block of samples as they were
    /// written.
    pub resolution_ms: u64,
}

impl BlockMeta {
    /// Parses a description. Returns `None` if it is invalid, or of another version than 1.
    #[must_use]
    pub fn parse(json: &[u8]) -> Option<Self> {
        let json: Value = serde_json::from_slice(json).ok()?;
        let compaction = &json["compaction"];
        let stat = |name: &str| json["stats"][name].as_u64().unwrap_or(0);
        if json["version"].as_u64() != Some(1) {
            return None;
        }
        Some(Self {
            ulid: Ulid::parse(json["ulid"].as_str()?)?,
            min_ms: json["minTime"].as_i64()?,
            max_ms: json["maxTime"].as_i64()?,
            stats: BlockStats {
                n_samples: stat("numSamples"),
                n_floats: stat("numFloatSamples"),
                n_histograms: stat("numHistogramSamples"),
                n_series: stat("numSeries"),
                n_chunks: stat("numChunks"),
                n_tombstones: stat("numTombstones"),
            },
            level: compaction["level"]
                .as_u64()
                .and_then(|level| u32::try_from(level).ok())
                .unwrap_or(0),
            sources: strings(&compaction["sources"])
                .iter()
                .filter_map(|text| Ulid::parse(text))
                .collect(),
            hints: strings(&compaction["hints"]),
            thanos: parse_thanos(&json["thanos"]),
        })
    }

    /// Returns `true` if in-order samples of the time range of the block may be elsewhere, so that
    /// its end does not limit which new samples Prometheus accepts.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.hints
            .iter()
            .any(|hint| PARTIAL.contains(&hint.as_str()))
    }

    /// Returns the time range, with both ends.
    #[must_use]
    pub fn range(&self) -> TimeRange {
        TimeRange {
            start_ms: self.min_ms,
            end_ms: self.max_ms.saturating_sub(1),
        }
    }

    /// Serializes the description.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let stats = &self.stats;
        let sources: Vec<_> = self.sources.iter().map(Ulid::to_string).collect();
        let mut compaction = json!({"level": self.level, "sources": sources});
        if !self.hints.is_empty() {
            compaction["hints"] = json!(self.hints);
        }
        let mut json = json!({
            "ulid": self.ulid.to_string(),
            "minTime": self.min_ms,
            "maxTime": self.max_ms,
            "stats": {
                "numSamples": stats.n_samples,
                "numFloatSamples": stats.n_floats,
                "numHistogramSamples": stats.n_histograms,
                "numSeries": stats.n_series,
                "numChunks": stats.n_chunks,
            },
            "compaction": compaction,
            "version": 1,
        });
        if let Some(thanos) = &self.thanos {
            json["thanos"] = thanos_json(thanos);
        }
        let mut text = serde_json::to_vec_pretty(&json).expect("the keys of a value are strings");
        text.push(b'\n');
        text
    }
}

/// Returns `true` if blocks with these ranges overlap in time, so that several may have the same
/// samples.
#[must_use]
pub fn have_overlaps(mut ranges: Vec<TimeRange>) -> bool {
    ranges.sort_unstable_by_key(|range| range.start_ms);
    !ranges.is_sorted_by(|range, next| range.end_ms < next.start_ms)
}

fn strings(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn parse_thanos(json: &Value) -> Option<ThanosMeta> {
    let labels = json.get("labels")?.as_object()?;
    let labels = labels
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let mut files = Vec::new();
    for file in json["files"].as_array().into_iter().flatten() {
        if let Some(path) = file["rel_path"].as_str() {
            files.push((path.to_owned(), file["size_bytes"].as_u64().unwrap_or(0)));
        }
    }
    let index_stats = &json["index_stats"];
    Some(ThanosMeta {
        labels,
        files,
        series_size_max: index_stats["series_max_size"].as_u64().unwrap_or(0),
        chunk_size_max: index_stats["chunk_max_size"].as_u64().unwrap_or(0),
        resolution_ms: json["downsample"]["resolution"].as_u64().unwrap_or(0),
    })
}

fn thanos_json(thanos: &ThanosMeta) -> Value {
    let labels: Map<_, _> = thanos
        .labels
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let mut files = Vec::new();
    for (path, size) in &thanos.files {
        files.push(if path == "meta.json" {
            json!({"rel_path": path})
        } else {
            json!({"rel_path": path, "size_bytes": size})
        });
    }
    let segments: Vec<_> = thanos
        .files
        .iter()
        .filter_map(|(path, _)| path.strip_prefix("chunks/"))
        .collect();
    json!({
        "version": 1,
        "labels": labels,
        "downsample": {"resolution": thanos.resolution_ms},
        "source": "receive",
        "segment_files": segments,
        "files": files,
        "index_stats": {"series_max_size": thanos.series_size_max, "chunk_max_size": thanos.chunk_size_max},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_round_trip() {
        let meta = BlockMeta {
            ulid: Ulid::new(5, 7),
            min_ms: -3,
            max_ms: 9,
            stats: BlockStats {
                n_samples: 3,
                n_floats: 2,
                n_histograms: 1,
                n_series: 2,
                n_chunks: 2,
                n_tombstones: 0,
            },
            level: 1,
            sources: vec![Ulid::new(5, 7)],
            hints: vec![FROM_OUT_OF_ORDER.to_owned()],
            thanos: Some(ThanosMeta {
                labels: vec![("cluster".to_owned(), "a".to_owned())],
                files: vec![("chunks/000001".to_owned(), 3), ("meta.json".to_owned(), 0)],
                series_size_max: 40,
                chunk_size_max: 7,
                resolution_ms: 300_000,
            }),
        };
        assert_eq!(BlockMeta::parse(&meta.to_json()), Some(meta.clone()));
        for (hint, expect) in PARTIAL
            .map(|hint| (hint, true))
            .into_iter()
            .chain([("other", false)])
        {
            assert_eq!(
                BlockMeta {
                    hints: vec![hint.to_owned()],
                    ..meta.clone()
                }
                .is_partial(),
                expect,
                "{hint}"
            );
        }
    }

    #[test]
    fn blocks_overlap_if_they_share_a_millisecond() {
        let check = |ranges: &[(i64, i64)], expect| {
            let mut found = Vec::new();
            for &(min_ms, max_ms) in ranges {
                let block = BlockMeta {
                    min_ms,
                    max_ms,
                    ..BlockMeta::default()
                };
                found.push(block.range());
            }
            assert_eq!(have_overlaps(found), expect, "{ranges:?}");
        };
        check(&[], false);
        // The end is exclusive.
        check(&[(10, 20), (0, 10)], false);
        check(&[(9, 20), (0, 10)], true);
        check(&[(0, 10), (0, 10)], true);
        check(&[(0, 30), (40, 50), (5, 9)], true);
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        for bad in [
            "",
            "{}",
            "[1]",
            r#"{"version":2,"ulid":"00000000010000000000000002","minTime":1,"maxTime":2}"#,
        ] {
            assert_eq!(BlockMeta::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
