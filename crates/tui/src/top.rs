//! Ties it together: one channel, on which keys, signals and statuses come; a picture after each.

use crate::app::{App, Order, Position};
use crate::feed::{Event, ask_again_and_again, status};
use crate::look::Look;
use crate::recording::{Recording, RecordingError};
use crate::screen::{Screen, defuse, refusal};
use crate::view;
use gleaner_daemon::{ClientError, Request};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::raise;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Statuses before one that was stepped back to that make its strips.
const STRIP: usize = 120;

/// Where statuses come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The daemon that listens at this socket.
    Daemon(PathBuf),
    /// A file of statuses.
    File(PathBuf),
}

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where statuses come from.
    pub source: Source,
    /// How often there is a new one.
    pub interval: Duration,
    /// The group to begin with.
    pub group: Option<String>,
    /// What the terminal can show.
    pub look: Look,
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// This is no terminal for it.
    #[error(
        "top needs a terminal, and {0}: `gleaner status` says the same in words, `gleaner top --once` prints one screen"
    )]
    NoTerminal(&'static str),
    /// The daemon cannot be asked.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// The file has nothing to show.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The terminal is gone, or there can be no thread.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
    /// A thread of this process ended.
    #[error("something of this view failed, which is a bug: use `gleaner status`")]
    Broken,
}

/// Shows the daemon until somebody quits; the exit status.
///
/// # Errors
/// When there is no terminal, or nothing to show at the beginning.
pub fn run(options: &Options) -> Result<u8, TopError> {
    if let Some(why) = refusal() {
        return Err(TopError::NoTerminal(why));
    }
    let (sender, events) = channel();
    let mut top = Top::begin(options, &sender)?;
    signals(sender.clone())?;
    keys(sender)?;
    top.show_until_quit(&events)
}

/// One picture as text, of this many columns and rows.
///
/// # Errors
/// When there is nothing to show.
pub fn once(options: &Options, columns: u16, rows: u16) -> Result<String, TopError> {
    let mut app = App::new(options.group.clone());
    match &options.source {
        Source::Daemon(socket) => app.show(status(socket)?),
        Source::File(path) => {
            let mut recording = Recording::open(path)?;
            let last = recording.len() - 1;
            replay(&mut app, &mut recording, last);
        }
    }
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let look = Look { colour: false, ..options.look };
    let Ok(_) = terminal.draw(|frame| view::draw(frame, &app, look));
    let mut buffer = terminal.backend().buffer().clone();
    defuse(&mut buffer);
    Ok(view::text_of(&buffer))
}

/// What a view goes on with.
enum Feed {
    Daemon(Sender<Request>),
    File(Recording),
}

struct Top {
    app: App,
    feed: Feed,
    look: Look,
    interval: Duration,
    /// When a recording goes on.
    due: Instant,
}

impl Top {
    /// With something to show.
    fn begin(options: &Options, events: &Sender<Event>) -> Result<Self, TopError> {
        let mut app = App::new(options.group.clone());
        let feed = match &options.source {
            Source::Daemon(socket) => {
                app.show(status(socket)?);
                let (orders, taken) = channel();
                let (socket, interval, events) = (socket.clone(), options.interval, events.clone());
                spawn("gleaner-top-ask", events.clone(), move || {
                    ask_again_and_again(&socket, interval, &taken, &events);
                })?;
                Feed::Daemon(orders)
            }
            Source::File(path) => {
                let mut recording = Recording::open(path)?;
                replay(&mut app, &mut recording, 0);
                Feed::File(recording)
            }
        };
        Ok(Self { app, feed, look: options.look, interval: options.interval, due: Instant::now() + options.interval })
    }

    fn show_until_quit(&mut self, events: &Receiver<Event>) -> Result<u8, TopError> {
        let mut screen = Some(Screen::take()?);
        loop {
            let (app, look) = (&self.app, self.look);
            if let Some(screen) = &mut screen {
                screen.draw(|frame| view::draw(frame, app, look))?;
            }
            let Some(event) = self.next(events)? else { continue };
            match event {
                Event::Key(key) => match self.app.key(key) {
                    Some(Order::Quit) => return Ok(0),
                    Some(Order::Suspend) => {
                        drop(screen.take());
                        // It goes on here when it is told to.
                        raise(SIGTSTP)?;
                        screen = Some(Screen::take()?);
                    }
                    Some(Order::Hold { group, held }) => self.hold(group, held),
                    Some(Order::Step(by)) => self.step(by),
                    None => {}
                },
                Event::Resized => {}
                Event::Status(status) => self.app.show(status),
                Event::Lost(why) => self.app.lose(why),
                Event::Told(what) => self.app.note = Some(what),
                Event::Signal(signal) => return Ok(u8::try_from(128 + signal).unwrap_or(1)),
                Event::NoKeys(error) => return Err(error.into()),
                Event::Broken => return Err(TopError::Broken),
            }
        }
    }

    /// The next event; `None`: a recording has gone on.
    fn next(&mut self, events: &Receiver<Event>) -> Result<Option<Event>, TopError> {
        let plays = self.app.position.is_some_and(|position| position.at + 1 < position.of) && !self.app.paused;
        if !plays {
            return events.recv().map(Some).map_err(|_| TopError::Broken);
        }
        match events.recv_timeout(self.due.saturating_duration_since(Instant::now())) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => {
                self.step(1);
                self.due = Instant::now() + self.interval;
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => Err(TopError::Broken),
        }
    }

    fn hold(&mut self, group: String, held: bool) {
        let order = if held { Request::Hold { group } } else { Request::Release { group } };
        if let Feed::Daemon(orders) = &self.feed {
            // Where nobody takes it the thread has ended, which is told.
            let _ = orders.send(order);
        }
    }

    /// Goes on in a recording, or back.
    fn step(&mut self, by: isize) {
        let (Feed::File(recording), Some(position)) = (&mut self.feed, self.app.position) else { return };
        let to = position.at.saturating_add_signed(by).min(position.of.saturating_sub(1));
        if by >= 0 {
            show(&mut self.app, recording, to);
        } else {
            replay(&mut self.app, recording, to);
        }
    }
}

/// Shows one status of a recording.
fn show(app: &mut App, recording: &mut Recording, n: usize) {
    let of = recording.len();
    app.position = Some(Position { at: n, of });
    match recording.status(n) {
        Ok(status) => app.show(status),
        Err(why) => app.note = Some(why),
    }
    if n + 1 == of {
        app.note = recording.broken().map(str::to_owned).or(app.note.take());
    }
}

/// The same as if those before it had been shown.
fn replay(app: &mut App, recording: &mut Recording, n: usize) {
    app.forget();
    (n.saturating_sub(STRIP)..=n).for_each(|n| show(app, recording, n));
}

/// Says so where the thread ends without having been told to, by a panic too.
struct Ended(Sender<Event>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Broken);
    }
}

fn spawn(name: &str, events: Sender<Event>, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = move || {
        let _ended = Ended(events);
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let told = events.clone();
    spawn("gleaner-top-signals", events, move || {
        for signal in signals.forever() {
            let _ = told.send(Event::Signal(signal));
        }
    })
}

fn keys(events: Sender<Event>) -> io::Result<()> {
    let told = events.clone();
    spawn("gleaner-top-keys", events, move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
                Ok(event::Event::Resize(..)) => Event::Resized,
                Ok(_) => continue,
                Err(error) => Event::NoKeys(error),
            };
            let is_last = matches!(event, Event::NoKeys(_));
            if told.send(event).is_err() || is_last {
                return;
            }
        }
    })
}
