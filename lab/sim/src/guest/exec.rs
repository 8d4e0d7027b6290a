//! Runs a thread's instructions until one takes time or blocks.

use crate::config::LazyTlb;
use crate::ids::{ThreadIx, VcpuIx};
use crate::program::{Doing, Guard, Line, Op, ThreadState};
use crate::world::{Activity, Irq, World};
use gleaner_model::Nanos;

/// More instructions than this without any time is a loop that never ends.
const STEPS_MAX: u32 = 100_000;

/// What an instruction leads to.
pub(super) enum Flow {
    Next,
    /// Time passes on the vCPU.
    Stays,
    /// The thread gave the vCPU up.
    Leaves,
}

impl World {
    pub(crate) fn spin_is_over(&self, t: ThreadIx) -> bool {
        let thread = &self.threads[t.at()];
        match thread.doing {
            Doing::Spin { lock } => self.vms[thread.vm.at()].objects.spinlocks[lock as usize].owner == Some(t),
            Doing::Answers { missing } => missing == 0,
            _ => true,
        }
    }

    /// The thread has the vCPU, and what it did last is done.
    pub(crate) fn exec(&mut self, v: VcpuIx, t: ThreadIx) {
        self.finish(v, t);
        let mut steps = 0;
        while steps < STEPS_MAX {
            self.run_ahead(t, &mut steps);
            match self.step(v, t) {
                Flow::Next => steps += 1,
                Flow::Stays => return,
                Flow::Leaves => return self.pick_thread(v),
            }
        }
        self.endless = Some(t);
    }

    /// Runs instructions that take no time and concern no other thread: free locks, conditions that hold, nobody who
    /// waits.
    fn run_ahead(&mut self, t: ThreadIx, steps: &mut u32) {
        let thread = &mut self.threads[t.at()];
        let vm = &mut self.vms[thread.vm.at()];
        let (objects, code) = (&mut vm.objects, &self.code);
        while *steps < STEPS_MAX {
            let next = thread.pc + 1;
            thread.pc = match code.op(thread.pc) {
                Op::Jump(to) => to,
                Op::Unless(guard, otherwise) => {
                    if objects.holds(guard) {
                        next
                    } else {
                        otherwise
                    }
                }
                Op::Claim { counter, otherwise } => match &mut objects.counters[counter as usize] {
                    0 => otherwise,
                    count => {
                        *count -= 1;
                        next
                    }
                },
                Op::Lock(mutex) if objects.mutexes[mutex as usize].owner.is_none() => {
                    objects.mutexes[mutex as usize].owner = Some(t);
                    next
                }
                Op::Unlock(mutex) if objects.mutexes[mutex as usize].waiters.is_empty() => {
                    debug_assert_eq!(objects.mutexes[mutex as usize].owner, Some(t), "unlocked by somebody else");
                    objects.mutexes[mutex as usize].owner = None;
                    next
                }
                Op::WaitUntil { guard, .. } if !thread.relock && objects.holds(guard) => next,
                Op::Signal(cond) | Op::Broadcast(cond) if objects.conds[cond as usize].is_empty() => next,
                Op::Push(queue) => {
                    objects.queues[queue as usize].push_back(thread.item);
                    next
                }
                Op::Pop(queue) => {
                    thread.item = objects.queues[queue as usize].pop_front().unwrap_or(thread.item);
                    next
                }
                _ => return,
            };
            *steps += 1;
        }
    }

    /// What took time is over.
    fn finish(&mut self, _v: VcpuIx, t: ThreadIx) {
        let now = self.now;
        let thread = &mut self.threads[t.at()];
        match thread.doing {
            Doing::Spin { lock } => {
                let waited = now - thread.spin_since;
                let vm = &mut self.vms[thread.vm.at()];
                vm.objects.spinlocks[lock as usize].held_since = now;
                vm.totals.spin_waits.record(Nanos(waited));
            }
            Doing::Answers { .. } => {
                thread.unpreemptible -= 1;
                let waited = now - thread.spin_since;
                self.vms[thread.vm.at()].totals.shootdowns.record(Nanos(waited));
            }
            Doing::Compute { .. } | Doing::Step => {}
        }
        self.threads[t.at()].doing = Doing::Step;
    }

