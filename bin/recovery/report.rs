//! What all reports print alike: faults and times.

use jiff::Timestamp;
use serde_json::{Value, json};
use varve_tsdb::prometheus::fault::{Fault, FaultKind, Faults};

/// Faults that a table lists; JSON has all that were kept.
const FAULTS_LISTED: usize = 50;

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
pub(super) fn time(timestamp_ms: i64) -> String {
    Timestamp::from_millisecond(timestamp_ms).map_or_else(|_| timestamp_ms.to_string(), |time| time.to_string())
}
