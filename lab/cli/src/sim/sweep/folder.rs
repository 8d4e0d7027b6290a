//! The folder of a sweep: what is being swept, and a file for each point that is finished.
//!
//! A point's file is there only when it is whole, so who comes after a kill, a Ctrl-C or a machine's end does what is
//! missing and nothing else. `sweep.json` says what the points are of: a sweep of something else, or by another build,
//! is refused.

use gleaner_command::failure::Failure;
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// What makes results comparable: two sweeps in one folder must agree in all of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: String,
    /// Version and digest of the program: a simulator that was changed gives other results.
    pub build: String,
    /// The scenario, as TOML.
    pub scenario: String,
    /// The policy files that it names, with what they say.
    pub policy_files: BTreeMap<String, String>,
    /// Each parameter with its values, as TOML.
    pub parameters: Vec<(String, Vec<String>)>,
    pub seed: u64,
    pub seeds: u32,
    pub points: usize,
    /// Where each simulation ends, if not by itself.
    pub max_events: Option<u64>,
}

impl Manifest {
    pub const SCHEMA: &'static str = "gleaner.sweep-folder/1";

    /// What differs, in words.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.build != other.build {
            return Some(format!("another build of gleaner made it ({}; this one is {})", other.build, self.build));
        }
        let differs = [
            (self.scenario != other.scenario, "the scenario"),
            (self.policy_files != other.policy_files, "a policy file"),
            (self.parameters != other.parameters, "--set"),
            (self.seed != other.seed, "--seed"),
            (self.seeds != other.seeds, "--seeds"),
            (self.max_events != other.max_events, "--max-events"),
        ];
        let names: Vec<&str> = differs.iter().filter(|(differs, _)| *differs).map(|(_, name)| *name).collect();
        if !names.is_empty() {
            return Some(format!("{} changed since", names.join(" and ")));
        }
        (self != other).then(|| "it was made for something else".to_owned())
    }
}

/// This program: its version, and a digest of the file that it runs from.
pub fn build() -> io::Result<String> {
    let mut file = File::open("/proc/self/exe")?;
    let (mut hasher, mut buffer) = (FxHasher::default(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish())),
            n => hasher.write(&buffer[..n]),
        }
    }
}

/// A sweep's folder, open.
#[derive(Debug)]
pub struct Folder {
    points: PathBuf,
    sweep: u32,
}

/// No point's file is longer: one has a row for each VM.
const POINT_BYTES_MAX: u64 = 16 << 20;
/// Nor is what says what a sweep is of, policy files included.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The whole of a file, if it is no longer than that.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("longer than {most} bytes, and none of ours is"),
        ));
    }
    Ok(bytes)
}

impl Folder {
    /// Begins a sweep there, or goes on with one that is the same.
    pub fn open(path: &Path, manifest: &Manifest) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::input(format!(
                "cannot write to {}: {error}; name a folder you may write to with -o",
                path.display()
            ))
        };
        let points = path.join("points");
        fs::create_dir_all(&points).map_err(cannot)?;
        let place = path.join("sweep.json");
        let text = serde_json::to_string_pretty(manifest).map_err(Failure::work)?;
        let sweep = crc32fast::hash(text.as_bytes());
        match write(&place, format!("{text}\n").as_bytes(), Overwrite::Never) {
            Ok(()) => return Ok(Self { points, sweep }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(error)),
        }
        let there = read(&place, MANIFEST_BYTES_MAX).map_err(cannot)?;
        let other: Manifest = serde_json::from_slice(&there).map_err(|error| {
            Failure::input(format!("{} is no sweep's: {error}; name another folder with -o", place.display()))
        })?;
        match manifest.difference(&other) {
            None => Ok(Self { points, sweep }),
            Some(why) => Err(Failure::input(format!(
                "{} has another sweep: {why}. Results of both must not be mixed: name another folder with -o, or delete this one",
                path.display()
            ))),
        }
    }

    fn file(&self, point: usize) -> PathBuf {
        self.points.join(format!("{point:06}.parquet"))
    }

    /// Whether a point is finished.
    pub fn has(&self, point: usize) -> bool {
        self.file(point).exists()
    }

    /// Keeps a point's result, all of it or nothing.
    pub fn keep(&self, point: usize, parquet: &[u8]) -> io::Result<()> {
        write(&self.file(point), parquet, Overwrite::IfThere)
    }

    /// A finished point's file.
    pub fn read_point(&self, point: usize) -> Result<Vec<u8>, Failure> {
        let path = self.file(point);
        read(&path, POINT_BYTES_MAX).map_err(|error| Failure::work(format!("cannot read {}: {error}", path.display())))
    }

    /// The sweep's number: two sweeps of different things have different ones.
    pub fn sweep(&self) -> u32 {
        self.sweep
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    Never,
    IfThere,
}

/// Beside it first, then in its place. The name has no ending that a pattern such as `*.parquet` would find.
fn write(path: &Path, bytes: &[u8], overwrite: Overwrite) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As the umask has it: others on a shared file system read the results.
    builder.prefix(".unfinished-").permissions(Permissions::from_mode(0o666));
    let mut file: NamedTempFile = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    let persisted = match overwrite {
        Overwrite::Never => file.persist_noclobber(path),
        Overwrite::IfThere => file.persist(path),
    };
    persisted.map(drop).map_err(|error| error.error)
}
