//! `varve wal replay` of Prometheus' WAL and WBL: `recover` without writing blocks.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use varve_fs::{Fs, RealFs};
use varve_prometheus::recover::{CONCURRENCY_MAX, Progress as Done, RecoverOptions, replay_only};
use varve_system::machine;

use crate::wal::Verdict;
use crate::wal::args::ReplayArgs;
use crate::wal::progress::{Progress, Unit};
use crate::wal::prometheus::recover::{replay_fields, replay_verdict};
use crate::wal::report::{damage_lines, field_json, field_table};

/// Replays, and prints how long it took.
pub(in crate::wal) fn run(args: &ReplayArgs) -> Result<Verdict> {
    let n_threads = if args.concurrency == 0 {
        machine::cores()
    } else {
        args.concurrency
    }
    .min(CONCURRENCY_MAX);
    let options = RecoverOptions {
        concurrency: n_threads,
        ..RecoverOptions::default()
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let (started, progress) = (Instant::now(), Progress::start("replaying", Unit::Bytes));
    let show = |it: Done| progress.show(it.done, it.total, &format!("{} samples", it.n_samples));
    let report = replay_only(&fs, &args.dir, &options, &show)
        .with_context(|| format!("replay {:?}", args.dir))?;
    progress.finish();
    let mut fields = replay_fields(&report, started.elapsed().as_secs_f64());
    fields.push(("concurrency", "threads", json!(n_threads)));
    let text = || field_table(&fields) + &damage_lines(&report.damage);
    args.output
        .print(text, || field_json("prometheus", &fields, &report.damage));
    Ok(replay_verdict(&report))
}
