//! The host's end of testbed/agent.sh: commands to a guest, answers from it, each line stamped when it came.
//!
//! A thread reads the lines, so that stamps do not wait for whatever the runner is doing. Everything that waits has a
//! limit.

use crate::error::{Patience, RunnerError, TICK};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// A moment: when, and how much CPU time the VM had used by then.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The host's clock.
    pub at: Instant,
    /// CPU time of the VM's threads; `None` where it cannot be read.
    pub cpu_ns: Option<u64>,
}

/// What a command came to.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// As a shell would say it.
    pub status: i32,
    /// What it wrote (`output`) and left in files, by name.
    pub frames: BTreeMap<String, String>,
    /// When it said that it began, and that it had ended.
    pub began: Option<Stamp>,
    /// See `began`.
    pub ended: Option<Stamp>,
    /// The host's time at the guest's boot, by the least delayed of the times that it told.
    pub booted: Option<Instant>,
    /// Whether it was not waited for any longer: then there is no more than the above.
    pub overdue: bool,
}

/// As timeout(1) has it.
const STATUS_OVERDUE: i32 = 124;

/// Why there is no answer.
#[derive(Debug)]
pub enum Silence {
    /// The guest's end is closed: the VM is gone.
    Gone,
    /// It did not answer in time.
    Hangs,
    Stop(RunnerError),
}

/// A guest that listens.
pub struct Agent {
    line: UnixStream,
    from_guest: Receiver<(Stamp, String)>,
    /// The answer that is coming in.
    open: Option<Open>,
    /// What came lately, for whoever has to find out what went wrong.
    heard: Vec<String>,
}

struct Open {
    id: String,
    answer: Answer,
    frame: Option<(String, String)>,
}

/// Lines that wait to be taken: a guest that floods its line waits.
const LINES_WAITING: usize = 10_000;
/// Lines kept for messages.
const HEARD_MAX: usize = 20;
/// A longer line is no line of ours; of JSON there may be one.
const LINE_BYTES_MAX: u64 = 16 << 20;

impl Agent {
    /// Listens on a guest's line; `cpu_ns` reads the VM's CPU time.
    pub fn new(line: UnixStream, cpu_ns: impl Fn() -> Option<u64> + Send + 'static) -> Result<Self, RunnerError> {
        let broken = |error| RunnerError::work("a guest's line", error);
        let reader = line.try_clone().map_err(broken)?;
        let (to_runner, from_guest) = sync_channel(LINES_WAITING);
        std::thread::Builder::new()
            .name("guest's line".to_owned())
            .spawn(move || {
                let mut reader = BufReader::new(reader);
                while let Some(text) = next_line(&mut reader) {
                    let cpu_ns = (text.starts_with("began ") || text.starts_with("ended ")).then(&cpu_ns).flatten();
                    let stamp = Stamp { at: Instant::now(), cpu_ns };
                    if to_runner.send((stamp, text)).is_err() {
                        break;
                    }
                }
            })
            .map_err(broken)?;
        Ok(Self { line, from_guest, open: None, heard: Vec::new() })
    }

    /// Waits for the guest's first word: its kernel's release.
    pub fn ready(&mut self, patience: &Patience, limit: Duration) -> Result<String, Silence> {
        let end = Instant::now() + limit;
        loop {
            if let Some((_, line)) = self.next(patience, end)?
                && let Some(kernel) = line.strip_prefix("ready ")
            {
                return Ok(kernel.to_owned());
            }
        }
    }

    /// Sends a command; [`Agent::poll`] or [`Agent::wait`] have its answer.
    pub fn send(&mut self, verb: &str, id: &str, words: &[String]) -> Result<(), Silence> {
        let mut line = format!("{verb} {id}");
        for word in words {
            line.push(' ');
            line.push_str(&quoted(word));
        }
        line.push('\n');
        self.open = Some(Open { id: id.to_owned(), answer: Answer::default(), frame: None });
        self.line.write_all(line.as_bytes()).map_err(|_| Silence::Gone)
    }

    /// Says goodbye: the guest switches itself off.
    pub fn bye(&mut self) {
        // One that is gone already needs none.
        let _ = self.line.write_all(b"bye\n");
    }

