//! The description of a block, `meta.json`.

use serde_json::{Map, Value, json};

use super::ulid::Ulid;
use super::writer::EncodedChunk;
use crate::chunk::Encoding;

/// Most bytes of a description that are read.
pub const META_SIZE_MAX: u64 = 16 << 20;
/// Says that a block holds samples that came late: it does not decide since when new samples are accepted.
pub const FROM_OUT_OF_ORDER: &str = "from-out-of-order";

/// What `meta.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockMeta {
    /// The block's name.
    pub ulid: Ulid,
    /// The first millisecond.
    pub min_ms: i64,
    /// The millisecond behind the last one.
    pub max_ms: i64,
    /// How much is in it.
    pub stats: BlockStats,
    /// How often its samples were merged; 1 is never.
    pub level: u32,
    /// The blocks that it was made of; itself, if of none.
    pub sources: Vec<Ulid>,
    /// What is special about it, such as [`FROM_OUT_OF_ORDER`].
    pub hints: Vec<String>,
    /// What Thanos wants to know.
    pub thanos: Option<ThanosMeta>,
}

/// How much is in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockStats {
    /// Samples of both kinds.
    pub n_samples: u64,
    /// Floats.
    pub n_floats: u64,
    /// Histograms.
    pub n_histograms: u64,
    /// Series.
    pub n_series: u64,
    /// Chunks.
    pub n_chunks: u64,
    /// Deletions that were not applied yet.
    pub n_tombstones: u64,
}

impl BlockStats {
    /// Counts a chunk.
    pub(super) fn add(&mut self, chunk: &EncodedChunk<'_>) {
        self.n_chunks += 1;
        match chunk.encoding {
            Encoding::Xor | Encoding::Xor2 => self.n_floats += chunk.n_samples,
            _ => self.n_histograms += chunk.n_samples,
        }
    }

    /// Counts chunks and series that were counted apart.
    pub(super) fn merge(&mut self, other: &Self) {
        self.n_floats += other.n_floats;
        self.n_histograms += other.n_histograms;
        self.n_series += other.n_series;
        self.n_chunks += other.n_chunks;
    }
}

/// The section of Thanos: external labels, and the files with their sizes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThanosMeta {
    /// The external labels.
    pub labels: Vec<(String, String)>,
    /// Paths inside the block, and bytes.
    pub files: Vec<(String, u64)>,
}

impl BlockMeta {
    /// Parses a description; `None` if it is none, or of another version than 1.
    #[must_use]
    pub fn parse(json: &[u8]) -> Option<Self> {
        let json: Value = serde_json::from_slice(json).ok()?;
        let compaction = &json["compaction"];
        let texts = |value: &Value| -> Vec<String> {
            let texts = value.as_array().into_iter().flatten();
            texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let stat = |name: &str| json["stats"][name].as_u64().unwrap_or(0);
        (json["version"].as_u64() == Some(1)).then_some(())?;
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
            level: compaction["level"].as_u64().and_then(|level| u32::try_from(level).ok()).unwrap_or(0),
            sources: texts(&compaction["sources"]).iter().filter_map(|text| Ulid::parse(text)).collect(),
            hints: texts(&compaction["hints"]),
            thanos: parse_thanos(&json["thanos"]),
        })
    }

    /// Tells whether its samples came late.
    #[must_use]
    pub fn is_out_of_order(&self) -> bool {
        self.hints.iter().any(|hint| hint == FROM_OUT_OF_ORDER)
    }

    /// Writes the description.
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
        let mut text = serde_json::to_vec_pretty(&json).expect("a value has text keys alone");
        text.push(b'\n');
        text
    }
}

fn parse_thanos(json: &Value) -> Option<ThanosMeta> {
    let labels = json.get("labels")?.as_object()?;
    let labels = labels.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    let file = |file: &Value| Some((file["rel_path"].as_str()?.to_owned(), file["size_bytes"].as_u64().unwrap_or(0)));
    let files = json["files"].as_array().into_iter().flatten().filter_map(file).collect();
    Some(ThanosMeta { labels, files })
}

fn thanos_json(thanos: &ThanosMeta) -> Value {
    let labels: Map<_, _> = thanos.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let size = |path: &str, size: &u64| {
        if path == "meta.json" { json!({"rel_path": path}) } else { json!({"rel_path": path, "size_bytes": size}) }
    };
    let files: Vec<_> = thanos.files.iter().map(|(path, bytes)| size(path, bytes)).collect();
    let segments: Vec<_> = thanos.files.iter().filter_map(|(path, _)| path.strip_prefix("chunks/")).collect();
    json!({
        "version": 1,
        "labels": labels,
        "downsample": {"resolution": 0},
        "source": "bucket.upload",
        "segment_files": segments,
        "files": files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_come_back() {
        let meta = BlockMeta {
            ulid: Ulid::new(5, 7),
            min_ms: -3,
            max_ms: 9,
            stats: BlockStats { n_samples: 3, n_floats: 2, n_histograms: 1, n_series: 2, n_chunks: 2, n_tombstones: 0 },
            level: 1,
            sources: vec![Ulid::new(5, 7)],
            hints: vec![FROM_OUT_OF_ORDER.to_owned()],
            thanos: Some(ThanosMeta {
                labels: vec![("cluster".to_owned(), "a".to_owned())],
                files: vec![("chunks/000001".to_owned(), 3), ("meta.json".to_owned(), 0)],
            }),
        };
        assert_eq!(BlockMeta::parse(&meta.to_json()), Some(meta.clone()));
        assert!(meta.is_out_of_order());
    }

    #[test]
    fn what_is_no_description_is_refused() {
        for bad in ["", "{}", "[1]", r#"{"version":2,"ulid":"00000000010000000000000002","minTime":1,"maxTime":2}"#] {
            assert_eq!(BlockMeta::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
