//! dedup: stages of threads with bounded queues between them, on real bytes.
//!
//! ```text
//!            +--> hash ... --+--> compress ... --+
//!   source --+               |                   +--> sink
//!            +--> hash ... --+---- duplicates ---+
//! ```
//!
//! The source maps memory for each chunk and fills it with text; the hash stage takes its SHA-256 and looks it up in a
//! table under a mutex; what was not there before is compressed (deflate, level 1); the sink adds up. Whoever is last
//! at a chunk unmaps it. As in dedup, `threads` is the number of threads in each of the two middle stages.
//!
//! Who sees a chunk before its duplicates depends on the threads' order, and must not show in the checksum: every chunk
//! adds its hash, every content that was compressed adds its result once, whichever chunk it came with.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use crate::pthread::Mutex;
use crate::queue::Queue;
use crate::region::Region;
use crate::work::{ITERATIONS_PER_US, mix};
use flate2::{Compress, Compression, Crc, FlushCompress};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};

/// Chunks that a queue holds: few, so that stages wait for each other, and more than one, so that not always.
const CAPACITY: usize = 4;
/// A microsecond of granularity is so many bytes: about what the slowest stage, compressing, does in one.
const BYTES_PER_US: u64 = 100;
/// Duplicates are of the same batch of chunks, so what is known of a batch can be forgotten when all of it has passed.
const BATCH: u64 = 4096;
/// One chunk in so many repeats an earlier one of its batch.
const REPEATS_ONE_IN: u64 = 4;

struct Chunk {
    item: u64,
    bytes: Region,
    hash: u64,
}

/// What reaches the sink: a chunk's hash, and what its bytes became if they were compressed for it.
struct Done {
    item: u64,
    hash: u64,
    packed: Option<u64>,
}

struct Stages {
    to_hash: Queue<Chunk>,
    to_compress: Queue<Chunk>,
    to_sink: Queue<Done>,
    seen: Mutex<Seen>,
}

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let width = job.plan.threads;
    let stages = Stages {
        to_hash: Queue::new(CAPACITY, 1, width),
        to_compress: Queue::new(CAPACITY, width, width),
        to_sink: Queue::new(CAPACITY, 2 * width, 1),
        seen: Mutex::new(Seen::default()),
    };
    job.crew(2 * width + 2, |number| match number {
        0 => source(job, &stages),
        n if n <= width => Ok(hash(&stages)),
        n if n <= 2 * width => compress(&stages),
        _ => Ok(sink(job, &stages)),
    })
}

fn source(job: &Job, stages: &Stages) -> Result<Tally, WorkloadError> {
    let out = stages.to_hash.producer();
    let bytes = (job.plan.iterations.saturating_mul(BYTES_PER_US) / ITERATIONS_PER_US).clamp(64, 1 << 28);
    let bytes = usize::try_from(bytes).unwrap_or(1 << 28);
    while let Some(item) = job.claim() {
        let mut region = Region::map(bytes)?;
        fill(&mut region, job.number(content_of(job, item), 0));
        if !out.put(Chunk { item, bytes: region, hash: 0 }) {
            break;
        }
    }
    Ok(Tally::default())
}

/// The item whose bytes this one has: mostly its own, sometimes those of an earlier one.
fn content_of(job: &Job, item: u64) -> u64 {
    let (chance, in_batch) = (job.number(item, 1), item % BATCH);
    if in_batch > 0 && chance.is_multiple_of(REPEATS_ONE_IN) {
        item - 1 - (chance / REPEATS_ONE_IN) % in_batch
    } else {
        item
    }
}

/// Text of words of eight letters, with a number now and then: it packs about as well as prose.
fn fill(bytes: &mut [u8], seed: u64) {
    const WORDS: [&[u8; 8]; 16] = [
        b"a thread",
        b" of the ",
        b"machine ",
        b"waits.\r\n",
        b"A queue ",
        b"and its ",
        b"windows ",
        b"retain  ",
        b"virtual ",
        b"for one ",
        b"signal, ",
        b"locking ",
        b"is idle ",
        b"because ",
        b"another ",
        b"wakes   ",
    ];
    let mut number = seed;
    for (at, word) in bytes.chunks_mut(8).enumerate() {
        if at % 16 == 0 {
            number = mix(seed, at as u64);
        }
        let text = if at % 16 == 15 {
            number.to_le_bytes()
        } else {
            *WORDS[usize::from((number >> (4 * (at % 16))).to_le_bytes()[0] % 16)]
        };
        word.copy_from_slice(&text[..word.len()]);
    }
}