    /// Waits for the answer of the command last sent.
    pub fn wait(&mut self, patience: &Patience, limit: Duration) -> Result<Answer, Silence> {
        let end = Instant::now() + limit;
        loop {
            if let Some(answer) = self.poll(patience, end)? {
                return Ok(answer);
            }
        }
    }

    /// Waits for a moment; the answer, if it is complete. `end` is when it hangs.
    pub fn poll(&mut self, patience: &Patience, end: Instant) -> Result<Option<Answer>, Silence> {
        let Some((stamp, line)) = self.next(patience, end)? else { return Ok(None) };
        let Some(open) = &mut self.open else { return Ok(None) };
        if open.take(stamp, &line) { Ok(self.open.take().map(|open| open.answer)) } else { Ok(None) }
    }

    /// What there is of the answer that did not come in time.
    pub fn give_up(&mut self) -> Answer {
        let so_far = self.open.take().map(|open| open.answer).unwrap_or_default();
        Answer { status: STATUS_OVERDUE, overdue: true, ..so_far }
    }

    /// What came lately.
    pub fn heard(&self) -> String {
        self.heard.join("\n")
    }

    fn next(&mut self, patience: &Patience, end: Instant) -> Result<Option<(Stamp, String)>, Silence> {
        patience.check().map_err(Silence::Stop)?;
        match self.from_guest.recv_timeout(TICK) {
            Ok((stamp, line)) => {
                if self.heard.len() >= HEARD_MAX {
                    self.heard.remove(0);
                }
                self.heard.push(line.chars().take(300).collect());
                Ok(Some((stamp, line)))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Silence::Gone),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= end => Err(Silence::Hangs),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }
}

impl Open {
    /// Takes a line; says whether the answer is complete.
    fn take(&mut self, stamp: Stamp, line: &str) -> bool {
        if let Some((name, mut text)) = self.frame.take() {
            if line == "end" {
                self.answer.frames.insert(name, text);
            } else {
                // Whatever does not begin with | is somebody else's who wrote to the same line.
                if let Some(line) = line.strip_prefix('|') {
                    text.push_str(line);
                    text.push('\n');
                }
                self.frame = Some((name, text));
            }
            return false;
        }
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["began", id] if *id == self.id => self.answer.began = Some(stamp),
            ["ended", id] if *id == self.id => self.answer.ended = Some(stamp),
            ["clock", id, seconds] if *id == self.id => {
                let told = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                let booted = told.and_then(|told| stamp.at.checked_sub(told));
                self.answer.booted = self.answer.booted.into_iter().chain(booted).min();
            }
            ["frame", id, name] if *id == self.id => self.frame = Some(((*name).to_owned(), String::new())),
            ["done", id, status] if *id == self.id => {
                self.answer.status = status.parse().unwrap_or(-1);
                return true;
            }
            _ => {}
        }
        false
    }
}

