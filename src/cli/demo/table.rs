//! The table that a play of calls ends with.

use super::score::{Score, Tally, Way};

const HEADS: [&str; 8] =
    ["way", "calls", "dispatches", "replays", "waits", "unknowns", "downstream commits", "duplicates"];

/// A row for each way, and one for all.
pub(super) fn render(score: &Score) -> String {
    let mut rows: Vec<[String; 8]> = vec![HEADS.map(str::to_owned)];
    rows.extend(Way::ALL.into_iter().map(|way| row(way.label(), score.of(way))));
    rows.push(row("all", &score.total()));
    lay_out(&rows, &[0])
}

/// Lines up the columns: those that hold texts on the left, the others on the right.
pub(super) fn lay_out<const N: usize>(rows: &[[String; N]], texts: &[usize]) -> String {
    let mut widths = [0_usize; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                if texts.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

fn row(label: &str, tally: &Tally) -> [String; 8] {
    [
        label.to_owned(),
        tally.calls.to_string(),
        tally.dispatches.to_string(),
        tally.replays.to_string(),
        tally.waits.to_string(),
        tally.unknowns.to_string(),
        tally.commits.to_string(),
        tally.duplicates.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut score = Score::default();
        score.add(Way::Lost, &Tally { calls: 1308, duplicates: 0, ..Tally::default() });
        let table = render(&score);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), Way::ALL.len() + 2);
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{table}");
        assert!(lines.last().unwrap().contains("1308"));
    }
}
