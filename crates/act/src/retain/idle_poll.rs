//! A BPF program polls at the head of the kernel's idle loop; `idle_poll.bpf.c` explains how and why.
//!
//! Here: getting it into the kernel or saying why not, learning which flag says "reschedule", and the vCPUs' time-outs.
//! All of it hangs on file descriptors of this process and of its guardian: however these end, nothing stays.

use super::Retainer;
use crate::{ActError, Fallback, Journal};
use gleaner_bpf::{BpfRefusal, MappedArray, loading, plain_old_data, refusal};
use gleaner_model::{CpuSet, Nanos, RetainCounters, RetainMeans, VcpuId};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore};
use memchr::memmem;
use skel::types::{guard, idle_control, idle_cpu};
use skel::{IdlePollSkelBuilder, OpenIdlePollSkel};
use std::cell::RefCell;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

#[allow(warnings, clippy::all, clippy::pedantic)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/idle_poll.skel.rs"));
}

plain_old_data! {
    guard { slot, stolen_ns, hold_off_ns, stopped_until_ns }
    idle_cpu {
        timeout_ns, interrupt_ns, polling, entries, entry_flags, exit_flags, exits, trips, polls, held, timeouts,
        polled_ns, stolen_ns,
        paused_until_ns, pause_level, guard, __pad_192,
    }
    idle_control { heart_ns, reschedule_flag }
}

/// Slots of the guard's memory, as in the BPF program.
const SLOTS: u64 = 8;
/// Exits of the idle loop that must agree before a flag is believed.
const EXITS_MIN: u32 = 8;
/// Naps of the thread that opens this, each of which takes its vCPU into the idle loop and out of it.
const NAPS: u32 = 40;
const NAP: Duration = Duration::from_micros(100);
/// What the program hangs on.
const HOOK: &str = "tick_nohz_idle_enter";
const EXIT_HOOK: &str = "tick_nohz_idle_exit";

/// The contention guard's numbers; decide's `GuestParams` says what each is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdlePollParams {
    /// A gap between two looks over this, before any interrupt, is stolen time.
    pub stolen_gap: Nanos,
    /// The stolen share is taken over this much of the time polled.
    pub steal_span: Nanos,
    /// Polling stops above this stolen share, 0 to 1.
    pub steal_share_stop: f64,
    /// First stop.
    pub hold_off_min: Nanos,
    /// The stop doubles up to this while it recurs.
    pub hold_off_max: Nanos,
}

impl Default for IdlePollParams {
    fn default() -> Self {
        Self {
            stolen_gap: Nanos::from_micros(200),
            steal_span: Nanos::from_millis(200),
            steal_share_stop: 0.15,
            hold_off_min: Nanos::from_secs(1),
            hold_off_max: Nanos::from_secs(30),
        }
    }
}

