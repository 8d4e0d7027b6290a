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
//! tells it what the quantum missed. What the paper leaves open is a parameter: how similar "similar" is, which sample
//! comes first (the second inherits the cache that the first has filled), and whether misses are counted per quantum,
//! as the paper says, or per instruction (a quantum with fewer misses executes more instructions, so the difference per
//! quantum is flatter).

use serde::{Deserialize, Serialize};

/// Position in a set's recency stack that a new line gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Insertion {
    /// The most recently used position, as plain LRU replacement does.
    Mru,
    /// The least recently used position: the line is the next victim unless it is used again before.
    Lru,
}

/// Which sample a period starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleOrder {
    /// The order in which the paper names them. The LRU sample then still hits what the MRU sample inserted, and looks
    /// better than it is.
    MruFirst,
    /// The LRU sample runs on what the quanta before it have left.
    LruFirst,
}

impl SampleOrder {
    fn samples(self) -> [Insertion; 2] {
        match self {
            Self::MruFirst => [Insertion::Mru, Insertion::Lru],
            Self::LruFirst => [Insertion::Lru, Insertion::Mru],
        }
    }
}

/// What is compared between the two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Misses per quantum, as in the paper, scaled to the quantum's length where quanta differ.
    PerQuantum,
    /// Misses per instruction.
    PerInstruction,
}

/// The parameters of time sampling (section IV-B; "ours" where the paper leaves it open).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InsertionParams {
    /// Quanta in a period, the two samples included. At least 2, smaller counts as 2. Paper: 10.
    pub period_quanta: u32,
    /// Misses are similar where MRU insertion saves at most this share of LRU insertion's, 0 to 1. The paper only says
    /// "similar"; ours: 0.05.
    pub similar_ratio: f64,
    /// Which sample comes first. The paper names MRU first.
    pub order: SampleOrder,
    /// What is compared. Paper: misses per quantum.
    pub measure: Measure,
}

impl Default for InsertionParams {
    fn default() -> Self {
        Self { period_quanta: 10, similar_ratio: 0.05, order: SampleOrder::MruFirst, measure: Measure::PerQuantum }
    }
}

/// What one quantum of a context cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantum {
    /// Misses of the last-level cache on behalf of the context.
    pub misses: u64,
    /// Instructions it executed.
    pub instructions: u64,
    /// How long it ran, in any unit that is the same for all quanta of a context (cycles in the simulator).
    pub length: u64,
}

impl Quantum {
    /// Misses per unit; `None` where the quantum was too short to say anything.
    fn misses_per_unit(self, measure: Measure) -> Option<f64> {
        let units = match measure {
            Measure::PerQuantum => self.length,
            Measure::PerInstruction => self.instructions,
        };
        (units > 0).then(|| self.misses as f64 / units as f64)
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
    params: InsertionParams,
    /// Quanta of this period that are over.
    quanta_done: u32,
    /// Misses per unit in this period's samples, in `order`.
    samples: [Option<f64>; 2],
    better: Insertion,
}

impl InsertionSampler {
    /// A context nobody knows yet. It starts with a period's first sample.
    pub fn new(params: InsertionParams) -> Self {
        Self { params, quanta_done: 0, samples: [None; 2], better: Insertion::Mru }
    }

    /// What the coming quantum is for.
    pub fn phase(&self) -> Phase {
        match self.params.order.samples().get(self.quanta_done as usize) {
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
        let Some(misses) = quantum.misses_per_unit(self.params.measure) else { return };
        if let Some(sample) = self.samples.get_mut(self.quanta_done as usize) {
            *sample = Some(misses);
        }
        self.quanta_done += 1;
        if let (2, [Some(first), Some(second)]) = (self.quanta_done, self.samples) {
            self.better = match self.params.order {
                SampleOrder::MruFirst => self.better_of(first, second),
                SampleOrder::LruFirst => self.better_of(second, first),
            };
        }
        if self.quanta_done >= self.params.period_quanta.max(2) {
            self.quanta_done = 0;
            self.samples = [None; 2];
        }
    }

    fn better_of(&self, mru_misses: f64, lru_misses: f64) -> Insertion {
        if mru_misses < lru_misses * (1.0 - self.params.similar_ratio) { Insertion::Mru } else { Insertion::Lru }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Insertion::{Lru, Mru};

    fn quantum(misses: u64) -> Quantum {
        Quantum { misses, instructions: 1_000_000, length: 3_400_000 }
    }

    /// Runs `quanta` quanta of a context that misses so often under each insertion; returns what each quantum used.
    fn run(params: InsertionParams, mru_misses: u64, lru_misses: u64, quanta: usize) -> Vec<Insertion> {
        let mut sampler = InsertionSampler::new(params);
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
        let paper = InsertionParams::default();
        let lru_first = InsertionParams { order: SampleOrder::LruFirst, ..paper };
        for (name, params, mru_misses, lru_misses, samples, followed) in [
            ("friendly", paper, 100, 200, [Mru, Lru], Mru),
            ("thrashing", paper, 200, 150, [Mru, Lru], Lru),
            ("the same", paper, 200, 200, [Mru, Lru], Lru),
            ("similar", paper, 191, 200, [Mru, Lru], Lru),
            ("just not similar", paper, 189, 200, [Mru, Lru], Mru),
            ("no misses at all", paper, 0, 0, [Mru, Lru], Lru),
            ("all saved", paper, 0, 5, [Mru, Lru], Mru),
            ("other order", lru_first, 100, 200, [Lru, Mru], Mru),
            ("other order, thrashing", lru_first, 200, 150, [Lru, Mru], Lru),
        ] {
            let period: Vec<Insertion> = samples.into_iter().chain([followed; 8]).collect();
            assert_eq!(run(params, mru_misses, lru_misses, 30), period.repeat(3), "{name}");
        }
    }

    #[test]
    fn a_context_that_changes_is_noticed_in_the_next_period() {
        let mut sampler = InsertionSampler::new(InsertionParams::default());
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
        let mut sampler = InsertionSampler::new(InsertionParams::default());
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
    fn per_quantum_and_per_instruction_may_disagree() {
        // Memory-bound: with MRU insertion the quantum got twice as far on nearly as many misses.
        let mru = Quantum { misses: 98, instructions: 2000, length: 100 };
        let lru = Quantum { misses: 100, instructions: 1000, length: 100 };
        for (measure, expected) in [(Measure::PerQuantum, Lru), (Measure::PerInstruction, Mru)] {
            let mut sampler = InsertionSampler::new(InsertionParams { measure, ..InsertionParams::default() });
            sampler.quantum_ended(mru);
            sampler.quantum_ended(lru);
            assert_eq!(sampler.phase(), Phase::Follow(expected), "{measure:?}");
        }
    }

    #[test]
    fn a_shorter_quantum_counts_by_its_length() {
        let mut sampler = InsertionSampler::new(InsertionParams::default());
        sampler.quantum_ended(Quantum { misses: 90, instructions: 1000, length: 100 });
        sampler.quantum_ended(Quantum { misses: 60, instructions: 500, length: 50 });
        assert_eq!(sampler.phase(), Phase::Follow(Mru));
    }

    #[test]
    fn a_period_of_two_or_less_only_samples() {
        for period_quanta in [0, 1, 2] {
            let params = InsertionParams { period_quanta, ..InsertionParams::default() };
            assert_eq!(run(params, 100, 200, 6), [Mru, Lru].repeat(3));
        }
    }
}
