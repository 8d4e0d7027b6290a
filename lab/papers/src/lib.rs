//! What the two papers say, as data, and whether what was simulated agrees.
//!
//! ```text
//!   gleaner/*.toml, micro/*.toml    a file for each table or figure: its title, its rows, by what each is judged
//!   simulators                      figures by name ([`Found`])
//!        |
//!   Table::rows                     a Row each: the paper's figure or words, ours, whether they agree, and why not
//! ```

mod row;
mod table;

pub use row::{AGREES_WITHIN, Basis, Row, within};
pub use table::{Found, Table};

/// Files by the identifiers of what they describe.
const FILES: [(&str, &str); 21] = [
    ("gleaner:table1", include_str!("../gleaner/table1.toml")),
    ("gleaner:table2", include_str!("../gleaner/table2.toml")),
    ("gleaner:fig1", include_str!("../gleaner/fig1.toml")),
    ("gleaner:fig2", include_str!("../gleaner/fig2.toml")),
    ("gleaner:fig5", include_str!("../gleaner/fig5.toml")),
    ("gleaner:fig7", include_str!("../gleaner/fig7.toml")),
    ("gleaner:fig8", include_str!("../gleaner/fig8.toml")),
    ("gleaner:fig9", include_str!("../gleaner/fig9.toml")),
    ("micro:table1", include_str!("../micro/table1.toml")),
    ("micro:fig2", include_str!("../micro/fig2.toml")),
    ("micro:fig3", include_str!("../micro/fig3.toml")),
    ("micro:fig5", include_str!("../micro/fig5.toml")),
    ("micro:fig6", include_str!("../micro/fig6.toml")),
    ("micro:fig6-network", include_str!("../micro/fig6-network.toml")),
    ("micro:fig9", include_str!("../micro/fig9.toml")),
    ("micro:fig7", include_str!("../micro/fig7.toml")),
    ("micro:fig8", include_str!("../micro/fig8.toml")),
    ("micro:fig10", include_str!("../micro/fig10.toml")),
    ("micro:fig11", include_str!("../micro/fig11.toml")),
    ("micro:fig12", include_str!("../micro/fig12.toml")),
    ("micro:combined", include_str!("../micro/combined.toml")),
];

/// What a paper says in one of its tables or figures.
///
/// # Panics
/// If there is no such file, or it is no table: they are part of the program.
pub fn table(id: &str) -> Table {
    let file = FILES.iter().find(|(of, _)| *of == id).map(|(_, text)| *text);
    let file = file.unwrap_or_else(|| panic!("no file for {id}"));
    toml::from_str(file).unwrap_or_else(|error| panic!("the file for {id}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_table() {
        for (id, _) in FILES {
            assert!(!table(id).title.is_empty(), "{id}");
        }
    }
}
