//! `varve wal repair` of Prometheus' WAL and WBL.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_advise::counted;
use varve_env::RealFs;
use varve_prometheus::repair::{Repair, RepairedSegment, repair};

use crate::progress::{Progress, Unit};
use crate::report::{damage_lines, field_json, outcome};
use crate::verdict::Verdict;
use crate::wal::args::RepairArgs;

/// Repairs WAL and WBL, or prints what would be repaired.
pub(in crate::wal) fn run(args: &RepairArgs) -> Result<Verdict> {
    let repair = Progress::start("searching for damage", Unit::Bytes)
        .during(|show| repair(&RealFs, &args.dir, args.write, show));
    let repair = repair.with_context(|| format!("repair {:?}", args.dir))?;
    let is_sound = repair.repaired.is_empty() && repair.created.is_empty();
    args.output.print(
        || text(&repair, is_sound, args.write),
        || json(&repair, args.write),
    );
    Ok(if is_sound {
        Verdict::from_damage(&repair.damage)
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
        text.push_str(&format!(
            "{repaired} {}: {} kept; backup: {}\n",
            path.display(),
            counted(*n_records, "record"),
            backup.display()
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

fn json(repair: &Repair, is_written: bool) -> Value {
    let mut repaired = Vec::new();
    for segment in &repair.repaired {
        repaired.push(json!({
            "path": segment.path,
            "backup": segment.backup,
            "records": segment.n_records,
        }));
    }
    let fields = [
        ("written", "", json!(is_written)),
        ("repaired", "", json!(repaired)),
        ("created", "", json!(repair.created)),
    ];
    field_json("prometheus", &fields, &repair.damage)
}
