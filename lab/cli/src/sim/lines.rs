//! `--jsonl FILE`: a line for each simulation, written when it is done. What is there already is not simulated again.
//!
//! A line says which simulation it is of by a number over all that it depends on: the simulator's whole configuration,
//! the seed in it, and this build. So files of several calls can be put one behind the other, and lines of another
//! scenario or build do not count.

use gleaner_command::failure::Failure;
use gleaner_lab_report::SimRun;
use gleaner_sim::config::Config;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// One simulation.
#[derive(Debug, Deserialize, Serialize)]
pub struct SimLine {
    pub schema: String,
    /// Which simulation by which build.
    pub point: String,
    pub scenario: String,
    /// What was set.
    pub set: Map<String, Value>,
    /// What the neighbours run.
    pub beside: String,
    /// The host's slice, of `machine.slices`.
    pub slice: Option<String>,
    pub run: SimRun,
}

pub const SCHEMA: &str = "gleaner.sim-line/1";

/// With a hundred decisions for each of a thousand virtual machines a line has a tenth of that.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// The file.
pub struct Lines {
    path: PathBuf,
    build: u64,
    done: BTreeMap<String, SimRun>,
    file: Mutex<File>,
}

impl Lines {
    /// Reads what is there. A last line without its end is what a killed call left, and is cut off.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: &io::Error| Failure::unwritten(format_args!("--jsonl file {}", path.display()), error);
        let mut file =
            File::options().read(true).append(true).create(true).open(path).map_err(|error| failed(&error))?;
        let (mut done, mut whole, mut number) = (BTreeMap::new(), 0, 0);
        let mut reader = BufReader::new(&mut file);
        loop {
            let mut line = Vec::new();
            let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            let read = read.map_err(|error| failed(&error))? as u64;
            if read == LINE_BYTES_MAX {
                return Err(Failure::input(format!(
                    "{}: a line is longer than any of `gleaner-lab sim run`",
                    path.display()
                )));
            }
            if line.last() != Some(&b'\n') {
                break;
            }
            number += 1;
            let known: SimLine =
                serde_json::from_slice(&line).ok().filter(|line: &SimLine| line.schema == SCHEMA).ok_or_else(|| {
                    let what = "is no line of `gleaner-lab sim run`; give another file";
                    Failure::input(format!("{}:{number}: {what}", path.display()))
                })?;
            done.insert(known.point, known.run);
            whole += read;
        }
        file.set_len(whole).and_then(|()| file.seek(io::SeekFrom::End(0))).map_err(|error| failed(&error))?;
        let program = std::env::current_exe().and_then(fs::read).map_err(Failure::work)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&program);
        Ok(Self { path: path.to_owned(), build: hasher.finish(), done, file: Mutex::new(file) })
    }

    /// The number of a simulation.
    pub fn point(&self, config: &Config) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.build);
        hasher.write(format!("{config:?}").as_bytes());
        format!("{:016x}", hasher.finish())
    }

    /// What an earlier call had.
    pub fn done(&self, point: &str) -> Option<&SimRun> {
        self.done.get(point)
    }

    /// Adds a line, whole.
    pub fn add(&self, line: &SimLine) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(line).map_err(Failure::work)?;
        text.push(b'\n');
        let written = self.file.lock().expect("nobody panics while it is held").write_all(&text);
        written.map_err(|error| Failure::work(format!("cannot write to {}: {error}", self.path.display())))
    }
}