    fn step(&mut self, v: VcpuIx, t: ThreadIx) -> Flow {
        let thread = &mut self.threads[t.at()];
        let vm = &mut self.vms[thread.vm.at()];
        let here = thread.pc;
        thread.pc += 1;
        let objects = &mut vm.objects;
        match self.code.op(here) {
            Op::Compute(span) => {
                thread.doing = Doing::Compute { left: span.draw(&mut thread.random) };
                return Flow::Stays;
            }
            Op::Jump(_) | Op::Unless(..) | Op::Claim { .. } | Op::Push(_) | Op::Pop(_) => thread.pc = here,
            Op::Add(counter, n) => objects.counters[counter as usize] += n,
            Op::Stamp => thread.item = self.now,
            Op::Done => {
                vm.totals.items += 1;
                vm.totals.last_item_at = self.now;
                vm.totals.latency.record(Nanos(self.now - thread.item));
            }
            Op::Lock(mutex) => return self.lock(v, t, mutex, here),
            Op::Unlock(mutex) => self.unlock(v, t, mutex),
            Op::WaitUntil { cond, mutex, guard } => return self.wait_until(v, t, (cond, mutex, guard), here),
            Op::Signal(cond) => {
                if let Some(first) = objects.conds[cond as usize].pop_front(&mut self.threads) {
                    self.wake(first, v);
                }
            }
            Op::Broadcast(cond) => {
                let all = std::mem::take(&mut objects.conds[cond as usize]);
                self.wake_all(all, v);
            }
            Op::Barrier(barrier) => return self.arrive(v, t, barrier),
            Op::Wait(semaphore) => return self.take_one(v, t, semaphore),
            Op::Post(semaphore) => self.give_one(v, t, semaphore),
            Op::SpinLock(lock) => return self.spin_lock(v, t, lock),
            Op::SpinUnlock(lock) => self.spin_unlock(t, lock),
            Op::ReadLock(sem) => return self.read_lock(v, t, sem),
            Op::ReadUnlock(sem) => self.read_unlock(v, t, sem),
            Op::WriteLock(sem) => return self.write_lock(v, t, sem, here),
            Op::WriteUnlock(sem) => self.write_unlock(v, t, sem),
            Op::Shootdown => return self.shoot_down(v, t),
            Op::Sleep(span) => {
                let wakes = self.now + span.draw(&mut thread.random) + self.costs[vm.costs as usize].timer_slack_ns;
                self.timers.set(self.slots.thread(t), wakes);
                return self.blocks(v, t);
            }
            Op::Io(span) => {
                let answered = self.now + span.draw(&mut thread.random);
                self.timers.set(self.slots.thread(t), answered);
                return self.blocks(v, t);
            }
            Op::Exit => return self.exits(v, t),
        }
        Flow::Next
    }

    /// Waits at a condition variable unless the condition holds; who was woken there takes the mutex first.
    fn wait_until(&mut self, v: VcpuIx, t: ThreadIx, (cond, mutex, guard): (u32, u32, Guard), here: u32) -> Flow {
        let thread = &mut self.threads[t.at()];
        let objects = &mut self.vms[thread.vm.at()].objects;
        thread.pc = here;
        if std::mem::take(&mut thread.relock) {
            if let Flow::Leaves = self.lock(v, t, mutex, here) {
                self.threads[t.at()].relock = true;
                return Flow::Leaves;
            }
            return Flow::Next;
        }
        if objects.holds(guard) {
            thread.pc = here + 1;
            return Flow::Next;
        }
        thread.relock = true;
        objects.conds[cond as usize].push_back(&mut self.threads, t);
        // Its place in the line does not hinder the mutex's next owner.
        self.unlock(v, t, mutex);
        self.blocks(v, t)
    }

    fn wake_all(&mut self, mut line: Line, v: VcpuIx) {
        while let Some(first) = line.pop_front(&mut self.threads) {
            self.wake(first, v);
        }
    }

    pub(super) fn blocks(&mut self, v: VcpuIx, t: ThreadIx) -> Flow {
        self.threads[t.at()].state = ThreadState::Blocked;
        self.blocked(v, t);
        Flow::Leaves
    }

    fn exits(&mut self, v: VcpuIx, t: ThreadIx) -> Flow {
        self.blocked(v, t);
        self.threads[t.at()].state = ThreadState::Ended;
        let vm = &mut self.vms[self.threads[t.at()].vm.at()];
        vm.totals.threads_left -= 1;
        if vm.totals.threads_left == 0 {
            vm.totals.ended_at = Some(self.now);
        }
        self.measured_left -= usize::from(vm.measured);
        Flow::Leaves
    }

    /// Takes the mutex, or waits for it with the program counter on `again`.
    fn lock(&mut self, v: VcpuIx, t: ThreadIx, mutex: u32, again: u32) -> Flow {
        let thread = &mut self.threads[t.at()];
        let mutex = &mut self.vms[thread.vm.at()].objects.mutexes[mutex as usize];
        if mutex.owner.is_none() {
            mutex.owner = Some(t);
            return Flow::Next;
        }
        thread.pc = again;
        mutex.waiters.push_back(&mut self.threads, t);
        self.blocks(v, t)
    }

