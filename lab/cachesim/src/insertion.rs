//! Where a context's new cache lines go (micro-sliced vCPUs, MICRO'14, section IV-B, "context-aware cache insertion").
//!
//! A context that reuses what it puts into the last-level cache should insert at the most recently used position; one
//! that does not (its working set fits the L2, or exceeds every cache) should insert at the least recently used
//! position, where its lines push out one another instead of the data of the contexts that wait for their turn. Which
//! of the two a context is, is found by time sampling: of every ten quanta one is run with MRU insertion and one with
//! LRU insertion, and the other eight follow the one with fewer misses. Similar misses mean LRU, because that costs
//! nobody anything.
//!
//! ```text
//! period of 10 quanta:  [first sample][second sample][follow x 8]
//! ```
//!
//! One [`InsertionSampler`] belongs to one context; whoever schedules asks it before each of the context's quanta and
//! tells it what the quantum missed. The paper leaves open how similar "similar" is. It names the MRU sample first: the
//! second sample inherits the cache that the first has filled. Misses are counted per quantum, as it says, although a
//! quantum with fewer misses executes more instructions, so the difference per quantum is flatter than per instruction.

/// Position in a set's recency stack that a new line gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insertion {
    /// The most recently used position, as plain LRU replacement does.
    Mru,
    /// The least recently used position: the line is the next victim unless it is used again before.
    Lru,
}

/// Quanta in a period, the two samples included (section IV-B).
const PERIOD_QUANTA: u32 = 10;
/// Misses are similar where MRU insertion saves at most this share of LRU insertion's. The paper only says "similar".
const SIMILAR: f64 = 0.05;
/// In the order in which the paper names them. The LRU sample still hits what the MRU sample inserted, and looks better
/// than it is.
const SAMPLES: [Insertion; 2] = [Insertion::Mru, Insertion::Lru];

/// What one quantum of a context cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantum {
    /// Misses of the last-level cache on behalf of the context.
    pub misses: u64,
    /// How long it ran, in any unit that is the same for all quanta of a context (cycles in the simulator).
    pub length: u64,
}

impl Quantum {
    /// Misses per unit of its length; `None` where the quantum was too short to say anything.
    fn misses_per_unit(self) -> Option<f64> {
        (self.length > 0).then(|| self.misses as f64 / self.length as f64)
    }
}

/// What the coming quantum is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It tries an insertion.
    Sample(Insertion),
    /// It follows the better of the two samples.
    Follow(Insertion),
}

/// Time sampling for one context.
#[derive(Clone, Debug)]
pub struct InsertionSampler {
    /// Quanta of this period that are over.
    quanta_done: u32,
    /// Misses per unit in this period's samples.
    samples: [Option<f64>; 2],
    better: Insertion,
}

impl Default for InsertionSampler {
    /// A context nobody knows yet. It starts with a period's first sample.
    fn default() -> Self {
        Self { quanta_done: 0, samples: [None; 2], better: Insertion::Mru }
    }
}

impl InsertionSampler {
    /// What the coming quantum is for.
    pub fn phase(&self) -> Phase {
        match SAMPLES.get(self.quanta_done as usize) {
            Some(&sampled) => Phase::Sample(sampled),
            None => Phase::Follow(self.better),
        }
    }

    /// Where the coming quantum's new lines go.
    pub fn insertion(&self) -> Insertion {
        match self.phase() {
            Phase::Sample(insertion) | Phase::Follow(insertion) => insertion,
        }
    }

    /// A quantum is over. One in which nothing ran is not counted: a sample is taken again, and a period does not pass
    /// by.
    pub fn quantum_ended(&mut self, quantum: Quantum) {
        let Some(misses) = quantum.misses_per_unit() else { return };
        if let Some(sample) = self.samples.get_mut(self.quanta_done as usize) {
            *sample = Some(misses);
        }
        self.quanta_done += 1;
        if let (2, [Some(mru), Some(lru)]) = (self.quanta_done, self.samples) {
            self.better = if mru < lru * (1.0 - SIMILAR) { Insertion::Mru } else { Insertion::Lru };
        }
        if self.quanta_done >= PERIOD_QUANTA {
            self.quanta_done = 0;
            self.samples = [None; 2];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Insertion::{Lru, Mru};

    fn quantum(misses: u64) -> Quantum {
        Quantum { misses, length: 3_400_000 }
    }

    /// Runs `quanta` quanta of a context that misses so often under each insertion; returns what each quantum used.
    fn run(mru_misses: u64, lru_misses: u64, quanta: usize) -> Vec<Insertion> {
        let mut sampler = InsertionSampler::default();
        let mut used = Vec::new();
        for _ in 0..quanta {
            let insertion = sampler.insertion();
            sampler.quantum_ended(quantum(if insertion == Mru { mru_misses } else { lru_misses }));
            used.push(insertion);
        }
        used
    }

    #[test]
    fn two_of_ten_quanta_are_samples_and_eight_follow_the_better() {
        for (name, mru_misses, lru_misses, followed) in [
            ("friendly", 100, 200, Mru),
            ("thrashing", 200, 150, Lru),
            ("the same", 200, 200, Lru),
            ("similar", 191, 200, Lru),
            ("just not similar", 189, 200, Mru),
            ("no misses at all", 0, 0, Lru),
            ("all saved", 0, 5, Mru),
        ] {
            let period: Vec<Insertion> = [Mru, Lru].into_iter().chain([followed; 8]).collect();
            assert_eq!(run(mru_misses, lru_misses, 30), period.repeat(3), "{name}");
        }
    }

    #[test]
    fn a_context_that_changes_is_noticed_in_the_next_period() {
        let mut sampler = InsertionSampler::default();
        let mut followed = Vec::new();
        for (mru_misses, lru_misses) in [(100, 200), (200, 100), (100, 200)] {
            for _ in 0..10 {
                let phase = sampler.phase();
                if let Phase::Follow(insertion) = phase {
                    followed.push(insertion);
                }
                sampler.quantum_ended(quantum(if sampler.insertion() == Mru { mru_misses } else { lru_misses }));
            }
        }
        assert_eq!(followed, [[Mru; 8], [Lru; 8], [Mru; 8]].concat());
    }

    #[test]
    fn an_empty_quantum_is_no_sample() {
        let mut sampler = InsertionSampler::default();
        sampler.quantum_ended(Quantum::default());
        assert_eq!(sampler.phase(), Phase::Sample(Mru));
        sampler.quantum_ended(quantum(100));
        assert_eq!(sampler.phase(), Phase::Sample(Lru));
        sampler.quantum_ended(Quantum::default());
        assert_eq!(sampler.phase(), Phase::Sample(Lru));
        sampler.quantum_ended(quantum(200));
        assert_eq!(sampler.phase(), Phase::Follow(Mru));
    }

    #[test]
    fn a_shorter_quantum_counts_by_its_length() {
        let mut sampler = InsertionSampler::default();
        sampler.quantum_ended(Quantum { misses: 90, length: 100 });
        sampler.quantum_ended(Quantum { misses: 60, length: 50 });
        assert_eq!(sampler.phase(), Phase::Follow(Mru));
    }
}
