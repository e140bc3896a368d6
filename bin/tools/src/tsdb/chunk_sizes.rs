//! `varve tsdb analyze --extended`: the fill of the chunks of a block.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

/// Counts by size.
#[derive(Debug, Default)]
pub(super) struct Sizes(BTreeMap<u64, u64>);

/// The sizes of a block's chunks.
#[derive(Debug, Default)]
pub(super) struct ChunkSizes {
    pub(super) n_chunks: u64,
    pub(super) float_samples: Sizes,
    pub(super) float_bytes: Sizes,
    pub(super) histogram_samples: Sizes,
    pub(super) histogram_bytes: Sizes,
    pub(super) histogram_buckets: Sizes,
}

impl ChunkSizes {
    /// Returns the sizes with their names in JSON and in text.
    fn parts(&self) -> [(&'static str, &'static str, &Sizes); 5] {
        [
            (
                "samplesPerFloatChunk",
                "samples per float chunk",
                &self.float_samples,
            ),
            (
                "bytesPerFloatChunk",
                "bytes per float chunk",
                &self.float_bytes,
            ),
            (
                "samplesPerHistogramChunk",
                "samples per histogram chunk",
                &self.histogram_samples,
            ),
            (
                "bytesPerHistogramChunk",
                "bytes per histogram chunk",
                &self.histogram_bytes,
            ),
            (
                "bucketsPerHistogramChunk",
                "buckets per histogram chunk",
                &self.histogram_buckets,
            ),
        ]
    }

    /// Prints a histogram of each size.
    pub(super) fn print(&self) -> String {
        let mut out = "\nCompaction analysis:\n\n".to_owned();
        for (_, what, sizes) in self.parts() {
            sizes.print(what, self.n_chunks, &mut out);
        }
        out
    }

    /// Returns the number of chunks of each size.
    pub(super) fn json(&self) -> Value {
        let parts = self
            .parts()
            .map(|(key, _, sizes)| (key.to_owned(), json!(sizes.0)));
        Value::Object(parts.into_iter().collect())
    }
}

impl Sizes {
    /// Counts a size.
    pub(super) fn add(&mut self, size: u64) {
        *self.0.entry(size).or_default() += 1;
    }

    fn print(&self, what: &str, total: u64, out: &mut String) {
        let mut all_sizes = self.0.keys();
        let Some(&min) = all_sizes.next() else {
            let _ = write!(out, "{what}: N/A\n\n");
            return;
        };
        let max = all_sizes.next_back().copied().unwrap_or(min);
        let n: u64 = self.0.values().sum();
        let avg = self.0.iter().map(|(size, n)| size * n).sum::<u64>() / n;
        let step = step(min, max);
        let start = min - min % step;
        let end = max - max % step + step;
        let mut buckets = vec![
            0;
            usize::try_from((end - start) / step + 1)
                .expect("a number of steps fits into usize")
        ];
        for (size, n) in &self.0 {
            buckets
                [usize::try_from((size - start) / step).expect("below the number of buckets")] += n;
        }
        let _ = writeln!(out, "{what} (min/avg/max): {min}/{avg}/{max}");
        let widths = [end, end + step, buckets.iter().copied().max().unwrap_or(0)]
            .map(|n| n.to_string().len());
        for (n, i) in buckets.iter().zip(0..) {
            let lower = i * step + start + 1;
            let upper = (i + 1) * step + start;
            let bar =
                "#".repeat(usize::try_from(100 * n / total.max(1)).expect("at most a hundred"));
            let [first, second, third] = widths;
            let _ = writeln!(out, "[{lower:first$}, {upper:second$}]: {n:third$} {bar}");
        }
        out.push('\n');
    }
}

/// Returns a power of ten that divides the range into about ten steps, at most 100,000.
fn step(min: u64, max: u64) -> u64 {
    let tenth = (max - min) / 10;
    let mut step = 10;
    while step < tenth && step <= 10_000 {
        step *= 10;
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_as_bars() {
        let mut sizes = ChunkSizes {
            n_chunks: 4,
            ..ChunkSizes::default()
        };
        for size in [16, 22, 22, 120] {
            sizes.float_samples.add(size);
        }
        let printed = sizes.print();
        let expect = "\nCompaction analysis:\n\nsamples per float chunk (min/avg/max): 16/45/120\n\
                      [ 11,  20]: 1 #########################\n[ 21,  30]: 2 ##################################################\n";
        assert!(printed.starts_with(expect), "{printed}");
        assert!(
            printed.contains("[111, 120]: 0 \n[121, 130]: 1 ####"),
            "{printed}"
        );
        assert!(
            printed.contains("bytes per float chunk: N/A\n\n"),
            "{printed}"
        );
    }
}
