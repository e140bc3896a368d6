//! Tables of results, in Markdown.

/// Returns a Markdown table. All columns but the first are right-aligned.
pub(crate) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let width = |idx: usize| {
        rows.iter()
            .map(|row| row[idx].chars().count())
            .chain([header[idx].chars().count()])
            .max()
    };
    let widths: Vec<usize> = (0..header.len())
        .map(|idx| width(idx).unwrap_or(0))
        .collect();
    let line = |cells: &[String]| {
        let pad = |(idx, (cell, &width)): (usize, (&String, &usize))| match idx {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        };
        let cells: Vec<_> = cells.iter().zip(&widths).enumerate().map(pad).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<_> = widths.iter().map(|&width| "-".repeat(width)).collect();
    [header, &rule]
        .into_iter()
        .chain(rows.iter().map(Vec::as_slice))
        .map(line)
        .collect()
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
