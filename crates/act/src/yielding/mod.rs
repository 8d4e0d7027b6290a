//! Yielding threads: one per vCPU, in the lowest class, calling sched_yield so that the vCPU does not halt (paper,
//! section 6).
//!
//! The thread enters the kernel at every turn (under 1 us): kernels with lazy preemption replace an idle-class task
//! only at a kernel entry or a tick, so a loop that stayed in user space would delay the program it means to help. What
//! to do next is the [`YieldMachine`]'s decision; this module only runs it. Here is the owner's side: start, order,
//! count. [`runner`] is the thread's: measure how each sched_yield came back, sleep, obey.
//!
//! A thread whose owner has stopped beating ([`YieldingThreads::beat`]) for two seconds sleeps: a hung or
//! stopped Gleaner must not burn the machine.

mod cell;
mod runner;

use crate::{ActError, Fallback, IdleGroup, IdleMeans};
use cell::{Cell, ORDER_SLEEP};
use gleaner_model::{CpuSet, Nanos, Order, RetainCounters, VcpuId, YieldMachine};
use runner::{EnterClass, Runner, enter_idle_class, lower, now};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// The scheduling class a yielding thread got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum YieldClass {
    /// SCHED_IDLE: loses to any other task at once.
    Idle,
    /// SCHED_OTHER at nice 19, where SCHED_IDLE was refused: loses most of the time.
    Nice19,
}

