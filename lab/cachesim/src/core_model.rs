//! From latencies to cycles: an interval-style model of an out-of-order core.
//!
//! Between long misses the core executes at its base rate (the commit width of Table V, or a program's own CPI on
//! perfect caches). Three things stop it, each an assumption that is stated here and nowhere else:
//!
//! 1. **The reorder buffer.** Instruction i + ROB cannot enter before instruction i has left. A load that takes longer
//!    than the core needs to fill the buffer stops it for the difference; loads within the same ROB-full of
//!    instructions overlap.
//!    So a short miss costs nothing by itself, and ten misses close together cost little more than one.
//! 2. **Miss-level parallelism.** At most `mlp_max` loads beyond the L1 are outstanding; the next one starts when the
//!    oldest returns. The L1's miss registers set this limit at most, and a program that chases pointers sets it to 1:
//!    dependences are not in the traces, so this number is where they go.
//! 3. **The front end.** An instruction fetch beyond the L1 stops the core for its whole latency beyond the L1's.
//!
//! Stores wait in a write buffer that is never full; L1 hits are part of the base CPI. Branches, the issue queue, the
//! load/store queue and TLBs are not modelled.
//!
//! Time is kept in ticks, [`TICKS_PER_CYCLE`] to a cycle, so that a width of 3, 4, 5 or 6 instructions a cycle is a
//! whole number.

use std::collections::VecDeque;

pub const TICKS_PER_CYCLE: u64 = 60;

/// Reorder buffer, instructions (Table V).
const ROB_ENTRIES: u32 = 128;

/// The core's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreConfig {
    /// Cycles per instruction without misses. Table V: 1/4, by the commit width.
    pub base_cpi: f64,
    /// Loads outstanding beyond the L1, 1 to 128. The paper gives none; ours: 10, as contemporary cores have.
    pub mlp_max: u32,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self { base_cpi: 0.25, mlp_max: 10 }
    }
}

/// A load that is still under way.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    instruction: u64,
    done_at: u64,
    from_memory: bool,
}

/// One core's clock.
#[derive(Clone, Debug)]
pub struct CoreClock {
    ticks_per_instruction: u64,
    mlp_max: usize,
    /// When the newest instruction entered the core, ticks.
    now: u64,
    instructions: u64,
    /// Ticks that the core stood still for data from memory.
    memory_stall: u64,
    /// Loads that may still stop the core, oldest first.
    outstanding: VecDeque<Outstanding>,
    /// When each of the last `mlp_max` loads returns, as a ring.
    returns: Vec<u64>,
    next_return: usize,
}

impl CoreClock {
    /// A core that starts at cycle 0 with nothing under way.
    pub fn new(config: CoreConfig) -> Self {
        let mut clock = Self {
            ticks_per_instruction: 1,
            mlp_max: 1,
            now: 0,
            instructions: 0,
            memory_stall: 0,
            outstanding: VecDeque::with_capacity(ROB_ENTRIES as usize + 1),
            returns: Vec::new(),
            next_return: 0,
        };
        clock.adopt(config);
        clock
    }

    /// Another program's CPI and parallelism from here on. Call after [`Self::drain`].
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, which is meant")]
    pub fn adopt(&mut self, config: CoreConfig) {
        self.ticks_per_instruction = ((config.base_cpi * TICKS_PER_CYCLE as f64).round() as u64).max(1);
        self.mlp_max = config.mlp_max.clamp(1, ROB_ENTRIES) as usize;
        self.returns.clear();
        self.returns.resize(self.mlp_max, 0);
        self.next_return = 0;
    }

    /// The time, ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The time, cycles.
    #[inline]
    pub fn cycle(&self) -> u64 {
        self.now / TICKS_PER_CYCLE
    }

    /// Whether that cycle has come. The end of time is beyond any.
    #[inline]
    pub fn has_reached(&self, cycle: u64) -> bool {
        self.now >= cycle.saturating_mul(TICKS_PER_CYCLE)
    }

    /// Instructions executed so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Cycles so far in which the core stood still for data from memory, and not from a cache.
    pub fn memory_stall_cycles(&self) -> u64 {
        self.memory_stall / TICKS_PER_CYCLE
    }

    /// `count` instructions enter the core.
    #[inline]
    pub fn execute(&mut self, count: u64) {
        let end = self.instructions.saturating_add(count);
        while let Some(&oldest) = self.outstanding.front() {
            let blocked = oldest.instruction + u64::from(ROB_ENTRIES);
            if blocked > end {
                break;
            }
            self.pass_instructions(blocked.saturating_sub(self.instructions));
            self.instructions = self.instructions.max(blocked);
            self.wait_for(oldest.done_at, oldest.from_memory);
            self.outstanding.pop_front();
        }
        self.pass_instructions(end - self.instructions);
        self.instructions = end;
    }

    /// Counts in a trace may be anything, and the end of time is the end of every quantum.
    #[inline]
    fn pass_instructions(&mut self, count: u64) {
        self.now = self.now.saturating_add(count.saturating_mul(self.ticks_per_instruction));
    }

