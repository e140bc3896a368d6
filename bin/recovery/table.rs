//! Rows of text, in columns.

/// Prints rows with each column as wide as it needs; numbers to the right.
pub(super) fn print(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..n_columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            let padding = " ".repeat(width - cell.chars().count());
            let is_number = cell.starts_with(|c: char| c.is_ascii_digit());
            line.push_str(&if is_number { format!("{padding}{cell}  ") } else { format!("{cell}{padding}  ") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "5".to_owned(), "x".to_owned()]];
        assert_eq!(super::print(&rows), "a     10\nlong   5  x\n");
    }
}
