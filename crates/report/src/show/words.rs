//! A document as the terminal prints it.

use super::table::{Cell, Table, Visibility};
use super::{Document, Part};
use comfy_table::{CellAlignment, ContentArrangement, presets};
use std::fmt;

/// Facts have their names in a column of this width at least.
const NAMES: usize = 10;

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            self.in_words().filter_map(|part| if let Part::Fact(name, _) = part { Some(name.len()) } else { None });
        let longest = names.max();
        let width = longest.unwrap_or(0).max(NAMES);
        let fact = |f: &mut fmt::Formatter<'_>, name: &str, lines: &[String]| {
            lines.iter().enumerate().try_for_each(|(at, line)| {
                writeln!(f, "{}{:<width$} {line}", self.indent, if at == 0 { name } else { "" })
            })
        };
        for part in self.in_words() {
            match part {
                Part::Line(_, text) => writeln!(f, "{text}")?,
                Part::Fact(name, lines) => fact(f, name, lines)?,
                Part::Note(text) if longest.is_some() || !self.indent.is_empty() => {
                    fact(f, "note", std::slice::from_ref(text))?;
                }
                Part::Note(text) => writeln!(f, "Note: {text}")?,
                Part::Table(table) => writeln!(f, "{table}")?,
                Part::Chart(_) => {}
            }
        }
        Ok(())
    }
}

/// Without a frame.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |at: usize, cell: &Cell| match cell.place {
            Visibility::Everywhere => true,
            Visibility::Filled => !self.is_empty(at),
            Visibility::Page => false,
        };
        let columns: Vec<usize> =
            self.columns().iter().enumerate().filter(|(at, cell)| shown(*at, cell)).map(|(at, _)| at).collect();
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(columns.iter().map(|&at| &self.columns()[at].column));
        for row in &self.rows {
            table.add_row(columns.iter().map(|&at| row.0.get(at).map_or("", |cell| cell.text.as_str())));
        }
        for (column, &at) in table.column_iter_mut().zip(&columns) {
            let is_words = at == 0 || self.columns()[at].is_words;
            column.set_cell_alignment(if is_words { CellAlignment::Left } else { CellAlignment::Right });
        }
        f.write_str(&table.trim_fmt())
    }
}
