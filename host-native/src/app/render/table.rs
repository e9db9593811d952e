//! Text tables for the terminal, and the format of the figures in them.

use std::fmt;

use comfy_table::{CellAlignment, Table};

/// Spaces before and after the text of a cell. They separate the columns and indent the table.
const PADDING: (u16, u16) = (2, 0);

/// Creates a table row from string slices.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_string).to_vec()
}

/// Writes a table without borders, one line per row. The first `left_aligned` columns are aligned to the left
/// and the others, which hold numbers, to the right.
pub(crate) fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>], left_aligned: usize) -> fmt::Result {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding(PADDING);
        column.set_cell_alignment(if index < left_aligned { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
}

/// Formats a fraction from 0 to 1 as a percentage with one decimal, such as `12.5 %`.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

/// Formats slot-nanoseconds as slot-seconds; see [`format_seconds`].
pub(crate) fn slot_seconds(slot_ns: u128) -> String {
    format_seconds(slot_ns as f64 / 1e9)
}

/// Formats a duration in seconds: `250 ms` below one second, `1.5 s` below 100 seconds, and `240 s` above.
pub(crate) fn format_seconds(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..100.0 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

/// Formats a number of bytes with a decimal unit, such as `1.2 MB`.
pub(crate) fn format_bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let mut unit = 0;
    let mut value = count as f64;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_indented_and_has_no_borders_and_no_trailing_spaces() {
        struct Rows(Vec<Vec<String>>);
        impl fmt::Display for Rows {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_table(f, &self.0, 1)
            }
        }
        let table = Rows(vec![row(["provider", "calls", ""]), row(["mock/é", "12345678", "x"]), row(["", "1", ""])]);
        assert_eq!(table.to_string(), "  provider     calls\n  mock/é    12345678  x\n                   1\n");
        assert_eq!(Rows(Vec::new()).to_string(), "");
    }

    #[test]
    fn bytes_are_formatted_in_the_largest_unit_that_gives_at_least_one() {
        let written = [0, 999, 1_000, 1_234_567, 5_000_000_000_000_000].map(format_bytes);
        assert_eq!(written, ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "5000.0 TB"]);
    }
}
