//! Tables: rows that name their columns, so that a column is one line of code.

use crate::text::{UNKNOWN, fixed, known, percent, time};

/// Rows, each with the same columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub title: String,
    pub rows: Vec<Row>,
    /// The page shows it only when asked for: it is long.
    pub folded: bool,
}

impl Table {
    pub fn new(title: impl Into<String>, rows: impl IntoIterator<Item = Row>) -> Self {
        Self { title: title.into(), rows: rows.into_iter().collect(), folded: false }
    }

    /// The columns: those of the first row.
    pub fn columns(&self) -> &[Cell] {
        self.rows.first().map_or(&[], |row| &row.0)
    }

    /// Whether no row says anything in this column.
    pub fn is_empty(&self, column: usize) -> bool {
        let says = |row: &Row| row.0.get(column).is_some_and(|cell| !["", UNKNOWN].contains(&cell.text.as_str()));
        !self.rows.iter().any(says)
    }
}

/// A row, built cell by cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row(pub Vec<Cell>);

/// What a row says in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub column: String,
    pub text: String,
    /// Words stand to the left, numbers to the right.
    pub is_words: bool,
    pub place: Visibility,
}

/// Where a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Everywhere,
    /// In the terminal only where a row says something in it.
    Filled,
    Page,
}

impl Row {
    fn cell(mut self, column: impl Into<String>, text: String, is_words: bool) -> Self {
        self.0.push(Cell { column: column.into(), text, is_words, place: Visibility::Everywhere });
        self
    }

    /// Words; a dash for none.
    pub fn text(self, column: impl Into<String>, text: impl Value) -> Self {
        self.cell(column, text.told(), true)
    }

    /// A number, or what else stands to the right.
    pub fn number(self, column: impl Into<String>, number: impl Value) -> Self {
        self.cell(column, number.told(), false)
    }

    /// Nanoseconds.
    pub fn time(self, column: impl Into<String>, ns: impl Into<Option<u64>>) -> Self {
        self.cell(column, time(ns), false)
    }

    /// With so many decimals.
    pub fn fixed(self, column: impl Into<String>, value: impl Into<Option<f64>>, decimals: usize) -> Self {
        self.cell(column, fixed(value, decimals), false)
    }

    /// A ratio in per cent.
    pub fn percent(self, column: impl Into<String>, ratio: impl Into<Option<f64>>) -> Self {
        self.cell(column, known(ratio.into().map(percent)), false)
    }

    /// The last column is left out in the terminal where no row says anything in it.
    pub fn filled(self) -> Self {
        self.placed(Visibility::Filled)
    }

    /// The last column is for the page alone.
    pub fn page(self) -> Self {
        self.placed(Visibility::Page)
    }

    fn placed(mut self, place: Visibility) -> Self {
        if let Some(cell) = self.0.last_mut() {
            cell.place = place;
        }
        self
    }
}

/// What a cell can say; nothing is a dash.
pub trait Value {
    fn told(self) -> String;
}

macro_rules! values {
    ($($of:ty),*) => { $(
        impl Value for $of {
            fn told(self) -> String {
                self.to_string()
            }
        }
    )* };
}

values!(String, &String, &str, u8, u32, u64, usize, i32, i64);

impl<T: Value> Value for Option<T> {
    fn told(self) -> String {
        known(self.map(Value::told))
    }
}
