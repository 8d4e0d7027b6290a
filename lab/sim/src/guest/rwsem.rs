//! The kernel's read-write semaphore as x86 has it (lib/rwsem.c, 3.5 and 3.9).
//!
//! Readers share it, but stand behind whoever waits. When nobody is left in it, the first who waits comes next
//! (`__rwsem_do_wake`). Readers are given it there and then, all up to the first writer. A writer, too, before Linux
//! 3.9; since then it is only woken, and takes it when it runs, unless another that runs has come first
//! (`try_get_writer_sem`): then it waits again as the first. So a writer that has to sleep stops all readers for as
//! long as it takes to wake it, and once more for as long as it takes to wake them.

use super::exec::Flow;
use crate::ids::{ThreadIx, VcpuIx};
use crate::program::Writers;
use crate::world::World;

impl World {
    pub(super) fn read_lock(&mut self, v: VcpuIx, t: ThreadIx, sem: u32) -> Flow {
        let thread = &mut self.threads[t.at()];
        let sem = &mut self.vms[thread.vm.at()].objects.rwsems[sem as usize];
        if sem.writer.is_none() && sem.coming.is_none() && sem.waiters.is_empty() {
            sem.readers += 1;
            return Flow::Next;
        }
        // Whoever wakes it has given it the semaphore: it goes on behind this instruction.
        thread.writes = false;
        sem.waiters.push_back(&mut self.threads, t);
        self.blocks(v, t)
    }

    pub(super) fn read_unlock(&mut self, v: VcpuIx, t: ThreadIx, sem: u32) {
        let it = &mut self.vms[self.threads[t.at()].vm.at()].objects.rwsems[sem as usize];
        debug_assert!(it.readers > 0 && it.writer.is_none(), "{t:?} gives back what it does not read");
        it.readers -= 1;
        if it.readers == 0 {
            self.wake_first(v, t, sem);
        }
    }

    /// Takes it, or waits: with the program counter on `again` where it is not given.
    pub(super) fn write_lock(&mut self, v: VcpuIx, t: ThreadIx, sem: u32, again: u32) -> Flow {
        let thread = &mut self.threads[t.at()];
        let sem = &mut self.vms[thread.vm.at()].objects.rwsems[sem as usize];
        let comes = sem.coming.take_if(|first| *first == t).is_some();
        let steals = sem.writers == Writers::Steal;
        if sem.readers == 0 && sem.writer.is_none() && (steals || sem.waiters.is_empty()) {
            sem.writer = Some(t);
            return Flow::Next;
        }
        thread.writes = true;
        if steals {
            thread.pc = again;
        }
        if comes {
            sem.waiters.push_front(&mut self.threads, t);
        } else {
            sem.waiters.push_back(&mut self.threads, t);
        }
        self.blocks(v, t)
    }

    pub(super) fn write_unlock(&mut self, v: VcpuIx, t: ThreadIx, sem: u32) {
        let it = &mut self.vms[self.threads[t.at()].vm.at()].objects.rwsems[sem as usize];
        debug_assert_eq!(it.writer, Some(t), "{t:?} gives back what it does not write");
        it.writer = None;
        self.wake_first(v, t, sem);
    }

    /// Nobody is left in the semaphore of `t`'s machine: `__rwsem_do_wake`.
    fn wake_first(&mut self, v: VcpuIx, t: ThreadIx, sem: u32) {
        let vm = self.threads[t.at()].vm.at();
        loop {
            let it = &mut self.vms[vm].objects.rwsems[sem as usize];
            let Some(first) = it.waiters.first() else { return };
            let writes = self.threads[first.at()].writes;
            if it.coming.is_some() || (writes && it.readers > 0) {
                return;
            }
            it.waiters.pop_front(&mut self.threads);
            if !writes {
                it.readers += 1;
                self.wake(first, v);
                continue;
            }
            match it.writers {
                Writers::InTurn => it.writer = Some(first),
                Writers::Steal => it.coming = Some(first),
            }
            return self.wake(first, v);
        }
    }
}
