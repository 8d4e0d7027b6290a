//! `gleaner-lab cache record`: a real program's memory accesses, through valgrind's lackey.
//!
//! ```text
//! valgrind lackey (runs CMD) ──text through a pipe──▶ trace::lackey ──▶ trace::recording ──▶ FILE
//! ```
//!
//! Lackey writes a line an access with one system call each, some hundred thousand to a million a second; nothing is
//! ever on disk but the compact recording, beside FILE until it is whole. A program cannot be let go from valgrind, so
//! at the limit it is ended.

use crate::count::count;
use clap::Args;
use gleaner_cachesim::trace::lackey::Lackey;
use gleaner_cachesim::trace::recording::Recorder;
use gleaner_cachesim::trace::{Record, Trace, TraceError};
use gleaner_command::args::JsonArg;
use gleaner_command::failure::Failure;
use gleaner_command::files::Destination;
use gleaner_command::output::{Output, form, shown, tell};
use gleaner_command::refusal::{find, is_executable, name_of, not_found};
use gleaner_report::CacheRecordReport;
use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, BufWriter, PipeReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner-lab cache record [OPTIONS] -- CMD [ARG]...",
    after_help = "The program runs under valgrind's lackey, some hundred times slower than alone, with its stdin, stdout and stderr its own. \
                  Threads are recorded, as one context; programs that it starts are not. At --max-accesses, and on Ctrl-C, the program is \
                  ended and the recording is whole.\n\n\
                  Examples:\n\
                  \x20 gleaner-lab cache record -o bzip2.gltrace -- bzip2 -kc big.tar > /dev/null\n\
                  \x20 gleaner-lab cache record --skip 20M --max-accesses 50M -- x264 --quiet -o /dev/null in.y4m"
)]
pub struct RecordArgs {
    /// The recording; an earlier one is replaced when the new one is whole [default: CMD.gltrace]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// End after so many accesses (k, M and G are understood)
    #[arg(long, value_name = "N", default_value = "100M", value_parser = count)]
    pub max_accesses: u64,
    /// Pass over so many accesses first, a program's start for instance
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    pub skip: u64,
    #[command(flatten)]
    pub json: JsonArg,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What lackey's pipe holds, bytes: the writer should not wait for the reader, nor wake it for every line.
const PIPE_BYTES: usize = 1 << 20;
/// A program that is to end gets so long to do so by itself.
const GRACE: Duration = Duration::from_secs(2);

pub fn main(args: &RecordArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let path = args.output.clone().unwrap_or_else(|| default_file(&args.command[0]));
    let report = record(&args.command, &path, args.skip, args.max_accesses)?;
    output.json(&report)?;
    // The program's own stdout stays its own.
    if args.json.json.is_none() {
        tell(&report);
    } else {
        output.text(&report);
    }
    Ok(0)
}

fn default_file(program: &OsString) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or(program);
    let mut name = name.to_owned();
    name.push(".gltrace");
    PathBuf::from(name)
}

fn record(command: &[OsString], path: &Path, skip: u64, most: u64) -> Result<CacheRecordReport, Failure> {
    let no_file = |error: io::Error| Failure::unwritten(path.display(), &error);
    let interrupted = gleaner_command::interrupt::flag()?;
    let (destination, file) = Destination::open(path).map_err(no_file)?;
    let mut recorder = Recorder::new(path, BufWriter::new(file)).map_err(Failure::work)?;
    let mut traced = Traced::start(command, interrupted)?;
    let mut tally = Tally { skip, most, ..Tally::default() };
    let copied = copy(&mut traced, &mut recorder, &mut tally);
    let status = traced.end()?;
    match copied {
        Err(TraceError::Empty { .. }) => return Err(not_started(command, status)),
        Err(error) => return Err(Failure::work(error)),
        Ok(()) => {}
    }
    if tally.accesses == 0 {
        return Err(Failure::work(format!(
            "the program made {} accesses, fewer than --skip {skip}: nothing is recorded; skip fewer",
            tally.skipped
        )));
    }
    recorder.finish().map_err(Failure::work)?;
    destination.whole().map_err(no_file)?;
    report(command, path, &traced, &tally, status)
}

/// What went by.
#[derive(Default)]
struct Tally {
    skip: u64,
    most: u64,
    skipped: u64,
    accesses: u64,
    kinds: [u64; 3],
    instructions: u64,
}

