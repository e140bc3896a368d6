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

/// Returns the header of a table whose rows have [`ratio_cells`]: the servers' names, and after each
/// peer a column for the ratio of the first server to it.
pub(crate) fn ratio_header(names: &[&str]) -> Vec<String> {
    let mut header = vec![String::new()];
    for (i, name) in names.iter().enumerate() {
        header.push((*name).to_owned());
        if i > 0 {
            header.push(format!("{} / peer", names[0]));
        }
    }
    header
}

/// Returns the cells of a row: the first value, then each other value followed by the ratio of the
/// first value to it.
pub(crate) fn ratio_cells(medians: &[Option<f64>], decimals: usize) -> Vec<String> {
    let mut cells = Vec::new();
    for (i, &value) in medians.iter().enumerate() {
        cells.push(match value {
            Some(value) => format!("{value:.decimals$}"),
            None => "none".to_owned(),
        });
        if i > 0 {
            let ratio = medians[0]
                .zip(value)
                .filter(|(_, other)| *other != 0.0)
                .map(|(own, other)| own / other);
            cells.push(ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
        }
    }
    cells
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

    #[test]
    fn ratios_are_of_the_first_server_to_the_others() {
        assert_eq!(
            ratio_cells(&[Some(1.0), Some(4.0), None], 1),
            ["1.0", "4.0", "0.25", "none", "-"]
        );
        assert_eq!(ratio_cells(&[None, Some(0.0)], 0), ["none", "0", "-"]);
    }
}
