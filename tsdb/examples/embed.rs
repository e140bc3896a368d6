//! Stores a sample and reads it back: `cargo run -p varve-tsdb --example embed -- <directory>`.

use std::path::Path;

use varve_model::{Labels, Matcher, Sample, SampleColumns, TimeRange};
use varve_tsdb::{Db, Options, ReadContext, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args()
        .nth(1)
        .ok_or("the directory of the store is missing")?;
    let db = Db::open(Path::new(&dir), Options::default())?;

    // A label set is resolved once; the handle is for all samples of the series.
    let up = db.series(&Labels::from_pairs([("__name__", "up"), ("job", "node")])?)?;
    let mut batch = WriteBatch::default();
    batch.push(
        up,
        Sample {
            timestamp_ms: 1_763_683_200_000,
            value: 1.0,
        },
        0, // a tag, returned if the sample is rejected
    );
    db.append(&mut batch)?;
    println!("{} samples were rejected", batch.rejected().len());

    let ctx = ReadContext::unbounded();
    for series in db.select(&ctx, &[Matcher::equal("job", "node")], TimeRange::ALL)? {
        let series = series?;
        let mut samples = SampleColumns::default();
        series.read(&mut samples)?;
        for sample in samples.iter() {
            println!(
                "{} is {} at {}",
                series.labels(),
                sample.value,
                sample.timestamp_ms
            );
        }
    }
    Ok(())
}