    /// The cycle at which a load beyond the L1 that is issued now can start.
    #[inline]
    pub fn load_start(&self) -> u64 {
        self.now.max(self.returns[self.next_return]) / TICKS_PER_CYCLE
    }

    #[inline]
    fn wait_for(&mut self, done_at: u64, from_memory: bool) {
        let waits = done_at.saturating_sub(self.now);
        self.memory_stall += if from_memory { waits } else { 0 };
        self.now += waits;
    }

    /// The newest instruction is a load beyond the L1; its data is there at `done_cycle`, from memory or from a cache.
    #[inline]
    pub fn load(&mut self, done_cycle: u64, from_memory: bool) {
        let done_at = done_cycle.saturating_mul(TICKS_PER_CYCLE);
        self.returns[self.next_return] = done_at;
        self.next_return = if self.next_return + 1 == self.mlp_max { 0 } else { self.next_return + 1 };
        // One that returns before the buffer can fill never stops the core.
        if done_at > self.now.saturating_add(u64::from(ROB_ENTRIES) * self.ticks_per_instruction) {
            self.outstanding.push_back(Outstanding { instruction: self.instructions, done_at, from_memory });
        }
    }

    /// The front end waits until `cycle` for instructions, from memory or from a cache.
    #[inline]
    pub fn stall_until(&mut self, cycle: u64, from_memory: bool) {
        self.wait_for(cycle.saturating_mul(TICKS_PER_CYCLE), from_memory);
    }

    /// Waits for everything under way, as a context switch does.
    pub fn drain(&mut self) {
        let last = self.outstanding.drain(..).map(|load| load.done_at).max().unwrap_or(0);
        self.now = self.now.max(last);
    }

    /// Nothing is executed for so long.
    pub fn pass(&mut self, cycles: u64) {
        self.now = self.now.saturating_add(cycles.saturating_mul(TICKS_PER_CYCLE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: CoreConfig = CoreConfig { base_cpi: 0.25, mlp_max: 10 };

    /// Loads at these instruction numbers, each 200 cycles long; the cycle at which instruction 10,000 enters.
    fn cycles(config: CoreConfig, loads: &[u64]) -> u64 {
        let mut clock = CoreClock::new(config);
        let mut at = 0;
        for load in loads {
            clock.execute(load - at);
            at = *load;
            let start = clock.load_start();
            clock.load(start + 200, true);
        }
        clock.execute(10_000 - at);
        clock.cycle()
    }

    #[test]
    fn misses_within_a_rob_overlap_and_others_add_up() {
        // 10,000 instructions at four a cycle are 2,500 cycles; the buffer hides 128/4 = 32 of a miss's 200.
        for (name, loads, expected) in [
            ("none", &[][..], 2500),
            ("one", &[1000], 2500 + 168),
            ("far apart", &[1000, 2000], 2500 + 2 * 168),
            ("the same moment", &[1000, 1000], 2500 + 168),
            // The second returns while the core executes what the first has held up.
            ("within a buffer", &[1000, 1100], 2500 + 168),
        ] {
            assert_eq!(cycles(CONFIG, loads), expected, "{name}");
        }
    }

    #[test]
    fn a_chain_of_loads_is_serial() {
        let chain = CoreConfig { mlp_max: 1, ..CONFIG };
        assert_eq!(cycles(CONFIG, &[1000, 1000, 1000]), 2500 + 168);
        assert_eq!(cycles(chain, &[1000, 1000, 1000]), 2500 + 600 - 32);
        let two = CoreConfig { mlp_max: 2, ..CONFIG };
        assert_eq!(cycles(two, &[1000, 1000, 1000]), 2500 + 400 - 32);
    }

    #[test]
    fn short_latencies_are_hidden_and_stalls_are_not() {
        let mut clock = CoreClock::new(CONFIG);
        clock.execute(400);
        let start = clock.load_start();
        clock.load(start + 32, false);
        clock.execute(400);
        assert_eq!(clock.cycle(), 200);
        clock.stall_until(250, false);
        clock.execute(4);
        assert_eq!(clock.cycle(), 251);
    }

    #[test]
    fn waiting_for_memory_is_told_from_waiting_for_a_cache() {
        let mut clock = CoreClock::new(CONFIG);
        clock.load(100, false);
        clock.execute(1000);
        // Without the load 250 cycles; the buffer hides 32 of its 100.
        assert_eq!((clock.cycle(), clock.memory_stall_cycles()), (250 + 68, 0));
        clock.load(clock.cycle() + 200, true);
        clock.execute(1000);
        assert_eq!((clock.cycle(), clock.memory_stall_cycles()), (500 + 68 + 168, 168));
        clock.stall_until(clock.cycle() + 50, true);
        assert_eq!(clock.memory_stall_cycles(), 168 + 50);
    }

    #[test]
    fn a_switch_waits_for_what_is_under_way() {
        let mut clock = CoreClock::new(CONFIG);
        clock.load(500, true);
        clock.drain();
        assert_eq!(clock.cycle(), 500);
        clock.pass(100);
        clock.execute(400);
        assert_eq!(clock.cycle(), 700);
    }
}
