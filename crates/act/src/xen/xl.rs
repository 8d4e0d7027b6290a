//! Running `xl`, Xen's own tool. It hangs for good where xenstored does not run, so it gets a limit.

use crate::ActError;
use gleaner_sys::why_refused;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How long one `xl` may take. It takes a few milliseconds; under an emulator, a second.
const LIMIT: Duration = Duration::from_secs(30);
/// Where it lives if it is not in the PATH: a `gleaner restore` of somebody whose PATH has no sbin.
const USUAL: [&str; 3] = ["/usr/sbin/xl", "/sbin/xl", "/usr/local/sbin/xl"];

/// Xen's own tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xl {
    program: PathBuf,
}

impl Xl {
    /// The one of this machine; `None` where there is none.
    #[must_use]
    pub fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path).map(|folder| folder.join("xl"));
        in_path.chain(USUAL.map(PathBuf::from)).find(|file| file.is_file()).map(|program| Self { program })
    }

    /// The one at `program`.
    #[must_use]
    pub fn at(program: &Path) -> Self {
        Self { program: program.to_owned() }
    }

    /// Where it is.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it; what it wrote to stdout.
    ///
    /// # Errors
    /// [`ActError::File`] when it cannot be started, [`ActError::Xl`] with its own words when it fails or does not end.
    pub fn run<Word: AsRef<str>>(&self, words: &[Word]) -> Result<String, ActError> {
        let mut child = Command::new(&self.program)
            .args(words.iter().map(AsRef::as_ref))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(ActError::file("run", &self.program))?;
        // Both are read while it runs: a pipe that is full would stop it.
        let (stdout, stderr) = match (reader(child.stdout.take()), reader(child.stderr.take())) {
            (Ok(stdout), Ok(stderr)) => (stdout, stderr),
            (Err(error), _) | (_, Err(error)) => {
                let _ = child.kill();
                let _ = child.wait();
                let reason = format!("no thread to read what it says: {}", why_refused(&error));
                return Err(ActError::Xl { command: command_line(words), reason });
            }
        };
        let begun = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if begun.elapsed() < LIMIT => sleep(Duration::from_millis(2)),
                // It may have ended this moment: there is nothing else to do about a failure.
                Ok(None) | Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
        };
        let (stdout, stderr) = (text(stdout), text(stderr));
        match status {
            Some(status) if status.success() => Ok(stdout),
            status => Err(ActError::Xl { command: command_line(words), reason: reason(status, &stderr) }),
        }
    }
}

/// `xl sched-credit -s`.
pub(super) fn command_line<Word: AsRef<str>>(words: &[Word]) -> String {
    words.iter().fold("xl".to_owned(), |line, word| line + " " + word.as_ref())
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> io::Result<JoinHandle<Vec<u8>>> {
    thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error still counts.
        if let Some(mut pipe) = pipe {
            while pipe.read_to_end(&mut bytes).is_err_and(|error| error.kind() == ErrorKind::Interrupted) {}
        }
        bytes
    })
}

fn text(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

/// Why it failed: its last error, for the later ones only repeat the first ("libxl_sched_credit_params_set failed").
fn reason(status: Option<ExitStatus>, stderr: &str) -> String {
    let Some(status) = status else {
        return format!("did not end within {} s; does xenstored run?", LIMIT.as_secs());
    };
    let said = stderr.lines().find_map(|line| {
        let (_, words) = line.split_once("libxl: error: ")?;
        // `libxl_sched.c:311:libxl_sched_credit_params_set: Time slice out of range, ...`
        Some(words.split_once(": ").map_or(words, |(_, words)| words))
    });
    let said = said.or_else(|| stderr.lines().rfind(|line| !line.trim().is_empty()));
    said.map_or_else(|| status.to_string(), |words| words.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn fake(script: &str) -> (tempfile::TempDir, Xl) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("xl");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let xl = Xl::at(&program);
        (folder, xl)
    }

    #[test]
    fn output_of_any_length_is_read() {
        let (_folder, xl) = fake("seq 100000; seq 100000 >&2; echo \"$@\"");
        let output = xl.run(&["vcpu-list", "two words"]).unwrap();
        assert_eq!(output.lines().count(), 100_001);
        assert_eq!(output.lines().last(), Some("vcpu-list two words"));
    }

    #[test]
    fn a_failure_is_told_in_xens_own_words() {
        let captured = "libxl: error: libxl_sched.c:311:libxl_sched_credit_params_set: Time slice out of range, valid \
                        range is from 1 to 1000\nlibxl_sched_credit_params_set failed.";
        let (_folder, xl) = fake(&format!("echo '{captured}' >&2; exit 1"));
        let error = xl.run(&["sched-credit", "-s", "-t", "0"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`xl sched-credit -s -t 0`: Time slice out of range, valid range is from 1 to 1000"
        );
        for (script, reason) in [
            ("echo 'nobody is an invalid domain identifier (rc=-6)' >&2; exit 1", "nobody is an invalid domain"),
            ("exit 3", "exit status: 3"),
        ] {
            let (_folder, xl) = fake(script);
            let error = xl.run(&["list"]).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let error = Xl::at(Path::new("/nowhere/xl")).run(&["list"]).unwrap_err().to_string();
        assert!(error.contains("cannot run /nowhere/xl"), "{error}");
    }
}