    fn unlock(&mut self, v: VcpuIx, t: ThreadIx, mutex: u32) {
        let mutex = &mut self.vms[self.threads[t.at()].vm.at()].objects.mutexes[mutex as usize];
        debug_assert_eq!(mutex.owner, Some(t), "unlocked by somebody else");
        mutex.owner = None;
        if let Some(first) = mutex.waiters.pop_front(&mut self.threads) {
            self.wake(first, v);
        }
    }

    fn arrive(&mut self, v: VcpuIx, t: ThreadIx, barrier: u32) -> Flow {
        let barrier = &mut self.vms[self.threads[t.at()].vm.at()].objects.barriers[barrier as usize];
        if barrier.waiting.len() + 1 < barrier.parties as usize {
            barrier.waiting.push_back(&mut self.threads, t);
            return self.blocks(v, t);
        }
        let all = std::mem::take(&mut barrier.waiting);
        self.wake_all(all, v);
        Flow::Next
    }

    fn take_one(&mut self, v: VcpuIx, t: ThreadIx, semaphore: u32) -> Flow {
        let semaphore = &mut self.vms[self.threads[t.at()].vm.at()].objects.semaphores[semaphore as usize];
        if semaphore.count > 0 {
            semaphore.count -= 1;
            return Flow::Next;
        }
        semaphore.waiters.push_back(&mut self.threads, t);
        self.blocks(v, t)
    }

    fn give_one(&mut self, v: VcpuIx, t: ThreadIx, semaphore: u32) {
        let semaphore = &mut self.vms[self.threads[t.at()].vm.at()].objects.semaphores[semaphore as usize];
        match semaphore.waiters.pop_front(&mut self.threads) {
            Some(first) => self.wake(first, v),
            None => semaphore.count += 1,
        }
    }

    /// A thread whose program begins with a wait has yet to be created, as far as anybody sees: it waits without having
    /// run.
    pub(crate) fn is_unborn(&mut self, t: ThreadIx) -> bool {
        let thread = &mut self.threads[t.at()];
        let vm = &mut self.vms[thread.vm.at()];
        let Op::Wait(semaphore) = self.code.op(thread.pc) else { return false };
        thread.pc += 1;
        vm.objects.semaphores[semaphore as usize].waiters.push_back(&mut self.threads, t);
        true
    }

    fn spin_lock(&mut self, v: VcpuIx, t: ThreadIx, lock: u32) -> Flow {
        let now = self.now;
        let thread = &mut self.threads[t.at()];
        thread.unpreemptible += 1;
        thread.spin_since = now;
        let vm = &mut self.vms[thread.vm.at()];
        let number = lock;
        let lock = &mut vm.objects.spinlocks[number as usize];
        if lock.owner.is_none() {
            lock.owner = Some(t);
            lock.held_since = now;
            vm.totals.spin_waits.record(Nanos(0));
            return Flow::Next;
        }
        thread.doing = Doing::Spin { lock: number };
        lock.waiters.push_back(&mut self.threads, t);
        self.begin_to_spin(v);
        Flow::Stays
    }

    /// The lock goes to the next ticket, whether its vCPU runs or not.
    fn spin_unlock(&mut self, t: ThreadIx, lock: u32) {
        let now = self.now;
        let thread = &mut self.threads[t.at()];
        thread.unpreemptible -= 1;
        let vm = &mut self.vms[thread.vm.at()];
        let lock = &mut vm.objects.spinlocks[lock as usize];
        vm.totals.spin_holds.record(Nanos(now - lock.held_since));
        debug_assert_eq!(lock.owner, Some(t), "unlocked by somebody else");
        lock.owner = lock.waiters.pop_front(&mut self.threads);
        let Some(next) = lock.owner else { return };
        let v = self.threads[next.at()].vcpu;
        if self.vcpus[v.at()].activity == Activity::Thread(next) {
            self.charge(v);
            self.arm(v);
        }
    }

    fn shoot_down(&mut self, v: VcpuIx, t: ThreadIx) -> Flow {
        let vm = self.threads[t.at()].vm;
        let guest = &self.vms[vm.at()].guest;
        let spared = match guest.config.lazy_tlb {
            LazyTlb::Spared => guest.idle,
            LazyTlb::Leaves => guest.left,
        };
        let mut others = guest.all & !spared & !self.vcpus[v.at()].bit();
        let now = self.now;
        let thread = &mut self.threads[t.at()];
        thread.spin_since = now;
        if others == 0 {
            return Flow::Next;
        }
        thread.unpreemptible += 1;
        thread.doing = Doing::Answers { missing: others.count_ones() };
        while others != 0 {
            let to = self.vcpu_of(vm, others.trailing_zeros());
            others &= others - 1;
            self.send(to, v, Irq::Flush(t));
        }
        self.begin_to_spin(v);
        Flow::Stays
    }
}
