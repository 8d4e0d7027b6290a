//! Signals, told to the service as events.

use crate::event::Event;
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::sync::mpsc::Sender;

/// A thread that listens, until it is dropped.
pub(crate) struct Listening(Handle);

impl Listening {
    /// SIGTERM and SIGINT end the service, SIGHUP reloads, SIGCHLD tells of the guardian.
    ///
    /// # Errors
    /// When the handlers cannot be set, or there can be no thread.
    pub(crate) fn start(events: Sender<Event>) -> io::Result<Self> {
        let mut signals = Signals::new([libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD])?;
        let handle = signals.handle();
        std::thread::Builder::new().name("gleaner-signals".to_owned()).spawn(move || {
            crate::privileges::keep_none();
            for signal in signals.forever() {
                let event = match signal {
                    libc::SIGHUP => Event::Reload,
                    libc::SIGCHLD => Event::Child,
                    _ => Event::Stop,
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(handle))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.close();
    }
}
