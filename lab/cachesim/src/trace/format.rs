//! Which format a file has, by its content.

use super::champsim::{self, ChampSim, Layout};
use super::lackey::{self, Lackey};
use super::memtrace::{self, MemtraceView};
use super::packed::unpacked;
use super::plain::{self, PlainText};
use super::recording::{MAGIC, Recording, check_end};
use super::text::BYTE_ORDER_MARK;
use super::{Repeat, Trace, TraceError};
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// A trace's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Gleaner's own.
    Recording,
    /// `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// `R|W HEXADDR` lines.
    Plain,
    /// ChampSim's instructions.
    ChampSim,
    /// DynamoRIO's `-tool view`.
    Memtrace,
}

impl Format {
    /// Names that [`Self::by_name`] knows.
    pub const NAMES: [&str; 5] = ["recording", "lackey", "plain", "champsim", "memtrace"];

    /// The format with that name.
    pub fn by_name(name: &str) -> Option<Self> {
        let all = [Self::Recording, Self::Lackey, Self::Plain, Self::ChampSim, Self::Memtrace];
        Self::NAMES.iter().position(|known| *known == name).map(|at| all[at])
    }
}

/// Bytes at the start that say what a file is.
const START_BYTES: u64 = 4096;

/// Opens a trace; its format is told by its content unless it is given. Files packed by gzip, xz, lzma, zstd, bzip2,
/// lz4 or zip are unpacked on the way.
pub fn open(path: &Path, format: Option<Format>) -> Result<Box<dyn Trace>, TraceError> {
    let failed = |source| TraceError::read(path, source);
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        let why = "it is a folder; name a trace in it. One of DynamoRIO's becomes a trace by 'drrun -t drmemtrace -tool view -indir FOLDER 2> FILE'";
        return Err(failed(std::io::Error::new(std::io::ErrorKind::IsADirectory, why)));
    }
    // To look at a recording's end, which is not where it is while it is packed.
    let bare = file.try_clone().map_err(failed)?;
    let (start, input) = start_of(path, BufReader::with_capacity(1 << 16, file))?;
    let (packed, start, input) = match unpacked(path, &start, input, &bare)? {
        Ok(input) => {
            let (start, input) = start_of(path, input)?;
            (true, start, input)
        }
        Err(input) => (false, start, input),
    };
    if start.is_empty() {
        return Err(TraceError::Empty {
            path: path.to_owned(),
            expected: "it is empty; 'gleaner-lab cache record -- CMD' makes a trace",
        });
    }
    let whole = (start.len() as u64) < START_BYTES;
    let wrong = |what: String| TraceError::format(path, 0, what);
    let format = match format {
        Some(format) => format,
        None => detected(&start, whole).ok_or_else(|| wrong(unknown(&start)))?,
    };
    Ok(match format {
        Format::Recording => {
            let recording = Recording::new(path, input)?;
            if !packed {
                check_end(path, &bare)?;
            }
            Box::new(recording)
        }
        Format::Lackey => Box::new(Lackey::new(path, input)),
        Format::Plain => Box::new(PlainText::new(path, input)),
        Format::ChampSim => {
            let Some(layout) = Layout::of(&start, whole) else { return Ok(Box::new(ChampSim::new(path, input))) };
            if champsim::is_big_endian(&start, layout) {
                return Err(wrong(
                    "written in big-endian byte order, and ChampSim's format is little-endian".to_owned(),
                ));
            }
            Box::new(ChampSim::of(path, input, layout))
        }
        Format::Memtrace => Box::new(MemtraceView::new(path, input)),
    })
}

/// As [`open`], and it starts over when it is over. A long one from a pipe cannot, which is [`TraceError::Once`].
pub fn open_endless(path: &Path, format: Option<Format>) -> Result<Box<dyn Trace>, TraceError> {
    let trace = open(path, format)?;
    let path = path.to_owned();
    let again = move || {
        // Opening a named pipe again would wait for another writer.
        let is = std::fs::metadata(&path).map_err(|source| TraceError::read(&path, source))?;
        if is.is_file() { open(&path, format) } else { Err(TraceError::Once { path: path.clone() }) }
    };
    Ok(Box::new(Repeat::begun(trace, again)))
}

/// What a file is that is read by none of them.
fn unknown(start: &[u8]) -> String {
    let known = [
        (&b"\xff\xfe"[..], "UTF-16 text, as PowerShell writes; 'iconv -f UTF-16 -t UTF-8 FILE' makes it readable"),
        (b"\xfe\xff", "UTF-16 text; 'iconv -f UTF-16 -t UTF-8 FILE' makes it readable"),
        (
            b"\x19\0\0\0",
            "a file of DynamoRIO's own, which lacks instructions; 'drrun -t drmemtrace -tool view -indir FOLDER 2> FILE' makes a trace of it",
        ),
        (b"PERFILE2", "a file of perf's; 'gleaner-lab cache record -- CMD' makes a trace"),
        (b"\x7fELF", "a program or library; 'gleaner-lab cache record -- CMD' makes a trace of one"),
    ];
    let what = known.into_iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, what)| what.to_owned());
    what.unwrap_or_else(|| format!("no trace that is known here (it is none of {})", Format::NAMES.join(", ")))
}

/// The first bytes of a stream, and the whole stream.
fn start_of(path: &Path, mut input: impl Read + 'static) -> Result<(Vec<u8>, Box<dyn Read>), TraceError> {
    let mut start = Vec::new();
    input.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(|source| TraceError::read(path, source))?;
    Ok((start.clone(), Box::new(Cursor::new(start).chain(input))))
}

fn detected(start: &[u8], whole: bool) -> Option<Format> {
    if start.starts_with(&MAGIC[..start.len().min(MAGIC.len())]) {
        return Some(Format::Recording);
    }
    // Kind 25, size 0, and a version.
    if matches!(start, [0x19, 0, 0, 0, _, 0, 0, 0, 0, 0, 0, 0, ..]) {
        return None;
    }
    // Names of programs and what they print may be in any encoding; other control characters are in no text.
    let is_text = start.iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace() || *byte == 0x1b);
    // A program's name in it may be no ASCII; most of a trace is.
    let is_ascii = start.iter().filter(|byte| byte.is_ascii()).count() * 2 >= start.len();
    if !is_text || !is_ascii {
        return Layout::of(start, whole).map(|_| Format::ChampSim);
    }
    let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start);
    let lines = || start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).filter(|line| !line.is_empty());
    let known = lines().find_map(|line| match line {
        _ if memtrace::looks_like(line) => Some(Format::Memtrace),
        _ if lackey::looks_like(line) => Some(Format::Lackey),
        _ if plain::looks_like(line) => Some(Format::Plain),
        // What a program printed before, or a comment.
        _ => None,
    });
    // Whatever else is text is told what is wrong with its line.
    known.or(Some(Format::Plain))
}
