//! What a service manager is told, where one asked (`NOTIFY_SOCKET`): ready, reloading, alive, stopping.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// Tells systemd, or nobody.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
    told: Instant,
    status: String,
}

impl Supervisor {
    pub(crate) fn new() -> Self {
        // Twice in its time, as sd_watchdog_enabled(3) advises.
        let watchdog = sd_notify::watchdog_enabled().map(|time| time / 2);
        Self { watchdog, told: Instant::now(), status: String::new() }
    }

    pub(crate) fn ready() {
        tell(&[NotifyState::Ready]);
    }

    pub(crate) fn reloading() {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    pub(crate) fn stopping() {
        tell(&[NotifyState::Stopping]);
    }

    /// A line for `systemctl status`.
    pub(crate) fn status(&mut self, text: String) {
        if text != self.status {
            tell(&[NotifyState::Status(&text)]);
            self.status = text;
        }
    }

    /// The service is alive.
    pub(crate) fn alive(&mut self) {
        if self.watchdog.is_some_and(|every| self.told.elapsed() >= every) {
            self.told = Instant::now();
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::info!("the service manager does not listen: {error}");
    }
}
