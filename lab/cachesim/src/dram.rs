//! Main memory: a first-in-first-out server.
//!
//! A request waits until the bus is free, then takes the latency of an unloaded memory; it occupies the bus for as long
//! as a line takes there. Reads, write-backs and prefetches share the bus, so prefetches and write-backs delay reads;
//! nobody waits for a write. No banks, rows, refresh or reordering (DRAMSim2, which the paper uses, has them).

/// Latency and bandwidth, in cycles of the cores' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DramConfig {
    /// From the request's start to the data, without queueing, cycles.
    pub latency_cycles: u64,
    /// How long one line occupies the bus, cycles.
    pub line_cycles: u64,
}

impl Default for DramConfig {
    /// Table V: DDR3-1600, one controller, cores at 3.4 GHz. 12.8 GB/s are 5 ns or 17 cycles for 64 bytes. The latency
    /// is ours: 50 ns, about 33 ns of an 11-11-11 part with the row closed, and the controller.
    fn default() -> Self {
        Self { latency_cycles: 170, line_cycles: 17 }
    }
}

/// What memory was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DramCounters {
    /// Lines read because a demand access missed.
    pub reads: u64,
    /// Dirty lines written back.
    pub writes: u64,
    /// Lines read ahead of need.
    pub prefetches: u64,
    /// Transfers of anything else (a prefetcher's records), in lines.
    pub metadata: u64,
    /// Cycles that demand reads waited for the bus.
    pub read_wait_cycles: u64,
}

impl DramCounters {
    /// All transfers, in lines.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.prefetches + self.metadata
    }
}

/// Memory, behind one bus.
#[derive(Clone, Debug)]
pub struct Dram {
    config: DramConfig,
    free_at: u64,
    counters: DramCounters,
}

/// Why a line is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// A core waits for it.
    Read,
    /// Nobody waits.
    Write,
    /// Nobody waits yet.
    Prefetch,
    /// Something that is not a line of the program's.
    Metadata,
}

impl Dram {
    /// An idle bus.
    pub fn new(config: DramConfig) -> Self {
        Self { config, free_at: 0, counters: DramCounters::default() }
    }

    /// Transfers a line, asked for at `now`; returns when the data is there. `now` should not go back by much: the
    /// server serves in the order of the calls.
    #[inline]
    pub fn transfer(&mut self, now: u64, what: Transfer) -> u64 {
        let start = now.max(self.free_at);
        self.free_at = start + self.config.line_cycles;
        match what {
            Transfer::Read => {
                self.counters.reads += 1;
                self.counters.read_wait_cycles += start - now;
            }
            Transfer::Write => self.counters.writes += 1,
            Transfer::Prefetch => self.counters.prefetches += 1,
            Transfer::Metadata => self.counters.metadata += 1,
        }
        start + self.config.latency_cycles
    }

    /// How long a request made at `now` would wait, cycles. A prefetcher that looks here first cannot make the queue
    /// longer than it wants.
    pub fn backlog_cycles(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now)
    }

    /// What memory was asked for.
    pub fn counters(&self) -> DramCounters {
        self.counters
    }

    /// Counts from zero again; the queue stays.
    pub fn reset_counters(&mut self) {
        self.counters = DramCounters::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_queue_for_the_bus_and_not_for_the_latency() {
        let mut dram = Dram::new(DramConfig { latency_cycles: 100, line_cycles: 10 });
        let mut read = |now| dram.transfer(now, Transfer::Read);
        assert_eq!([read(0), read(0), read(5), read(1000)], [100, 110, 120, 1100]);
        assert_eq!(dram.backlog_cycles(1000), 10);
        assert_eq!(dram.counters().read_wait_cycles, 10 + 15);
    }

    #[test]
    fn writes_delay_reads() {
        let mut dram = Dram::new(DramConfig { latency_cycles: 100, line_cycles: 10 });
        dram.transfer(0, Transfer::Write);
        dram.transfer(0, Transfer::Prefetch);
        assert_eq!(dram.transfer(0, Transfer::Read), 120);
        let counters = dram.counters();
        assert_eq!((counters.reads, counters.writes, counters.prefetches, counters.total()), (1, 1, 1, 3));
    }
}
