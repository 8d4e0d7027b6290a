//! vips' thread group, as its threadgroup.c and wbuffer.c have it: one thread hands tiles out, the others compute one
//! each.
//!
//! ```text
//!   main thread    waits at idle_sem (im_threadgroup_get), takes a thread off the idle list, ups that one's go (im_threadgroup_trigger)
//!   each worker    waits at its go, computes a tile, frees its buffers, puts itself on the idle list, ups idle_sem
//! ```
//!
//! So every tile costs two hand-overs between vCPUs, and a worker whose tile is done halts its vCPU until the main
//! thread runs. Left out: the thread that writes strips of 42 tiles behind the others' backs.

use super::kernel::Kernel;
use crate::engine::Time;
use crate::program::{Builder, Op, Test};

/// im_semaphore: a count under a mutex with a condition variable. Only who sleeps, and who wakes somebody, enters the
/// kernel.
#[derive(Clone, Copy, Debug)]
struct Semaphore {
    count: u32,
    asleep: u32,
    mutex: u32,
    cond: u32,
    bucket: u32,
}

impl Semaphore {
    fn new(b: &mut Builder, count: i64) -> Self {
        let (count, asleep) = (b.counter(count), b.counter(0));
        Self { count, asleep, mutex: b.mutex(), cond: b.cond(), bucket: b.spinlock() }
    }

    fn down(self, b: &mut Builder, kernel: &Kernel) {
        let at_once = b.label();
        b.unless(Test::AtMost(self.count, 0), at_once);
        kernel.section(b, self.bucket);
        b.here(at_once);
        b.op(Op::Lock(self.mutex)).op(Op::Add(self.asleep, 1));
        b.op(Op::WaitUntil { cond: self.cond, mutex: self.mutex, guard: Test::AtLeast(self.count, 1).into() });
        b.op(Op::Add(self.asleep, -1)).op(Op::Add(self.count, -1)).op(Op::Unlock(self.mutex));
    }

    fn up(self, b: &mut Builder, kernel: &Kernel) {
        let nobody = b.label();
        b.op(Op::Lock(self.mutex)).op(Op::Add(self.count, 1)).op(Op::Unlock(self.mutex));
        b.unless(Test::AtLeast(self.asleep, 1), nobody);
        kernel.wakes(b, self.bucket, Op::Signal(self.cond));
        b.here(nobody);
    }
}

/// What a tile is: how long it computes, and `shootdowns.0` shootdowns for `shootdowns.1` tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub each: Time,
    pub shootdowns: (i64, i64),
}

/// A worker that waits for a tile, and is on the idle list.
#[derive(Clone, Copy, Debug)]
struct Worker {
    idle: u32,
    go: Semaphore,
}

/// The main thread and so many workers.
pub(super) fn tiles(b: &mut Builder, kernel: &Kernel, threads: u32, tile: Tile) {
    let idle = Semaphore::new(b, i64::from(threads));
    let workers: Vec<Worker> = (0..threads).map(|_| Worker { idle: b.counter(1), go: Semaphore::new(b, 0) }).collect();
    hands_out(b, kernel, idle, &workers);
    for worker in workers {
        works(b, kernel, idle, worker, tile);
    }
}

fn hands_out(b: &mut Builder, kernel: &Kernel, idle: Semaphore, workers: &[Worker]) {
    let kernel = kernel.of_thread(b);
    Kernel::thread(b, |b, again| {
        b.op(Op::Compute(kernel.hold()));
        idle.down(b, &kernel);
        for worker in workers {
            let busy = b.label();
            b.claim(worker.idle, busy);
            worker.go.up(b, &kernel);
            b.jump(again);
            b.here(busy);
        }
    });
}

fn works(b: &mut Builder, kernel: &Kernel, idle: Semaphore, worker: Worker, tile: Tile) {
    let kernel = kernel.of_thread(b);
    let (ticks, owed) = (Kernel::ticks(b, tile.each), b.counter(0));
    Kernel::thread(b, |b, _| {
        worker.go.down(b, &kernel);
        ticks.compute(b, &kernel);
        b.op(Op::Add(owed, tile.shootdowns.0));
        let (again_frees, nothing_left) = (b.label_here(), b.label());
        b.unless(Test::AtLeast(owed, tile.shootdowns.1), nothing_left).op(Op::Add(owed, -tile.shootdowns.1));
        kernel.shootdown(b);
        b.jump(again_frees);
        b.here(nothing_left);
        kernel.done(b);
        b.op(Op::Add(worker.idle, 1));
        idle.up(b, &kernel);
    });
}

#[cfg(test)]
mod tests {
    use super::super::bed::{MS, US};
    use super::*;
    use crate::config::{Config, HostConfig, Scheduler, VmConfig};
    use crate::{Costs, Simulation};

    #[test]
    fn tiles_are_handed_out_as_workers_become_idle() {
        let mut b = Builder::new();
        let kernel = Kernel::new(&mut b, 0);
        tiles(&mut b, &kernel, 2, Tile { each: 2 * MS, shootdowns: (1, 2) });
        let vm = VmConfig::new("vm", 3, Costs::FREE, b.build());
        let mut config = Config::new(HostConfig::new(3, Scheduler::Dedicated), vec![vm]);
        config.end = 130 * MS + 10 * US;
        let result = Simulation::new(config).and_then(Simulation::run).unwrap().0;
        let totals = &result.vms[0].totals;
        // Nothing but computing takes time: both workers are busy from 30 ms at the latest, for 50 tiles each, and
        // every other tile frees something; a shootdown that finds nobody else awake is none.
        let (tiles, shootdowns) = (totals.items, totals.shootdowns.count());
        assert!((100..=128).contains(&tiles), "{tiles}");
        assert!((tiles / 3..=tiles / 2).contains(&shootdowns), "{shootdowns} for {tiles} tiles");
    }
}
