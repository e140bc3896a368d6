//! Data sets for the encoding of values: rows of neighbouring series, generated from a seed or recorded.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// One row: consecutive values of a series.
pub(crate) type Row = Vec<f64>;

/// A sequence of numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn range(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Uniform in 0.0..1.0.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns about `n_rows` rows of `n` values each, as the series of a fleet follow one another in a block: families of
/// neighbours of one kind. 38 % are constant; counters bring up to 20 fresh bits a step.
pub(crate) fn generated(n_rows: usize, n: usize) -> Vec<Row> {
    let mut random = Random(42);
    let mut rows = Vec::new();
    while rows.len() < n_rows {
        let n_neighbours = random.range(20..300) as usize;
        match random.below(100) {
            0..38 => (0..n_neighbours).for_each(|_| rows.push(constant(&mut random, n))),
            38..62 => {
                let bits = random.range(2..20);
                (0..n_neighbours).for_each(|_| rows.push(counter(&mut random, n, bits)));
            }
            62..80 => (0..n_neighbours.div_ceil(14)).for_each(|_| histogram(&mut random, n, &mut rows)),
            80..86 => (0..n_neighbours).for_each(|_| rows.push(gauge(&mut random, n, 4096.0, 1.0))),
            86..96 => {
                let decimals = [1.0, 10.0, 100.0, 1000.0][random.below(4) as usize];
                (0..n_neighbours).for_each(|_| rows.push(gauge(&mut random, n, 1.0, decimals)));
            }
            96..99 => (0..n_neighbours).for_each(|_| rows.push(sum_of_decimals(&mut random, n))),
            _ => (0..n_neighbours.div_ceil(5)).for_each(|_| rows.push((0..n).map(|_| random.unit().sqrt()).collect())),
        }
    }
    rows
}

fn constant(random: &mut Random, n: usize) -> Row {
    let value = match random.below(10) {
        0..4 => 0.0,
        4..7 => 1.0,
        7 => random.below(1 << 30) as f64,
        8 => 1_790_000_000.0 + random.below(100_000_000) as f64 / 1e3,
        _ => random.below(1 << 10) as f64 / 100.0,
    };
    vec![value; n]
}

fn counter(random: &mut Random, n: usize, bits: u64) -> Row {
    let noise = random.range(1 << bits >> 1..1 << bits) + 1;
    let rate = random.range(noise..noise * 4);
    let mut count = random.below(rate * 10_000);
    let step = |_| {
        count = if random.below(50_000) == 0 { 0 } else { count + rate + random.below(noise) };
        count as f64
    };
    (0..n).map(step).collect()
}

/// Twelve cumulative buckets, of which the upper ones are alike, the count, and a sum.
fn histogram(random: &mut Random, n: usize, rows: &mut Vec<Row>) {
    let busy = random.range(1..200);
    let slowest = random.range(3..10) as usize;
    let mut counts = [0_u64; 12];
    let mut sum = 0.0;
    let mut buckets: Vec<Row> = (0..14).map(|_| Vec::with_capacity(n)).collect();
    for _ in 0..n {
        for _ in 0..busy / 2 + random.below(busy) {
            let bucket = (random.below(slowest as u64) + random.below(slowest as u64)) as usize / 2;
            counts[bucket..].iter_mut().for_each(|count| *count += 1);
            sum += random.below(1_000_000) as f64 / 1e6;
        }
        buckets.iter_mut().zip(counts).for_each(|(bucket, count)| bucket.push(count as f64));
        buckets[12].push(counts[11] as f64);
        buckets[13].push(sum);
    }
    rows.append(&mut buckets);
}

fn gauge(random: &mut Random, n: usize, unit: f64, decimals: f64) -> Row {
    let spread = 1 << random.range(1..14);
    let mut level = random.range(spread..spread * 100) as i64;
    let step = |_| {
        level += random.below(spread) as i64 - (spread / 2) as i64;
        (level.max(0) as f64 * unit) / decimals
    };
    (0..n).map(step).collect()
}

fn sum_of_decimals(random: &mut Random, n: usize) -> Row {
    let mut sum = random.below(100_000) as f64 / 100.0;
    let step = |_| {
        (0..3).for_each(|_| sum += random.below(100) as f64 / 100.0);
        sum
    };
    (0..n).map(step).collect()
}

/// Reads the float series of a Prometheus data directory in rows of up to `n` values, with promtool from the PATH.
///
/// # Errors
/// If promtool or the data are missing.
pub(crate) fn recorded(data: &Path, n: usize) -> std::io::Result<Vec<Row>> {
    // promtool replays the WAL and writes, so it gets a copy.
    let copy = tempfile::tempdir()?;
    let copied = Command::new("cp").arg("-r").arg(data).arg(copy.path()).status()?;
    let dir = copy.path().join(data.file_name().unwrap_or_default());
    if !copied.success() {
        return Err(std::io::Error::other(format!("{} cannot be copied", data.display())));
    }
    let mut dump = Command::new("promtool").args(["tsdb", "dump"]).arg(dir).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(dump.stdout.take().expect("it is piped")).lines();
    let mut rows: Vec<Row> = Vec::new();
    let mut last = String::new();
    for line in lines {
        let line = line?;
        let mut fields = line.rsplitn(3, ' ');
        let (_time, value, labels) = (fields.next(), fields.next(), fields.next().unwrap_or_default());
        // Native histograms are written in braces.
        let Some(value) = value.and_then(|value| value.parse().ok()) else { continue };
        match rows.last_mut().filter(|row| labels == last && row.len() < n) {
            Some(row) => row.push(value),
            None => rows.push(vec![value]),
        }
        labels.clone_into(&mut last);
    }
    dump.wait()?;
    Ok(rows)
}
