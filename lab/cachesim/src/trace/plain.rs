//! The simplest trace: a line an access, `R` or `W` and a hexadecimal address. Empty lines and lines that start with
//! `#` are passed over. Each access counts as one instruction.

use super::text::{Lines, hexadecimal};
use super::{BATCH, Kind, Record, Trace, TraceError};
use std::io::Read;
use std::path::Path;

/// What a line has to look like.
const EXPECTED: &str = "write R or W and a hexadecimal address, as in 'R 7f001040'";

/// Reads `R|W HEXADDR` lines.
pub struct PlainText<R> {
    lines: Lines<R>,
    empty: bool,
}

/// Whether a line is an access, to tell formats apart.
pub(super) fn looks_like(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    !line.is_empty() && parse(line).is_some()
}

impl<R: Read> PlainText<R> {
    /// From any stream; `path` is what errors call it.
    pub fn new(path: &Path, input: R) -> Self {
        Self { lines: Lines::new(path, input), empty: true }
    }
}

impl<R: Read> Trace for PlainText<R> {
    fn fill(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let full = batch.len() + BATCH;
        while batch.len() < full {
            let Some(line) = self.lines.next()? else { break };
            let line = line.trim_ascii_start();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let (parsed, full) = (parse(line), is_full(line));
            if !full {
                self.lines.whole()?;
            }
            let Some((kind, address)) = parsed else {
                return Err(self.lines.error(format!("{} is no access; {EXPECTED}", self.lines.shown())));
            };
            batch.push(Record { address, instructions: 1, kind });
            self.empty = false;
        }
        if self.empty {
            return Err(TraceError::Empty { path: self.lines.path().to_owned(), expected: EXPECTED });
        }
        Ok(())
    }
}

/// Whether more digits cannot have followed.
fn is_full(line: &[u8]) -> bool {
    line.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count() == 16
}

fn parse(line: &[u8]) -> Option<(Kind, u64)> {
    let kind = match line[0] {
        b'R' | b'r' => Kind::Read,
        b'W' | b'w' => Kind::Write,
        _ => return None,
    };
    let address = line[1..].trim_ascii_start();
    if address.len() + 1 == line.len() {
        return None;
    }
    Some((kind, hexadecimal(address)?))
}
