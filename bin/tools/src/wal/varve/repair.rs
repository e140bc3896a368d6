//! `varve wal repair` of Varve's WAL.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_env::RealFs;
use varve_tsdb::inspect::{WalRepair, repair};

use crate::progress::{Progress, Unit};
use crate::report::{damage_lines, field_json, outcome};
use crate::verdict::Verdict;
use crate::wal::args::RepairArgs;

/// Repairs the WAL, or prints what would be repaired.
pub(in crate::wal) fn run(args: &RepairArgs) -> Result<Verdict> {
    let repair = Progress::start("searching for damage", Unit::Bytes)
        .during(|show| repair(&RealFs, &args.dir, args.write, show));
    let repair = repair.with_context(|| format!("repair {:?}", args.dir))?;
    args.output
        .print(|| text(&repair, args.write), || json(&repair, args.write));
    Ok(Verdict::from_damage(&repair.damage))
}

fn text(repair: &WalRepair, is_written: bool) -> String {
    let mut text = String::new();
    for file in &repair.renamed {
        let verb = if is_written {
            "renamed"
        } else {
            "would rename"
        };
        let path = file.path.display();
        text.push_str(&format!("{verb} {path} to {}\n", file.renamed_to.display()));
    }
    for file in &repair.repaired {
        let path = file.path.display();
        let original = file.original.display();
        let done = match (file.n_frames, is_written) {
            (Some(n), true) => format!("repaired {path}: {n} frames kept; backup: {original}"),
            (Some(n), false) => format!("would repair {path}: {n} frames kept; backup: {original}"),
            (None, true) => format!("set aside {path}: {original}"),
            (None, false) => format!("would set aside {path}: {original}"),
        };
        text.push_str(&done);
        text.push('\n');
    }
    text.push_str(&damage_lines(&repair.damage));
    text.push_str(outcome(repair.damage.n_damaged() == 0, is_written));
    text
}

fn json(repair: &WalRepair, is_written: bool) -> Value {
    let mut repaired = Vec::new();
    for file in &repair.repaired {
        repaired.push(json!({
            "path": file.path,
            "backup": file.original,
            "frames": file.n_frames,
        }));
    }
    let mut renamed = Vec::new();
    for file in &repair.renamed {
        renamed.push(json!({"path": file.path, "renamedTo": file.renamed_to}));
    }
    let fields = [
        ("written", "", json!(is_written)),
        ("renamed", "", json!(renamed)),
        ("repaired", "", json!(repaired)),
    ];
    field_json("varve", &fields, &repair.damage)
}
