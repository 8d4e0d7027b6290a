//! The host agent: `gleaner host run` as a process of its own, with a journal and a guardian of its own. It is told to
//! end when the daemon ends, by the kernel where the daemon is killed, and undoes what it did.
//!
//! Each of its windows ends with a line of JSON, a [`StatusHost`], which is all that is known of it here.

use crate::event::Say;
use gleaner_report::StatusHost;
use gleaner_runtime::own_binary;
use gleaner_settings::{HostSettings, HostSlice};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a line that are read, at most: a thousand VMs.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long it is waited for when it is told to end: it gives each vCPU thread its slice back.
const LONGEST_END: Duration = Duration::from_secs(10);
/// After an end that nobody asked for it is started again, and each time later.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Having run for so long, it ended for another reason than that it cannot run.
const RAN_WELL: Duration = Duration::from_secs(60);

/// The agent, running or to be started again.
pub(crate) struct HostAgent {
    settings: HostSettings,
    dry_run: bool,
    say: Say,
    child: Option<(Child, Instant)>,
    latest: Arc<Mutex<Option<StatusHost>>>,
    why_not: String,
    start_at: Instant,
    pause: Duration,
    /// It was told to end, so that another can start.
    makes_way: bool,
}

impl HostAgent {
    /// One that is to be started.
    pub(crate) fn new(settings: HostSettings, dry_run: bool, say: &Say) -> Self {
        let why_not = if dry_run { "not started (--dry-run)" } else { "about to start" }.to_owned();
        Self {
            settings,
            dry_run,
            say: Arc::clone(say),
            child: None,
            latest: Arc::default(),
            why_not,
            start_at: Instant::now(),
            pause: FIRST_PAUSE,
            makes_way: false,
        }
    }

    /// Works by these settings once what it has set by the old ones is given back.
    pub(crate) fn change_to(&mut self, settings: HostSettings) {
        (self.settings, self.pause, self.start_at) = (settings, FIRST_PAUSE, Instant::now());
        if let Some((child, _)) = &self.child {
            tell_to_end(child);
            self.makes_way = true;
        }
    }

    /// Starts it where it is time.
    pub(crate) fn look(&mut self) {
        if self.dry_run || self.child.is_some() || Instant::now() < self.start_at {
            return;
        }
        match start(&self.settings, &self.latest, &self.say) {
            Ok(child) => {
                (self.say)(&format!("gleaner: host agent: runs as process {}", child.id()));
                self.child = Some((child, Instant::now()));
            }
            Err(error) => self.is_over(&gleaner_sys::why_refused(&error)),
        }
    }

    /// A child of this process has ended.
    pub(crate) fn child_ended(&mut self, pid: i32, status: i32) {
        let Some((_, began)) = self.child.take_if(|(child, _)| i32::try_from(child.id()) == Ok(pid)) else { return };
        if std::mem::take(&mut self.makes_way) {
            *lock(&self.latest) = None;
            return self.look();
        }
        if began.elapsed() >= RAN_WELL {
            self.pause = FIRST_PAUSE;
        }
        let how = if libc::WIFEXITED(status) {
            format!("status {}", libc::WEXITSTATUS(status))
        } else {
            format!("signal {}", libc::WTERMSIG(status))
        };
        self.is_over(&how);
    }

    fn is_over(&mut self, why: &str) {
        self.why_not = format!("ended ({why}), and will be started again");
        (self.say)(&format!("gleaner: host agent: {}", self.why_not));
        self.start_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        *lock(&self.latest) = None;
    }

    /// As it last said.
    pub(crate) fn status(&self) -> StatusHost {
        let policy = if self.settings.slice() == HostSlice::Adaptive { "adaptive" } else { "static" }.to_owned();
        match &self.child {
            None => StatusHost { policy, why_not: Some(self.why_not.clone()), ..StatusHost::default() },
            Some((child, _)) => {
                let latest = lock(&self.latest).clone();
                let nothing_yet = || StatusHost { policy, ..StatusHost::default() };
                StatusHost { pid: Some(child.id()), ..latest.unwrap_or_else(nothing_yet) }
            }
        }
    }

