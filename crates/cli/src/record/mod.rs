//! `gleaner record --threads`: what a real program's threads do, for `gleaner-lab sim from-recording`.
//!
//! ```text
//!   BPF (observe::ThreadRecorder) --every 20 ms--> recording::Writer --> a file beside FILE
//!                                                                        put in its place at the end
//! ```
//!
//! The program runs as without us: its streams, signals and process group are its own. At --max-bytes recording stops
//! and the program goes on.

use crate::run::child::{Launch, shell_status};
use crate::run::signals::{Event, Inherited, Relay, listen};
use clap::Args;
use gleaner_command::args::JsonArg;
use gleaner_command::args::file_size;
use gleaner_command::failure::Failure;
use gleaner_command::files::Destination;
use gleaner_command::output::{Output, say, tell};
use gleaner_model::ThreadHappening;
use gleaner_observe::{ThreadEventLosses, ThreadRecorder};
use gleaner_recording::{EndedBy, Header, Summary, Writer};
use gleaner_report::RecordReport;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
#[command(
    override_usage = "gleaner record --threads [OPTIONS] -- CMD [ARG]...",
    after_help = "Needs BPF (root, Linux 5.12 or later): nothing else says who woke whom. The program's stdin, \
                  stdout, stderr and signals are its own; programs that it starts are recorded with it.\n\n\
                  Exit status: 0 recorded, whatever CMD's own was (the result has it); 1 the recording failed, 2 bad \
                  usage, or CMD cannot be started.\n\n\
                  Examples:\n\
                  \x20 gleaner record --threads -- pigz -p4 -k big.tar\n\
                  \x20 gleaner-lab sim from-recording pigz.glthreads --vcpus 16 --pcpus 8 --slice 1ms"
)]
pub struct RecordArgs {
    /// Record threads: who computed how long, waited for whom, woke whom
    #[arg(long, required = true)]
    pub threads: bool,
    /// The recording; an earlier one is replaced [default: CMD.glthreads]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Stop recording when the file is so long (k, M and G are understood); the program goes on
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = file_size)]
    pub max_bytes: u64,
    #[command(flatten)]
    pub json: JsonArg,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// How often the ring is emptied.
const TICK: Duration = Duration::from_millis(20);
/// The last thread's last switch comes after its parent was told of its end.
const LAST_SWITCH: Duration = Duration::from_millis(200);
/// What the end of a file may still take: a block that does not compress at all, and the summary.
const END_BYTES: u64 = 4 << 10;

pub fn main(args: &RecordArgs) -> Result<u8, Failure> {
    let mut output = Output::open(args.json.json.as_deref())?;
    let path = args.output.clone().unwrap_or_else(|| default_file(&args.command[0]));
    let report = record(&args.command, &path, args.max_bytes)?;
    output.json(&report)?;
    // The program's own stdout stays its own.
    tell(&report);
    Ok(0)
}

fn default_file(program: &OsString) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or(program);
    let mut name = name.to_owned();
    name.push(".glthreads");
    PathBuf::from(name)
}

/// Records a program into a file, which is there only when it is whole.
fn record(command: &[OsString], path: &Path, max_bytes: u64) -> Result<RecordReport, Failure> {
    let no_file = |error: std::io::Error| Failure::unwritten(path.display(), &error);
    if path.is_dir() {
        return Err(no_file(std::io::ErrorKind::IsADirectory.into()));
    }
    let (destination, file) = Destination::open(path).map_err(no_file)?;
    let header = header(command);
    let mut recording = Recording::begin(file, &header, max_bytes)?;
    let (status, wall) = recording.run(command)?;
    let threads = recording.threads;
    let (file, summary) = recording.finish(wall)?;
    let file_bytes = file.metadata().map_err(Failure::work)?.len();
    destination.whole().map_err(no_file)?;
    Ok(report(header, path, file_bytes, threads, &summary, shell_status(status)))
}

fn header(command: &[OsString]) -> Header {
    let vcpus = crate::machine::allowed_vcpus().len();
    Header {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        vcpus: u32::try_from(vcpus).unwrap_or(u32::MAX),
    }
}

/// A recording in progress.
struct Recording {
    /// `None` once the limit was reached.
    recorder: Option<ThreadRecorder>,
    writer: Writer<BufWriter<File>>,
    max_bytes: u64,
    threads: u64,
    losses: ThreadEventLosses,
    interrupted: bool,
    /// When the limit was reached.
    full: Option<Instant>,
}

