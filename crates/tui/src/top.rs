//! Ties it together: one channel, on which keys, signals and statuses come; a picture after each.

use crate::app::{App, Order};
use crate::feed::{Event, ask_again_and_again, status};
use crate::look::Look;
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
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// How often it is asked.
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
    /// The terminal is gone, or there can be no thread.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
    /// A thread of this process ended.
    #[error("something of this view failed, which is a bug: use `gleaner status`")]
    Broken,
}

/// Shows the daemon until somebody quits; the exit status.
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
pub fn once(options: &Options, columns: u16, rows: u16) -> Result<String, TopError> {
    let mut app = App::new(options.group.clone());
    app.show(status(&options.socket)?);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let look = Look { colour: false, ..options.look };
    let Ok(_) = terminal.draw(|frame| view::draw(frame, &app, look));
    let mut buffer = terminal.backend().buffer().clone();
    defuse(&mut buffer);
    Ok(view::text_of(&buffer))
}

struct Top {
    app: App,
    /// What the daemon is told to do.
    orders: Sender<Request>,
    look: Look,
}

impl Top {
    /// With something to show.
    fn begin(options: &Options, events: &Sender<Event>) -> Result<Self, TopError> {
        let mut app = App::new(options.group.clone());
        app.show(status(&options.socket)?);
        let (orders, taken) = channel();
        let (socket, interval, events) = (options.socket.clone(), options.interval, events.clone());
        spawn("gleaner-top-ask", events.clone(), move || {
            ask_again_and_again(&socket, interval, &taken, &events);
        })?;
        Ok(Self { app, orders, look: options.look })
    }

    fn show_until_quit(&mut self, events: &Receiver<Event>) -> Result<u8, TopError> {
        let mut screen = Some(Screen::take()?);
        loop {
            let (app, look) = (&self.app, self.look);
            if let Some(screen) = &mut screen {
                screen.draw(|frame| view::draw(frame, app, look))?;
            }
            match events.recv().map_err(|_| TopError::Broken)? {
                Event::Key(key) => match self.app.key(key) {
                    Some(Order::Quit) => return Ok(0),
                    Some(Order::Suspend) => {
                        drop(screen.take());
                        // It goes on here when it is told to.
                        raise(SIGTSTP)?;
                        screen = Some(Screen::take()?);
                    }
                    Some(Order::Hold { group, held }) => self.hold(group, held),
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

    fn hold(&self, group: String, held: bool) {
        let order = if held { Request::Hold { group } } else { Request::Release { group } };
        // Where nobody takes it the thread has ended, which is told.
        let _ = self.orders.send(order);
    }
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
