//! Tables, times and sizes as promtool prints them.

use jiff::Timestamp;
use varve_promql::decimal::Plain;
use varve_system::quantity::print_size;

/// Minimum width of a column.
const WIDTH_MIN: usize = 13;
const PADDING: usize = 2;

/// Prints rows. Each column except the last is as wide as its longest cell plus two, at least 13.
pub(super) fn print<'a>(rows: impl IntoIterator<Item = &'a Vec<String>>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let n_columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let mut widths = vec![WIDTH_MIN; n_columns];
    for row in &rows {
        for (cell, width) in row.iter().zip(&mut widths) {
            *width = (*width).max(cell.chars().count() + PADDING);
        }
    }
    let mut text = String::new();
    for row in rows {
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let is_last = i + 1 == row.len();
            text.push_str(&if is_last {
                cell.clone()
            } else {
                format!("{cell:<width$}")
            });
        }
        text.push('\n');
    }
    text
}

/// Returns a time in milliseconds, or human-readable in UTC seconds.
pub(super) fn time(timestamp_ms: i64, human_readable: bool) -> String {
    let second = timestamp_ms / 1000 * 1000;
    match Timestamp::from_millisecond(second) {
        Ok(time) if human_readable => time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        _ => timestamp_ms.to_string(),
    }
}

/// Returns a size in bytes, or human-readable with all units, `30KiB250B`.
pub(super) fn size(bytes: u64, human_readable: bool) -> String {
    if !human_readable {
        return bytes.to_string();
    }
    print_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Returns a duration as Go prints it: `12m0s`, `5m59.922s`, `2h0m0s`.
pub(super) fn duration(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    if ms == 0 {
        return "0s".to_owned();
    }
    if ms < 1000 {
        return format!("{sign}{ms}ms");
    }
    let hours = ms / 3_600_000;
    let minutes = ms / 60_000 % 60;
    let seconds = Plain((ms % 60_000) as f64 / 1000.0);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_a_minimum_width() {
        let rows = [
            vec!["a".to_owned(), "b".to_owned()],
            vec!["long enough to be wider".to_owned(), "c".to_owned()],
        ];
        assert_eq!(
            print(&rows),
            "a                        b\nlong enough to be wider  c\n"
        );
        assert_eq!(
            print(&[vec!["a".to_owned(), "b".to_owned()]]),
            "a            b\n"
        );
    }

    #[test]
    fn times_and_sizes_can_be_human_readable() {
        assert_eq!(time(1_795_251_960_999, false), "1795251960999");
        assert_eq!(
            time(1_795_251_960_999, true),
            "2026-11-21 09:06:00 +0000 UTC"
        );
        assert_eq!(
            (size(30_970, false), size(30_970, true)),
            ("30970".to_owned(), "30KiB250B".to_owned())
        );
        assert_eq!(
            (size(0, true), size(1 << 30, true)),
            ("0B".to_owned(), "1GiB".to_owned())
        );
    }

    #[test]
    fn durations_are_printed_as_in_go() {
        let all = [
            (0, "0s"),
            (5, "5ms"),
            (1500, "1.5s"),
            (359_922, "5m59.922s"),
            (7_200_000, "2h0m0s"),
            (-60_000, "-1m0s"),
        ];
        for (ms, expect) in all {
            assert_eq!(duration(ms), expect);
        }
    }
}
