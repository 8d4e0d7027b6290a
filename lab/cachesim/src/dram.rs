//! Main memory: one first-in-first-out server per channel.
//!
//! A request waits until its channel is free, then takes the latency of an unloaded memory; it occupies the channel for
//! as long as a line takes on the bus. Reads, write-backs and prefetches share the bus, so prefetches and write-backs
//! delay reads; nobody waits for a write. No banks, rows, refresh or reordering (DRAMSim2, which the paper uses, has
//! them).

/// Latency and bandwidth, in cycles of the cores' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DramConfig {
    /// From the request's start to the data, without queueing, cycles.
    pub latency_cycles: u64,
    /// How long one line occupies a channel, cycles.
    pub line_cycles: u64,
    /// Independent channels, a power of two; lines are spread over them by their number.
    pub channels: usize,
}

impl Default for DramConfig {
    /// Table V: DDR3-1600, one controller, cores at 3.4 GHz. 12.8 GB/s are 5 ns or 17 cycles for 64 bytes. The latency
    /// is ours: 50 ns, about 33 ns of an 11-11-11 part with the row closed, and the controller.
    fn default() -> Self {
        Self { latency_cycles: 170, line_cycles: 17, channels: 1 }
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
    /// Cycles that demand reads waited for a channel.
    pub read_wait_cycles: u64,
}

impl DramCounters {
    /// All transfers, in lines.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.prefetches + self.metadata
    }
}

/// The channels.
#[derive(Clone, Debug)]
pub struct Dram {
    config: DramConfig,
    free_at: Vec<u64>,
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
    /// Idle channels.
    pub fn new(config: DramConfig) -> Self {
        Self { config, free_at: vec![0; config.channels.max(1)], counters: DramCounters::default() }
    }

    /// Transfers a line, asked for at `now`; returns when the data is there. `now` should not go back by much: the
    /// server serves in the order of the calls.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "an index below the number of channels")]
    pub fn transfer(&mut self, number: u64, now: u64, what: Transfer) -> u64 {
        let channel = (number & (self.free_at.len() as u64 - 1)) as usize;
        let start = now.max(self.free_at[channel]);
        self.free_at[channel] = start + self.config.line_cycles;
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
        self.free_at.iter().map(|free_at| free_at.saturating_sub(now)).max().unwrap_or(0)
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
        let mut dram = Dram::new(DramConfig { latency_cycles: 100, line_cycles: 10, channels: 1 });
        let mut read = |now| dram.transfer(0, now, Transfer::Read);
        assert_eq!([read(0), read(0), read(5), read(1000)], [100, 110, 120, 1100]);
        assert_eq!(dram.backlog_cycles(1000), 10);
        assert_eq!(dram.counters().read_wait_cycles, 10 + 15);
    }

    #[test]
    fn channels_work_side_by_side_and_writes_delay_reads() {
        let mut dram = Dram::new(DramConfig { latency_cycles: 100, line_cycles: 10, channels: 2 });
        dram.transfer(0, 0, Transfer::Write);
        dram.transfer(2, 0, Transfer::Prefetch);
        assert_eq!(dram.transfer(1, 0, Transfer::Read), 100);
        assert_eq!(dram.transfer(4, 0, Transfer::Read), 120);
        let counters = dram.counters();
        assert_eq!((counters.reads, counters.writes, counters.prefetches, counters.total()), (2, 1, 1, 4));
    }
}
