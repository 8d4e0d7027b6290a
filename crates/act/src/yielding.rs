//! Yielding threads: one per vCPU, in the lowest class, calling sched_yield so that the vCPU does not halt (paper, section 6).
//!
//! The thread enters the kernel at every turn (under 1 us): kernels with lazy preemption replace an idle-class task only
//! at a kernel entry or a tick, so a loop that stayed in user space would delay the program it means to help.
//! What to do next is the [`YieldMachine`]'s decision; this file only runs it: measures how each sched_yield came back,
//! sleeps, obeys orders, exports counters.
//!
//! A thread whose owner has stopped beating ([`YieldingThreads::beat`]) for two seconds sleeps: a hung or
//! stopped Gleaner must not burn the machine.

use crate::{ActError, Fallback, IdleGroup};
use gleaner_model::{CpuSet, Nanos, Next, Order, VcpuId, YieldCounters, YieldMachine, YieldReturn};
use rustix::thread::{CpuSet as Mask, sched_getcpu, sched_setaffinity, sched_yield};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A return of sched_yield within this time was immediate; a later one is looked at. A yield takes 0.3 to 1 us.
const QUICK: Nanos = Nanos(2_500);
/// Turns between two looks at the heart-beat, the CPU number and the counters: about a millisecond.
const TURNS_PER_CHECK: u32 = 1024;
/// Silence of the owner after which the thread sleeps.
const HEART_STOPPED: Nanos = Nanos::from_secs(2);
/// Longest sleep without looking at orders again.
const LONGEST_SLEEP: Nanos = Nanos::from_secs(1);
const ORDER_SLEEP: u64 = 0;

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
    pub wait: Box<dyn FnMut(Duration) -> bool + Send>,
    /// Ends the wait early.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

/// What the owner and one thread share. Single words, each with one writer.
#[derive(Default)]
struct Cell {
    /// 0: sleep; otherwise the time-out in nanoseconds.
    order: AtomicU64,
    stop: AtomicBool,
    tid: AtomicI32,
    retained: AtomicU64,
    displaced: AtomicU64,
    sleeps: AtomicU64,
    idle_naps: AtomicU64,
    stolen: AtomicU64,
    guard_trips: AtomicU64,
}

impl Cell {
    fn publish(&self, counters: &YieldCounters) {
        self.retained.store(counters.retained.0, Relaxed);
        self.displaced.store(counters.displaced, Relaxed);
        self.sleeps.store(counters.sleeps, Relaxed);
        self.idle_naps.store(counters.idle_naps, Relaxed);
        self.stolen.store(counters.stolen.0, Relaxed);
        self.guard_trips.store(counters.guard_trips, Relaxed);
    }

    fn read(&self, vcpu: VcpuId) -> YieldCounters {
        YieldCounters {
            vcpu: Some(vcpu),
            tid: self.tid.load(Relaxed),
            retained: Nanos(self.retained.load(Relaxed)),
            displaced: self.displaced.load(Relaxed),
            sleeps: self.sleeps.load(Relaxed),
            idle_naps: self.idle_naps.load(Relaxed),
            stolen: Nanos(self.stolen.load(Relaxed)),
            guard_trips: self.guard_trips.load(Relaxed),
        }
    }

    fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            ORDER_SLEEP => Order::Sleep,
            timeout => Order::Retain { timeout: Nanos(timeout) },
        }
    }
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

/// All yielding threads of this process. They sleep until ordered otherwise, and end when this is dropped.
pub struct YieldingThreads {
    members: Vec<Member>,
    heart: Arc<AtomicU64>,
    stolen_gap: Nanos,
    class: YieldClass,
    fallbacks: Vec<Fallback>,
}

impl YieldingThreads {
    /// Starts one thread on each of `vcpus`, asleep. `machine` makes its state machine; `busy_wait` its way to
    /// learn that the vCPU became busy, if there is one. A return of sched_yield later than `stolen_gap` without a switch is
    /// stolen time.
    ///
    /// # Errors
    /// When a thread cannot be started or pinned. A refused class or cgroup is a [`Fallback`], not an error.
    pub fn start(
        vcpus: &CpuSet,
        group: &IdleGroup,
        stolen_gap: Nanos,
        mut machine: impl FnMut(VcpuId) -> Box<dyn YieldMachine>,
        mut busy_wait: impl FnMut(VcpuId) -> Option<BusyWait>,
    ) -> Result<Self, ActError> {
        let heart = Arc::new(AtomicU64::new(now().0));
        let mut all = Self { members: Vec::new(), heart, stolen_gap, class: YieldClass::Idle, fallbacks: Vec::new() };
        for vcpu in vcpus.iter() {
            let (wait, wake) = busy_wait(vcpu).map_or((None, None), |busy| (Some(busy.wait), Some(busy.wake)));
            let ready = all.launch(vcpu, machine(vcpu), wait, wake)?;
            let tid = ready.tid?;
            if let Some(why) = ready.class_refused {
                all.class = YieldClass::Nice19;
                all.note("SCHED_IDLE", "SCHED_OTHER at nice 19", why);
            }
            if let Err(why) = group.join(tid) {
                all.note("cpu.idle=1", "the scheduling class alone", why.to_string());
            }
        }
        Ok(all)
    }

