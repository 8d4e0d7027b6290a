//! Fuzzing without a toolchain of its own: seeds, mutated over and over, given to a reader that must not panic.
//!
//! In the test suite each target gets so many inputs, always the same ones. With `GLEANER_FUZZ_SECONDS` in the
//! environment it goes on for as long, from another beginning each time, and prints how many there were (`make fuzz`).

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Inputs of a target in the test suite.
const INPUTS: u64 = 3000;
/// Inputs get no longer than this.
const LONGEST: usize = 16 << 10;
/// What readers of numbers, lists and quotes stumble over.
const WORDS: [&[u8]; 16] = [
    b"0",
    b"-1",
    b"18446744073709551616",
    b"99999999999999999999999",
    b"\n",
    b" ",
    b"(",
    b")",
    b"\"",
    b"\\",
    b"[",
    b"=",
    b"\0",
    b"\xff\xfe",
    b"1e999",
    b"\r\n\r\n",
];

/// Gives mutations of `seeds` to `reader`. A panic of it is shown with its input, and ends the test.
pub fn fuzz(target: &str, seeds: &[&[u8]], mut reader: impl FnMut(&[u8])) {
    let limit = std::env::var("GLEANER_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let began = Instant::now();
    let seed = if limit.is_some() { std::process::id().into() } else { 1 };
    let mut random = Random(seed);
    let (mut count, mut longest) = (0_u64, Duration::ZERO);
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    while limit.map_or(count < INPUTS, |limit| began.elapsed() < limit) {
        let input = random.mutation(&corpus);
        let before = Instant::now();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| reader(&input))) {
            eprintln!("fuzz {target}: input {count} from seed {seed}: {}", shown(&input));
            resume_unwind(panic);
        }
        longest = longest.max(before.elapsed());
        count += 1;
        // Some go on from what they became; the seeds stay.
        if random.below(50) == 0 {
            if corpus.len() < seeds.len() + 200 {
                corpus.push(input);
            } else {
                let place = seeds.len() + random.below(200);
                corpus[place] = input;
            }
        }
    }
    println!("fuzz {target}: {count} inputs in {:.0?}, the longest took {longest:.0?}", began.elapsed());
}

/// A folder for files that are written anew for each input: in memory, where there is one.
///
/// # Panics
/// Where there can be no folder.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

fn shown(input: &[u8]) -> String {
    input.iter().fold(String::new(), |mut text, byte| {
        // A String takes everything.
        let _ = write!(text, "{}", byte.escape_ascii());
        text
    })
}

/// Knuth's MMIX generator; its low bits are poor and not used.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }

    /// One of `corpus`, changed in a few places.
    fn mutation(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut input, corpus);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(40)).min(input.len());
        match self.below(7) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..end)),
            2 => {
                let piece = input[at..end].to_vec();
                let times = 1 + self.below(20);
                input.splice(at..at, piece.repeat(times));
            }
            3 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                input.splice(at.., other[from..].iter().copied());
            }
            4 => drop(input.splice(at..at, WORDS[self.below(WORDS.len())].iter().copied())),
            5 => drop(input.splice(at..end, WORDS[self.below(WORDS.len())].iter().copied())),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = u8::try_from(self.below(256)).unwrap_or(0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_are_many_and_the_same_again() {
        let inputs = || {
            let mut seen = Vec::new();
            fuzz("nothing", &[b"cpu 1 2 3\n", b"intr 5"], |input| seen.push(input.to_vec()));
            seen
        };
        let first = inputs();
        let unlike: std::collections::BTreeSet<_> = first.iter().collect();
        assert!(unlike.len() > first.len() / 2, "{} of {}", unlike.len(), first.len());
        assert!(first.iter().all(|input| input.len() <= LONGEST));
        assert_eq!(first, inputs());
    }

    #[test]
    fn a_panic_ends_it() {
        let found = catch_unwind(|| fuzz("a reader", &[b"abc"], |input| assert!(input.contains(&b'a'))));
        assert!(found.is_err());
    }
}
