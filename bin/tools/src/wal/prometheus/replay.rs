//! `varve wal replay` of Prometheus' WAL and WBL: `recover` without writing blocks.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use varve_env::{Fs, RealFs};
use varve_prometheus::recover::{CONCURRENCY_MAX, RecoverOptions, replay_only};

use crate::progress::{Progress, Unit};
use crate::report::{damage_lines, field_json, field_table};
use crate::verdict::Verdict;
use crate::wal::args::ReplayArgs;
use crate::wal::prometheus::recover::{replay_fields, replay_verdict};

/// Replays, and prints how long it took.
pub(in crate::wal) fn run(args: &ReplayArgs) -> Result<Verdict> {
    let n_threads = args.n_threads().min(CONCURRENCY_MAX);
    let options = RecoverOptions {
        concurrency: n_threads,
        ..RecoverOptions::default()
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let started = Instant::now();
    let progress = Progress::start("replaying", Unit::Bytes);
    let report = replay_only(&fs, &args.dir, &options, &|replayed| {
        let samples = format!("{} samples", replayed.n_samples);
        progress.show(replayed.done, replayed.total, &samples);
    });
    let report = report.with_context(|| format!("replay {:?}", args.dir))?;
    progress.finish();
    let mut fields = replay_fields(&report, started.elapsed().as_secs_f64());
    fields.push(("concurrency", "threads", json!(n_threads)));
    args.output.print(
        || field_table(&fields) + &damage_lines(&report.damage),
        || field_json("prometheus", &fields, &report.damage),
    );
    Ok(replay_verdict(&report))
}
