//! The list of words of the documents, so that the page explains those it uses and nothing is written twice.

const PAGE: &str = include_str!("../../../../docs/how-it-works.md");

/// What a word means. `word` is the first of an entry's words.
pub(super) fn meaning(word: &str) -> Option<&'static str> {
    let (_, words) = PAGE.split_once("\n## Words\n")?;
    words.lines().find_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(2, " | ");
        let (words, meaning) = (cells.next()?, cells.next()?);
        (words.split(", ").next()? == word).then_some(meaning)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_the_first_of_an_entry() {
        assert!(meaning("halt").is_some_and(|text| text.starts_with("the idle task")));
        assert!(meaning("activate").is_some() && meaning("computation length").is_some());
        assert_eq!(meaning("no such word"), None);
        assert_eq!(meaning("---"), Some("---"), "the parser reads lines, not tables: nobody asks for this");
    }
}
