//! Size of the series of a block on disk, for `varve tsdb analyze`.

use varve_context::QueryContext;
use varve_model::{Labels, SampleColumns};

use super::Db;
use super::stats::SeriesCost;
use crate::block::Access;
use crate::error::Result;

impl Db {
    /// Calls a function with each series of a block or part in label order and its size. Returns
    /// `false` if the block does not exist. Includes samples that were deleted since, as they still
    /// take up space.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted) if the request is interrupted, and all
    /// errors of reading the block.
    pub fn scan_block(
        &self,
        ctx: &QueryContext,
        number: u64,
        each: &mut dyn FnMut(&Labels, SeriesCost),
    ) -> Result<bool> {
        let list = self.store.blocks.list();
        let Some(stored) = list
            .iter()
            .find(|stored| stored.block.meta().origin.id.0 == number)
        else {
            return Ok(false);
        };
        let mut scan = stored.block.scan();
        let mut labels = stored.block.index.series_cursor(Access::Cached);
        let mut samples = SampleColumns::default();
        let mut ordinal = 0;
        while scan.next(&mut samples)?.is_some() {
            ctx.check()?;
            labels.seek(ordinal)?;
            ordinal += 1;
            let Some(range) = samples.range() else {
                continue;
            };
            let n_samples = samples.len() as u64;
            let n_histograms = samples.histograms.len() as u64;
            let values_bytes = scan.rows_size();
            each(
                &labels.labels()?,
                SeriesCost {
                    range,
                    n_samples,
                    n_histograms,
                    values_bytes,
                },
            );
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::WriteBatch;
    use crate::options::Options;
    use varve_model::Sample;

    #[test]
    fn series_sizes_add_up_to_the_size_of_the_block() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(
            dir.path(),
            Options {
                background: false,
                ..Options::default()
            },
        )
        .unwrap();
        let mut batch = WriteBatch::default();
        for name in ["a", "b"] {
            let series = db
                .series(&Labels::from_pairs([("__name__", name)]).unwrap())
                .unwrap();
            for i in 0..100 {
                let sample = Sample {
                    timestamp_ms: 1_000_000 + i * 1000,
                    value: (i * i) as f64 * 1.1,
                };
                batch.push(series, sample, 0);
            }
        }
        db.append(&mut batch).unwrap();
        db.flush().unwrap();
        let block = db.blocks().remove(0);
        let ctx = QueryContext::unbounded();
        let mut found = Vec::new();
        assert!(
            db.scan_block(&ctx, block.number, &mut |labels, cost| found
                .push((labels.metric_name().to_owned(), cost)))
                .unwrap()
        );
        assert_eq!(
            found
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert!(
            found
                .iter()
                .all(|(_, cost)| cost.n_samples == 100 && cost.range == block.range)
        );
        assert!(
            found
                .iter()
                .all(|(_, cost)| (1..=800).contains(&cost.values_bytes)),
            "{found:?}"
        );
        assert!(
            !db.scan_block(&ctx, block.number + 1, &mut |_, _| {})
                .unwrap()
        );
    }
}