    /// Tells it to end, and waits for that. Whether it has undone everything, as far as it says.
    pub(crate) fn end(mut self) -> bool {
        let Some((mut child, _)) = self.child.take() else { return true };
        tell_to_end(&child);
        let ends = Instant::now() + LONGEST_END;
        while Instant::now() < ends {
            match child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                // Interrupted before it had begun: 130.
                Ok(Some(status)) => return status.success() || status.code() == Some(130),
                Err(_) => return true,
            }
        }
        (self.say)("gleaner: host agent: does not end; its guardian undoes what it did once it does");
        false
    }
}

impl Drop for HostAgent {
    fn drop(&mut self) {
        if let Some((child, _)) = &self.child {
            tell_to_end(child);
        }
    }
}

fn tell_to_end(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // Not reaped yet, so it is the one.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

fn start(settings: &HostSettings, latest: &Arc<Mutex<Option<StatusHost>>>, say: &Say) -> io::Result<Child> {
    let mut command = Command::new(own_binary());
    command.args(words(settings)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let daemon = rustix::process::getpid();
    let dies_with_us = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        // It may have died before that was said.
        if rustix::process::getppid() == Some(daemon) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: `dies_with_us` makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(dies_with_us) };
    let mut child = command.spawn()?;
    let (latest, say) = (Arc::clone(latest), Arc::clone(say));
    read_lines(child.stdout.take(), "gleaner-host-status", move |line| {
        if let Ok(status) = serde_json::from_str(line) {
            *lock(&latest) = Some(status);
        }
    });
    read_lines(child.stderr.take(), "gleaner-host-news", move |line| {
        say(&format!("gleaner: host agent: {}", line.strip_prefix("gleaner: ").unwrap_or(line)));
    });
    Ok(child)
}

/// Hands over each line until it ends. Without a thread nobody reads, and the agent does without readers, too.
fn read_lines(from: Option<impl Read + Send + 'static>, name: &str, mut each: impl FnMut(&str) + Send + 'static) {
    let Some(from) = from else { return };
    let work = move || {
        crate::privileges::keep_none();
        let (mut reader, mut line) = (BufReader::new(from), String::new());
        while (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line).is_ok_and(|read| read > 0) {
            each(line.trim_end());
            line.clear();
        }
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
        tracing::warn!("nobody reads what the host agent says: {error}");
    }
}

/// The command line.
fn words(settings: &HostSettings) -> Vec<String> {
    ["host", "run", "--status"].map(str::to_owned).into_iter().chain(settings.options()).collect()
}

fn lock(latest: &Mutex<Option<StatusHost>>) -> std::sync::MutexGuard<'_, Option<StatusHost>> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_settings::{AbsolutePath, Interval, VmNames};

    #[test]
    fn each_setting_is_a_word_of_the_command() {
        let settings = HostSettings {
            slice: Some(HostSlice::Fixed(Duration::from_millis(1))),
            vm: Some(VmNames(vec!["--web".to_owned(), "db".to_owned()])),
            interval: Some(Interval(Duration::from_millis(200))),
            enforce: Some(false),
            pause_exits: Some(true),
            params_file: Some(AbsolutePath("/etc/h.toml".into())),
        };
        let said = words(&settings).join(" ");
        let told = "host run --status --slice 1ms --interval 200ms --vm=--web --vm=db --no-enforce \
                    --pause-exits --config=/etc/h.toml";
        assert_eq!(said, told);
    }

    #[test]
    fn what_did_not_begin_is_told_and_tried_later_and_later() {
        let settings = HostSettings::default();
        let say: Say = Arc::new(|_| {});
        let mut dry = HostAgent::new(settings.clone(), true, &say);
        dry.look();
        assert_eq!(dry.status().why_not.as_deref(), Some("not started (--dry-run)"));
        let mut agent = HostAgent::new(settings, false, &say);
        agent.is_over("status 1");
        let first = agent.start_at;
        agent.look();
        assert!(agent.child.is_none(), "it is not yet time");
        agent.is_over("status 1");
        assert!(agent.start_at > first && agent.pause == FIRST_PAUSE * 4);
        assert!(agent.status().why_not.unwrap().contains("status 1"));
        assert!(agent.end());
    }
}
