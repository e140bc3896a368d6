//! `varve wal repair` of Varve's own logs.

use anyhow::{Context, Result};
use serde_json::json;
use varve_tsdb::fs::RealFs;
use varve_tsdb::log::{Mended, Repair, repair};

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
    match args.output.format {
        Format::Json => {
            let mended = |it: &Mended| json!({"path": it.path, "original": it.original, "kept": it.n_kept});
            let report = json!({
                "owner": "varve",
                "written": args.write,
                "mended": repair.mended.iter().map(mended).collect::<Vec<_>>(),
                "damage": repair.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
                "damageCount": repair.damage.n_damaged(),
            });
            println!("{report}");
        }
        Format::Table => print!("{}", text(&repair, args.write)),
    }
    Ok(verdict(&repair.damage))
}

fn text(repair: &Repair, is_written: bool) -> String {
    let mut text = String::new();
    for it in &repair.mended {
        let (path, original) = (it.path.display(), it.original.display());
        let done = match (it.n_kept, is_written) {
            (Some(n), true) => format!("mended {path}: {n} frames stay; the original: {original}"),
            (Some(n), false) => format!("would mend {path}: {n} frames stay; the original: {original}"),
            (None, true) => format!("set aside {path}: {original}"),
            (None, false) => format!("would set aside {path}: {original}"),
        };
        text.push_str(&done);
        text.push('\n');
    }
    text.push_str(&damage_lines(&repair.damage));
    text.push_str(match (repair.damage.n_damaged(), is_written) {
        (0, _) => "nothing to mend\n",
        (_, false) => "nothing was written: add --write\n",
        (_, true) => "",
    });
    text
}
