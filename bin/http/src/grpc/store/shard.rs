//! A shard of a selection: queriers split an aggregation by the hash of its grouping labels.

use varve_model::Labels;
use xxhash_rust::xxh64::Xxh64;

use varve_wire::thanos::store::ShardInfo;

/// One of several shards, which together have each series once.
#[derive(Debug)]
pub(super) struct Shard {
    index: u64,
    n_shards: u64,
    by: bool,
    labels: Vec<String>,
}

impl Shard {
    /// Returns the shard of a request, or `None` if the request asks for all series.
    pub(super) fn of(info: Option<ShardInfo>) -> Option<Self> {
        let ShardInfo {
            shard_index,
            total_shards,
            by,
            labels,
        } = info?;
        let n_shards = u64::try_from(total_shards)
            .ok()
            .filter(|n_shards| *n_shards > 0)?;
        Some(Self {
            index: shard_index as u64,
            n_shards,
            by,
            labels,
        })
    }

    /// Returns `true` if a series is in the shard. The hash is that of Thanos: xxHash64 of names
    /// and values, each followed by a byte 0xff.
    pub(super) fn has(&self, labels: &Labels) -> bool {
        let mut hash = Xxh64::new(0);
        for (name, value) in labels
            .iter()
            .filter(|(name, _)| self.labels.iter().any(|label| label == name) == self.by)
        {
            for text in [name, value] {
                hash.update(text.as_bytes());
                hash.update(b"\xff");
            }
        }
        hash.digest() % self.n_shards == self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_divide_series_by_their_grouping_labels() {
        let shard = |by, labels: &[&str], shard_index| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Shard::of(Some(ShardInfo {
                shard_index,
                total_shards: 2,
                by,
                labels,
            }))
            .unwrap()
        };
        let series =
            |job: &str, pod: &str| Labels::from_pairs([("job", job), ("pod", pod)]).unwrap();
        for job in ["a", "b", "c", "d"] {
            let of = |by, labels: &[&str], pod| {
                let shards: Vec<_> = (0..2)
                    .filter(|idx| shard(by, labels, *idx).has(&series(job, pod)))
                    .collect();
                assert_eq!(shards.len(), 1);
                shards[0]
            };
            assert_eq!(of(true, &["job"], "x"), of(true, &["job"], "y"));
            assert_eq!(of(false, &["pod"], "x"), of(true, &["job"], "y"));
        }
        // As Go's xxhash.Sum64String("job\xffa\xff").
        let of_a = (0..2)
            .find(|idx| shard(true, &["job"], *idx).has(&series("a", "x")))
            .unwrap();
        assert_eq!(
            of_a as u64,
            xxhash_rust::xxh64::xxh64(b"job\xffa\xff", 0) % 2
        );
        assert!(Shard::of(Some(ShardInfo::default())).is_none() && Shard::of(None).is_none());
    }
}
