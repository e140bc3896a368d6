//! `varve wal repair` of Prometheus' WAL and WBL.

use anyhow::{Context, Result};
use serde_json::json;
use varve_prometheus::repair::repair;
use varve_tsdb::fs::RealFs;

use crate::tools::wal::Verdict;
use crate::tools::wal::args::{Format, RepairArgs};
use crate::tools::wal::progress::{Progress, Unit};
use crate::tools::wal::report::{damage_lines, field_json, outcome, verdict};

/// Repairs WAL and WBL, or prints what would be repaired.
pub(in crate::tools::wal) fn run(args: &RepairArgs) -> Result<Verdict> {
    let progress = Progress::start("searching for damage", Unit::Bytes);
    let repair = repair(&RealFs, &args.dir, args.write, &mut |done, total| progress.show(done, total, ""));
    progress.finish();
    let repair = repair.with_context(|| format!("repair {:?}", args.dir))?;
    let is_sound = repair.repaired.is_empty() && repair.created.is_empty();
    match args.output.format {
        Format::Json => {
            let repaired =
                repair.repaired.iter().map(|it| json!({"path": it.path, "backup": it.backup, "records": it.n_records}));
            let fields = vec![
                ("written", "", json!(args.write)),
                ("repaired", "", json!(repaired.collect::<Vec<_>>())),
                ("created", "", json!(repair.created)),
            ];
            println!("{}", field_json("prometheus", fields, &repair.damage));
        }
        Format::Table => {
            let (repaired, created) =
                if args.write { ("repaired", "created") } else { ("would repair", "would create") };
            for it in &repair.repaired {
                let (path, backup) = (it.path.display(), it.backup.display());
                println!("{repaired} {path}: {} records kept; backup: {backup}", it.n_records);
            }
            repair.created.iter().for_each(|path| println!("{created} the missing segment {}", path.display()));
            print!("{}{}", damage_lines(&repair.damage), outcome(is_sound, args.write));
        }
    }
    Ok(if is_sound { verdict(&repair.damage) } else { Verdict::Damaged })
}