/// Why the idle loop cannot be polled here.
#[derive(Debug, thiserror::Error)]
pub enum IdlePollRefusal {
    /// What any BPF program may be refused for.
    #[error(transparent)]
    Bpf(#[from] BpfRefusal),
    /// The kernel loads BPF programs, but lets none into its functions, not even root's.
    #[error("this kernel lets no BPF program into its functions (fentry): {step}: {source}")]
    NoFentry {
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The function that the program hangs on was inlined or renamed, or came later.
    #[error("this kernel has no function {function}, at which the idle loop could be polled")]
    NoFunction {
        /// Its name.
        function: &'static str,
    },
}

impl From<IdlePollRefusal> for ActError {
    fn from(refusal: IdlePollRefusal) -> Self {
        Self::Unavailable { what: "polling in the idle loop".into(), why: refusal.to_string() }
    }
}

/// The program in the kernel, from [`IdlePoll::open`] until this is dropped.
#[derive(Debug)]
pub struct IdlePoll {
    vcpus: CpuSet,
    cpus: MappedArray<idle_cpu>,
    control: MappedArray<idle_control>,
    /// What learning needs, until it is done.
    learning: RefCell<Option<Link>>,
    fallbacks: Vec<Fallback>,
    links: Vec<Link>,
}

impl IdlePoll {
    /// The longest time-out. A poll is an RCU reader, so grace periods of the whole machine wait for its end, expedited
    /// ones too. Well below an ordinary one's 20 ms and more; a stall is reported after 21 s, a soft lockup after 20.
    pub const TIMEOUT_MAX: Nanos = Nanos::from_millis(10);

    /// Loads and attaches the program, and learns which flag says "reschedule", for which this thread sleeps a few
    /// times. `sys` is `/sys`. Nothing polls until [`Retainer::set`] says so.
    pub fn open(sys: &Path, vcpus: &CpuSet, params: &IdlePollParams) -> Result<Self, IdlePollRefusal> {
        let poll = loading(sys, || {
            check_kernel(sys)?;
            Self::load(vcpus, params)
        })?;
        poll.beat();
        for _ in 0..NAPS {
            if poll.learning.borrow().is_none() {
                break;
            }
            std::thread::sleep(NAP);
            poll.learn();
        }
        Ok(poll)
    }

    /// Whether the kernel would take the program: loaded, and attached to nothing.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check(sys: &Path) -> Result<(), IdlePollRefusal> {
        loading(sys, || {
            check_kernel(sys)?;
            Self::loaded(&mut MaybeUninit::uninit(), &IdlePollParams::default()).map(drop)
        })
    }

    fn loaded<'a>(
        storage: &'a mut MaybeUninit<libbpf_rs::OpenObject>,
        params: &IdlePollParams,
    ) -> Result<(skel::IdlePollSkel<'a>, usize), IdlePollRefusal> {
        let refuse = |step| move |error: libbpf_rs::Error| refused(refusal(step, &error));
        let possible = libbpf_rs::num_possible_cpus().map_err(refuse("counting CPUs"))?;
        let mut open = IdlePollSkelBuilder::default().open(storage).map_err(refuse("opening the object"))?;
        let entries = u32::try_from(possible).unwrap_or(u32::MAX);
        open.maps.cpus.set_max_entries(entries).map_err(refuse("sizing the maps"))?;
        configure(&mut open, params);
        Ok((open.load().map_err(refuse("loading"))?, possible))
    }

    fn load(vcpus: &CpuSet, params: &IdlePollParams) -> Result<Self, IdlePollRefusal> {
        let refuse = |step| move |error: libbpf_rs::Error| refused(refusal(step, &error));
        let mut storage = MaybeUninit::uninit();
        let (skel, possible) = Self::loaded(&mut storage, params)?;
        let mapped = |what: io::Error| refused(refusal("mapping the maps", &libbpf_rs::Error::from(what)));
        let cpus = MappedArray::new(&skel.maps.cpus, skel.maps.cpus.value_size(), possible).map_err(mapped)?;
        let control = MappedArray::new(&skel.maps.control, skel.maps.control.value_size(), 1).map_err(mapped)?;
        let (progs, attaching) = (&skel.progs, "attaching");
        let exit = progs.on_idle_exit.attach().map_err(refuse(attaching))?;
        let mut links = vec![progs.on_idle_enter.attach().map_err(refuse(attaching))?];
        let mut fallbacks = Vec::new();
        match progs.on_interrupt.attach() {
            Ok(link) => links.push(link),
            Err(error) => fallbacks.push(Fallback {
                wanted: "stolen time without interrupts",
                used: "all gaps in polling",
                why: refusal("attaching to irq_enter_rcu", &error).to_string(),
            }),
        }
        let learning = RefCell::new(Some(exit));
        Ok(Self { vcpus: vcpus.clone(), cpus, control, learning, fallbacks, links })
    }

    /// Looks whether the flag is known by now.
    fn learn(&self) {
        if self.learning.borrow().is_none() {
            return;
        }
        let seen: Vec<Seen> = (0..self.cpus.len()).map(|index| Seen::from(&self.cpus.read(index))).collect();
        if let Some(flag) = learnt(&seen) {
            tracing::debug!("the idle task's flag {flag:#x} says reschedule");
            self.control.write_field(0, offset_of!(idle_control, reschedule_flag), flag);
            gleaner_sys::drop_aside(self.learning.take());
        }
    }

    fn poll_no_more(&self) {
        self.members().for_each(|(vcpu, _)| self.set_timeout(vcpu, Nanos::ZERO));
    }

    fn set_timeout(&self, vcpu: VcpuId, timeout: Nanos) {
        self.cpus.write_field(vcpu.0 as usize, offset_of!(idle_cpu, timeout_ns), timeout.0);
    }

