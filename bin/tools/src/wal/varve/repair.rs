//! `varve wal repair` of Varve's WAL.

use anyhow::{Context, Result};
use serde_json::json;
use varve_fs::RealFs;
use varve_tsdb::inspect::{Repair, RepairedFile, repair};

use crate::wal::Verdict;
use crate::wal::args::RepairArgs;
use crate::wal::progress::{Progress, Unit};
use crate::wal::report::{damage_lines, field_json, outcome, verdict};

/// Repairs the WAL, or prints what would be repaired.
pub(in crate::wal) fn run(args: &RepairArgs) -> Result<Verdict> {
    let run = |show: &mut dyn FnMut(u64, u64)| repair(&RealFs, &args.dir, args.write, show);
    let repair = Progress::start("searching for damage", Unit::Bytes).during(run);
    let repair = repair.with_context(|| format!("repair {:?}", args.dir))?;
    let json = || {
        let repaired = |it: &RepairedFile| json!({"path": it.path, "backup": it.original, "frames": it.n_frames});
        let fields = [
            ("written", "", json!(args.write)),
            (
                "repaired",
                "",
                json!(repair.repaired.iter().map(repaired).collect::<Vec<_>>()),
            ),
        ];
        field_json("varve", &fields, &repair.damage)
    };
    args.output.print(|| text(&repair, args.write), json);
    Ok(verdict(&repair.damage))
}

fn text(repair: &Repair, is_written: bool) -> String {
    let mut text = String::new();
    for it in &repair.repaired {
        let (path, original) = (it.path.display(), it.original.display());
        let done = match (it.n_frames, is_written) {
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
