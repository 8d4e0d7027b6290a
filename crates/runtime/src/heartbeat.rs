//! What a run and its guardian share: when the run's loop was last alive, and how often the guardian took values back
//! since.
//!
//! Memory without a name, so that nothing is left of it; two numbers, each written by one side.

use gleaner_model::Nanos;
use gleaner_sys::monotonic;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// A loop that was silent for so long hangs, or its process is stopped. Below two seconds, which are promised; windows
/// end within one.
pub(crate) const SILENT: Nanos = Nanos::from_millis(1750);

const BEAT: u64 = 0;
const TAKEN: u64 = 8;

/// Both numbers; 0 in the beginning.
#[derive(Debug)]
pub(crate) struct Heartbeat(File);

impl Heartbeat {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(rustix::fs::memfd_create("gleaner-heartbeat", rustix::fs::MemfdFlags::CLOEXEC)?.into()))
    }

    /// For the guardian, which finds it as its stdout.
    pub(crate) fn as_stdout(&self) -> Stdio {
        self.0.try_clone().map_or_else(|_| Stdio::null(), Stdio::from)
    }

    /// The guardian's side.
    pub(crate) fn from_stdout() -> io::Result<Self> {
        Ok(Self(io::stdout().as_fd().try_clone_to_owned()?.into()))
    }

    pub(crate) fn beat(&self) {
        self.write(BEAT, monotonic().0);
    }

    /// When it last beat; `None`: never, or nothing is known.
    pub(crate) fn last(&self) -> Option<Nanos> {
        Some(Nanos(self.read(BEAT))).filter(|last| *last > Nanos::ZERO)
    }

    /// What the run had set is about to be taken back.
    pub(crate) fn takes_back(&self) {
        self.write(TAKEN, self.taken() | 1);
    }

    /// It was taken back.
    pub(crate) fn took_back(&self) {
        self.write(TAKEN, (self.taken() | 1) + 1);
    }

    /// How often, twice; odd while it is being taken back.
    pub(crate) fn taken(&self) -> u64 {
        self.read(TAKEN)
    }

    fn read(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).map_or(0, |()| u64::from_ne_bytes(bytes))
    }

    /// A few bytes of a file in memory: only a limit on file sizes could refuse them, and then nobody is watched.
    fn write(&self, at: u64, number: u64) {
        let _ = self.0.write_all_at(&number.to_ne_bytes(), at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_reads_what_the_other_wrote() {
        let run = Heartbeat::new().unwrap();
        let guardian = Heartbeat(run.0.try_clone().unwrap());
        assert_eq!((guardian.last(), run.taken()), (None, 0));
        let before = monotonic();
        run.beat();
        assert!(guardian.last().unwrap() >= before);
        guardian.takes_back();
        assert_eq!(run.taken(), 1);
        // One that was killed meanwhile, and the next.
        guardian.takes_back();
        guardian.took_back();
        assert_eq!(run.taken(), 2);
        guardian.took_back();
        assert_eq!(run.taken(), 4);
    }
}
