//! Tables: columns that stand below each other where the terminal is wide enough, else one cell a line.

use super::glyphs::{Glyph, Style, columns, glyphs};
use super::inline::Inline;
use super::wrap::fold;

/// No column is made narrower than this.
const COLUMN_MIN: usize = 6;
/// Between two columns: a line with a blank on both sides.
const BETWEEN: &str = " │ ";

#[derive(Clone, Copy, PartialEq)]
enum Alignment {
    Left,
    Middle,
    Right,
}

/// A table as it was written, one string a line.
pub(super) struct Table {
    alignments: Vec<Alignment>,
    /// The first row is the head.
    rows: Vec<Vec<Vec<Glyph>>>,
}

/// Whether this line, which follows the head of a table, makes it one.
pub(super) fn is_delimiter(line: &str) -> bool {
    let cells = cells(line);
    let dashes = |cell: &str| {
        let dashes = cell.strip_prefix(':').unwrap_or(cell);
        let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
        !dashes.is_empty() && dashes.chars().all(|c| c == '-')
    };
    !cells.is_empty() && cells.iter().all(|cell| dashes(cell))
}

/// The texts between the bars; a bar behind a backslash is text.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let (mut cells, mut escaped) = (vec![String::new()], false);
    for c in line.chars() {
        let cell = cells.last_mut().expect("there is one from the start");
        match c {
            '|' if escaped => {
                cell.pop();
                cell.push('|');
            }
            '|' => cells.push(String::new()),
            _ => cell.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    if cells.last().is_some_and(|cell| cell.trim().is_empty()) {
        cells.pop();
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

impl Table {
    /// Of a head, a line of dashes and rows, which have as many cells as the head.
    pub(super) fn new(lines: &[String]) -> Self {
        let head = cells(&lines[0]).len().max(1);
        let alignment = |cell: &String| match (cell.starts_with(':'), cell.ends_with(':')) {
            (true, true) => Alignment::Middle,
            (false, true) => Alignment::Right,
            _ => Alignment::Left,
        };
        let mut alignments: Vec<_> = cells(&lines[1]).iter().map(alignment).collect();
        alignments.resize(head, Alignment::Left);
        let row = |(nth, line): (usize, &String)| {
            let style = if nth == 0 { Style::BOLD } else { Style::PLAIN };
            let mut row: Vec<_> = cells(line).iter().map(|cell| Inline::whole(cell, style)).collect();
            row.resize(head, Vec::new());
            row
        };
        let rows = lines.iter().enumerate().filter(|(nth, _)| *nth != 1).map(row).collect();
        Self { alignments, rows }
    }

    /// All lines of it, each with its line feed.
    pub(super) fn draw(&self, width: Option<usize>) -> Vec<Glyph> {
        match self.widths(width) {
            Some(widths) => self.side_by_side(&widths),
            None => self.one_below_another(width),
        }
    }

    /// Columns that the widest cells need, taken from the widest ones until they fit; `None` if they cannot.
    fn widths(&self, width: Option<usize>) -> Option<Vec<usize>> {
        let widest = |nth: usize| self.rows.iter().map(|row| columns(&row[nth])).max().unwrap_or(0).max(1);
        let mut widths: Vec<_> = (0..self.alignments.len()).map(widest).collect();
        let Some(width) = width else { return Some(widths) };
        let room = width.checked_sub(columns(&between()) * (widths.len() - 1))?;
        while widths.iter().sum::<usize>() > room {
            let widest = widths.iter_mut().max().filter(|widest| **widest > COLUMN_MIN)?;
            *widest -= 1;
        }
        Some(widths)
    }

    fn side_by_side(&self, widths: &[usize]) -> Vec<Glyph> {
        let mut out = Vec::new();
        for (nth, row) in self.rows.iter().enumerate() {
            self.draw_row(row, widths, &mut out);
            if nth == 0 {
                let dashes: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                out.extend(glyphs(&dashes.join("─┼─"), Style::DIM));
                out.push(('\n', Style::PLAIN));
            }
        }
        out
    }

    fn draw_row(&self, row: &[Vec<Glyph>], widths: &[usize], out: &mut Vec<Glyph>) {
        let folded: Vec<_> = row.iter().zip(widths).map(|(cell, width)| fold(cell, *width)).collect();
        let height = folded.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            for (nth, cell) in folded.iter().enumerate() {
                if nth > 0 {
                    out.extend(between());
                }
                let text = cell.get(line).map_or(&[][..], Vec::as_slice);
                let last = nth + 1 == folded.len();
                draw_cell(text, widths[nth], self.alignments[nth], last, out);
            }
            out.push(('\n', Style::PLAIN));
        }
    }

    /// Each cell on a line of its own behind its column's name, and a blank line between two rows.
    fn one_below_another(&self, width: Option<usize>) -> Vec<Glyph> {
        let (head, rows) = self.rows.split_first().expect("a table has a head");
        let mut out = Vec::new();
        for (nth, row) in rows.iter().enumerate() {
            if nth > 0 {
                out.push(('\n', Style::PLAIN));
            }
            for (name, cell) in head.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
                let line = [name, glyphs(": ", Style::BOLD).collect::<Vec<_>>().as_slice(), cell].concat();
                for row in fold(&line, width.unwrap_or(usize::MAX)) {
                    out.extend(row);
                    out.push(('\n', Style::PLAIN));
                }
            }
        }
        out
    }
}

/// The text with blanks around it; none behind the last cell of a row.
fn draw_cell(text: &[Glyph], width: usize, alignment: Alignment, last: bool, out: &mut Vec<Glyph>) {
    let free = width.saturating_sub(columns(text));
    let before = match alignment {
        Alignment::Left => 0,
        Alignment::Middle => free / 2,
        Alignment::Right => free,
    };
    let behind = if last { 0 } else { free - before };
    out.extend(std::iter::repeat_n((' ', Style::PLAIN), before));
    out.extend_from_slice(text);
    out.extend(std::iter::repeat_n((' ', Style::PLAIN), behind));
}

fn between() -> Vec<Glyph> {
    glyphs(BETWEEN, Style::DIM).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| Name | Age | Notes |\n|:--|--:|:-:|\n| Ada | 36 | wrote the **first** program |\n\
                         | 中文 | 7 | a\\|b |\n| one |";

    fn drawn(width: Option<usize>) -> Vec<String> {
        let lines: Vec<String> = TABLE.lines().map(str::to_owned).collect();
        assert!(is_delimiter(&lines[1]));
        let text: String = Table::new(&lines).draw(width).iter().map(|(c, _)| *c).collect();
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_stand_below_each_other() {
        let want = [
            "Name │ Age │          Notes",
            "─────┼─────┼────────────────────────",
            "Ada  │  36 │ wrote the first program",
            "中文 │   7 │           a|b",
            "one  │     │",
        ];
        let got = drawn(Some(80));
        assert_eq!(got[0], want[0]);
        assert_eq!(got[2..], want[2..]);
        assert_eq!(columns(&glyphs(&got[1], Style::PLAIN).collect::<Vec<_>>()), 4 + 3 + 3 + 3 + 23);
        assert_eq!(drawn(None), got);
    }

    #[test]
    fn a_narrow_terminal_folds_cells_and_a_very_narrow_one_lists_them() {
        assert_eq!(drawn(Some(24))[2..4], ["Ada  │  36 │  wrote the", "     │     │    first"]);
        let narrow = drawn(Some(12));
        assert_eq!(narrow[..5], ["Name: Ada", "Age: 36", "Notes: wrote", "the first", "program"]);
        for width in 1..60 {
            for line in drawn(Some(width)) {
                let wide = columns(&glyphs(&line, Style::PLAIN).collect::<Vec<_>>());
                assert!(wide <= width.max(2), "{line:?} in {width}");
            }
        }
    }

    #[test]
    fn a_delimiter_is_made_of_dashes() {
        for (line, is) in
            [("|---|:-:|", true), ("|-|", true), ("| a | - |", false), ("||", false), ("|", false), ("| : |", false)]
        {
            assert_eq!(is_delimiter(line), is, "{line}");
        }
    }
}
