//! `varve wal repair` of Prometheus' WAL and WBL.

use anyhow::{Context, Result};
use serde_json::json;
use varve_fs::RealFs;
use varve_prometheus::repair::{Repair, RepairedSegment, repair};

use crate::wal::Verdict;
use crate::wal::args::RepairArgs;
use crate::wal::progress::{Progress, Unit};
use crate::wal::report::{damage_lines, field_json, outcome, verdict};

/// Repairs WAL and WBL, or prints what would be repaired.
pub(in crate::wal) fn run(args: &RepairArgs) -> Result<Verdict> {
    let run = |show: &mut dyn FnMut(u64, u64)| repair(&RealFs, &args.dir, args.write, show);
    let repair = Progress::start("searching for damage", Unit::Bytes).during(run);
    let repair = repair.with_context(|| format!("repair {:?}", args.dir))?;
    let is_sound = repair.repaired.is_empty() && repair.created.is_empty();
    let json = || {
        let repaired = repair
            .repaired
            .iter()
            .map(|it| json!({"path": it.path, "backup": it.backup, "records": it.n_records}));
        let fields = [
            ("written", "", json!(args.write)),
            ("repaired", "", json!(repaired.collect::<Vec<_>>())),
            ("created", "", json!(repair.created)),
        ];
        field_json("prometheus", &fields, &repair.damage)
    };
    args.output
        .print(|| text(&repair, is_sound, args.write), json);
    Ok(if is_sound {
        verdict(&repair.damage)
    } else {
        Verdict::Damaged
    })
}

fn text(repair: &Repair, is_sound: bool, is_written: bool) -> String {
    let (repaired, created) = if is_written {
        ("repaired", "created")
    } else {
        ("would repair", "would create")
    };
    let mut text = String::new();
    for RepairedSegment {
        path,
        backup,
        n_records,
    } in &repair.repaired
    {
        let (path, backup) = (path.display(), backup.display());
        text.push_str(&format!(
            "{repaired} {path}: {n_records} records kept; backup: {backup}\n"
        ));
    }
    for path in &repair.created {
        text.push_str(&format!(
            "{created} the missing segment {}\n",
            path.display()
        ));
    }
    text + &damage_lines(&repair.damage) + outcome(is_sound, is_written)
}