    /// The vCPUs that it was opened for and the kernel can have, with their places in the map.
    fn members(&self) -> impl Iterator<Item = (VcpuId, usize)> + '_ {
        let known = |vcpu: VcpuId| (vcpu, vcpu.0 as usize);
        self.vcpus.iter().map(known).filter(|(_, index)| *index < self.cpus.len())
    }
}

impl Retainer for IdlePoll {
    fn means(&self) -> RetainMeans {
        RetainMeans::IdlePoll
    }

    /// At most [`IdlePoll::TIMEOUT_MAX`]. No journal: the time-outs end with the process.
    fn set(&mut self, vcpu: VcpuId, timeout: Option<Nanos>, _: &mut Journal) -> Result<(), ActError> {
        if self.members().any(|(member, _)| member == vcpu) {
            self.set_timeout(vcpu, timeout.map_or(Nanos::ZERO, |timeout| timeout.min(Self::TIMEOUT_MAX)));
        }
        Ok(())
    }

    fn counters(&self) -> Vec<RetainCounters> {
        let count = |(vcpu, index)| {
            let cpu: idle_cpu = self.cpus.read(index);
            RetainCounters {
                vcpu: Some(vcpu),
                polled: Nanos(cpu.polled_ns),
                polls_held: cpu.held,
                sleeps: cpu.timeouts,
                stolen: Nanos(cpu.stolen_ns),
                guard_trips: cpu.trips.into(),
                ..RetainCounters::default()
            }
        };
        self.members().map(count).collect()
    }

    fn beat(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0);
        self.control.write_field(0, offset_of!(idle_control, heart_ns), now);
        self.learn();
    }

    fn detail(&self) -> String {
        let unlearnt = if self.learning.borrow().is_some() { "+unlearnt" } else { "" };
        format!("idle-poll{unlearnt}")
    }

    fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    fn slow_to_close(&self) -> Vec<OwnedFd> {
        self.links.iter().filter_map(|link| link.as_fd().try_clone_to_owned().ok()).collect()
    }

    /// Polling ends at once. Taking programs out of the kernel may wait for a grace period: a thread of its own does
    /// that.
    fn retire(self: Box<Self>) {
        self.poll_no_more();
        gleaner_sys::drop_aside(self);
    }
}

impl Drop for IdlePoll {
    /// Others may still have the links.
    fn drop(&mut self) {
        self.poll_no_more();
    }
}

/// Sets what the programs are loaded with.
fn configure(open: &mut OpenIdlePollSkel<'_>, params: &IdlePollParams) {
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.stolen_gap_ns = params.stolen_gap.0;
        constants.slot_ns = (params.steal_span.0 / SLOTS).max(1);
        constants.stolen_stop_ns = Nanos::from_f64(params.steal_span.as_f64() * params.steal_share_stop).0;
        constants.hold_off_min_ns = params.hold_off_min.0;
        constants.hold_off_max_ns = params.hold_off_max.0;
    }
}

/// Asks the kernel's own description of itself what it lacks.
///
/// Only names are looked for: a program could not be attached to a function that is not described either.
fn check_kernel(sys: &Path) -> Result<(), IdlePollRefusal> {
    let path = sys.join("kernel/btf/vmlinux");
    let types = fs::read(&path).map_err(|_| BpfRefusal::NoBtf { path: path.display().to_string() })?;
    for function in [HOOK, EXIT_HOOK] {
        if !names(&types, function) {
            return Err(IdlePollRefusal::NoFunction { function });
        }
    }
    Ok(())
}

/// Whether `name` is a whole name in these types.
fn names(types: &[u8], name: &str) -> bool {
    memmem::find(types, format!("\0{name}\0").as_bytes()).is_some()
}

/// Root may lack no permission to load programs, and still be refused this kind.
fn refused(refusal: BpfRefusal) -> IdlePollRefusal {
    match refusal {
        BpfRefusal::NotPermitted { step, source } if rustix::process::geteuid().is_root() => {
            IdlePollRefusal::NoFentry { step, source }
        }
        other => other.into(),
    }
}

/// What one CPU's idle task showed: the flags that were set at all entries and all exits of the idle loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    entries: u32,
    entry_flags: u64,
    exits: u32,
    exit_flags: u64,
}

