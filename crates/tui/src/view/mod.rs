//! The picture: lines of text for each part, and how much room each gets.
//!
//! ```text
//!   header     which machine, by what means, since when
//!   vcpus      a bar for each vCPU, or several in a row
//!   tabs       groups
//!   group      figures, active set over time, decisions as they fall
//!   footer     keys, or what came of the last one
//! ```

mod bar;
mod group;
mod header;
mod vcpus;
mod words;

use crate::app::{App, Order};
use crate::look::{Look, TITLE};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

/// Rows of decisions that there should be room for, at least.
const DECISIONS_MIN: u16 = 4;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame, app: &App, look: Look) {
    let area = frame.area();
    let mut rest = area;
    let footer = take_last(&mut rest, 1);
    show(frame, footer, vec![footer_line(app)], look);
    let header = header::lines(app, look, area.width);
    show(frame, take(&mut rest, header.len()), header, look);
    if app.help {
        show(frame, rest, help(), look);
        return;
    }
    let Some(status) = app.status() else {
        show(frame, rest, vec![Line::raw("Nothing is known yet.")], look);
        return;
    };
    let tabs = group::tabs(app, area.width);
    let figures = group::figures(app, look, area.width);
    // What vCPUs may have: what the group and its newest decisions leave, or a third of the screen.
    let rows = vcpus::rows(status);
    let below = u16::try_from(tabs.len() + figures.len()).unwrap_or(0) + DECISIONS_MIN;
    let most = rest.height.saturating_sub(below).max(rest.height / 3);
    let vcpus = vcpus::lines(&rows, status, app.scroll, look, (area.width, most));
    show(frame, take(&mut rest, vcpus.len()), vcpus, look);
    show(frame, take(&mut rest, tabs.len()), tabs, look);
    show(frame, take(&mut rest, figures.len()), figures, look);
    let decisions = Paragraph::new(group::decisions(app, usize::from(rest.height)));
    frame.render_widget(decisions.wrap(Wrap { trim: false }), rest);
}

/// The first so many rows of an area, which loses them.
fn take(area: &mut Rect, rows: usize) -> Rect {
    let rows = u16::try_from(rows).unwrap_or(u16::MAX).min(area.height);
    let taken = Rect { height: rows, ..*area };
    (area.y, area.height) = (area.y + rows, area.height - rows);
    taken
}

fn take_last(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    area.height -= rows;
    Rect { y: area.y + area.height, height: rows, ..*area }
}

/// A line that has no room ends with a mark.
fn show(frame: &mut Frame, area: Rect, lines: Vec<Line>, look: Look) {
    let area = area.intersection(frame.area());
    // Blanks at its end need none.
    let is_cut = |line: &Line| Line::raw(line.to_string().trim_end()).width() > usize::from(area.width);
    let cut: Vec<u16> =
        (area.top()..area.bottom()).zip(&lines).filter(|(_, line)| is_cut(line)).map(|(y, _)| y).collect();
    frame.render_widget(Paragraph::new(lines), area);
    if let Some(last) = area.right().checked_sub(1).filter(|_| area.width > 0) {
        for y in cut {
            frame.buffer_mut()[(last, y)].set_symbol(look.cut());
        }
    }
}

fn footer_line(app: &App) -> Line<'static> {
    if app.typing {
        return Line::raw(format!("/{}_   Enter keeps this filter, Esc ends it", app.filter));
    }
    if let Some(Order::Hold { group, held }) = &app.asking {
        let what = if *held { "leave it alone until it is released" } else { "manage it again" };
        return Line::styled(format!("{group}: {what}? y: yes, any other key: no"), TITLE);
    }
    if let Some(note) = &app.note {
        return Line::styled(note.clone(), TITLE);
    }
    let keys = [
        ("q", "quit"),
        ("p", "pause"),
        ("/", "filter"),
        ("Tab", "group"),
        ("Up/Down", "vCPUs"),
        ("j/k", "scroll"),
        ("H", "hold"),
        ("h", "help"),
    ];
    let spans = keys.into_iter().flat_map(|(key, what)| [Span::styled(key, TITLE), Span::raw(format!(" {what}  "))]);
    spans.collect()
}

fn help() -> Vec<Line<'static>> {
    const KEYS: [(&str, &str); 10] = [
        ("q, Ctrl-C", "quit"),
        ("p, Space", "pause and go on; the daemon works all the same"),
        ("Tab, Right", "the next group; Shift-Tab, Left: the one before"),
        ("/", "show only groups whose name has these letters; Esc shows all"),
        ("i", "of many groups, which are sorted by CPU time, the idle ones too"),
        ("H", "have this group left alone, or managed again; it asks"),
        ("j, k, g", "older decisions, newer ones, the newest"),
        ("Up, Down", "more vCPUs; PageUp, PageDown, Home too"),
        ("Ctrl-Z", "stop; `fg` goes on"),
        ("h, ?, Esc", "back"),
    ];
    const MEANINGS: [&str; 8] = [
        "",
        "A vCPU works, for whomever; or is idle and kept awake, so that it answers at",
        "once; or is idle and halted, so that the host may take it; or wants to run, and",
        "the host has taken it (stolen). All figures are those of the last one or two",
        "seconds. l_comp is a vCPU's work between two idle periods, g_comp a thread's",
        "work between two waits, l_idle an idle period: means. `active` counts the vCPUs",
        "that the group runs on, `awake` those that are kept awake for it.",
        "In words: gleaner status, gleaner explain GROUP",
    ];
    let keys = KEYS.iter().map(|(key, what)| Line::raw(format!("  {key:<12} {what}")));
    keys.chain(MEANINGS.iter().map(|line| Line::raw(*line))).collect()
}

/// A picture as text, without what is blank at the ends.
pub(crate) fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content.chunks(width).map(|row| {
        let text: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    });
    let mut rows: Vec<String> = rows.collect();
    // The footer tells keys, which text has none of.
    rows.pop();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows.join("\n")
}

#[cfg(test)]
mod tests;
