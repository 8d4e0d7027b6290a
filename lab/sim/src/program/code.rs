//! Programs as they are run: one after the other in one table, each once however many virtual machines run it, in
//! instructions of half the size. A thousand virtual machines with the same program then share what the processor's
//! caches hold of it.

use super::{Guard, Op, Span};

/// An [`Op`] whose condition, if it has one, is in a table of its own, and whose target is a place in the whole table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inst {
    Compute(Span),
    Lock(u32),
    Unlock(u32),
    WaitUntil { cond: u32, mutex: u32, guard: u32 },
    Signal(u32),
    Broadcast(u32),
    Barrier(u32),
    Wait(u32),
    Post(u32),
    SpinLock(u32),
    SpinUnlock(u32),
    ReadLock(u32),
    ReadUnlock(u32),
    WriteLock(u32),
    WriteUnlock(u32),
    Shootdown,
    Sleep(Span),
    Io(Span),
    Stamp,
    Push(u32),
    Pop(u32),
    Done,
    Add(u32, i64),
    Claim { counter: u32, otherwise: u32 },
    Unless { guard: u32, otherwise: u32 },
    Jump(u32),
    Exit,
}

/// All programs of all virtual machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    insts: Vec<Inst>,
    guards: Vec<Guard>,
    /// What is in the table, and where.
    known: Vec<(Vec<Op>, u32)>,
}

impl Code {
    /// Where a program begins; it is put into the table unless it is there.
    pub(crate) fn place(&mut self, program: &[Op]) -> u32 {
        if let Some((_, start)) = self.known.iter().find(|(known, _)| known == program) {
            return *start;
        }
        let start = number(self.insts.len());
        for op in program {
            let inst = self.translate(op, start);
            self.insts.push(inst);
        }
        // Whoever runs past the end, ends.
        self.insts.push(Inst::Exit);
        self.known.push((program.to_vec(), start));
        start
    }

    pub(crate) fn inst(&self, at: u32) -> Inst {
        self.insts[at as usize]
    }

    pub(crate) fn guard(&self, at: u32) -> Guard {
        self.guards[at as usize]
    }

    fn guarded(&mut self, guard: Guard) -> u32 {
        self.guards.push(guard);
        number(self.guards.len() - 1)
    }

    fn translate(&mut self, op: &Op, start: u32) -> Inst {
        match *op {
            Op::Compute(span) => Inst::Compute(span),
            Op::Lock(mutex) => Inst::Lock(mutex),
            Op::Unlock(mutex) => Inst::Unlock(mutex),
            Op::WaitUntil { cond, mutex, guard } => Inst::WaitUntil { cond, mutex, guard: self.guarded(guard) },
            Op::Signal(cond) => Inst::Signal(cond),
            Op::Broadcast(cond) => Inst::Broadcast(cond),
            Op::Barrier(barrier) => Inst::Barrier(barrier),
            Op::Wait(semaphore) => Inst::Wait(semaphore),
            Op::Post(semaphore) => Inst::Post(semaphore),
            Op::SpinLock(lock) => Inst::SpinLock(lock),
            Op::SpinUnlock(lock) => Inst::SpinUnlock(lock),
            Op::ReadLock(sem) => Inst::ReadLock(sem),
            Op::ReadUnlock(sem) => Inst::ReadUnlock(sem),
            Op::WriteLock(sem) => Inst::WriteLock(sem),
            Op::WriteUnlock(sem) => Inst::WriteUnlock(sem),
            Op::Shootdown => Inst::Shootdown,
            Op::Sleep(span) => Inst::Sleep(span),
            Op::Io(span) => Inst::Io(span),
            Op::Stamp => Inst::Stamp,
            Op::Push(queue) => Inst::Push(queue),
            Op::Pop(queue) => Inst::Pop(queue),
            Op::Done => Inst::Done,
            Op::Add(counter, n) => Inst::Add(counter, n),
            Op::Claim { counter, otherwise } => Inst::Claim { counter, otherwise: start + otherwise },
            Op::Unless(guard, to) => Inst::Unless { guard: self.guarded(guard), otherwise: start + to },
            Op::Jump(to) => Inst::Jump(start + to),
            Op::Exit => Inst::Exit,
        }
    }
}

/// Programs are built in memory; there are fewer instructions than that.
fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
