//! `varve tsdb create-blocks-from openmetrics` and `json-lines`: creates Prometheus blocks from a
//! file of samples.
//!
//! The file is read once for its timestamps, then once for each group of windows whose samples fit
//! in memory. Most files are one group. Samples may be in any order. [`write_block`] says which of
//! several samples with the same timestamp counts.
//!
//! A file does not say which version of OpenMetrics it is written in. It is read as 1.0, and if a
//! line is invalid in it, as 2.0. Start timestamps of 2.0 are dropped.
//!
//! Bounds: [`SAMPLES_MAX`] samples in memory, [`WINDOWS_MAX`] blocks.
//!
//! Crash: complete blocks remain. Another run creates the same blocks with the same names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use varve_advise::counted;
use varve_ingest::text::{BadLine, Line, LineReader, Pairs, TextFormat};
use varve_model::histogram::Histogram;
use varve_model::{Labels, Sample};
use varve_prometheus::recover::WINDOW_MS;

use super::args::TsdbBackfillArgs;
use super::columns;
use super::list::{header, row, size_of};
use super::write_block::{Samples, write_block};
use crate::data_dir::ensure_takes_prometheus_blocks;

/// Maximum number of samples in memory, 16 bytes each. Each number of a histogram counts as one.
const SAMPLES_MAX: u64 = 64 << 20;
/// Maximum number of blocks: more than ten years of two hours each.
const WINDOWS_MAX: usize = 50_000;
/// promtool's words.
const NO_TIMESTAMP: &str = "expected timestamp for series got none";
/// Number of block durations in Prometheus' compaction. Each is three times the previous one.
const N_LENGTHS: u32 = 10;

/// Creates the blocks of a file in a format and prints them.
pub(super) fn backfill(args: &TsdbBackfillArgs, format: TextFormat) -> Result<()> {
    ensure_takes_prometheus_blocks(&args.output)?;
    let max_ms = i64::try_from(args.max_block_duration.as_millis()).unwrap_or(i64::MAX);
    let mut backfill = Backfill {
        args,
        format,
        length_ms: block_length_ms(max_ms),
    };
    let counts = backfill
        .counts_of_version()
        .context("getting min and max timestamp")?;
    std::fs::create_dir_all(&args.output)
        .with_context(|| format!("create output dir: {:?}", args.output))?;
    let mut wrote_header = false;
    let mut n_repeated = 0;
    for windows in groups(&counts)? {
        for (window, series) in backfill.samples(&windows).context("process blocks")? {
            let name = format!("backfill-{window}");
            let (meta, repeated) =
                write_block(&args.output, &name, series).context("process blocks")?;
            n_repeated += repeated;
            if !args.quiet {
                let mut rows = if wrote_header {
                    Vec::new()
                } else {
                    vec![header()]
                };
                let size = size_of(&args.output.join(meta.ulid.to_string()))?;
                rows.push(row(&meta, size, args.human_readable));
                print!("{}", columns::print(&rows));
                wrote_header = true;
            }
        }
    }
    if n_repeated > 0 {
        let skipped = counted(n_repeated as usize, "sample");
        eprintln!("skipped {skipped}: the series has another value with the same timestamp");
    }
    Ok(())
}

/// Samples of a series in a line.
enum LineSamples<'a> {
    Floats(&'a [Sample]),
    Histogram(i64, Histogram),
}

struct Backfill<'a> {
    args: &'a TsdbBackfillArgs,
    format: TextFormat,
    length_ms: i64,
}

