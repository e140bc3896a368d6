//! What all reports print alike: tables, damage, times, and what the work took.

use comfy_table::{CellAlignment, Table, presets};
use jiff::Timestamp;
use serde_json::{Value, json};
use varve_tsdb::fs::damage::{Damage, DamageKind, DamageReport};

use super::Verdict;
use crate::process;

/// DamageReport that a table lists; JSON has all that were kept.
const DAMAGE_LISTED: usize = 50;

/// Prints rows, with each column as wide as it needs and columns of numbers to the right.
pub(super) fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = rows.collect();
    let is_number = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header);
    }
    table.add_rows(&rows);
    for (place, column) in table.column_iter_mut().enumerate() {
        if rows.iter().filter_map(|row| row.get(place)).all(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns the verdict on a directory.
pub(super) fn verdict(damage: &DamageReport) -> Verdict {
    if damage.n_damaged() == 0 { Verdict::Sound } else { Verdict::Damaged }
}

/// Lists damage, a line each, with an empty line in front; nothing if there are none.
pub(crate) fn damage_lines(damage: &DamageReport) -> String {
    let mut text = String::new();
    for damage in damage.entries().iter().take(DAMAGE_LISTED) {
        let kind = damage.kind.name();
        text.push_str(&format!("\n{}: byte {}: {kind}: {}", damage.path.display(), damage.offset, damage.reason));
    }
    let n_damaged = damage.n_damaged() + damage.count(DamageKind::TornTail);
    if n_damaged > DAMAGE_LISTED as u64 {
        text.push_str(&format!("\n... and {} more", n_damaged - DAMAGE_LISTED as u64));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Returns an entry of a damage report as JSON.
pub(super) fn damage_json(damage: &Damage) -> Value {
    json!({"path": damage.path, "offset": damage.offset, "kind": damage.kind.name(), "reason": damage.reason})
}

/// Prints a time as RFC 3339 has it; one that no calendar has as milliseconds.
pub(crate) fn time(timestamp_ms: i64) -> String {
    Timestamp::from_millisecond(timestamp_ms).map_or_else(|_| timestamp_ms.to_string(), |time| time.to_string())
}

/// What this process has used up to now; `None` where the system does not tell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) cpu_s: Option<f64>,
    pub(super) peak_bytes: Option<u64>,
}

impl Cost {
    pub(super) fn now() -> Self {
        process::usage(std::process::id())
            .map(|usage| Self { cpu_s: Some(usage.cpu.as_secs_f64()), peak_bytes: Some(usage.peak_bytes) })
            .unwrap_or_default()
    }

    /// Returns it as rows of a table.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, String)> {
        let cpu = self.cpu_s.map(|cpu_s| ("seconds of CPU", format!("{cpu_s:.2}")));
        cpu.into_iter().chain(self.peak_bytes.map(|bytes| ("bytes of memory at most", bytes.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_go_to_the_right() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "5".to_owned()]];
        assert_eq!(table(&[], rows.into_iter()), " a     10\n long   5\n");
    }
}
