//! Warnings of the host agent, each printed once, when it comes up: its report comes only at its end.

/// A limit on what is kept for the report.
const MOST_WARNINGS: usize = 50;

/// How many of the warnings were said.
#[derive(Debug, Default)]
pub struct News {
    said: usize,
}

impl News {
    /// The warnings that were added since the last call. Those beyond what a report takes are said and not kept.
    pub fn of(&mut self, warnings: &mut Vec<String>) -> Vec<String> {
        let new = warnings.get(self.said..).unwrap_or_default().to_vec();
        warnings.truncate(MOST_WARNINGS);
        self.said = warnings.len();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_when_it_comes_up() {
        let mut news = News::default();
        let mut warnings = vec!["a".to_owned()];
        assert_eq!(news.of(&mut warnings), ["a"]);
        assert!(news.of(&mut warnings).is_empty());
        warnings.extend((0..MOST_WARNINGS).map(|n| n.to_string()));
        assert_eq!(news.of(&mut warnings).len(), MOST_WARNINGS);
        warnings.push("late".to_owned());
        assert_eq!(news.of(&mut warnings), ["late"]);
        assert_eq!(warnings.len(), MOST_WARNINGS);
    }
}
