//! The terminal: taken, and given back however this ends. After kill -9 only `reset` helps.

use ratatui::DefaultTerminal;
use ratatui::buffer::{Buffer, Cell};
use std::io::{self, IsTerminal};

/// The whole terminal, in raw mode, without what was on it. Given back when this is dropped, and before a panic is
/// told.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    pub(crate) fn take() -> io::Result<Self> {
        // It sets the panic hook first.
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        Ok(Self { terminal })
    }

    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut ratatui::Frame)) -> io::Result<()> {
        self.terminal
            .draw(|frame| {
                picture(frame);
                defuse(frame.buffer_mut());
            })
            .map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Names are others': nothing in a picture steers a terminal.
pub(crate) fn defuse(buffer: &mut Buffer) {
    let harmful = |cell: &&mut Cell| matches!(gleaner_model::printable_text(cell.symbol()), std::borrow::Cow::Owned(_));
    for cell in buffer.content.iter_mut().filter(harmful) {
        cell.set_char('?');
    }
}

/// Why this terminal will not do; `None`: it will.
pub(crate) fn refusal() -> Option<&'static str> {
    if !io::stdout().is_terminal() {
        return Some("stdout is no terminal");
    }
    match std::env::var("TERM") {
        Ok(name) if name == "dumb" => Some("a terminal with TERM=dumb cannot move its cursor"),
        Ok(name) if !name.is_empty() => None,
        _ => Some("TERM is not set"),
    }
}