impl Backfill<'_> {
    /// Returns the number of samples per window, and finds out the version of OpenMetrics.
    fn counts_of_version(&mut self) -> Result<BTreeMap<i64, u64>> {
        let error = match self.counts() {
            Err(error) if self.format == TextFormat::OpenMetrics => error,
            counts => return counts,
        };
        let invalid_in_1: BadLine = error.downcast()?;
        self.format = TextFormat::OpenMetrics2;
        self.counts().map_err(|error| match error.downcast() {
            Ok(invalid_in_2) => invalid_in_1.or_later(invalid_in_2).into(),
            Err(error) => error,
        })
    }

    /// Returns the number of samples per window.
    fn counts(&self) -> Result<BTreeMap<i64, u64>> {
        let mut counts = BTreeMap::new();
        self.visit(|_, samples| {
            match samples {
                LineSamples::Floats(samples) => {
                    for sample in samples {
                        *counts
                            .entry(self.window_of(sample.timestamp_ms))
                            .or_default() += 1;
                    }
                }
                LineSamples::Histogram(timestamp_ms, histogram) => {
                    *counts.entry(self.window_of(timestamp_ms)).or_default() +=
                        histogram.n_cells() as u64;
                }
            }
            ensure!(
                counts.len() <= WINDOWS_MAX,
                "the samples need more than {WINDOWS_MAX} blocks"
            );
            Ok(())
        })?;
        Ok(counts)
    }

    /// Returns the samples of some windows.
    fn samples(&self, windows: &BTreeSet<i64>) -> Result<BTreeMap<i64, HashMap<Labels, Samples>>> {
        let mut found: BTreeMap<i64, HashMap<Labels, Samples>> = BTreeMap::new();
        self.visit(|pairs, samples| {
            let mut of_line: BTreeMap<i64, Samples> = BTreeMap::new();
            match samples {
                LineSamples::Floats(samples) => {
                    for &sample in samples {
                        let window = self.window_of(sample.timestamp_ms);
                        if windows.contains(&window) {
                            of_line.entry(window).or_default().floats.push(sample);
                        }
                    }
                }
                LineSamples::Histogram(timestamp_ms, histogram) => {
                    let window = self.window_of(timestamp_ms);
                    if windows.contains(&window) {
                        let samples = of_line.entry(window).or_default();
                        samples.histograms.push((timestamp_ms, Arc::new(histogram)));
                    }
                }
            }
            if of_line.is_empty() {
                return Ok(());
            }
            let labels = labels(pairs, &self.args.labels)?;
            for (window, samples) in of_line {
                found
                    .entry(window)
                    .or_default()
                    .entry(labels.clone())
                    .or_default()
                    .append(samples);
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn window_of(&self, timestamp_ms: i64) -> i64 {
        timestamp_ms.div_euclid(self.length_ms)
    }

    /// Calls `each` for the labels and samples of every series of every line of the file.
    fn visit(&self, mut each: impl FnMut(&Pairs<'_>, LineSamples<'_>) -> Result<()>) -> Result<()> {
        let path = &self.args.input;
        let file = File::open(path).with_context(|| format!("open {path:?}"))?;
        let mut lines = LineReader::new(BufReader::new(file), self.format);
        while let Some(line) = lines.read()? {
            let line = match self.args.nan {
                Some(nan) => line.with_nan(nan),
                None => line,
            };
            match line {
                Line::Sample(line) => {
                    let sample = Sample {
                        timestamp_ms: line.timestamp_ms.context(NO_TIMESTAMP)?,
                        value: line.value,
                    };
                    each(&line.labels, LineSamples::Floats(&[sample]))?;
                }
                Line::Composite(mut line) => {
                    let timestamp_ms = line.timestamp_ms.context(NO_TIMESTAMP)?;
                    for part in line.samples() {
                        let sample = Sample {
                            timestamp_ms,
                            value: part.value,
                        };
                        each(&part.labels, LineSamples::Floats(&[sample]))?;
                    }
                    if let Some(histogram) = line.value.histogram.take() {
                        let samples = LineSamples::Histogram(timestamp_ms, histogram);
                        each(&line.labels, samples)?;
                    }
                }
                Line::Series(line) => {
                    let samples: Vec<Sample> = line
                        .samples
                        .iter()
                        .map(|&(timestamp_ms, value)| Sample {
                            timestamp_ms,
                            value,
                        })
                        .collect();
                    each(&line.labels, LineSamples::Floats(&samples))?;
                }
                Line::Metadata(_) | Line::Nothing => {}
            }
        }
        Ok(())
    }
}

/// Returns the labels of a series. Labels of the command line replace labels of the line.
fn labels(line: &Pairs<'_>, common: &[(String, String)]) -> Result<Labels> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (name, value) in line {
        if common.iter().all(|(other, _)| other != name) {
            pairs.push((name, value));
        }
    }
    for (name, value) in common {
        pairs.push((name, value));
    }
    // An empty value means no label.
    pairs.retain(|(_, value)| !value.is_empty());
    Labels::from_unsorted(&mut pairs).context("labels of a series")
}

/// Groups consecutive windows whose samples fit in memory.
fn groups(counts: &BTreeMap<i64, u64>) -> Result<Vec<BTreeSet<i64>>> {
    let mut groups: Vec<BTreeSet<i64>> = Vec::new();
    let mut n = 0;
    for (&window, &count) in counts {
        if count > SAMPLES_MAX {
            bail!(
                "the block number {window} since the epoch has {count} samples, more than {SAMPLES_MAX}: split the file"
            );
        }
        match groups.last_mut() {
            Some(group) if n + count <= SAMPLES_MAX => {
                group.insert(window);
                n += count;
            }
            _ => {
                groups.push(BTreeSet::from([window]));
                n = count;
            }
        }
    }
    Ok(groups)
}

/// Returns the longest of 2 h, 6 h, 18 h and so on that does not exceed the maximum, but at least 2
/// h.
fn block_length_ms(max_ms: i64) -> i64 {
    let lengths = (0..N_LENGTHS).map(|i| WINDOW_MS * 3_i64.pow(i));
    lengths
        .take_while(|&length_ms| length_ms <= max_ms)
        .last()
        .unwrap_or(WINDOW_MS)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use varve_env::RealFs;
    use varve_env::damage::DamageReport;
    use varve_ingest::text::NanMeaning;
    use varve_model::SampleColumns;
    use varve_prometheus::block::BlockReader;

    /// Creates blocks from a text.
    fn blocks_of(text: &str, output: &Path, labels: &[(&str, &str)]) -> Result<()> {
        let input = output.join("input.om");
        std::fs::write(&input, text)?;
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let args = TsdbBackfillArgs {
            input,
            output: output.to_owned(),
            human_readable: false,
            quiet: true,
            labels,
            max_block_duration: std::time::Duration::ZERO,
            nan: None,
        };
        backfill(&args, TextFormat::OpenMetrics)
    }

    #[test]
    fn each_window_becomes_a_block() {
        let dir = tempfile::tempdir().unwrap();
        let text = "# TYPE a counter\na_total{x=\"1\"} 2 7201\na_total{x=\"1\"} 1 7200\na_total{x=\"1\"} 9 7200\nb 5 -1\n# EOF\n";
        blocks_of(text, dir.path(), &[("x", "2"), ("y", "")]).unwrap();
        let mut damage = DamageReport::default();
        let mut found = Vec::new();
        for block in BlockReader::list(&RealFs, dir.path()).unwrap() {
            let block = BlockReader::open(&RealFs, &block, &mut damage).unwrap();
            let mut cursor = block.cursor();
            while let Some(series) = cursor.next(&mut damage) {
                let mut columns = SampleColumns::default();
                series.read(&mut columns, &mut damage);
                let samples: Vec<_> = columns
                    .iter()
                    .map(|sample| (sample.timestamp_ms, sample.value))
                    .collect();
                found.push((
                    block.meta().min_ms,
                    block.meta().max_ms,
                    format!("{:?}", series.labels()),
                    samples,
                ));
            }
        }
        found.sort_by_key(|(min_ms, ..)| *min_ms);
        let a = r#"[("__name__", "a_total"), ("x", "2")]"#;
        let b = r#"[("__name__", "b"), ("x", "2")]"#;
        let expect = [
            (-1000, -999, b.to_owned(), vec![(-1000, 5.0)]),
            (
                7_200_000,
                7_201_001,
                a.to_owned(),
                vec![(7_200_000, 1.0), (7_201_000, 2.0)],
            ),
        ];
        assert_eq!(found, expect);
        assert_eq!(damage.n_damaged(), 0);
    }

    #[test]
    fn json_lines_keep_the_ends_of_series() {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("input.jsonl");
        let line = r#"{"metric":{"__name__":"a.b-é","x":"1"},"values":[1,2,null],"timestamps":[0,7200000,7215000]}"#;
        std::fs::write(&input, format!("{line}\n")).unwrap();
        let read_back = |nan: Option<NanMeaning>, folder: &str| -> Vec<String> {
            let output = dir.path().join(folder);
            let args = TsdbBackfillArgs {
                input: input.clone(),
                output: output.clone(),
                human_readable: false,
                quiet: true,
                labels: Vec::new(),
                max_block_duration: std::time::Duration::ZERO,
                nan,
            };
            backfill(&args, TextFormat::JsonLines).unwrap();
            let mut damage = DamageReport::default();
            let mut found = Vec::new();
            for block in BlockReader::list(&RealFs, &output).unwrap() {
                let block = BlockReader::open(&RealFs, &block, &mut damage).unwrap();
                let mut cursor = block.cursor();
                while let Some(series) = cursor.next(&mut damage) {
                    let mut columns = SampleColumns::default();
                    series.read(&mut columns, &mut damage);
                    for sample in columns.iter() {
                        let bits = sample.value.to_bits();
                        let labels = series.labels();
                        found.push(format!("{labels:?} {} {bits:x}", sample.timestamp_ms));
                    }
                }
            }
            found.sort();
            found
        };
        let labels = r#"[("__name__", "a.b-é"), ("x", "1")]"#;
        let first = format!("{labels} 0 3ff0000000000000");
        let second = format!("{labels} 7200000 4000000000000000");
        let last = |bits: &str| format!("{labels} 7215000 {bits}");
        let marker = last("7ff0000000000002");
        let value = last("7ff8000000000001");
        let [first, second, marker, value] = [&*first, &second, &marker, &value];
        assert_eq!(read_back(None, "format"), [first, second, marker]);
        let as_value = read_back(Some(NanMeaning::Value), "value");
        assert_eq!(as_value, [first, second, value]);
        let skipped = read_back(Some(NanMeaning::Skip), "skip");
        assert_eq!(skipped, [first, second]);
    }

    #[test]
    fn invalid_files_are_rejected_with_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let error = |text: &str| format!("{:#}", blocks_of(text, dir.path(), &[]).unwrap_err());
        assert!(error("a 1\n# EOF\n").contains("expected timestamp for series got none"));
        assert!(error("a 1 1\n").contains("line 2: data does not end with # EOF"));
        assert!(error("a{b=\"1\",b=\"2\"} 1 1\n# EOF\n").contains("labels of a series"));
    }

    #[test]
    fn openmetrics_2_is_recognized_and_its_histograms_become_samples() {
        let dir = tempfile::tempdir().unwrap();
        let native = "schema:0,zero_threshold:0,zero_count";
        let text = format!(
            "# TYPE h histogram\nh {{count:3,sum:2,{native}:3,bucket:[+Inf:3]}} 7201 st@1\n\
             h {{count:1,sum:1,{native}:1}} 7200\nh {{count:9,sum:9,{native}:9}} 7200\n\
             # TYPE \"h\" gauge\nh 5 7202\nh 6 7201\n# EOF\n"
        );
        blocks_of(&text, dir.path(), &[("x", "y")]).unwrap();

        let mut damage = DamageReport::default();
        let mut found = Vec::new();
        for block in BlockReader::list(&RealFs, dir.path()).unwrap() {
            let block = BlockReader::open(&RealFs, &block, &mut damage).unwrap();
            assert_eq!(block.meta().min_ms, 7_200_000);
            assert_eq!(block.meta().max_ms, 7_202_001);
            let mut cursor = block.cursor();
            while let Some(series) = cursor.next(&mut damage) {
                let mut columns = SampleColumns::default();
                series.read(&mut columns, &mut damage);
                for (idx, sample) in columns.iter().enumerate() {
                    let is_histogram = columns.histogram(idx).is_some();
                    let name = series.labels().iter().next().unwrap().1.to_owned();
                    found.push((name, sample.timestamp_ms, sample.value, is_histogram));
                }
            }
        }
        let row = |name: &str, timestamp_ms: i64, value: f64, is_histogram: bool| {
            (name.to_owned(), timestamp_ms, value, is_histogram)
        };
        let expect = [
            row("h", 7_200_000, 1.0, true),
            row("h", 7_201_000, 6.0, false),
            row("h", 7_202_000, 5.0, false),
            row("h_bucket", 7_201_000, 3.0, false),
            row("h_count", 7_201_000, 3.0, false),
            row("h_sum", 7_201_000, 2.0, false),
        ];
        assert_eq!(found, expect);
        assert_eq!(damage.n_damaged(), 0);
    }

    #[test]
    fn the_error_of_an_openmetrics_file_is_that_of_its_version() {
        let dir = tempfile::tempdir().unwrap();
        for (text, expect) in [
            (
                "# TYPE s summary\ns{quantile=\"1\"} 1 1\na{b=c} 1 1\n",
                "line 3: expected a quoted string",
            ),
            (
                "# TYPE s summary\ns {count:1,sum:1,quantile:[]} 1\na{b=c} 1 1\n",
                "line 3: expected a quoted string",
            ),
            (
                "# TYPE s summary\ns {count:1,quantile:[]} 1\n",
                "line 2: no field sum",
            ),
            (
                "# TYPE s summary\ns {count:1,sum:1,quantile:[]}\n# EOF\n",
                "expected timestamp for series got none",
            ),
        ] {
            let error = format!("{:#}", blocks_of(text, dir.path(), &[]).unwrap_err());
            assert!(error.contains(expect), "{text:?}: {error}");
        }
    }

    #[test]
    fn block_durations_are_those_of_prometheus() {
        let hours = |h: i64| h * 3_600_000;
        for (max, expect) in [
            (0, 2),
            (2, 2),
            (5, 2),
            (6, 6),
            (17, 6),
            (24, 18),
            (1_000_000, 2 * 19_683),
        ] {
            assert_eq!(block_length_ms(hours(max)), hours(expect), "{max}");
        }
        let counts = BTreeMap::from([(1, SAMPLES_MAX), (2, 1), (3, SAMPLES_MAX - 1), (4, 1)]);
        let expect = [
            BTreeSet::from([1]),
            BTreeSet::from([2, 3]),
            BTreeSet::from([4]),
        ];
        assert_eq!(groups(&counts).unwrap(), expect);
        assert!(groups(&BTreeMap::from([(1, SAMPLES_MAX + 1)])).is_err());
    }
}
