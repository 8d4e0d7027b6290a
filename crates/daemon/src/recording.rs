//! The flight recorder: the newest windows, decisions and events, in files that `gleaner capture` asks for.
//!
//! It records all the time where the configuration says so, and for a while where somebody asks. Nothing here fails the
//! daemon: what is in the way of recording is a warning.

use crate::config::CaptureSettings;
use gleaner_capture::{Target, is_segment};
use gleaner_runtime::Runtime;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Below the state folder.
const FOLDER: &str = "capture";
/// Of a recording that somebody asked for.
const ASKED_BYTES: u64 = 64 << 20;
/// Longer than it was asked for it stays there to be fetched.
const FETCH_TIME: Duration = Duration::from_secs(30);
/// Longest recording that may be asked for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// A disk that takes longer is too slow for an answer.
const LONGEST_FLUSH: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Recording {
    settings: Option<CaptureSettings>,
    /// In the state folder.
    own_folder: PathBuf,
    /// When a recording that was asked for is over.
    ends: Option<Instant>,
}

impl Recording {
    /// As the configuration has it.
    pub(crate) fn start(settings: Option<CaptureSettings>, state_dir: &Path, runtime: &mut Runtime) -> Self {
        let new = Self { settings, own_folder: state_dir.join(FOLDER), ends: None };
        new.begin(runtime);
        new
    }

    /// The configuration was read anew.
    pub(crate) fn reload(&mut self, settings: Option<CaptureSettings>, runtime: &mut Runtime) {
        if settings != self.settings {
            self.end(runtime);
            self.settings = settings;
            self.begin(runtime);
        }
    }

    fn begin(&self, runtime: &mut Runtime) {
        if let Some(CaptureSettings { size, folder }) = &self.settings {
            let folder = folder.as_ref().unwrap_or(&self.own_folder);
            runtime.record_to(Target::Ring(folder.clone(), *size), unix_s());
        }
    }

    /// The files there are. `length`: from now on so long; the last file begins now.
    pub(crate) fn files(&mut self, length: Option<Duration>, runtime: &mut Runtime) -> Result<Vec<PathBuf>, String> {
        match length {
            Some(length) if length > LONGEST => return Err("that is longer than a day".to_owned()),
            Some(_) if self.settings.is_some() => runtime.cut_recording(),
            Some(length) => {
                self.ends = Some(Instant::now() + length + FETCH_TIME);
                runtime.record_to(Target::Ring(self.own_folder.clone(), ASKED_BYTES), unix_s());
            }
            None if self.settings.is_none() && self.ends.is_none() => {
                let advice = "say how long with --for, or write [capture] size into the configuration";
                return Err(format!("nothing is recorded: {advice}"));
            }
            None => {}
        }
        let recorder = runtime.recorder().ok_or("recording has stopped: `gleaner status` says why")?;
        recorder.flush(LONGEST_FLUSH).ok_or_else(|| "recording has stopped, or the disk is too slow".to_owned())
    }

    /// Ends what was asked for, once it is over.
    pub(crate) fn look(&mut self, runtime: &mut Runtime) {
        if self.ends.is_some_and(|ends| Instant::now() >= ends) {
            self.end(runtime);
        }
    }

    fn end(&mut self, runtime: &mut Runtime) {
        runtime.record_no_more();
        self.ends = None;
        self.tidy();
    }

    /// Removes what is in the state folder, which the daemon leaves as it found it. To be called once nobody records.
    pub(crate) fn tidy(&self) {
        let files = std::fs::read_dir(&self.own_folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for file in files.filter(|file| is_segment(file)) {
            let _ = std::fs::remove_file(file);
        }
        // Fails where somebody put something else there, which is not ours.
        let _ = std::fs::remove_dir(&self.own_folder);
    }
}

/// What the machine's clock says, in seconds since 1970.
#[allow(clippy::disallowed_methods, reason = "it is told, and nothing is computed from it")]
fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
