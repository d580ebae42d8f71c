//! Tables of words and numbers, as wide as they must be.

/// Between two columns.
const GAP: usize = 2;

fn width(text: &str) -> usize {
    text.chars().count()
}

fn widths<R: AsRef<[String]>>(rows: &[R]) -> Vec<usize> {
    let rows = rows.iter().map(AsRef::as_ref);
    let columns = rows.clone().map(<[String]>::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.clone().filter_map(|row| row.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or(0)
    };
    (0..columns).map(widest).collect()
}

/// All columns aligned left: words.
pub fn left<R: AsRef<[String]>>(rows: &[R]) -> String {
    render(rows, usize::MAX)
}

/// The first column aligned left, the others right: numbers.
pub fn numbers<R: AsRef<[String]>>(rows: &[R]) -> String {
    render(rows, 1)
}

/// The first `words` columns aligned left, the others right.
pub fn render<R: AsRef<[String]>>(rows: &[R], words: usize) -> String {
    let widths = widths(rows);
    let mut out = String::new();
    for row in rows {
        let row = row.as_ref();
        let mut line = String::new();
        for (column, (cell, wide)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { 0 } else { GAP };
            let fill = " ".repeat(wide.saturating_sub(width(cell)));
            line.push_str(&" ".repeat(gap));
            if column >= words {
                line.push_str(&fill);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&fill);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Long names of columns in as many lines as they have words, the last at the bottom.
pub fn header(names: &[&str]) -> Vec<Vec<String>> {
    let words: Vec<Vec<&str>> = names.iter().map(|name| name.split('_').collect()).collect();
    let lines = words.iter().map(Vec::len).max().unwrap_or(0);
    let word = |words: &Vec<&str>, line: usize| {
        let index = (line + words.len()).checked_sub(lines);
        let found = index.and_then(|index| words.get(index));
        found.map_or(String::new(), |word| (*word).to_owned())
    };
    let line = |line: usize| words.iter().map(|words| word(words, line)).collect();
    (0..lines).map(line).collect()
}

/// The table in blocks that fit in so many columns of a terminal: the first `fixed` columns
/// stand in each block.
pub fn blocks(rows: &[Vec<String>], fixed: usize, columns: Option<usize>) -> String {
    let widths = widths(rows);
    let most = columns.unwrap_or(usize::MAX);
    let kept: usize = widths.iter().take(fixed).map(|wide| wide + GAP).sum();
    let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = kept;
    for (column, wide) in widths.iter().enumerate().skip(fixed) {
        let more = wide + GAP;
        let full = used + more > most && blocks.last().is_some_and(|it| !it.is_empty());
        if full {
            blocks.push(Vec::new());
            used = kept;
        }
        used += more;
        if let Some(block) = blocks.last_mut() {
            block.push(column);
        }
    }
    let block = |block: &Vec<usize>| {
        let cells = |row: &Vec<String>| {
            let kept = row.iter().take(fixed);
            let own = block.iter().filter_map(|column| row.get(*column));
            kept.chain(own).cloned().collect::<Vec<_>>()
        };
        numbers(&rows.iter().map(cells).collect::<Vec<_>>())
    };
    blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// A time in milliseconds, three digits of it.
pub fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        let cells = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        rows.iter().map(cells).collect()
    }

    #[test]
    fn numbers_stand_below_each_other() {
        let table = rows(&[&["a", "x", "y"], &["long", "1", "100"]]);
        assert_eq!(numbers(&table), "a     x    y\nlong  1  100\n");
        assert_eq!(left(&table), "a     x  y\nlong  1  100\n");
        assert_eq!(render(&table, 2), "a     x    y\nlong  1  100\n");
    }

    #[test]
    fn names_of_columns_end_at_the_bottom() {
        let expected = rows(&[
            &["", "", "power"],
            &["", "round", "of"],
            &["auto", "robin", "two"],
        ]);
        assert_eq!(header(&["auto", "round_robin", "power_of_two"]), expected);
    }

    #[test]
    fn a_narrow_terminal_gets_the_table_in_blocks() {
        let table = rows(&[&["name", "aa", "bb", "cc"], &["n", "1", "2", "3"]]);
        assert_eq!(blocks(&table, 1, None), numbers(&table));
        let narrow = blocks(&table, 1, Some(14));
        assert_eq!(narrow, "name  aa  bb\nn      1   2\n\nname  cc\nn      3\n");
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!([6.123, 61.23, 612.3].map(millis), ["6.12", "61.2", "612"]);
    }
}
