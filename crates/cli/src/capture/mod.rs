//! The flight recorder: `--capture` of `run` and `attach`, `gleaner capture` for the daemon's, and `gleaner replay` and
//! `dump` for what was recorded.

mod dump;
mod names;
mod replay;
mod take;

use clap::Args;
pub use dump::{DumpArgs, main as dump};
use gleaner_capture::{CaptureError, Reader, Target};
use gleaner_command::args::file_size;
use gleaner_command::failure::Failure;
use gleaner_command::files::refuse_strangers;
use gleaner_model::printable;
use gleaner_runtime::Runtime;
use gleaner_sys::Limit;
pub use replay::{ReplayArgs, main as replay};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
pub use take::{CaptureArgs, main as take};

/// Where to record.
#[derive(Debug, Args)]
pub struct RecordingArgs {
    /// Record what Gleaner sees and decides, for `gleaner replay` and `gleaner dump`; an earlier file is replaced
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Stop recording when the file is so long (k, M and G are understood); the program goes on
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = file_size, requires = "capture")]
    pub capture_limit: u64,
}

/// A file to record to, open.
#[derive(Debug)]
pub struct Recording {
    file: File,
    limit: u64,
}

impl RecordingArgs {
    /// Opens the file: what is wrong with it must not come out only after the work.
    pub fn open(&self) -> Result<Option<Recording>, Failure> {
        let Some(path) = &self.capture else { return Ok(None) };
        let open = |()| OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let file = refuse_strangers(path).and_then(open).map_err(|error| {
            Failure::input(format!(
                "cannot write --capture file {}: {error}; name a file you may write",
                path.display()
            ))
        })?;
        Ok(Some(Recording { file, limit: self.capture_limit }))
    }
}

impl Recording {
    /// Records what `runtime` does from now on.
    pub fn begin(self, runtime: &mut Runtime) {
        runtime.record_to(Target::File(self.file, self.limit), unix_s());
    }
}

/// What the machine's clock says, in seconds since 1970.
#[allow(clippy::disallowed_methods, reason = "it is told, and nothing is computed from it")]
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a group is called: its program.
pub fn name_of(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    printable(program.as_encoded_bytes())
}

/// Bytes of address space for whoever reads a capture.
const READING_BYTES_MAX: u64 = 2 << 30;

fn open(path: &Path) -> Result<Reader<File>, Failure> {
    // A file made for it may tell of states that no memory holds: then this process ends, and no other.
    Limit::ADDRESS_SPACE.lower(READING_BYTES_MAX);
    let name = path.display();
    let file = File::open(path)
        .map_err(|error| Failure::input(format!("cannot read {name}: {error}; name a file that --capture wrote")))?;
    Reader::new(file).map_err(|error| match error {
        CaptureError::Io(error) => Failure::input(format!("cannot read {name}: {error}")),
        error => Failure::input(format!("{name}: {error}")),
    })
}