impl Tally {
    /// Whether this record is one of those to keep.
    fn takes(&mut self, record: &Record) -> bool {
        if self.skipped < self.skip {
            self.skipped += 1;
            return false;
        }
        let takes = self.accesses < self.most;
        if takes {
            self.accesses += 1;
            self.instructions += u64::from(record.instructions);
            self.kinds[record.kind as usize] += 1;
        }
        takes
    }

    fn full(&self) -> bool {
        self.accesses >= self.most
    }
}

fn copy(traced: &mut Traced, recorder: &mut Recorder, tally: &mut Tally) -> Result<(), TraceError> {
    let bar = shown(ProgressBar::new(tally.skip.saturating_add(tally.most)));
    form(&bar, "  recording: {human_pos} accesses [{bar:30}] {per_sec} {left}");
    let mut trace = traced.trace();
    let mut batch = Vec::new();
    loop {
        batch.clear();
        trace.fill(&mut batch)?;
        let over = batch.is_empty();
        batch.retain(|record| tally.takes(record));
        recorder.extend(&batch)?;
        bar.set_position(tally.skipped + tally.accesses);
        traced.limit = tally.full();
        if over || traced.limit || traced.interrupted.load(Ordering::Relaxed) {
            bar.finish_and_clear();
            return Ok(());
        }
    }
}

/// The program under valgrind.
pub(super) struct Traced {
    child: Rc<RefCell<Child>>,
    pipe: Rc<PipeReader>,
    interrupted: Arc<AtomicBool>,
    /// Whether the limit was reached.
    limit: bool,
    /// Whether it was ended by us.
    ended: bool,
}

impl Traced {
    pub(super) fn start(command: &[OsString], interrupted: Arc<AtomicBool>) -> Result<Self, Failure> {
        let (reader, writer) = io::pipe().map_err(Failure::work)?;
        // A smaller pipe is slower and nothing else.
        let _ = rustix::pipe::fcntl_setpipe_size(&reader, PIPE_BYTES);
        let writer = OwnedFd::from(writer);
        let number = writer.as_raw_fd();
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--tool=lackey", "--basic-counts=no", "--trace-mem=yes", "--child-silent-after-fork=yes"]);
        valgrind.arg(format!("--log-fd={number}")).arg("--").args(command);
        // SAFETY: async-signal-safe calls only; the descriptor is open until after the fork.
        unsafe {
            valgrind.pre_exec(move || {
                // A program whose recorder was killed would go on a hundred times slower for nobody.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::fcntl(number, libc::F_SETFD, 0) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        let child = valgrind.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::work(
                "recording needs valgrind, which is not installed: apt-get install valgrind (Debian's package `valgrind`)",
            ),
            _ => Failure::work(format!("cannot start valgrind: {error}")),
        })?;
        drop(writer);
        let child = Rc::new(RefCell::new(child));
        Ok(Self { child, pipe: Rc::new(reader), interrupted, limit: false, ended: false })
    }

    /// Its accesses as they are made.
    pub(super) fn trace(&self) -> Box<dyn Trace> {
        let interrupted = Arc::clone(&self.interrupted);
        let stream = Stream { child: Rc::clone(&self.child), pipe: Rc::clone(&self.pipe), interrupted };
        Box::new(Lackey::new(Path::new("valgrind's output"), stream))
    }

    /// Ends it, if it has not ended.
    pub(super) fn stop(&mut self) -> Result<ExitStatus, Failure> {
        self.limit = true;
        self.end()
    }

    /// Waits for the program's end, or brings it about. What it still writes is thrown away meanwhile, or it would wait
    /// for ever.
    fn end(&mut self) -> Result<ExitStatus, Failure> {
        let mut child = self.child.borrow_mut();
        let began = Instant::now();
        let mut bytes = vec![0; 1 << 16];
        loop {
            if let Some(status) = child.try_wait().map_err(Failure::work)? {
                return Ok(status);
            }
            if !self.ended {
                self.ended = self.limit || self.interrupted.load(Ordering::Relaxed);
                let signal = if self.ended { libc::SIGTERM } else { 0 };
                // SAFETY: the child is ours and not yet waited for, so its number is still its own.
                unsafe { libc::kill(child.id().cast_signed(), signal) };
            }
            if began.elapsed() > GRACE {
                self.ended = true;
                // It has ended meanwhile: all the better.
                let _ = child.kill();
            }
            if readable(&self.pipe, Duration::from_millis(20)) {
                let _ = (&*self.pipe).read(&mut bytes);
            }
        }
    }
}

