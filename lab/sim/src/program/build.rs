//! Writes programs: labels instead of places, and a workload's objects by number as they are made.

use super::{Group, Guard, Op, Shared, Workload, Writers};

/// A place in a program that is yet to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u32);

/// Writes a workload, one program after the other.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    workload: Workload,
    ops: Vec<Op>,
    /// Where each label of the present program is.
    labels: Vec<u32>,
}

impl Builder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    pub fn mutex(&mut self) -> u32 {
        next(&mut self.workload.shared.mutexes)
    }

    /// A condition variable.
    pub fn cond(&mut self) -> u32 {
        next(&mut self.workload.shared.conds)
    }

    /// A ticket spinlock.
    pub fn spinlock(&mut self) -> u32 {
        next(&mut self.workload.shared.spinlocks)
    }

    /// A semaphore, which has none.
    pub fn semaphore(&mut self) -> u32 {
        next(&mut self.workload.shared.semaphores)
    }

    /// A read-write semaphore.
    pub fn rwsem(&mut self, writers: Writers) -> u32 {
        numbered(&mut self.workload.shared.rwsems, writers)
    }

    /// A queue of items.
    pub fn queue(&mut self) -> u32 {
        next(&mut self.workload.shared.queues)
    }

    /// A barrier of so many.
    pub fn barrier(&mut self, parties: u32) -> u32 {
        numbered(&mut self.workload.shared.barriers, parties)
    }

    /// A counter with its first value.
    pub fn counter(&mut self, first: i64) -> u32 {
        numbered(&mut self.workload.shared.counters, first)
    }

    /// A label; [`Builder::here`] says where.
    pub fn label(&mut self) -> Label {
        Label(numbered(&mut self.labels, 0))
    }

    pub fn here(&mut self, label: Label) {
        self.labels[label.0 as usize] = place(self.ops.len());
    }

    pub fn label_here(&mut self) -> Label {
        let label = self.label();
        self.here(label);
        label
    }

    /// Writes what is done over and over; it may jump to the label behind it.
    pub fn repeat(&mut self, body: impl FnOnce(&mut Self, Label)) -> &mut Self {
        let (again, out) = (self.label_here(), self.label());
        body(self, out);
        self.jump(again);
        self.here(out);
        self
    }

    /// Writes an instruction that does not jump.
    pub fn op(&mut self, op: Op) -> &mut Self {
        self.ops.push(op);
        self
    }

    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.op(Op::Jump(to.0))
    }

    /// Jumps unless the condition holds.
    pub fn unless(&mut self, guard: impl Into<Guard>, to: Label) -> &mut Self {
        self.op(Op::Unless(guard.into(), to.0))
    }

    /// Takes one from the counter; jumps when there is none.
    pub fn claim(&mut self, counter: u32, otherwise: Label) -> &mut Self {
        self.op(Op::Claim { counter, otherwise: otherwise.0 })
    }

    /// Ends the present program, which so many threads run, on those vCPUs (0: any).
    pub fn threads(&mut self, count: u32, vcpus: u64) -> &mut Self {
        self.op(Op::Exit);
        let labels = std::mem::take(&mut self.labels);
        let at = |label: u32| labels[label as usize];
        let mut ops = std::mem::take(&mut self.ops);
        for op in &mut ops {
            match op {
                Op::Claim { otherwise: to, .. } | Op::Unless(_, to) | Op::Jump(to) => *to = at(*to),
                _ => {}
            }
        }
        let program = numbered(&mut self.workload.programs, ops);
        self.workload.groups.push(Group { program, count, vcpus });
        self
    }

    pub fn build(&mut self) -> Workload {
        std::mem::take(&mut self.workload)
    }

    /// What its threads share so far.
    pub fn shared(&self) -> &Shared {
        &self.workload.shared
    }
}

fn next(count: &mut u32) -> u32 {
    *count += 1;
    *count - 1
}

fn numbered<T>(all: &mut Vec<T>, one: T) -> u32 {
    all.push(one);
    place(all.len() - 1)
}

/// Programs are written by code; one of more than four thousand million instructions is none.
fn place(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