impl From<&idle_cpu> for Seen {
    fn from(cpu: &idle_cpu) -> Self {
        Self { entries: cpu.entries, entry_flags: cpu.entry_flags, exits: cpu.exits, exit_flags: cpu.exit_flags }
    }
}

/// The flag that was set at all exits and not at all entries, if there is just one and it was seen often enough. The
/// idle loop ends when it is set, and only then; the polling flag is set at both.
fn learnt(seen: &[Seen]) -> Option<u64> {
    let exits: u32 = seen.iter().map(|cpu| cpu.exits).sum();
    let at_exits = seen.iter().filter(|cpu| cpu.exits > 0).fold(u64::MAX, |all, cpu| all & cpu.exit_flags);
    let at_entries = seen.iter().filter(|cpu| cpu.entries > 0).fold(u64::MAX, |all, cpu| all & cpu.entry_flags);
    let flag = at_exits & !at_entries;
    (exits >= EXITS_MIN && flag.is_power_of_two()).then_some(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESCHEDULE: u64 = 1 << 3;
    const POLLING: u64 = 1 << 21;
    const LAZY: u64 = 1 << 4;

    fn cpu(exits: u32, exit_flags: u64, entries: u32, entry_flags: u64) -> Seen {
        Seen { entries, entry_flags, exits, exit_flags }
    }

    #[test]
    fn the_flag_is_the_one_that_every_exit_has_and_not_every_entry() {
        let both = RESCHEDULE | POLLING;
        for (what, seen, expected) in [
            ("plain", vec![cpu(10, both, 10, POLLING)], Some(RESCHEDULE)),
            (
                "two CPUs together are often enough",
                vec![cpu(4, both, 4, POLLING), cpu(4, both, 5, POLLING)],
                Some(RESCHEDULE),
            ),
            ("not often enough", vec![cpu(3, both, 3, POLLING)], None),
            (
                "another flag on one CPU",
                vec![cpu(8, both | LAZY, 8, POLLING), cpu(8, both, 8, POLLING)],
                Some(RESCHEDULE),
            ),
            ("another flag everywhere: which?", vec![cpu(20, both | LAZY, 20, POLLING)], None),
            ("each wake-up came early", vec![cpu(20, both, 20, both)], None),
            ("no entry seen", vec![cpu(20, both, 0, 0)], None),
            ("a CPU that was never idle", vec![cpu(20, both, 20, POLLING), cpu(0, 0, 0, 0)], Some(RESCHEDULE)),
            ("nothing seen", vec![], None),
        ] {
            assert_eq!(learnt(&seen), expected, "{what}");
        }
    }

    fn sys(types: Option<&[u8]>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        if let Some(types) = types {
            fs::create_dir_all(folder.path().join("kernel/btf")).unwrap();
            fs::write(folder.path().join("kernel/btf/vmlinux"), types).unwrap();
        }
        folder
    }

    #[test]
    fn a_kernel_that_lacks_something_is_refused_by_name() {
        let refused = |types: Option<&[u8]>| {
            let sys = sys(types);
            IdlePoll::open(sys.path(), &CpuSet::first(1), &IdlePollParams::default()).unwrap_err().to_string()
        };
        assert!(refused(None).contains("CONFIG_DEBUG_INFO_BTF"));
        // A longer name is another function.
        let renamed = b"\0tick_nohz_idle_enter_new\0tick_nohz_idle_exit\0";
        assert!(refused(Some(renamed)).contains("no function tick_nohz_idle_enter,"));
        assert!(refused(Some(b"\0tick_nohz_idle_enter\0")).contains("no function tick_nohz_idle_exit,"));
    }

    /// Where it is refused, one line says so; where it is not, the flag is learnt.
    #[test]
    fn this_machine_polls_or_says_in_one_line_why_not() {
        match IdlePoll::open(Path::new("/sys"), &CpuSet::first(1), &IdlePollParams::default()) {
            Ok(poll) => assert_eq!(poll.detail(), "idle-poll"),
            Err(IdlePollRefusal::Bpf(BpfRefusal::Rejected { log, .. })) => panic!("the program is wrong: {log}"),
            Err(refusal) => {
                let text = refusal.to_string();
                gleaner_testing::skipped(format_args!("no polling here: {text}"));
                assert!(!text.contains('\n') && text.len() < 200, "{text}");
            }
        }
    }
}