fn readable(pipe: &PipeReader, wait: Duration) -> bool {
    let wait = Timespec::try_from(wait).ok();
    let mut polled = [PollFd::new(pipe, PollFlags::IN)];
    poll(&mut polled, wait.as_ref()).is_ok_and(|ready| ready > 0) && polled[0].revents().contains(PollFlags::IN)
}

/// Lackey's text. It is over when valgrind has ended and the pipe is empty: the program's children may hold the pipe
/// open for as long as they like.
struct Stream {
    child: Rc<RefCell<Child>>,
    pipe: Rc<PipeReader>,
    interrupted: Arc<AtomicBool>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if readable(&self.pipe, Duration::from_millis(50)) {
                let read = (&*self.pipe).read(buffer)?;
                if read < buffer.len() / 2 {
                    // Or we would be woken for every line.
                    std::thread::sleep(Duration::from_millis(1));
                }
                return Ok(read);
            }
            let over = self.child.borrow_mut().try_wait()?.is_some() || self.interrupted.load(Ordering::Relaxed);
            if over && !readable(&self.pipe, Duration::ZERO) {
                return Ok(0);
            }
        }
    }
}

fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

pub(super) fn not_started(command: &[OsString], status: ExitStatus) -> Failure {
    let name = name_of(command);
    Failure::input(match find(command) {
        None => format!("cannot run '{name}': {}", not_found(command)),
        Some(file) if !is_executable(&file) => {
            format!("cannot run '{name}': it cannot be executed; is it an executable file? (chmod +x)")
        }
        Some(_) => {
            if let Some(signal) = status.signal() {
                format!("valgrind was killed by signal {signal} before '{name}' began: nothing is recorded")
            } else {
                // Whatever it is, valgrind has said it.
                let status = shell_status(status);
                format!("valgrind could not run '{name}' (status {status}, see its message above): nothing is recorded")
            }
        }
    })
}

fn report(
    command: &[OsString],
    path: &Path,
    traced: &Traced,
    tally: &Tally,
    status: ExitStatus,
) -> Result<CacheRecordReport, Failure> {
    let interrupted = traced.interrupted.load(Ordering::Relaxed);
    let ended_by = if traced.limit {
        "limit"
    } else if interrupted {
        "interrupt"
    } else {
        "exit"
    };
    let exit_status = (ended_by == "exit").then(|| shell_status(status));
    let mut notes = Vec::new();
    if traced.limit {
        notes.push(format!("the program was ended after {} accesses; --max-accesses takes more", tally.accesses));
    }
    if let Some(failed) = exit_status.filter(|status| *status != 0) {
        notes.push(format!("the program ended with status {failed}"));
    }
    let [reads, writes, fetches] = tally.kinds;
    Ok(CacheRecordReport {
        schema: CacheRecordReport::SCHEMA.to_owned(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        file: path.display().to_string(),
        file_bytes: std::fs::metadata(path).map_err(Failure::work)?.len(),
        accesses: tally.accesses,
        reads,
        writes,
        fetches,
        instructions: tally.instructions,
        skipped: tally.skipped,
        ended_by: ended_by.to_owned(),
        exit_status,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_cachesim::trace::Kind;

    #[test]
    fn a_tally_skips_takes_and_is_full() {
        let mut tally = Tally { skip: 2, most: 3, ..Tally::default() };
        let kinds = [Kind::Read, Kind::Read, Kind::Write, Kind::Fetch, Kind::Read, Kind::Read];
        let takes = kinds.map(|kind| tally.takes(&Record { address: 0, instructions: 2, kind }));
        assert_eq!(takes, [false, false, true, true, true, false]);
        assert_eq!((tally.full(), tally.kinds, tally.instructions), (true, [1, 1, 1], 6));
    }

    /// Who was killed has said nothing that could be read above.
    #[test]
    fn a_valgrind_that_was_killed_gave_no_reason() {
        let said = |raw: i32| not_started(&[OsString::from("sh")], ExitStatus::from_raw(raw)).message;
        assert!(said(1 << 8).contains("status 1, see its message above"), "{}", said(1 << 8));
        let killed = said(libc::SIGSEGV);
        assert!(killed.contains("killed by signal 11 before 'sh' began") && !killed.contains("message"), "{killed}");
    }

    #[test]
    fn a_recording_is_named_after_its_program() {
        assert_eq!(default_file(&OsString::from("/usr/bin/bzip2")), PathBuf::from("bzip2.gltrace"));
        assert_eq!(default_file(&OsString::from("./a.out")), PathBuf::from("a.out.gltrace"));
    }
}
