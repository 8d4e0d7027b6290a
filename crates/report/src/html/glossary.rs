//! The glossary of the documents, so that the page explains the words it uses and nothing is written twice.

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");

/// What a word means. `word` is the first of an entry's words.
pub(super) fn meaning(word: &str) -> Option<&'static str> {
    GLOSSARY.lines().find_map(|line| {
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
