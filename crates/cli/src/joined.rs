//! `run` and `attach` beside a daemon: it manages the program as one more group, and tells at the end what there is to
//! tell. One Gleaner acts on a machine then, and not two.
//!
//! The program owes nothing to it: it starts whatever the daemon does, and goes on when that dies.

use clap::Args;
use gleaner_act::default_state_dir;
use gleaner_command::output::say;
use gleaner_daemon::{Answer, ClientError, Join, Request, SYSTEM_DIR, ask_within, holder, is_listened_at, socket_in};
use gleaner_report::RunReport;
use gleaner_runtime::Config;
use gleaner_sys::filter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

/// Before the program starts nobody waits long. A daemon answers between two windows.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// Afterwards: a daemon that was stopped must not keep the program's status back.
const LONGEST_ANSWER: Duration = Duration::from_secs(2);
/// A process that does not listen any more is gone by then.
const SOON: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Who manages it.
#[derive(Clone, Debug, Default, Args)]
pub struct DaemonArgs {
    /// Manage it by this command itself, also where a daemon runs. Without this the daemon does, with the same options
    #[arg(long)]
    pub no_daemon: bool,
    /// Where the daemon's lock and socket are, instead of /run/gleaner: for tests
    #[arg(long = "daemon-dir", value_name = "FOLDER", hide = true)]
    pub folder: Option<PathBuf>,
}

/// What is to be asked of whom.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    pub daemon: DaemonArgs,
    /// An option that only this command itself can apply.
    pub own_option: Option<&'static str>,
}

impl Asking {
    /// `own`: whether an option was given, and its name.
    pub fn new(daemon: DaemonArgs, own: &[(bool, &'static str)]) -> Self {
        Self { daemon, own_option: own.iter().find(|(given, _)| *given).map(|(_, name)| *name) }
    }
}

/// A daemon that takes the program.
#[derive(Clone, Debug)]
pub struct Offer {
    socket: PathBuf,
    join: Join,
}

/// Looks for a daemon that takes the program; `None`: there is none, or it is not to be asked.
pub fn look(asking: &Asking, config: &Config) -> Result<Option<Offer>, String> {
    let args = &asking.daemon;
    // Whoever asks may be killed by a filter.
    if args.no_daemon || filter::deadly().asking.is_some() {
        return Ok(None);
    }
    let system = PathBuf::from(SYSTEM_DIR);
    let folders = args.folder.clone().map_or_else(|| vec![default_state_dir(), system], |folder| vec![folder]);
    for folder in folders {
        if let (Some(option), Some(_)) = (asking.own_option, holder(&folder)) {
            return Err(format!("the daemon does not know {option}"));
        }
        let offer = Offer { socket: socket_in(&folder), join: Join::of(config) };
        match ask_within(&offer.socket, &Request::Join(Box::new(offer.join.clone())), FIRST_ANSWER) {
            Ok(Answer::Welcome) => return Ok(Some(offer)),
            Err(ClientError::NoDaemon { .. }) => {}
            // The folder may be there for journals alone.
            Err(ClientError::Refused { .. }) if !is_listened_at(&offer.socket) => {}
            Err(error) => return Err(error.to_string()),
            Ok(_) => return Err("it is of another version".to_owned()),
        }
    }
    Ok(None)
}

/// A program that the daemon manages.
#[derive(Debug)]
pub struct Member {
    socket: PathBuf,
    group: u64,
    name: String,
    daemon: i32,
}

impl Offer {
    /// For processes that run.
    pub fn accept(mut self, pid: Option<i32>, cgroup: Option<PathBuf>) -> Result<Member, String> {
        (self.join.pid, self.join.cgroup) = (pid, cgroup);
        match ask_within(&self.socket, &Request::Join(Box::new(self.join)), LONGEST_ANSWER) {
            Ok(Answer::Joined { group, name, pid }) => Ok(Member { socket: self.socket, group, name, daemon: pid }),
            Ok(_) => Err("the daemon is of another version".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Member {
    /// Until the other end of `quit` is closed; then what there is to tell.
    ///
    /// # Errors
    /// The daemon is no more, or does not answer. That is told at once.
    fn stay(self, quit: &UnixStream) -> Result<RunReport, String> {
        let daemon = Pid::from_raw(self.daemon).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut ends: Vec<PollFd<'_>> = std::iter::once(PollFd::new(quit, PollFlags::IN)).collect();
        ends.extend(daemon.iter().map(|daemon| PollFd::new(daemon, PollFlags::IN)));
        while poll(&mut ends, None).is_err_and(|errno| errno == rustix::io::Errno::INTR) {}
        let is_gone = ends.iter().skip(1).any(|end| !end.revents().is_empty());
        if is_gone {
            let goes_on = ends[0].revents().is_empty();
            return Err(ended(if goes_on { ", and the program goes on unmanaged" } else { "" }));
        }
        match ask_within(&self.socket, &Request::Leave { group: self.group }, LONGEST_ANSWER) {
            Ok(Answer::Left(mut report)) => {
                report.warnings.insert(0, format!("managed by the daemon (process {}), as {}", self.daemon, self.name));
                Ok(*report)
            }
            Ok(_) => Err("the daemon is of another version".to_owned()),
            // Its socket is closed a moment before it is gone.
            Err(_) if daemon.is_some_and(|daemon| ends_within(&daemon, SOON)) => Err(ended("")),
            Err(error) => Err(format!("managed by the daemon, which does not tell of it: {error}")),
        }
    }
}

/// Says so, and what that means.
fn ended(then: &str) -> String {
    let line = format!("the daemon has ended{then}");
    say(&format!("gleaner: {line}"));
    line
}

fn ends_within(daemon: &OwnedFd, time: Timespec) -> bool {
    poll(&mut [PollFd::new(daemon, PollFlags::IN)], Some(&time)).is_ok_and(|ended| ended > 0)
}

/// A thread that hands over and waits, so that nobody else does.
#[derive(Debug)]
pub struct Membership {
    quit: UnixStream,
    thread: JoinHandle<Result<RunReport, String>>,
}

impl Membership {
    /// `begin` hands it over.
    pub fn start(begin: impl FnOnce() -> Result<Member, String> + Send + 'static) -> io::Result<Self> {
        let (quit, told) = UnixStream::pair()?;
        let work = move || begin()?.stay(&told);
        Ok(Self { quit, thread: std::thread::Builder::new().name("gleaner-joined".to_owned()).spawn(work)? })
    }

    /// Whether the daemon has ended, or never took it.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Takes it back.
    pub fn end(self) -> Result<RunReport, String> {
        drop(self.quit);
        self.thread.join().unwrap_or_else(|_| Err("who asked the daemon failed, which is a bug".to_owned()))
    }
}
