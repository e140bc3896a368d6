//! `varve wal repair` of logs of Prometheus.

use anyhow::{Context, Result};
use serde_json::json;
use varve_prometheus::repair::repair;
use varve_tsdb::fs::RealFs;

use crate::tools::wal::Verdict;
use crate::tools::wal::args::{Format, RepairArgs};
use crate::tools::wal::progress::{Progress, Unit};
use crate::tools::wal::report::{damage_json, damage_lines, verdict};

/// Mends, or says what would be mended.
pub(in crate::tools::wal) fn run(args: &RepairArgs) -> Result<Verdict> {
    let progress = Progress::start("looking for damage", Unit::Bytes);
    let repair = repair(&RealFs, &args.dir, args.write, &mut |done, total| progress.show(done, total, ""));
    progress.finish();
    let repair = repair.with_context(|| format!("repair {:?}", args.dir))?;
    let is_whole = repair.mended.is_empty() && repair.filled.is_empty();
    match args.output.format {
        Format::Json => {
            let mended =
                repair.mended.iter().map(|it| json!({"path": it.path, "original": it.original, "kept": it.n_kept}));
            let report = json!({
                "owner": "prometheus",
                "written": args.write,
                "mended": mended.collect::<Vec<_>>(),
                "filled": repair.filled,
                "damage": repair.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
                "damageCount": repair.damage.n_damaged(),
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
            print!("{}", damage_lines(&repair.damage));
            match (is_whole, args.write) {
                (true, _) => println!("nothing to mend"),
                (false, false) => println!("nothing was written: add --write"),
                (false, true) => {}
            }
        }
    }
    Ok(if is_whole { verdict(&repair.damage) } else { Verdict::Damaged })
}
