//! What each result contributes to the page.

use super::answer::Answer;
use super::figure::{Figure, shortened};
use maud::{Markup, html};

/// One result's, or one group's, part of the page.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// What it is about.
    pub heading: String,
    /// Whether Gleaner helped, for each program that was compared: the first thing on the page.
    pub answers: Vec<Answer>,
    /// Plain sentences for the top of the page: what was compared, what it cost.
    pub summary: Vec<Markup>,
    pub figures: Vec<Figure>,
    /// Raw numbers.
    pub tables: Vec<Table>,
    /// What a command prints, kept as it is: for results without tables of their own.
    pub texts: Vec<String>,
    /// Words that `docs/glossary.md` explains and this section uses.
    pub terms: Vec<&'static str>,
    /// Machine, command lines and other facts, by name.
    pub facts: Vec<(String, String)>,
    /// What the reader should know about these numbers.
    pub notes: Vec<String>,
}

impl Section {
    pub fn new(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            answers: Vec::new(),
            summary: Vec::new(),
            figures: Vec::new(),
            tables: Vec::new(),
            texts: Vec::new(),
            terms: Vec::new(),
            facts: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A table: the first column to the left, numbers to the right.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub title: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Columns with words, to the left like the first.
    pub words: Vec<usize>,
    /// Shown only when asked for: it is long.
    pub folded: bool,
}

impl Table {
    pub fn new(title: impl Into<String>, header: &[&str]) -> Self {
        let header = header.iter().map(ToString::to_string).collect();
        Self { title: title.into(), header, ..Self::default() }
    }

    pub fn markup(&self) -> Markup {
        let columns = 0..self.header.len();
        let (empty, shown): (Vec<usize>, Vec<usize>) = columns.partition(|column| self.is_empty(*column));
        let left_out: Vec<&str> = empty.iter().map(|column| self.header[*column].as_str()).collect();
        let table = html! {
            div.scroll tabindex="0" { table {
                caption {
                    (&self.title)
                    @if !left_out.is_empty() { " (no row has: " (left_out.join(", ")) ")" }
                }
                thead { tr { @for &at in &shown {
                    th scope="col" class=[self.class_of(at)] { (self.header[at]) }
                } } }
                tbody { @for row in &self.rows { tr { @for &at in &shown {
                    td class=[self.class_of(at)] { @if let Some(cell) = row.get(at) { (cell) } }
                } } } }
            } }
        };
        if self.folded {
            html! { details { summary { (&self.title) " (" (self.rows.len()) " rows)" } (table) } }
        } else {
            table
        }
    }

    /// Whether no row says anything in this column. The first names the rows and stays.
    fn is_empty(&self, column: usize) -> bool {
        let says = |row: &Vec<String>| row.get(column).is_some_and(|cell| !["", "-"].contains(&cell.as_str()));
        column > 0 && !self.rows.iter().any(says)
    }

    fn class_of(&self, column: usize) -> Option<&'static str> {
        (column > 0 && !self.words.contains(&column)).then_some("number")
    }
}

/// A command line as one would type it, cut when it is long.
pub(super) fn command_line(command: &[String], most: usize) -> String {
    let quoted = |word: &String| {
        let plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,+@%^".contains(c));
        if plain { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    shortened(&command.iter().map(quoted).collect::<Vec<_>>().join(" "), most)
}

/// The program's name without its folder, and the word after it where that names what it does: `sysbench mutex`.
/// `gleaner workload relay` is `relay`, and of a shell it is the script.
pub(super) fn program(command: &[String]) -> String {
    if let [own, workload, name, ..] = command
        && (own == "gleaner" || own.ends_with("/gleaner"))
        && workload == "workload"
    {
        return shortened(name, 40);
    }
    if let [shell, option, script, ..] = command
        && ["sh", "bash", "dash", "zsh"].contains(&shell.rsplit('/').next().unwrap_or(shell))
        && option == "-c"
    {
        return shortened(script, 34);
    }
    let name = command.first().map_or("?", |first| first.rsplit('/').next().unwrap_or(first));
    let is_verb =
        |word: &&String| word.starts_with(char::is_alphabetic) && word.chars().all(|c| c.is_alphanumeric() || c == '-');
    match command.get(1).filter(is_verb) {
        Some(verb) => shortened(&format!("{name} {verb}"), 40),
        None => shortened(name, 40),
    }
}

/// A program's own words: `like this` is a command, and 95 % stay on one line.
pub(super) fn prose(text: &str) -> Markup {
    let text = text.replace(" %", "\u{a0}%");
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// With a capital at its beginning and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut all = text.chars();
    let first = all.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let rest = all.as_str();
    format!("{first}{rest}{}", if rest.ends_with(['.', '!', '?']) { "" } else { "." })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(command_line(&words(&["sh", "-c", "echo 'a b'; ls", ""]), 80), "sh -c 'echo '\\''a b'\\''; ls' ''");
        assert_eq!(program(&words(&["/usr/bin/make", "-j4"])), "make");
        assert_eq!(program(&words(&["/usr/bin/sysbench", "mutex", "run"])), "sysbench mutex");
        assert_eq!(program(&words(&["gzip", "big.tar"])), "gzip");
        assert_eq!(program(&words(&["target/gleaner", "workload", "relay", "--threads", "2"])), "relay");
        assert_eq!(program(&words(&["/bin/sh", "-c", "make -B | tail"])), "make -B | tail");
        assert_eq!(program(&[]), "?");
        assert_eq!(prose("try `a <b>`: 5 %").into_string(), "try <code>a &lt;b&gt;</code>: 5\u{a0}%");
    }

    #[test]
    fn a_table_escapes_and_folds() {
        let mut table = Table::new("t", &["a", "b"]);
        table.rows.push(words(&["<b>", "2"]));
        let shown = table.markup().into_string();
        assert!(shown.contains("&lt;b&gt;") && shown.contains("<td class=\"number\">2</td>"), "{shown}");
        assert!(!shown.contains("<details>"));
        table.rows.push(words(&["c", "-"]));
        assert!(table.markup().into_string().contains("<td class=\"number\">-</td>"), "unknown in one row only");
        table.folded = true;
        assert!(table.markup().into_string().contains("<details><summary>t (2 rows)"));
    }

    #[test]
    fn a_column_without_a_word_is_left_out_and_named() {
        let mut table = Table::new("t", &["a", "b", "c", "d"]);
        table.rows = vec![words(&["-", "-", "", "4"]), words(&["-", "-", "", "-"])];
        let shown = table.markup().into_string();
        assert!(shown.contains("<caption>t (no row has: b, c)</caption>"), "{shown}");
        assert_eq!((shown.matches("<th ").count(), shown.matches("<td").count()), (2, 4), "{shown}");
    }
}
