//! `varve wal repair`.

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_tsdb::RealFs;
use varve_tsdb::prometheus::inspect::is_prometheus_directory;
use varve_tsdb::prometheus::repair::repair;

use super::Verdict;
use super::args::{Format, RepairArgs};
use super::report::{fault_json, fault_lines};

/// Mends, or says what would be mended.
pub(super) fn run(args: &RepairArgs) -> Result<Verdict> {
    if !is_prometheus_directory(&RealFs, &args.dir) {
        bail!("{:?} is no data directory of Prometheus; a Varve server mends its own log when it opens it", args.dir);
    }
    let repair = repair(&RealFs, &args.dir, args.write).with_context(|| format!("repair {:?}", args.dir))?;
    let is_whole = repair.mended.is_empty() && repair.filled.is_empty();
    match args.output.format {
        Format::Json => {
            let mended =
                repair.mended.iter().map(|it| json!({"path": it.path, "original": it.original, "kept": it.n_kept}));
            let report = json!({
                "written": args.write,
                "mended": mended.collect::<Vec<_>>(),
                "filled": repair.filled,
                "faults": repair.faults.kept().iter().map(fault_json).collect::<Vec<_>>(),
                "nFaults": repair.faults.n_unsound(),
            });
            println!("{report}");
        }
        Format::Table => {
            let (mends, fills) = if args.write { ("mended", "filled") } else { ("would mend", "would fill") };
            for it in &repair.mended {
                println!(
                    "{mends} {}: {} records stay; the original: {}",
                    it.path.display(),
                    it.n_kept,
                    it.original.display()
                );
            }
            repair.filled.iter().for_each(|path| println!("{fills} the gap {}", path.display()));
            print!("{}", fault_lines(&repair.faults));
            if !(args.write || is_whole) {
                println!("nothing was written: add --write");
            }
        }
    }
    let is_sound = is_whole && repair.faults.n_unsound() == 0;
    Ok(if is_sound { Verdict::Sound } else { Verdict::Faults })
}
