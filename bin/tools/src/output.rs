//! Output of the tools: the flag `--output`, and tables that fit the terminal.

use clap::{Args, ValueEnum};
use serde::Serialize;

/// Minimum width of a column that is cut to fit the terminal.
const COLUMN_WIDTH_MIN: usize = 8;
/// Spaces before each column.
const GAP: usize = 2;

/// The output format.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        default_value = "table",
        alias = "format"
    )]
    pub(crate) output: Output,
}

/// Values of `--output`. The other names are those of promtool and of earlier versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    #[value(aliases = ["promql", "text"])]
    Table,
    Json,
}

impl OutputArgs {
    /// Prints a report as `table`, which ends with a line feed, or as `json`.
    pub(crate) fn print<T: Serialize>(
        self,
        table: impl FnOnce() -> String,
        json: impl FnOnce() -> T,
    ) {
        print!("{}", self.format(table, json));
    }

    /// Returns the output of [`Self::print`].
    pub(crate) fn format<T: Serialize>(
        self,
        table: impl FnOnce() -> String,
        json: impl FnOnce() -> T,
    ) -> String {
        match self.output {
            Output::Table => table(),
            Output::Json => {
                let json = serde_json::to_string_pretty(&json());
                json.expect("reports are strings, numbers, lists and maps of them") + "\n"
            }
        }
    }
}

/// Returns rows in columns, with numbers right-aligned. If standard output is a terminal, long
/// cells are cut to fit it, and rows that are still too long.
pub(crate) fn table<R: AsRef<[String]>>(
    header: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> String {
    table_within(header, rows, terminal_width())
}

/// Returns the width of standard output, if it is a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0))
}

/// Returns a table like [`table`], cut to a width.
pub(crate) fn table_within<R: AsRef<[String]>>(
    header: &[&str],
    rows: impl IntoIterator<Item = R>,
    width_max: Option<usize>,
) -> String {
    let rows: Vec<R> = rows.into_iter().collect();
    let n_columns = rows
        .iter()
        .map(|row| row.as_ref().len())
        .max()
        .unwrap_or(0)
        .max(header.len());
    let mut are_numbers = vec![true; n_columns];
    let mut widths = vec![0; n_columns];
    for (idx, head) in header.iter().enumerate() {
        widths[idx] = head.chars().count();
    }
    for row in &rows {
        for (idx, cell) in row.as_ref().iter().enumerate() {
            are_numbers[idx] &= is_number(cell);
            widths[idx] = widths[idx].max(cell.chars().count());
        }
    }

    // Columns of texts are cut, the widest first.
    while widths.iter().map(|width| width + GAP).sum::<usize>() > width_max.unwrap_or(usize::MAX) {
        let texts = widths
            .iter_mut()
            .zip(&are_numbers)
            .filter(|(_, is_number)| !**is_number);
        match texts.map(|(width, _)| width).max() {
            Some(widest) if *widest > COLUMN_WIDTH_MIN => *widest -= 1,
            _ => break,
        }
    }
    let mut lines = Vec::new();
    if !header.is_empty() {
        lines.push(line(header, &widths, &are_numbers));
    }
    for row in &rows {
        lines.push(line(row.as_ref(), &widths, &are_numbers));
    }
    let mut text = String::new();
    for line in lines {
        text.push_str(&cut(line.trim_end(), width_max.unwrap_or(usize::MAX)));
        text.push('\n');
    }
    text
}

fn line(row: &[impl AsRef<str>], widths: &[usize], are_numbers: &[bool]) -> String {
    let mut line = String::new();
    for (idx, cell) in row.iter().enumerate() {
        let width = widths[idx];
        let cell = cut(cell.as_ref(), width);
        line.push_str(&" ".repeat(GAP));
        line.push_str(&if are_numbers[idx] {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        });
    }
    line
}

/// Returns `true` if a cell is a number, possibly with a unit.
fn is_number(cell: &str) -> bool {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    !number.is_empty()
        && unit.len() <= 3
        && number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".-%".contains(&byte))
}

/// Returns the start of a cell, which ends with an ellipsis if it is cut.
fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    cell.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(width: Option<usize>, expect: &str) {
        let rows = [
            ["a", "10", "x"],
            ["a long name of a metric", "5.5 KiB", "y"],
        ]
        .map(|row| row.map(str::to_owned));
        assert_eq!(
            table_within(&["metric", "size", "team"], rows, width),
            expect
        );
    }

    #[test]
    fn numbers_are_right_aligned_and_long_texts_are_cut_to_the_terminal() {
        let whole = "  metric                      size  team\n  a                             10  x\n  a long name of a metric  5.5 KiB  y\n";
        check(None, whole);
        check(Some(41), whole);
        check(
            Some(30),
            "  metric            size  team\n  a                   10  x\n  a long name …  5.5 KiB  y\n",
        );
        // Columns do not become narrower than this.
        check(
            Some(25),
            "  metric       size  team\n  a              10  x\n  a long …  5.5 KiB  y\n",
        );
        check(Some(12), "  metric   …\n  a        …\n  a long … …\n");
        assert_eq!(
            table_within(&[], [vec!["a".to_owned(), "10".to_owned()]], None),
            "  a  10\n"
        );
    }
}
