//! Parts of reports: tables, damage, timestamps, resource usage.

use jiff::Timestamp;
use serde_json::{Value, json};
use varve_env::damage::{Damage, DamageKind, DamageReport};
use varve_env::sample_totals::SampleTotals;
use varve_model::TimeRange;
use varve_prometheus::block::{BlockMeta, have_overlaps};
use varve_system::machine::process;

use crate::output::table;

/// Maximum number of damage entries in a table. JSON has all that are listed.
const DAMAGE_LISTED: usize = 50;

/// Lists damage, one line each, after an empty line. Returns an empty string if there is no damage.
pub(crate) fn damage_lines(damage: &DamageReport) -> String {
    let mut text = String::new();
    for damage in damage.entries().iter().take(DAMAGE_LISTED) {
        let kind = damage.kind.name();
        // A missing file, or a total over a directory, has no offset.
        let offset = match (damage.kind, damage.offset) {
            (DamageKind::Missing, 0) => String::new(),
            (_, offset) => format!("byte {offset}: "),
        };
        text.push_str(&format!(
            "\n{}: {offset}{kind}: {}",
            damage.path.display(),
            damage.reason
        ));
    }
    let n_damaged = damage.n_damaged() + damage.count(DamageKind::TornTail);
    if n_damaged > DAMAGE_LISTED as u64 {
        text.push_str(&format!(
            "\n... and {} more, see --output json",
            n_damaged - DAMAGE_LISTED as u64
        ));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Returns the last line of a repair.
pub(crate) fn outcome(is_sound: bool, is_written: bool) -> &'static str {
    match (is_sound, is_written) {
        (true, _) => "nothing to repair\n",
        (false, false) => "nothing was written: add --write\n",
        (false, true) => "",
    }
}

/// Returns an estimated loss, given the number of readable samples.
pub(crate) fn loss(n_lost: u64, n_samples: u64) -> String {
    let percent = 100.0 * n_lost as f64 / (n_samples + n_lost).max(1) as f64;
    format!("about {n_lost} samples ({percent:.2} %)")
}

/// Returns a loss and its causes, if they are known.
pub(crate) fn because(lost: &str, causes: &[String]) -> String {
    if causes.is_empty() {
        return lost.to_owned();
    }
    format!("{lost}: {}", causes.join(", "))
}

/// Returns an entry of a damage report as JSON.
pub(crate) fn damage_json(damage: &Damage) -> Value {
    json!({"path": damage.path, "offset": damage.offset, "kind": damage.kind.name(), "reason": damage.reason})
}

/// Prints what became of the samples that were found. `kept` names those that were written or can be
/// read.
pub(crate) fn totals_table(totals: &SampleTotals, kept: &str) -> String {
    let mut rows = Vec::new();
    for (label, n_samples) in [
        ("samples found", totals.n_found),
        (kept, totals.n_kept),
        ("covered by blocks", totals.n_covered),
        ("duplicates", totals.n_duplicates),
        ("deleted", totals.n_deleted),
        ("not selected", totals.n_filtered),
    ] {
        if n_samples > 0 || label == kept {
            rows.push([label.to_owned(), n_samples.to_string()]);
        }
    }
    for loss in &totals.losses {
        let n_samples = loss
            .n_samples
            .map_or_else(|| "unknown".to_owned(), |n_samples| n_samples.to_string());
        rows.push([format!("lost, {}", loss.cause), n_samples]);
    }
    if totals.n_unaccounted() != 0 {
        let n_unaccounted = totals.n_unaccounted().to_string();
        rows.push(["unaccounted".to_owned(), n_unaccounted]);
    }
    table(&[], rows)
}

/// Returns a line about the table of a tool that reads Prometheus' blocks with these time ranges one
/// after the other. Empty if they do not overlap.
pub(crate) fn overlap_line(blocks: Vec<TimeRange>) -> &'static str {
    if have_overlaps(blocks) {
        "blocks overlap: a sample that several of them have counts for each\n"
    } else {
        ""
    }
}

/// Prints what became of the samples to standard error, if some are lost.
pub(crate) fn print_losses(totals: &SampleTotals, kept: &str) {
    if !totals.is_complete() {
        eprint!("\n{}", totals_table(totals, kept));
    }
}

/// Returns what became of the samples that were found as JSON.
pub(crate) fn totals_json(totals: &SampleTotals) -> Value {
    let mut losses = Vec::new();
    for loss in &totals.losses {
        losses.push(json!({"cause": loss.cause, "samples": loss.n_samples}));
    }
    json!({
        "found": totals.n_found,
        "kept": totals.n_kept,
        "covered": totals.n_covered,
        "duplicates": totals.n_duplicates,
        "deleted": totals.n_deleted,
        "notSelected": totals.n_filtered,
        "losses": losses,
        "unaccounted": totals.n_unaccounted(),
    })
}

/// Formats a timestamp as RFC 3339, or as milliseconds if it has no calendar date.
pub(crate) fn time(timestamp_ms: i64) -> String {
    Timestamp::from_millisecond(timestamp_ms)
        .map_or_else(|_| timestamp_ms.to_string(), |time| time.to_string())
}

/// Prints a table of Prometheus' blocks.
pub(crate) fn block_table(blocks: &[BlockMeta]) -> String {
    let rows = blocks.iter().map(|block| {
        [
            block.ulid.to_string(),
            time(block.min_ms),
            time(block.max_ms),
            block.stats.n_series.to_string(),
            block.stats.n_samples.to_string(),
        ]
    });
    table(&["block", "from", "to", "series", "samples"], rows)
}

/// Returns Prometheus' blocks as JSON.
pub(crate) fn blocks_json(blocks: &[BlockMeta]) -> Value {
    let mut listed = Vec::new();
    for block in blocks {
        listed.push(json!({
            "ulid": block.ulid.to_string(),
            "minTime": block.min_ms,
            "maxTime": block.max_ms,
            "series": block.stats.n_series,
            "samples": block.stats.n_samples,
            "chunks": block.stats.n_chunks,
        }));
    }
    Value::Array(listed)
}

/// A field of a report: its name in JSON, its label in a table, and its value.
pub(crate) type Field = (&'static str, &'static str, Value);

/// Returns the CPU time and peak memory of this process, as far as the system reports them.
pub(crate) fn cost_fields() -> Vec<Field> {
    let usage = process::usage(std::process::id()).ok();
    vec![
        (
            "cpuSeconds",
            "CPU seconds",
            json!(usage.map(|usage| usage.cpu.as_secs_f64())),
        ),
        (
            "peakBytes",
            "peak memory in bytes",
            json!(usage.map(|usage| usage.peak_bytes)),
        ),
    ]
}

/// Prints fields as a table, without those that are `null`.
pub(crate) fn field_table(fields: &[Field]) -> String {
    let mut rows = Vec::new();
    for (_, label, value) in fields {
        if value.is_null() {
            continue;
        }
        let text = match value.as_f64() {
            Some(number) if value.is_f64() => format!("{number:.3}"),
            _ => value.to_string(),
        };
        rows.push([(*label).to_owned(), text]);
    }
    table(&[], rows)
}

/// Returns fields and damage as JSON.
pub(crate) fn field_json(owner: &str, fields: &[Field], damage: &DamageReport) -> Value {
    let fields = fields
        .iter()
        .map(|(name, _, value)| ((*name).to_owned(), value.clone()));
    let mut json = Value::Object(fields.collect());
    json["owner"] = json!(owner);
    json["damage"] = json!(damage.entries().iter().map(damage_json).collect::<Vec<_>>());
    json["damageCount"] = json!(damage.n_damaged());
    json
}
