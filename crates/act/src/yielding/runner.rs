//! The yielding thread's own side: calls sched_yield, tells the machine how it came back, sleeps, obeys.
//!
//! Stolen time is felt in two ways. A late return without a switch is a gap that the hypervisor made. But the wake-up
//! that ends an idle period often arrives while the vCPU is away: then the late return looks like a displacement, and
//! only this thread's CPU time tells how much of it was a gap ([`Runner::hidden_gap`]).
//!
//! Where nobody tells that the vCPU is busy, a nap that ends late does: a thread of the lowest class runs when the
//! others are done, and the kernel keeps how long it was kept waiting ([`RunDelay`]).

use super::cell::Cell;
use crate::ActError;
use crate::heartbeat::is_silent;
use gleaner_model::{Nanos, Next, Order, VcpuId, YieldMachine, YieldReturn};
use gleaner_sys::{schedstat, set_affinity, set_affinity_to_all, thread_cpu_time};
use rustix::thread::{sched_getcpu, sched_yield};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Waits at most so long for the vCPU to become busy; says whether it was.
pub(super) type Wait = Box<dyn FnMut(Duration) -> bool + Send>;

/// A return of sched_yield within this time was immediate; a later one is looked at. A yield takes 0.3 to 1 us.
const QUICK: Nanos = Nanos(2_500);
/// Turns between two looks at the heartbeat, the CPU number and the counters: about a millisecond.
const TURNS_PER_CHECK: u32 = 1024;
/// Longest sleep without looking at orders again.
const LONGEST_SLEEP: Nanos = Nanos::from_secs(1);
/// A wake-up that had to wait longer than this for the vCPU found another task on it: an idle vCPU takes 2 to 10 us.
const WAITED: Nanos = Nanos::from_micros(20);

/// Puts a thread, by its id, into a scheduling class.
pub(super) type EnterClass = fn(i32) -> std::io::Result<()>;

/// Pins a thread to `vcpu` and puts it into its class; says why not, where `enter_idle` is refused and nice 19 is what
/// it gets. Called by the owner: the thread itself would not come back from the lowest class while the program keeps
/// that vCPU busy.
pub(super) fn lower(tid: i32, vcpu: VcpuId, enter_idle: EnterClass) -> Result<Option<String>, ActError> {
    pin(tid, vcpu).map_err(|source| ActError::Thread { call: "sched_setaffinity", tid, source })?;
    Ok(enter_idle(tid).err().map(|error| {
        lower_to_nice_19(tid);
        error.to_string()
    }))
}

/// Lets a thread run on any vCPU again; of one that is gone there is nothing to say.
pub(super) fn unpin(tid: i32) {
    if tid != 0 {
        let _ = set_affinity_to_all(tid);
    }
}

fn pin(tid: i32, vcpu: VcpuId) -> std::io::Result<()> {
    set_affinity(tid, &std::iter::once(vcpu).collect())
}

/// The thread's own side.
pub(super) struct Runner {
    vcpu: VcpuId,
    machine: Box<dyn YieldMachine>,
    wait: Option<Wait>,
    cell: Arc<Cell>,
    heartbeat: Arc<AtomicU64>,
    stolen_gap: Nanos,
    run_delay: RunDelay,
    /// The last return of sched_yield.
    last: Nanos,
    /// This thread's involuntary switches then.
    switches: i64,
    /// This thread's CPU time when it last began to spin or was displaced.
    cpu_zero: Nanos,
    /// What the machine has been told of the time since.
    accounted: Nanos,
}

impl Runner {
    pub fn new(
        vcpu: VcpuId,
        machine: Box<dyn YieldMachine>,
        wait: Option<Wait>,
        cell: Arc<Cell>,
        heartbeat: Arc<AtomicU64>,
        stolen_gap: Nanos,
    ) -> Self {
        let zero = Nanos::ZERO;
        Self {
            vcpu,
            machine,
            wait,
            cell,
            heartbeat,
            stolen_gap,
            run_delay: RunDelay(None),
            last: zero,
            switches: 0,
            cpu_zero: zero,
            accounted: zero,
        }
    }

    /// Called on the thread itself, before its owner [lowers](lower) it; its id.
    pub fn prepare(&mut self) -> i32 {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.cell.tid.store(tid, Relaxed);
        self.run_delay = RunDelay::of_this_thread();
        tid
    }

    pub fn run(&mut self) {
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
        if self.moved_away() {
            return Next::Sleep { at_most: LONGEST_SLEEP, until_busy: false };
        }
        self.last = now();
        self.switches = involuntary_switches();
        self.hidden_gap();
        let mut next = Next::Yield;
        let mut turns = 0;
        while next == Next::Yield && self.cell.order() == order && !self.cell.stop.load(Relaxed) {
            sched_yield();
            let at = now();
            let elapsed = at - self.last;
            self.last = at;
            let how = self.classify(elapsed);
            next = self.report(at, elapsed, how);
            turns += 1;
            if turns % TURNS_PER_CHECK == 0 || how != YieldReturn::Immediate {
                self.cell.publish(&self.machine.counters());
                if is_silent(&self.heartbeat, at) || self.moved_away() {
                    next = Next::Sleep { at_most: LONGEST_SLEEP, until_busy: false };
                }
            }
        }
        self.cell.publish(&self.machine.counters());
        next
    }

