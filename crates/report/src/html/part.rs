//! One part of a document as HTML.

use crate::show::{Table, Tone};
use maud::{Markup, html};

/// `like this` is a command, and 95 % stay on one line.
pub(super) fn prose(text: &str) -> Markup {
    let text = text.replace(" %", "\u{a0}%");
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

pub(super) fn paragraph(tone: Tone, text: &str) -> Markup {
    let class = match tone {
        Tone::Plain => return html! { p { (prose(text)) } },
        Tone::Verdict => "verdict",
        Tone::Bad => "hurts",
    };
    html! { p { span class=(class) { (prose(text)) } } }
}

/// A name and what is said of it.
pub(super) fn fact(name: &str, lines: &[String]) -> Markup {
    html! { dt { (name) } dd { @for (at, line) in lines.iter().enumerate() { @if at > 0 { br; } (prose(line)) } } }
}

/// A table. Columns in which no row says anything are named instead.
pub(super) fn table(table: &Table) -> Markup {
    let columns = table.columns();
    // The first names the rows and stays.
    let (empty, shown): (Vec<usize>, Vec<usize>) =
        (0..columns.len()).partition(|&column| column > 0 && table.is_empty(column));
    let left_out: Vec<&str> = empty.iter().map(|&column| columns[column].column.as_str()).collect();
    let class = |at: usize| (at > 0 && !columns[at].is_words).then_some("number");
    let markup = html! {
        div.scroll tabindex="0" { table {
            caption {
                (&table.title)
                @if !left_out.is_empty() { " (no row has: " (left_out.join(", ")) ")" }
            }
            thead { tr { @for &at in &shown { th scope="col" class=[class(at)] { (columns[at].column) } } } }
            tbody { @for row in &table.rows { tr { @for &at in &shown {
                td class=[class(at)] { @if let Some(cell) = row.0.get(at) { (cell.text) } }
            } } } }
        } }
    };
    if table.folded {
        html! { details { summary { (&table.title) " (" (table.rows.len()) " rows)" } (markup) } }
    } else {
        markup
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Row;

    #[test]
    fn commands_stand_out() {
        assert_eq!(prose("try `a <b>`: 5 %").into_string(), "try <code>a &lt;b&gt;</code>: 5\u{a0}%");
    }

    #[test]
    fn a_table_escapes_and_folds() {
        let mut of = Table::new("t", [Row::default().text("a", "<b>").number("b", 2_u64)]);
        let shown = table(&of).into_string();
        assert!(shown.contains("&lt;b&gt;") && shown.contains("<td class=\"number\">2</td>"), "{shown}");
        assert!(!shown.contains("<details>"));
        of.rows.push(Row::default().text("a", "c").number("b", None::<u64>));
        assert!(table(&of).into_string().contains("<td class=\"number\">-</td>"), "unknown in one row only");
        of.folded = true;
        assert!(table(&of).into_string().contains("<details><summary>t (2 rows)"));
    }

    #[test]
    fn a_column_without_a_word_is_left_out_and_named() {
        let row = |d| Row::default().text("a", "-").text("b", "-").text("c", "").number("d", d);
        let shown = table(&Table::new("t", [row("4"), row("-")])).into_string();
        assert!(shown.contains("<caption>t (no row has: b, c)</caption>"), "{shown}");
        assert_eq!((shown.matches("<th ").count(), shown.matches("<td").count()), (2, 4), "{shown}");
    }
}
