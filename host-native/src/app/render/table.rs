//! Tables and figures as text, for people.

use std::fmt;

/// A line of cells.
pub(crate) fn row<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_string).to_vec()
}

/// Writes lines of cells under each other: the first `left` columns to the left, numbers to the right.
pub(crate) fn write_table(f: &mut fmt::Formatter<'_>, table: &[Vec<String>], left: usize) -> fmt::Result {
    let columns = table.first().map_or(0, Vec::len);
    let width = |column: usize| table.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in table {
        let mut text = String::from(" ");
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let cell = if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            text.push_str(if column == 0 { " " } else { "  " });
            text.push_str(&cell);
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

/// A share as a person reads it.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Slot-nanoseconds as a person reads them.
pub(crate) fn slot_seconds(slot_ns: u128) -> String {
    format_seconds(slot_ns as f64 / 1e9)
}

/// Seconds as a person reads them.
pub(crate) fn format_seconds(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..100.0 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}