    /// Tells the machine of one return.
    fn report(&mut self, at: Nanos, elapsed: Nanos, how: YieldReturn) -> Next {
        if how != YieldReturn::Displaced {
            self.accounted += elapsed;
            return self.machine.returned(at, elapsed, how);
        }
        let hidden = self.hidden_gap();
        let stopped = (hidden > self.stolen_gap).then(|| self.machine.returned(at, hidden, YieldReturn::Stolen));
        match stopped {
            Some(sleep @ Next::Sleep { .. }) => sleep,
            _ => self.machine.returned(at, elapsed, YieldReturn::Displaced),
        }
    }

    /// What the hypervisor took just before a task came, since spinning began or the last task came. The wake-up that
    /// ends an idle period often arrives while the vCPU is away: then the gap ends with a displacement, and only this
    /// thread's CPU time tells of it, which goes on while nobody says that the vCPU is gone. Where the hypervisor
    /// reports steal, CPU time stands still and the policy reads the report instead.
    fn hidden_gap(&mut self) -> Nanos {
        let now = thread_cpu_time();
        let hidden = now - self.cpu_zero - self.accounted;
        self.cpu_zero = now;
        self.accounted = Nanos::ZERO;
        hidden
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

    /// Whether the vCPU is offline, so that the kernel moved this thread to another. It does not move it back: once the
    /// vCPU has returned, this does. One that is to end was unpinned, and stays so.
    fn moved_away(&self) -> bool {
        !self.cell.stop.load(Relaxed) && sched_getcpu() != self.vcpu.0 as usize && pin(0, self.vcpu).is_err()
    }

    /// Sleeps as told. An order ends the sleep, and is for the machine to hear of before anything else.
    fn sleep(&mut self, order: Order, at_most: Nanos, until_busy: bool) -> Next {
        self.cell.publish(&self.machine.counters());
        let began = now();
        let limit = Duration::from(at_most.min(LONGEST_SLEEP));
        let busy = match &mut self.wait {
            Some(wait) if until_busy => Some(wait(limit)),
            _ => self.nap(limit),
        };
        let at = now();
        if is_silent(&self.heartbeat, at) {
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

impl Runner {
    /// Sleeps; `Some(true)` if another task had the vCPU when the sleep ended. If not, nothing is known of the time
    /// before.
    fn nap(&self, limit: Duration) -> Option<bool> {
        let before = self.run_delay.read();
        std::thread::park_timeout(limit);
        (self.run_delay.read()? - before? > WAITED).then_some(true)
    }
}

/// How long this thread was kept waiting for its vCPU: the second figure of its `schedstat`, where the kernel has that
/// (`CONFIG_SCHED_INFO`; without it the file says 0 for ever, and every wake-up looks prompt).
struct RunDelay(Option<File>);

impl RunDelay {
    fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    fn read(&self) -> Option<Nanos> {
        let mut buffer = [0; 80];
        let length = self.0.as_ref()?.read_at(&mut buffer, 0).ok()?;
        schedstat(&buffer[..length]).map(|(_, waited, _)| Nanos(waited))
    }
}

pub(super) use gleaner_sys::monotonic as now;

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

/// SCHED_IDLE for a thread; 0 is the calling one.
pub(super) fn enter_idle_class(tid: i32) -> std::io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter outlives the call.
    let status = unsafe { libc::sched_setscheduler(tid, libc::SCHED_IDLE, &raw const param) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The next weaker means. Nobody is refused a higher nice value.
fn lower_to_nice_19(tid: i32) {
    // SAFETY: no memory is passed; `who` may be a thread on Linux.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), 19) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_model::CpuSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// In the lowest class on CPU 0, naps of 1 ms: the share that ended late.
    fn late_share() -> f64 {
        const NAPS: u32 = 100;
        let late = std::thread::spawn(|| {
            set_affinity(0, &CpuSet::first(1)).unwrap();
            enter_idle_class(0).unwrap();
            let delay = RunDelay::of_this_thread();
            let nap = || {
                let before = delay.read().unwrap();
                std::thread::sleep(Duration::from_millis(1));
                u32::from(delay.read().unwrap() - before > WAITED)
            };
            (0..NAPS).map(|_| nap()).sum::<u32>()
        });
        f64::from(late.join().unwrap()) / f64::from(NAPS)
    }

    #[test]
    fn a_nap_that_ends_while_another_task_computes_is_late() {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let busy = std::thread::spawn(move || {
            set_affinity(0, &CpuSet::first(1)).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                // Computes for 3 ms, pauses for 1 ms.
                let end = now() + Nanos::from_millis(3);
                while now() < end {
                    std::hint::spin_loop();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let share = late_share();
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        // Other tests may share the vCPU, so only one side can be asserted; on a quiet one hardly any nap is late.
        eprintln!("late beside a busy task: {share:.2}, alone: {:.2}", late_share());
        assert!(share > 0.2, "{share}");
    }

    /// What the machine was told, oldest first; it sleeps once it hears of stolen time if `sleeps`.
    #[derive(Clone, Default)]
    struct Told {
        returns: Arc<std::sync::Mutex<Vec<(Nanos, YieldReturn)>>>,
        sleeps: bool,
    }

    const SLEEP: Next = Next::Sleep { at_most: Nanos::from_millis(7), until_busy: false };

    impl YieldMachine for Told {
        fn order(&mut self, _: Nanos, _: Order) -> Next {
            Next::Yield
        }
        fn returned(&mut self, _: Nanos, elapsed: Nanos, how: YieldReturn) -> Next {
            self.returns.lock().unwrap().push((elapsed, how));
            if self.sleeps && how == YieldReturn::Stolen { SLEEP } else { Next::Yield }
        }
        fn woke(&mut self, _: Nanos, _: Nanos, _: Option<bool>) -> Next {
            Next::Yield
        }
        fn counters(&self) -> gleaner_model::RetainCounters {
            gleaner_model::RetainCounters::default()
        }
    }

    const GAP: Nanos = Nanos::from_millis(5);

    /// A runner of this thread, and what its machine hears.
    fn runner(told: &Told) -> Runner {
        let (cell, heartbeat) = (Arc::default(), Arc::default());
        // A clock that has gone on for long enough to be set back.
        compute(GAP.times(3));
        let mut runner = Runner::new(VcpuId(0), Box::new(told.clone()), None, cell, heartbeat, GAP);
        runner.hidden_gap();
        runner
    }

    /// Takes so much CPU time.
    fn compute(time: Nanos) {
        let cpu_time = gleaner_sys::thread_cpu_time;
        let began = cpu_time();
        while cpu_time() - began < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_gap_that_ends_with_a_displacement_is_told_before_it_and_once() {
        let us = Nanos::from_micros;
        for (hidden, sleeps) in [(us(9_000), false), (us(9_000), true), (us(1_000), true)] {
            let told = Told { sleeps, ..Told::default() };
            let mut runner = runner(&told);
            // This thread's clock went on for so long, of which the machine knows nothing.
            runner.cpu_zero = runner.cpu_zero - hidden;
            let next = runner.report(Nanos::from_secs(1), us(300), YieldReturn::Displaced);
            let heard: Vec<_> = std::mem::take(&mut *told.returns.lock().unwrap());
            let stolen = heard.iter().filter(|(_, how)| *how == YieldReturn::Stolen);
            let stolen: Vec<Nanos> = stolen.map(|(elapsed, _)| *elapsed).collect();
            if hidden > GAP {
                assert!(matches!(stolen[..], [one] if one >= hidden && one < hidden.times(2)), "{heard:?}");
                assert_eq!(heard[0].1, YieldReturn::Stolen, "{heard:?}");
            } else {
                assert_eq!(stolen, []);
            }
            // Where the machine wants to sleep for it, it is told no more.
            let stopped = hidden > GAP && sleeps;
            assert_eq!((next == SLEEP, heard.contains(&(us(300), YieldReturn::Displaced))), (stopped, !stopped));
            runner.report(Nanos::from_secs(2), us(300), YieldReturn::Displaced);
            assert_eq!(*told.returns.lock().unwrap(), [(us(300), YieldReturn::Displaced)], "told once");
        }
    }

    #[test]
    fn time_that_the_machine_was_told_of_is_not_hidden() {
        let told = Told::default();
        let mut runner = runner(&told);
        compute(Nanos::from_millis(9));
        runner.report(Nanos::from_secs(1), Nanos::from_millis(9), YieldReturn::Immediate);
        runner.report(Nanos::from_secs(1), Nanos::from_micros(300), YieldReturn::Displaced);
        let heard = told.returns.lock().unwrap();
        assert!(heard.iter().all(|(_, how)| *how != YieldReturn::Stolen), "{heard:?}");
    }

    #[test]
    fn a_late_return_without_a_switch_is_stolen_and_with_one_a_displacement() {
        let mut runner = runner(&Told::default());
        for (elapsed, switched, expected) in [
            (QUICK - Nanos(1), true, YieldReturn::Immediate),
            (GAP, false, YieldReturn::Immediate),
            (GAP + Nanos(1), false, YieldReturn::Stolen),
            (GAP + Nanos(1), true, YieldReturn::Displaced),
            (QUICK, true, YieldReturn::Displaced),
        ] {
            // Somebody else may really displace this thread here; then it is asked again.
            let undisturbed = (0..1_000).find_map(|_| {
                let before = involuntary_switches();
                runner.switches = before - i64::from(switched);
                let how = runner.classify(elapsed);
                (involuntary_switches() == before).then_some((how, runner.switches, before))
            });
            let (how, seen, now) = undisturbed.unwrap();
            assert_eq!(how, expected, "{elapsed} {switched}");
            assert!(elapsed < QUICK || seen == now, "a switch counts once");
        }
    }
}
