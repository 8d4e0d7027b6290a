//! Which format a file has, by its content, and its unpacking.

use super::champsim::{self, ChampSim};
use super::lackey::Lackey;
use super::memtrace::MemtraceView;
use super::plain::PlainText;
use super::recording::{MAGIC, Recording, check_end};
use super::{Trace, TraceError};
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
    /// ChampSim's 64-byte instructions.
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
/// Dictionaries of xz files, KiB: what `xz -9` makes takes 65 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 256 << 10;

/// Opens a trace; its format is told by its content unless it is given. Files packed by gzip, xz or zstd are unpacked on the way.
pub fn open(path: &Path, format: Option<Format>) -> Result<Box<dyn Trace>, TraceError> {
    let failed = |source| TraceError::read(path, source);
    let file = File::open(path).map_err(failed)?;
    // To look at a recording's end, which is not where it is while it is packed.
    let mut bare = Some(file.try_clone().map_err(failed)?);
    let (start, input) = start_of(path, BufReader::with_capacity(1 << 16, file))?;
    let (start, input) = match unpacked(&start, input) {
        Unpacked::As(input) => {
            bare = None;
            start_of(path, input.map_err(failed)?)?
        }
        Unpacked::Plain(input) => (start, input),
    };
    if start.is_empty() {
        return Err(TraceError::Empty {
            path: path.to_owned(),
            expected: "it is empty; 'gleaner cache record -- CMD' makes a trace",
        });
    }
    let format = match format {
        Some(format) => format,
        None => detected(&start).ok_or_else(|| {
            TraceError::format(
                path,
                0,
                format!("no trace that is known here (it is none of {})", Format::NAMES.join(", ")),
            )
        })?,
    };
    Ok(match format {
        Format::Recording => {
            let recording = Recording::new(path, input)?;
            bare.map_or(Ok(()), |file| check_end(path, &file))?;
            Box::new(recording)
        }
        Format::Lackey => Box::new(Lackey::new(path, input)),
        Format::Plain => Box::new(PlainText::new(path, input)),
        Format::ChampSim => Box::new(ChampSim::new(path, input)),
        Format::Memtrace => Box::new(MemtraceView::new(path, input)),
    })
}

/// The first bytes of a stream, and the whole stream.
fn start_of(path: &Path, mut input: impl Read + 'static) -> Result<(Vec<u8>, Box<dyn Read>), TraceError> {
    let mut start = Vec::new();
    input.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(|source| TraceError::read(path, source))?;
    Ok((start.clone(), Box::new(Cursor::new(start).chain(input))))
}

enum Unpacked {
    As(std::io::Result<Box<dyn Read>>),
    Plain(Box<dyn Read>),
}

fn unpacked(start: &[u8], input: Box<dyn Read>) -> Unpacked {
    let buffered = |input: Box<dyn Read>| -> Box<dyn Read> { Box::new(BufReader::with_capacity(1 << 16, input)) };
    if start.starts_with(&[0x1f, 0x8b]) {
        Unpacked::As(Ok(buffered(Box::new(flate2::read::MultiGzDecoder::new(input)))))
    } else if start.starts_with(b"\xfd7zXZ\0") {
        Unpacked::As(Ok(buffered(Box::new(lzma_rust2::XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB_MAX)))))
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Unpacked::As(zstd::stream::read::Decoder::new(input).map(|decoder| buffered(Box::new(decoder))))
    } else {
        Unpacked::Plain(input)
    }
}

fn detected(start: &[u8]) -> Option<Format> {
    if start.starts_with(&MAGIC[..start.len().min(MAGIC.len())]) {
        return Some(Format::Recording);
    }
    let is_text = start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    if !is_text {
        return champsim::looks_like(start).then_some(Format::ChampSim);
    }
    let lines = start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).filter(|line| !line.is_empty());
    lines
        .into_iter()
        .find_map(|line| match line {
            [b'I', b' ', b' ', ..] | [b' ', b'L' | b'S' | b'M', b' ', ..] | [b'=', b'=', ..] => Some(Format::Lackey),
            [b'#', ..] => None,
            _ if line.starts_with(b"Output format:")
                || contains(line, b"byte(s) @ 0x")
                || contains(line, b"<marker: ") =>
            {
                Some(Format::Memtrace)
            }
            // Whatever else is text is told what is wrong with its line.
            _ => Some(Format::Plain),
        })
        .or(Some(Format::Plain))
}

fn contains(line: &[u8], words: &[u8]) -> bool {
    line.windows(words.len()).any(|window| window == words)
}
