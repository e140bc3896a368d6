//! Tables of results, in Markdown.

/// Returns a Markdown table. All columns but the first are right-aligned.
pub(crate) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (cell, width) in row.iter().zip(&mut widths) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let rule: Vec<_> = widths.iter().map(|&width| "-".repeat(width)).collect();

    let mut text = line(header, &widths) + &line(&rule, &widths);
    for row in rows {
        text.push_str(&line(row, &widths));
    }
    text
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut padded = Vec::new();
    for (idx, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        padded.push(if idx == 0 {
            format!("{cell:<width$}")
        } else {
            format!("{cell:>width$}")
        });
    }
    format!("| {} |\n", padded.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let texts = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
        let table = table(
            &texts(["", "ms"]),
            &[texts(["médian", "1"]), texts(["a", "100"])],
        );
        assert_eq!(
            table,
            "|        |  ms |\n| ------ | --- |\n| médian |   1 |\n| a      | 100 |\n"
        );
    }
}