/// A line without its end; `None` when there is no more.
pub fn next_line(reader: &mut impl BufRead) -> Option<String> {
    let mut bytes = Vec::new();
    let read = std::io::Read::take(&mut *reader, LINE_BYTES_MAX).read_until(b'\n', &mut bytes).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned())
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    // A command is one line.
    if word.contains('\n') {
        return format!("$'{}'", word.replace('\\', r"\\").replace('\'', r"\'").replace('\n', r"\n"));
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A guest that answers the first command with these lines.
    fn guest(answer: &'static str) -> (Agent, thread::JoinHandle<String>) {
        let (host, guest) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || {
            let mut writer = guest.try_clone().unwrap();
            writer.write_all(b"[    1.5] noise of the kernel\nready 6.1.0-test\n").unwrap();
            let command = next_line(&mut BufReader::new(guest)).unwrap();
            writer.write_all(answer.as_bytes()).unwrap();
            command
        });
        let mut agent = Agent::new(host, || Some(7)).unwrap();
        assert_eq!(agent.ready(&patience(), LONG).unwrap(), "6.1.0-test");
        (agent, thread)
    }

    const LONG: Duration = Duration::from_secs(20);

    fn patience() -> Patience {
        Patience::new(LONG).unwrap()
    }

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_command_and_its_answer() {
        let (mut agent, guest) = guest(
            "began r1\nframe r1 output\n|two words\nnoise\n|\n|end\nend\nframe r1 run\n|{\"a\": 1}\nend\nended r1\ndone r1 3\n",
        );
        agent.send("run", "r1", &words(&["run=/tmp/r1", "--", "sh", "-c", "echo 'two words'"])).unwrap();
        let answer = agent.wait(&patience(), LONG).unwrap();
        assert_eq!(guest.join().unwrap(), r"run r1 run=/tmp/r1 -- sh -c 'echo '\''two words'\'''");
        assert_eq!(answer.status, 3);
        assert_eq!(answer.frames["output"], "two words\n\nend\n", "a program may write the word end");
        assert_eq!(answer.frames["run"], "{\"a\": 1}\n");
        let (began, ended) = (answer.began.unwrap(), answer.ended.unwrap());
        assert!(began.at <= ended.at && began.cpu_ns == Some(7));
    }

    #[test]
    fn of_the_times_a_guest_tells_the_least_delayed_counts() {
        let before = Instant::now();
        let (mut agent, guest) =
            guest("clock r1 0.02\nclock r1 0.03\nclock r1 x\nclock r0 9\nclock r1 0.00\ndone r1 0\n");
        agent.send("clock", "r1", &[]).unwrap();
        let booted = agent.wait(&patience(), LONG).unwrap().booted.unwrap();
        let after = Instant::now();
        let told = Duration::from_millis(30);
        assert!((before..=after).contains(&(booted + told)), "the second was told last, by its own clock");
        guest.join().unwrap();
    }

    #[test]
    fn answers_to_something_else_are_not_taken() {
        let (mut agent, guest) = guest("done r0 0\nbegan r0\nframe r0 output\ndone r1 1\n");
        agent.send("run", "r1", &[]).unwrap();
        let answer = agent.wait(&patience(), LONG).unwrap();
        assert_eq!((answer.status, answer.frames.len(), answer.began.is_none()), (1, 0, true));
        guest.join().unwrap();
    }

    #[test]
    fn a_guest_that_dies_is_gone_at_once() {
        let (mut agent, guest) = guest("frame r1 output\n|half\n");
        agent.send("run", "r1", &[]).unwrap();
        assert!(matches!(agent.wait(&patience(), LONG), Err(Silence::Gone)));
        assert!(agent.heard().ends_with("|half"), "{}", agent.heard());
        guest.join().unwrap();
    }

    #[test]
    fn a_guest_that_hangs_is_not_waited_for() {
        let (host, _guest) = UnixStream::pair().unwrap();
        let mut agent = Agent::new(host, || None).unwrap();
        agent.send("run", "r1", &[]).unwrap();
        assert!(matches!(agent.wait(&patience(), Duration::from_millis(1)), Err(Silence::Hangs)));
        let given_up = agent.give_up();
        assert_eq!((given_up.status, given_up.overdue, given_up.ended.is_none()), (124, true, true));
        agent.send("run", "r2", &[]).unwrap();
        let time_up = Patience::new(Duration::ZERO).unwrap();
        assert!(matches!(agent.wait(&time_up, LONG), Err(Silence::Stop(RunnerError::TimeUp))));
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let all = ["", "plain", "two words", "it's", "$HOME `ls` \\ \"", "a\nb\\c'd", "*", "ümlaut", "--x=1"];
        let line: Vec<String> = all.iter().map(|word| quoted(word)).collect();
        let line = line.join(" ");
        assert!(!line.contains('\n'), "a command is one line");
        // The guest's own shell, as the agent uses it.
        let script = "IFS= read -r line; eval \"set -- $line\"; for word; do printf '%s\\0' \"$word\"; done";
        let mut shell = std::process::Command::new("busybox")
            .args(["sh", "-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(shell.stdin.take().unwrap(), "{line}").unwrap();
        let output = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
        let back: Vec<&str> = output.strip_suffix('\0').unwrap().split('\0').collect();
        assert_eq!(back, all);
    }
}