fn hash(stages: &Stages) -> Tally {
    let chunks = stages.to_hash.consumer();
    let (unique, duplicate) = (stages.to_compress.producer(), stages.to_sink.producer());
    while let Some(mut chunk) = chunks.take() {
        let digest: [u8; 32] = Sha256::digest(&*chunk.bytes).into();
        chunk.hash = u64::from_le_bytes(std::array::from_fn(|n| digest[n]));
        let is_new = stages.seen.lock().insert(chunk.item, digest);
        let goes_on = if is_new {
            unique.put(chunk)
        } else {
            duplicate.put(Done { item: chunk.item, hash: chunk.hash, packed: None })
        };
        if !goes_on {
            break;
        }
    }
    Tally::default()
}

fn compress(stages: &Stages) -> Result<Tally, WorkloadError> {
    let (chunks, out) = (stages.to_compress.consumer(), stages.to_sink.producer());
    let mut deflate = Compress::new(Compression::fast(), false);
    let mut packed = Vec::new();
    while let Some(chunk) = chunks.take() {
        deflate.reset();
        packed.clear();
        // Deflate never needs more than this for bytes that do not pack.
        packed.reserve(chunk.bytes.len() + chunk.bytes.len() / 1_000 + 64);
        if deflate.compress_vec(&chunk.bytes, &mut packed, FlushCompress::Finish).ok()
            != Some(flate2::Status::StreamEnd)
        {
            return Err(WorkloadError::Wrong(format!("chunk {} could not be compressed", chunk.item)));
        }
        let mut crc = Crc::new();
        crc.update(&packed);
        let result = u64::from(crc.sum()) << 32 | u64::from(crc.amount());
        if !out.put(Done { item: chunk.item, hash: chunk.hash, packed: Some(result) }) {
            break;
        }
    }
    Ok(Tally::default())
}

fn sink(job: &Job, stages: &Stages) -> Tally {
    let done = stages.to_sink.consumer();
    let mut tally = Tally::default();
    while let Some(chunk) = done.take() {
        tally.checksum.add(chunk.item, chunk.hash);
        if let Some(packed) = chunk.packed {
            // By content, not by item: which of two equal chunks was compressed is chance.
            tally.checksum.add(chunk.hash, packed);
        }
        job.finish();
    }
    tally
}

/// Which contents have been seen, batch by batch.
#[derive(Default)]
struct Seen {
    /// The batch's number, how many of its chunks have passed, and their hashes.
    batches: BTreeMap<u64, (u64, HashSet<[u8; 32]>)>,
}

impl Seen {
    /// Whether this content is new in its batch.
    fn insert(&mut self, item: u64, hash: [u8; 32]) -> bool {
        let (passed, hashes) = self.batches.entry(item / BATCH).or_default();
        let is_new = hashes.insert(hash);
        *passed += 1;
        if *passed == BATCH {
            self.batches.remove(&(item / BATCH));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Program, Progress};

    #[test]
    fn the_text_packs_and_depends_on_its_seed() {
        let text = |seed| {
            let mut bytes = vec![0; 4_001];
            fill(&mut bytes, seed);
            bytes
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
        let mut packed = Vec::with_capacity(8_000);
        Compress::new(Compression::fast(), false).compress_vec(&text(1), &mut packed, FlushCompress::Finish).unwrap();
        assert!((800..3_000).contains(&packed.len()), "{} of 4001", packed.len());
    }

    #[test]
    fn a_quarter_repeats_something_of_its_batch() {
        let (plan, progress) = (Plan::new(Program::Pipeline), Progress::default());
        let job = Job::new(&plan, &progress);
        let items = BATCH..2 * BATCH;
        let repeats = items.clone().filter(|item| content_of(&job, *item) != *item).count();
        assert!((900..1_150).contains(&repeats), "{repeats} of 4096");
        assert!(items.clone().all(|item| (BATCH..=item).contains(&content_of(&job, item))));
    }

    #[test]
    fn what_is_known_of_a_batch_is_forgotten_after_it() {
        let mut seen = Seen::default();
        for item in 0..BATCH {
            assert_eq!(seen.insert(item, [u8::from(item > 0); 32]), item < 2);
        }
        assert!(seen.batches.is_empty());
        assert!(seen.insert(BATCH, [0; 32]));
    }
}