impl Recording {
    fn begin(file: File, header: &Header, max_bytes: u64) -> Result<Self, Failure> {
        let recorder = ThreadRecorder::new().map_err(|refusal| {
            Failure::work(format!("recording threads needs BPF, nothing else says who woke whom: {refusal}"))
        })?;
        let writer = Writer::new(BufWriter::new(file), header).map_err(Failure::work)?;
        let (threads, losses) = (0, ThreadEventLosses::default());
        Ok(Self { recorder: Some(recorder), writer, max_bytes, threads, losses, interrupted: false, full: None })
    }

    /// Runs the program to its end; says how it ended and how long it ran, or was recorded.
    fn run(&mut self, command: &[OsString]) -> Result<(ExitStatus, Duration), Failure> {
        let inherited = Inherited::now();
        let (sender, events) = channel();
        listen(sender, &inherited)?;
        if let Some(recorder) = &mut self.recorder {
            recorder.adopt_next_child();
        }
        let launched = Launch::new(command, inherited).spawn();
        if let Some(recorder) = &mut self.recorder {
            recorder.adopted();
        }
        let (mut child, began) = launched.map_err(|error| Failure::input(error.message))?;
        let status = self.until_it_ends(&mut child, &events)?;
        let ended = self.full.unwrap_or_else(Instant::now);
        let end = Instant::now() + LAST_SWITCH;
        self.take()?;
        while self.recorder.as_ref().is_some_and(|recorder| recorder.alive() > 0) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.take()?;
        Ok((status, ended.saturating_duration_since(began)))
    }

    fn until_it_ends(&mut self, child: &mut Child, events: &Receiver<Event>) -> Result<ExitStatus, Failure> {
        let mut relay = Relay::to(i32::try_from(child.id()).unwrap_or(0));
        loop {
            self.take()?;
            match events.recv_timeout(TICK) {
                Ok(Event::Signal { signal, by_terminal }) => {
                    self.interrupted |= matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT);
                    relay.pass_on(signal, by_terminal);
                }
                Ok(Event::Child) | Err(RecvTimeoutError::Timeout) => {
                    if let Some(status) = child.try_wait().map_err(Failure::work)? {
                        return Ok(status);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return child.wait().map_err(Failure::work),
            }
        }
    }

    /// Writes down what has happened, up to the limit.
    fn take(&mut self) -> Result<(), Failure> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let taken = recorder.take().map_err(Failure::work)?;
        self.losses = recorder.losses();
        for event in taken {
            if self.writer.bytes() + END_BYTES > self.max_bytes {
                self.full = Some(Instant::now());
                // The programs leave the kernel: the program pays nothing any more.
                self.recorder = None;
                say(&"gleaner: --max-bytes is reached: recording has stopped, the program goes on");
                return Ok(());
            }
            self.threads += u64::from(matches!(event.what, ThreadHappening::Born { .. }));
            self.writer.event(&event).map_err(Failure::work)?;
        }
        Ok(())
    }

    fn finish(self, wall: Duration) -> Result<(File, Summary), Failure> {
        let ended_by = match (self.full, self.interrupted) {
            (Some(_), _) => EndedBy::Limit,
            (None, true) => EndedBy::Interrupt,
            (None, false) => EndedBy::Exit,
        };
        let summary = Summary {
            ended_by,
            events: 0,
            lost: self.losses.events,
            untracked: self.losses.threads,
            wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        };
        let (writer, summary) = self.writer.finish(&summary).map_err(Failure::work)?;
        Ok((writer.into_inner().map_err(Failure::work)?, summary))
    }
}

fn report(
    header: Header,
    path: &Path,
    file_bytes: u64,
    threads: u64,
    summary: &Summary,
    exit_status: i32,
) -> RecordReport {
    let mut notes = summary.losses();
    if summary.ended_by == EndedBy::Limit {
        notes.push("recording stopped at --max-bytes, before the program ended; a larger one takes more".to_owned());
    }
    if exit_status != 0 {
        notes.push(format!("the program ended with status {exit_status}"));
    }
    RecordReport {
        schema: RecordReport::SCHEMA.to_owned(),
        command: header.command,
        file: path.display().to_string(),
        file_bytes,
        kernel: header.kernel,
        vcpus: header.vcpus,
        wall_ns: summary.wall_ns,
        threads,
        events: summary.events,
        lost_events: summary.lost,
        untracked_threads: summary.untracked,
        ended_by: summary.ended_by.word().to_owned(),
        exit_status,
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_named_after_its_program_and_has_room() {
        assert_eq!(default_file(&OsString::from("/usr/bin/pigz")), PathBuf::from("pigz.glthreads"));
        assert_eq!(file_size("64k"), Ok(65_536));
        for bad in ["4k", "much", ""] {
            assert!(file_size(bad).is_err(), "{bad}");
        }
    }
}