/// How a thread can be told that its vCPU has become busy (from the BPF observer).
pub struct BusyWait {
    /// Waits at most that long; says whether the vCPU was busy meanwhile.
    pub wait: runner::Wait,
    /// Ends the wait early.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

struct Member {
    vcpu: VcpuId,
    cell: Arc<Cell>,
    thread: Option<JoinHandle<()>>,
    wake: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Member {
    /// Ends whichever sleep the thread is in.
    fn rouse(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

/// What a thread is begun with.
struct Unbegun {
    machine: Box<dyn YieldMachine>,
    busy: Option<BusyWait>,
}

/// All yielding threads of this process. They sleep until ordered otherwise, and end when this is dropped.
pub struct YieldingThreads {
    members: Vec<Member>,
    /// Where nobody was to yield yet.
    unbegun: BTreeMap<VcpuId, Unbegun>,
    enter_idle: EnterClass,
    group: IdleGroup,
    heartbeat: Arc<AtomicU64>,
    stolen_gap: Nanos,
    class: YieldClass,
    idle_means: IdleMeans,
    fallbacks: Vec<Fallback>,
}

impl YieldingThreads {
    /// Starts one thread on each of `vcpus`, asleep. `machine` makes its state machine; `busy_wait` its way to
    /// learn that the vCPU became busy, if there is one. A return of sched_yield later than `stolen_gap` without a
    /// switch is stolen time.
    ///
    /// # Errors
    /// When a thread cannot be started or pinned. A refused class or cgroup is a [`Fallback`], not an error.
    pub fn start(
        vcpus: &CpuSet,
        group: &IdleGroup,
        stolen_gap: Nanos,
        machine: impl FnMut(VcpuId) -> Box<dyn YieldMachine>,
        busy_wait: impl FnMut(VcpuId) -> Option<BusyWait>,
    ) -> Result<Self, ActError> {
        Self::start_in(enter_idle_class, vcpus, group, stolen_gap, machine, busy_wait)
    }

    /// The same where it is not known who will yield: the first thread is started, which shows what the kernel allows,
    /// and the others when they are to retain.
    pub fn prepare(
        vcpus: &CpuSet,
        group: &IdleGroup,
        stolen_gap: Nanos,
        machine: impl FnMut(VcpuId) -> Box<dyn YieldMachine>,
        busy_wait: impl FnMut(VcpuId) -> Option<BusyWait>,
    ) -> Result<Self, ActError> {
        let mut all = Self::unbegun(enter_idle_class, vcpus, group, stolen_gap, machine, busy_wait);
        vcpus.iter().next().map_or(Ok(()), |first| all.begin(first))?;
        Ok(all)
    }

    /// The same with threads that `enter_idle` puts into their class.
    fn start_in(
        enter_idle: EnterClass,
        vcpus: &CpuSet,
        group: &IdleGroup,
        stolen_gap: Nanos,
        machine: impl FnMut(VcpuId) -> Box<dyn YieldMachine>,
        busy_wait: impl FnMut(VcpuId) -> Option<BusyWait>,
    ) -> Result<Self, ActError> {
        let mut all = Self::unbegun(enter_idle, vcpus, group, stolen_gap, machine, busy_wait);
        vcpus.iter().try_for_each(|vcpu| all.begin(vcpu))?;
        Ok(all)
    }

    fn unbegun(
        enter_idle: EnterClass,
        vcpus: &CpuSet,
        group: &IdleGroup,
        stolen_gap: Nanos,
        mut machine: impl FnMut(VcpuId) -> Box<dyn YieldMachine>,
        mut busy_wait: impl FnMut(VcpuId) -> Option<BusyWait>,
    ) -> Self {
        let unbegun = |vcpu| (vcpu, Unbegun { machine: machine(vcpu), busy: busy_wait(vcpu) });
        Self {
            members: Vec::new(),
            unbegun: vcpus.iter().map(unbegun).collect(),
            enter_idle,
            group: group.clone(),
            heartbeat: Arc::new(AtomicU64::new(now().0)),
            stolen_gap,
            class: YieldClass::Idle,
            idle_means: group.means(),
            fallbacks: Vec::new(),
        }
    }

    /// Starts the thread of `vcpu`, asleep, unless it was before.
    pub fn begin(&mut self, vcpu: VcpuId) -> Result<(), ActError> {
        let Some(Unbegun { machine, busy }) = self.unbegun.remove(&vcpu) else { return Ok(()) };
        let (wait, wake) = busy.map_or((None, None), |busy| (Some(busy.wait), Some(busy.wake)));
        let tid = self.launch(vcpu, machine, wait, wake)?;
        if let Some(why) = lower(tid, vcpu, self.enter_idle)? {
            self.class = YieldClass::Nice19;
            self.note("SCHED_IDLE", "SCHED_OTHER at nice 19", why);
        }
        if let Err(why) = self.group.join(tid) {
            self.idle_means = IdleMeans::ClassOnly;
            self.note("cpu.idle=1", "the scheduling class alone", why.to_string());
        }
        Ok(())
    }

    /// Starts a thread, asleep; its id.
    fn launch(
        &mut self,
        vcpu: VcpuId,
        machine: Box<dyn YieldMachine>,
        wait: Option<runner::Wait>,
        wake: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Result<i32, ActError> {
        let cell = Arc::new(Cell::default());
        let (sender, receiver) = mpsc::channel();
        let mut runner =
            Runner::new(vcpu, machine, wait, Arc::clone(&cell), Arc::clone(&self.heartbeat), self.stolen_gap);
        let thread = std::thread::Builder::new()
            .name(format!("gleaner-y{}", vcpu.0))
            .stack_size(128 * 1024)
            .spawn(move || {
                let _ = sender.send(runner.prepare());
                runner.run();
            })
            .map_err(|source| ActError::Unavailable {
                what: format!("a yielding thread on {vcpu}"),
                why: gleaner_sys::why_refused(&source),
            })?;
        self.members.push(Member { vcpu, cell, thread: Some(thread), wake });
        receiver.recv().map_err(|_| ActError::Unavailable {
            what: format!("a yielding thread on {vcpu}"),
            why: "it ended before it began".into(),
        })
    }

    fn note(&mut self, wanted: &'static str, used: &'static str, why: String) {
        if !self.fallbacks.iter().any(|known| known.wanted == wanted) {
            self.fallbacks.push(Fallback { wanted, used, why });
        }
    }

    /// Orders the thread of `vcpu`; an unknown vCPU is ignored (it may have gone offline).
    pub fn order(&self, vcpu: VcpuId, order: Order) {
        let word = match order {
            Order::Sleep => ORDER_SLEEP,
            Order::Retain { timeout } => timeout.0.max(1),
        };
        for member in self.members.iter().filter(|member| member.vcpu == vcpu) {
            if member.cell.order.swap(word, Relaxed) != word {
                member.rouse();
            }
        }
    }

    /// The owner is alive. To be called at least once a second.
    pub fn beat(&self) {
        self.heartbeat.store(now().0, Relaxed);
    }

    /// Cumulative counters, one entry per thread.
    pub fn counters(&self) -> Vec<RetainCounters> {
        self.members.iter().map(|member| member.cell.read(member.vcpu)).collect()
    }

    /// The class the threads run in (the weakest, if they differ).
    pub fn class(&self) -> YieldClass {
        self.class
    }

    /// How far below everybody else the threads are: the group's means if every one of them could join it.
    pub fn idle_means(&self) -> IdleMeans {
        self.idle_means
    }

    /// Ends them without waiting for them.
    pub fn retire(self) {
        gleaner_sys::drop_aside(self);
    }

    /// What had to be replaced by a weaker means.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }
}

impl Drop for YieldingThreads {
    fn drop(&mut self) {
        for member in &self.members {
            member.cell.stop.store(true, Relaxed);
            // On a vCPU that is never idle it would take seconds to hear of it, and to end.
            runner::unpin(member.cell.tid.load(Relaxed));
            member.rouse();
        }
        for member in &mut self.members {
            if let Some(thread) = member.thread.take() {
                // A runner that panicked has nothing to hand over; its thread is gone either way.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::{Next, YieldReturn};
    use std::time::Duration;

    /// Spins as ordered, with no time-out: enough to exercise the runner.
    struct Obedient(RetainCounters);

    impl YieldMachine for Obedient {
        fn order(&mut self, _: Nanos, order: Order) -> Next {
            match order {
                Order::Retain { .. } => Next::Yield,
                Order::Sleep => Next::Sleep { at_most: Nanos::from_secs(1), until_busy: false },
            }
        }
        fn returned(&mut self, _: Nanos, elapsed: Nanos, how: YieldReturn) -> Next {
            self.0.retained += elapsed;
            self.0.displaced += u64::from(how == YieldReturn::Displaced);
            Next::Yield
        }
        fn woke(&mut self, _: Nanos, _: Nanos, _: Option<bool>) -> Next {
            self.0.sleeps += 1;
            Next::Sleep { at_most: Nanos::from_secs(1), until_busy: false }
        }
        fn counters(&self) -> RetainCounters {
            self.0
        }
    }

    fn started(group: &IdleGroup) -> YieldingThreads {
        started_in(enter_idle_class, group)
    }

    fn started_in(enter_idle: EnterClass, group: &IdleGroup) -> YieldingThreads {
        let machine = |_| Box::new(Obedient(RetainCounters::default())) as Box<dyn YieldMachine>;
        let (vcpus, gap) = (CpuSet::first(1), Nanos::from_micros(200));
        YieldingThreads::start_in(enter_idle, &vcpus, group, gap, machine, |_| None).unwrap()
    }

    /// Scheduling class and nice value of a thread, as the kernel has them.
    fn class_and_nice(tid: i32) -> (i32, i32) {
        // SAFETY: no memory is passed.
        unsafe { (libc::sched_getscheduler(tid), libc::getpriority(libc::PRIO_PROCESS, tid.cast_unsigned())) }
    }

    #[test]
    fn where_sched_idle_is_refused_a_thread_has_nice_19_and_says_so() {
        let refuse: EnterClass = |_| Err(std::io::Error::from_raw_os_error(libc::EPERM));
        let refused = started_in(refuse, &IdleGroup::none());
        assert_eq!(class_and_nice(refused.counters()[0].tid), (libc::SCHED_OTHER, 19));
        assert_eq!(refused.class(), YieldClass::Nice19);
        let told: Vec<String> = refused.fallbacks().iter().map(ToString::to_string).collect();
        let wanted = "SCHED_OTHER at nice 19 instead of SCHED_IDLE: Operation not permitted (os error 1)";
        assert_eq!(told, [wanted]);
        // It works all the same.
        refused.order(VcpuId(0), Order::Retain { timeout: Nanos::from_millis(5) });
        assert!(wait_until(&refused, |counters| counters.retained > Nanos::from_millis(1)));
        let granted = started(&IdleGroup::none());
        assert_eq!(class_and_nice(granted.counters()[0].tid).0, libc::SCHED_IDLE);
        assert_eq!((granted.class(), granted.fallbacks()), (YieldClass::Idle, &[][..]));
    }

    fn wait_until(threads: &YieldingThreads, met: impl Fn(&RetainCounters) -> bool) -> bool {
        (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            threads.beat();
            met(&threads.counters()[0])
        })
    }

    #[test]
    fn a_group_that_nobody_could_join_is_not_claimed() {
        assert_eq!(started(&IdleGroup::none()).idle_means(), IdleMeans::ClassOnly);
        let dir = tempfile::tempdir().unwrap();
        for (file, means) in [("tasks", IdleMeans::CpuIdle), ("missing", IdleMeans::ClassOnly)] {
            std::fs::write(dir.path().join("tasks"), "").unwrap();
            let threads = started(&IdleGroup::of_tasks(dir.path().join(file)));
            assert_eq!((threads.idle_means(), threads.fallbacks().len()), (means, usize::from(file == "missing")));
        }
    }

    #[test]
    fn a_thread_retains_when_ordered_and_not_before() {
        let threads = started(&IdleGroup::none());
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(threads.counters()[0].retained, Nanos::ZERO);
        threads.order(VcpuId(0), Order::Retain { timeout: Nanos::from_millis(5) });
        assert!(wait_until(&threads, |counters| counters.retained > Nanos::from_millis(1)));
        threads.order(VcpuId(0), Order::Sleep);
        // It ran until now, or waited for its turn to; it sleeps once it has seen the order.
        assert!(wait_until(&threads, |counters| state(counters.tid) == 'S'));
        let before = threads.counters()[0].retained;
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(threads.counters()[0].retained, before);
    }

    /// A thread's state, as the kernel has it.
    fn state(tid: i32) -> char {
        let line = std::fs::read(format!("/proc/self/task/{tid}/stat")).unwrap();
        gleaner_sys::Stat::parse(&line).and_then(|stat| stat.state()).map(char::from).unwrap()
    }

    #[test]
    fn a_thread_whose_owner_is_silent_stops_spinning() {
        let threads = started(&IdleGroup::none());
        threads.order(VcpuId(0), Order::Retain { timeout: Nanos::from_millis(5) });
        assert!(wait_until(&threads, |counters| counters.retained > Nanos::from_millis(1)));
        // As if the last beat were long ago.
        threads.heartbeat.store(0, Relaxed);
        let asleep = || state(threads.counters()[0].tid) == 'S';
        let stopped = (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            asleep()
        });
        assert!(stopped, "it spins on");
        let before = threads.counters()[0].retained;
        std::thread::sleep(Duration::from_millis(50));
        assert!(asleep());
        assert_eq!(threads.counters()[0].retained, before);
        // Another order is obeyed once the owner is there again.
        threads.order(VcpuId(0), Order::Retain { timeout: Nanos::from_millis(6) });
        assert!(wait_until(&threads, |counters| counters.retained > before));
    }

    #[test]
    fn a_thread_is_begun_where_it_is_to_retain() {
        let machine = |_| Box::new(Obedient(RetainCounters::default())) as Box<dyn YieldMachine>;
        let (vcpus, gap) = (CpuSet::first(2), Nanos::from_micros(200));
        let mut threads = YieldingThreads::prepare(&vcpus, &IdleGroup::none(), gap, machine, |_| None).unwrap();
        let begun = |threads: &YieldingThreads| -> Vec<Option<VcpuId>> {
            threads.counters().iter().map(|counters| counters.vcpu).collect()
        };
        assert_eq!(begun(&threads), [Some(VcpuId(0))]);
        threads.order(VcpuId(1), Order::Sleep);
        assert_eq!(begun(&threads), [Some(VcpuId(0))], "nobody begins to sleep");
        if gleaner_sys::usable_cpus(&gleaner_sys::ProcRoot::default()).contains(VcpuId(1)) {
            threads.begin(VcpuId(1)).unwrap();
            assert_eq!(begun(&threads), [Some(VcpuId(0)), Some(VcpuId(1))]);
            threads.begin(VcpuId(1)).unwrap();
            assert_eq!(begun(&threads).len(), 2, "once");
        }
    }

    #[test]
    fn dropping_ends_the_threads() {
        let threads = started(&IdleGroup::none());
        let tid = threads.counters()[0].tid;
        assert!(std::path::Path::new(&format!("/proc/self/task/{tid}")).exists());
        drop(threads);
        // The kernel says that a thread has ended a moment before its entry is gone.
        let gone = (0..30_000).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            !std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()
        });
        assert!(gone);
    }
}
