//! Asks the daemon, again and again, in a thread of its own: a daemon that hangs must not make the screen hang.

use gleaner_daemon::{Answer, ClientError, Request, ask_at};
use gleaner_report::StatusReport;
use ratatui::crossterm::event::KeyEvent;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// What happens between two pictures.
pub(crate) enum Event {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    Status(Box<StatusReport>),
    /// The daemon cannot be asked.
    Lost(String),
    /// What came of an order.
    Told(String),
    Signal(i32),
    /// No key will ever come again.
    NoKeys(io::Error),
    /// A thread ended that should not.
    Broken,
}

/// The daemon's status.
pub(crate) fn status(socket: &Path) -> Result<Box<StatusReport>, ClientError> {
    match ask_at(socket, &Request::Status)? {
        Answer::Status(status) => Ok(status),
        _ => Err(ClientError::NoAnswer("it is of another version".to_owned())),
    }
}

/// Asks each `interval`, and hands on orders at once, until nobody gives any more.
pub(crate) fn ask_again_and_again(
    socket: &Path,
    interval: Duration,
    orders: &Receiver<Request>,
    events: &Sender<Event>,
) {
    loop {
        match orders.recv_timeout(interval) {
            Ok(order) => {
                let told = match ask_at(socket, &order) {
                    Ok(answer) => done(&order, &answer),
                    Err(error) => error.to_string(),
                };
                if events.send(Event::Told(told)).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let event = match status(socket) {
            Ok(status) => Event::Status(status),
            Err(error) => Event::Lost(error.to_string()),
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

fn done(order: &Request, answer: &Answer) -> String {
    match (order, answer) {
        (Request::Hold { .. }, Answer::Done(groups)) => format!("{}: left alone until released", groups.join(", ")),
        (Request::Release { .. }, Answer::Done(groups)) => format!("{}: managed again", groups.join(", ")),
        _ => "the daemon is of another version".to_owned(),
    }
}
