//! A run's output: searched for the metric as it comes, and only its end is kept.

use super::number;
use regex_lite::Regex;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A line is searched up to here; what is longer is searched in parts.
const LONGEST_LINE: usize = 64 << 10;
/// What ends a line.
const ENDS: [u8; 2] = [b'\n', b'\r'];
/// What is kept of the end, to be shown when the command fails.
const TAIL: usize = 2 << 10;
/// How long to wait for the rest of the output after the command's end. Somebody it left behind may hold it open for
/// ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    Nowhere,
    Stdout,
    Stderr,
}

/// What the metric's pattern found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Of its group.
    pub text: String,
    pub line: String,
    /// The longer number that it is a part of, if it is.
    pub part_of: Option<String>,
}

/// Finds the last match in lines that come in pieces. A progress bar's `\r` ends one too.
#[derive(Debug, Default)]
pub struct Scan {
    regex: Option<Regex>,
    line: Vec<u8>,
    last: Option<Found>,
    tail: VecDeque<u8>,
}

impl Scan {
    pub fn new(regex: Option<&Regex>) -> Self {
        Self { regex: regex.cloned(), ..Self::default() }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let excess = (self.tail.len() + bytes.len()).saturating_sub(TAIL);
        self.tail.drain(..excess.min(self.tail.len()));
        self.tail.extend(&bytes[bytes.len().saturating_sub(TAIL)..]);
        if self.regex.is_none() {
            return;
        }
        for piece in bytes.split_inclusive(|byte| ENDS.contains(byte)) {
            for part in piece.chunks(LONGEST_LINE) {
                if self.line.len() + part.len() > LONGEST_LINE {
                    self.end_line();
                }
                self.line.extend_from_slice(part);
            }
            if piece.last().is_some_and(|last| ENDS.contains(last)) {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(self.line.trim_ascii_end());
        let found = self.regex.as_ref().and_then(|regex| regex.captures_iter(&line).last()?.get(1));
        if let Some(group) = found {
            self.last = Some(Found {
                text: group.as_str().to_owned(),
                line: line.clone().into_owned(),
                part_of: number::whole(&line, group.start(), group.end()).map(str::to_owned),
            });
        }
        self.line.clear();
    }

    /// The last match.
    pub fn last(&self) -> Option<&Found> {
        self.last.as_ref()
    }

    /// The end of what was read.
    pub fn tail(&self) -> String {
        let (a, b) = self.tail.as_slices();
        String::from_utf8_lossy(&[a, b].concat()).trim_end().to_owned()
    }
}

/// A stream being read by a thread of its own.
pub struct Capture {
    scan: Arc<Mutex<Scan>>,
    ended: Receiver<()>,
}

impl Capture {
    pub fn start(mut stream: impl Read + Send + 'static, regex: Option<&Regex>, show: Show) -> io::Result<Self> {
        let scan = Arc::new(Mutex::new(Scan::new(regex)));
        let (end, ended) = channel();
        let filled = Arc::clone(&scan);
        let read = move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                // A reader that went away is no failure.
                let _ = match show {
                    Show::Nowhere => Ok(()),
                    Show::Stdout => io::stdout().write_all(&buffer[..n]),
                    Show::Stderr => io::stderr().write_all(&buffer[..n]),
                };
                locked(&filled).feed(&buffer[..n]);
            }
            locked(&filled).end_line();
            // Nobody waits any more where the patience was over.
            let _ = end.send(());
        };
        std::thread::Builder::new().name("gleaner-output".into()).spawn(read)?;
        Ok(Self { scan, ended })
    }

    /// What was read, and whether that is all.
    pub fn finish(self) -> (Scan, bool) {
        let whole = self.ended.recv_timeout(PATIENCE).is_ok();
        (std::mem::take(&mut *locked(&self.scan)), whole)
    }
}

fn locked(scan: &Mutex<Scan>) -> MutexGuard<'_, Scan> {
    scan.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_of(pattern: &str, pieces: &[&[u8]]) -> Option<String> {
        let mut scan = Scan::new(Some(&Regex::new(pattern).unwrap()));
        for piece in pieces {
            scan.feed(piece);
        }
        scan.end_line();
        scan.last().map(|found| found.text.clone())
    }

    #[test]
    fn the_last_match_counts_however_the_output_is_cut() {
        let text = b"tps: 10\ntps: 20 tps: 25\nother\ntps: 31.5\nend";
        for size in 1..text.len() {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(last_of("tps: ([0-9.]+)", &pieces).as_deref(), Some("31.5"), "in pieces of {size}");
            assert_eq!(last_of("^tps: ([0-9.]+)$", &pieces).as_deref(), Some("31.5"), "in pieces of {size}");
        }
        assert_eq!(last_of("tps: 2(.)", &[text]).as_deref(), Some("5"));
        assert_eq!(last_of("e(n)d", &[text]).as_deref(), Some("n"));
        assert_eq!(last_of("qps: (.)", &[text]), None);
        assert_eq!(last_of("x(.)", &[b"\xff\xfexy\r\n"]).as_deref(), Some("y"));
    }

    #[test]
    fn a_progress_line_that_is_written_over_is_a_line() {
        let text: &[u8] =
            b"GET: rps=0.0 (overall: nan)\rGET: rps=51.2 (overall: 51.2)\rGET: 59628.23 requests per second\n";
        assert_eq!(last_of("^GET: ([0-9.]+) requests", &[text]).as_deref(), Some("59628.23"));
        assert_eq!(last_of("^GET: rps=([0-9.]+)", &[text]).as_deref(), Some("51.2"));
        assert_eq!(last_of("GET: .*rps=([0-9.]+).*requests", &[text]), None, "not across lines");
    }

    /// Of each server that the guide names, with its usual client's output.
    #[test]
    fn the_guides_patterns_match_what_the_clients_print() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md")).unwrap();
        for (client, output, expected) in [
            (
                "redis-benchmark -q",
                "GET: rps=9.0 (overall: 8.0)\rGET: 59628.23 requests per second, p50=0.015 msec\n",
                "59628.23",
            ),
            ("memtier_benchmark", "Gets       9.0  1.0\nTotals     51234.56        0.00     46575.27 \n", "51234.56"),
            ("wrk", "  812 requests in 10.0s\nRequests/sec:  81234.56\nTransfer/sec: 9.1MB\n", "81234.56"),
            ("sysbench", "    transactions:                        4711   (471.05 per sec.)\n", "471.05"),
            (
                "pgbench",
                "latency average = 0.1 ms\ntps = 9120.123456 (without initial connection time)\n",
                "9120.123456",
            ),
        ] {
            let row =
                page.lines().find(|line| line.starts_with("| ") && line.contains(&format!("`{client}`"))).unwrap();
            let pattern = row.split('`').nth(3).unwrap();
            assert_eq!(last_of(pattern, &[output.as_bytes()]).as_deref(), Some(expected), "{row}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut scan = Scan::new(Some(&Regex::new("(q)").unwrap()));
        for _ in 0..100 {
            scan.feed(&vec![b'x'; 50_000]);
            assert!(scan.line.len() <= LONGEST_LINE && scan.tail.len() <= TAIL);
        }
        scan.feed(&vec![b'x'; 500_000]);
        scan.feed(b"the end");
        assert!(scan.line.len() <= LONGEST_LINE && scan.tail().ends_with("the end"));
    }
}
