//! Glyphs and colours. What a colour says a glyph says too: bars can be read without colours, and without Unicode.

use ratatui::style::{Color, Modifier, Style};

/// What something is called.
pub(crate) const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
/// The tab that is open.
pub(crate) const CHOSEN: Style = TITLE.add_modifier(Modifier::REVERSED);

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whether there are colours.
    pub colour: bool,
    /// Whether there is more than ASCII.
    pub unicode: bool,
}

/// What a vCPU's time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Work,
    Awake,
    Halted,
    Stolen,
    Unknown,
}

impl Part {
    pub(crate) const KNOWN: [(Self, &str); 4] =
        [(Self::Work, "work"), (Self::Awake, "kept awake"), (Self::Halted, "halted"), (Self::Stolen, "stolen")];
}

impl Look {
    pub(crate) fn glyph(self, part: Part) -> char {
        match (part, self.unicode) {
            (Part::Work, true) => '█',
            (Part::Work, false) => '#',
            (Part::Awake, true) => '▒',
            (Part::Awake, false) => '=',
            (Part::Halted, true) => '·',
            (Part::Halted, false) => '.',
            (Part::Stolen, true) => '╳',
            (Part::Stolen, false) => 'x',
            (Part::Unknown, _) => '?',
        }
    }

    pub(crate) fn style(self, part: Part) -> Style {
        let colour = match part {
            Part::Work => Color::Green,
            Part::Awake => Color::Yellow,
            Part::Stolen => Color::Red,
            Part::Halted | Part::Unknown => Color::Reset,
        };
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// The height of `n` of `of`, in a strip.
    pub(crate) fn level(self, n: usize, of: usize) -> char {
        const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 8] = ['_', ':', '-', '=', '+', '*', '#', '@'];
        let levels = if self.unicode { UNICODE } else { ASCII };
        match (n * levels.len()).div_ceil(of.max(1)) {
            0 => self.glyph(Part::Halted),
            level => levels[level.min(levels.len()) - 1],
        }
    }

    /// At the end of a line that has no room.
    pub(crate) fn cut(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    /// What wants to be seen.
    pub(crate) fn alert(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colour { style.fg(Color::Red) } else { style }
    }
}
