//! What all reports print alike: tables, faults, times, and what the work took.

use comfy_table::{CellAlignment, Table, presets};
use jiff::Timestamp;
use serde_json::{Value, json};
use varve_tsdb::fault::{Fault, FaultKind, Faults};

use super::Verdict;
use crate::process;

/// Faults that a table lists; JSON has all that were kept.
const FAULTS_LISTED: usize = 50;

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

/// Returns what faults make of a directory.
pub(super) fn verdict(faults: &Faults) -> Verdict {
    if faults.n_unsound() == 0 { Verdict::Sound } else { Verdict::Faults }
}

/// Lists faults, a line each, with an empty line in front; nothing if there are none.
pub(crate) fn fault_lines(faults: &Faults) -> String {
    let mut text = String::new();
    for fault in faults.kept().iter().take(FAULTS_LISTED) {
        let kind = fault.kind.name();
        text.push_str(&format!("\n{}: byte {}: {kind}: {}", fault.path.display(), fault.offset, fault.reason));
    }
    let n_faults = faults.n_unsound() + faults.count(FaultKind::TornTail);
    if n_faults > FAULTS_LISTED as u64 {
        text.push_str(&format!("\n... and {} more", n_faults - FAULTS_LISTED as u64));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Returns a fault as JSON.
pub(super) fn fault_json(fault: &Fault) -> Value {
    json!({"path": fault.path, "offset": fault.offset, "kind": fault.kind.name(), "reason": fault.reason})
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