    fn launch(
        &mut self,
        vcpu: VcpuId,
        machine: Box<dyn YieldMachine>,
        wait: Option<Box<dyn FnMut(Duration) -> bool + Send>>,
        wake: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Result<Ready, ActError> {
        let cell = Arc::new(Cell::default());
        let (sender, receiver) = mpsc::channel();
        let mut runner = Runner {
            vcpu,
            machine,
            wait,
            cell: Arc::clone(&cell),
            heart: Arc::clone(&self.heart),
            stolen_gap: self.stolen_gap,
            last: now(),
            switches: 0,
        };
        let thread = std::thread::Builder::new()
            .name(format!("gleaner-y{}", vcpu.0))
            .stack_size(128 * 1024)
            .spawn(move || {
                let ready = runner.prepare();
                let go = ready.tid.is_ok();
                let _ = sender.send(ready);
                if go {
                    runner.run();
                }
            })
            .map_err(|source| ActError::Unavailable {
                what: format!("a yielding thread on {vcpu}"),
                why: source.to_string(),
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

    /// Orders all of them to sleep, and waits until they do or a moment has passed.
    pub fn order_all_to_sleep(&self) {
        for member in &self.members {
            self.order(member.vcpu, Order::Sleep);
        }
    }

    /// The owner is alive. To be called at least once a second.
    pub fn beat(&self) {
        self.heart.store(now().0, Relaxed);
    }

    /// Cumulative counters, one entry per thread.
    pub fn counters(&self) -> Vec<YieldCounters> {
        self.members.iter().map(|member| member.cell.read(member.vcpu)).collect()
    }

    /// The class the threads run in (the weakest, if they differ).
    pub fn class(&self) -> YieldClass {
        self.class
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

/// What a new thread reports before it begins.
struct Ready {
    tid: Result<i32, ActError>,
    class_refused: Option<String>,
}

/// The thread's own side.
struct Runner {
    vcpu: VcpuId,
    machine: Box<dyn YieldMachine>,
    wait: Option<Box<dyn FnMut(Duration) -> bool + Send>>,
    cell: Arc<Cell>,
    heart: Arc<AtomicU64>,
    stolen_gap: Nanos,
    /// The last return of sched_yield.
    last: Nanos,
    /// This thread's involuntary switches then.
    switches: i64,
}

impl Runner {
    fn prepare(&mut self) -> Ready {
        let tid = rustix::thread::gettid();
        let raw = tid.as_raw_nonzero().get();
        self.cell.tid.store(raw, Relaxed);
        let mut mask = Mask::new();
        mask.set(self.vcpu.0 as usize);
        let pinned = sched_setaffinity(Some(tid), &mask).map_err(ActError::thread("sched_setaffinity", raw));
        Ready { tid: pinned.map(|()| raw), class_refused: enter_idle_class().err().map(|error| error.to_string()) }
    }

    fn run(&mut self) {
        let mut order = Order::Sleep;
        let mut next = self.machine.order(now(), order);
        while !self.cell.stop.load(Relaxed) {
            if self.cell.order() != order {
                order = self.cell.order();
                next = self.machine.order(now(), order);
            }
            next = match next {
                Next::Yield => self.spin(order),
                Next::Sleep { at_most, until_busy } => self.sleep(order, at_most, until_busy),
            };
        }
        self.cell.publish(&self.machine.counters());
    }

    /// Yields until the machine wants to sleep, the order changes, or something is wrong.
    fn spin(&mut self, order: Order) -> Next {
        self.last = now();
        self.switches = involuntary_switches();
        let mut next = Next::Yield;
        let mut turns = 0;
        while next == Next::Yield && self.cell.order() == order && !self.cell.stop.load(Relaxed) {
            sched_yield();
            let at = now();
            let elapsed = at - self.last;
            self.last = at;
            let how = self.classify(elapsed);
            next = self.machine.returned(at, elapsed, how);
            turns += 1;
            if turns % TURNS_PER_CHECK == 0 || how != YieldReturn::Immediate {
                self.cell.publish(&self.machine.counters());
                if self.owner_silent(at) || self.moved_away() {
                    next = Next::Sleep { at_most: LONGEST_SLEEP, until_busy: false };
                }
            }
        }
        self.cell.publish(&self.machine.counters());
        next
    }

    /// Whether a task ran in between, or the hypervisor took the vCPU, or neither.
    fn classify(&mut self, elapsed: Nanos) -> YieldReturn {
        if elapsed < QUICK {
            return YieldReturn::Immediate;
        }
        let switches = involuntary_switches();
        if switches != self.switches {
            self.switches = switches;
            YieldReturn::Displaced
        } else if elapsed > self.stolen_gap {
            YieldReturn::Stolen
        } else {
            YieldReturn::Immediate
        }
    }

    /// Whether nobody has beaten for long: the owner hangs or is stopped.
    fn owner_silent(&self, at: Nanos) -> bool {
        at - Nanos(self.heart.load(Relaxed)) > HEART_STOPPED
    }

    /// Whether the vCPU went offline, so that the kernel moved this thread to another.
    fn moved_away(&self) -> bool {
        sched_getcpu() != self.vcpu.0 as usize
    }

    /// Sleeps as told. An order ends the sleep, and is for the machine to hear of before anything else.
    fn sleep(&mut self, order: Order, at_most: Nanos, until_busy: bool) -> Next {
        self.cell.publish(&self.machine.counters());
        let began = now();
        let limit = Duration::from(at_most.min(LONGEST_SLEEP));
        let busy = match &mut self.wait {
            Some(wait) if until_busy => Some(wait(limit)),
            _ => {
                std::thread::park_timeout(limit);
                None
            }
        };
        let at = now();
        if self.owner_silent(at) {
            return Next::Sleep { at_most: LONGEST_SLEEP, until_busy: false };
        }
        let slept = at - began;
        if self.cell.order() != order {
            return Next::Yield;
        }
        if slept < at_most && busy != Some(true) && self.cell.order() == Order::Sleep {
            // Woken only to look at orders, of which there is no new one.
            return Next::Sleep { at_most, until_busy };
        }
        self.machine.woke(at, slept, busy)
    }
}

fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = Nanos::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// How often this thread was switched out while it wanted to run. sched_yield's own switches count as such
/// (kernel/sched/core.c, `__schedule`: `nivcsw` unless the task blocks).
fn involuntary_switches() -> i64 {
    // SAFETY: rusage is plain data, and the kernel fills it whole for RUSAGE_THREAD.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

/// SCHED_IDLE for the calling thread; nice 19 where that is refused.
fn enter_idle_class() -> std::io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the calling thread; the parameter outlives the call.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) } == 0 {
        return Ok(());
    }
    let refused = std::io::Error::last_os_error();
    // SAFETY: no memory is passed; who = 0 is the calling thread on Linux.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spins as ordered, with no time-out: enough to exercise the runner.
    struct Obedient(YieldCounters);

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
        fn counters(&self) -> YieldCounters {
            self.0
        }
    }

    fn started() -> YieldingThreads {
        let machine = |_| Box::new(Obedient(YieldCounters::default())) as Box<dyn YieldMachine>;
        YieldingThreads::start(&CpuSet::first(1), &IdleGroup::none(), Nanos::from_micros(200), machine, |_| None)
            .unwrap()
    }

    fn wait_until(threads: &YieldingThreads, met: impl Fn(&YieldCounters) -> bool) -> bool {
        (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            threads.beat();
            met(&threads.counters()[0])
        })
    }

    #[test]
    fn a_thread_retains_when_ordered_and_not_before() {
        let threads = started();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(threads.counters()[0].retained, Nanos::ZERO);
        threads.order(VcpuId(0), Order::Retain { timeout: Nanos::from_millis(5) });
        assert!(wait_until(&threads, |counters| counters.retained > Nanos::from_millis(1)));
        threads.order(VcpuId(0), Order::Sleep);
        assert!(wait_until(&threads, |_| true));
        let before = threads.counters()[0].retained;
        std::thread::sleep(Duration::from_millis(50));
        assert!(threads.counters()[0].retained - before < Nanos::from_millis(20));
    }

    #[test]
    fn a_thread_whose_owner_is_silent_stops_spinning() {
        let threads = started();
        threads.order(VcpuId(0), Order::Retain { timeout: Nanos::from_millis(5) });
        std::thread::sleep(Duration::from_millis(2_600));
        let before = threads.counters()[0].retained;
        std::thread::sleep(Duration::from_millis(300));
        assert!(threads.counters()[0].retained - before < Nanos::from_millis(30));
    }

    #[test]
    fn dropping_ends_the_threads() {
        let threads = started();
        let tid = threads.counters()[0].tid;
        assert!(std::path::Path::new(&format!("/proc/self/task/{tid}")).exists());
        drop(threads);
        assert!(!std::path::Path::new(&format!("/proc/self/task/{tid}")).exists());
    }
}
