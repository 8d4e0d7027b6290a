//! PM QoS: a latency limit of zero makes haltpoll, menu and ladder choose the POLL state on that vCPU (kernel:
//! base/power/qos.c, drivers/cpuidle/governor.c).
//!
//! Problem: POLL under such a limit has no end. How: while vCPUs are retained a watch looks at their cpuidle counts
//! every few milliseconds. A vCPU that polled all the time since the last look has outlived its time-out, and is let go
//! until it has been busy again. So a time-out holds to one look; a vCPU that already halts is not woken by any of
//! these writes.
//!
//! Somebody else's limit stays: where it is as strict as ours there is nothing to do, and a weaker one comes
//! back. A limit that somebody else sets meanwhile is theirs from then on: the watch writes it no more, and says so.

use super::value_file::{self, FileValue, ValueFile};
use super::{Retainer, SetValue};
use crate::heartbeat::is_silent;
use crate::{ActError, Journal};
use gleaner_model::{CpuSet, Nanos, RetainMeans, VcpuId};
use gleaner_sys::monotonic;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the file holds for "latency zero": the vCPU polls.
const POLLS: &str = "n/a";
/// The shortest time between two looks; a time-out below it is as long as that.
const LOOK: Duration = Duration::from_millis(5);
/// The longest, on a vCPU that was let go.
const LOOK_LONGEST: Duration = Duration::from_millis(80);
/// A vCPU that polled for more than this share of the time since the last look polled all the time.
const ALL_THE_TIME: f64 = 0.9;

enum Order {
    /// What the limits had: from now on they are set.
    Begin(Vec<String>),
    Set(VcpuId, Option<Nanos>),
    /// Somebody else gave back what they had, for the so many'th time.
    TakenBack(u64),
}

/// Why the watch keeps nothing awake any more, and how often values had been taken back by then.
type Lost = Arc<Mutex<Option<(u64, ActError)>>>;

/// PM QoS limits on these vCPUs, ours for as long as this lives.
#[derive(Debug)]
pub struct PmQos {
    vcpus: Vec<(VcpuId, PathBuf)>,
    journalled: bool,
    /// To the watch; dropping it ends the watch, which gives every value back.
    orders: Option<Sender<Order>>,
    watch: Option<std::thread::JoinHandle<()>>,
    had: Vec<(PathBuf, String)>,
    heartbeat: Arc<AtomicU64>,
    lost: Lost,
    taken_back: u64,
}

/// What the watch knows of one vCPU.
struct Watched {
    vcpu: VcpuId,
    limit: ValueFile,
    counts: Counts,
    timeout: Option<Nanos>,
    /// Polled time and halts at the last look, and when that was.
    last: (Instant, u64, u64),
    /// Let go because it outlived its time-out.
    let_go: bool,
    next_look: Instant,
    pause: Duration,
}

/// The cpuidle counts of one vCPU, kept open.
struct Counts {
    polled: File,
    halts: Vec<File>,
}

impl PmQos {
    /// Whether a cpuidle driver with a POLL state is in charge.
    pub fn check(sys: &Path, vcpu: VcpuId) -> Result<(), ActError> {
        let unavailable = |why: String| Err(ActError::Unavailable { what: "PM QoS".into(), why });
        let cpu = sys.join(format!("devices/system/cpu/cpu{}", vcpu.0));
        let state = cpu.join("cpuidle/state0/name");
        match fs::read_to_string(&state) {
            Err(_) => return unavailable("this machine has no cpuidle driver".into()),
            Ok(name) if name.trim() != "POLL" => return unavailable("its cpuidle driver has no POLL state".into()),
            Ok(_) => {}
        }
        let governor = fs::read_to_string(sys.join("devices/system/cpu/cpuidle/current_governor")).unwrap_or_default();
        let shallow = || fs::read_to_string(cpu.join("cpuidle/state1/latency")).is_ok_and(|text| text.trim() == "0");
        if governor.trim() == "teo" && shallow() {
            return unavailable("the teo governor prefers another state without exit latency".into());
        }
        Ok(())
    }

    /// Takes the limits of `vcpus`, and changes nothing yet.
    ///
    /// # Errors
    /// When there is no POLL state, another Gleaner has a limit, or they cannot be written.
    pub fn open(sys: &Path, vcpus: &CpuSet, journal: &Journal) -> Result<Self, ActError> {
        let first = vcpus.iter().next().unwrap_or(VcpuId(0));
        Self::check(sys, first)?;
        let mut watched = Vec::new();
        for vcpu in vcpus.iter() {
            let cpu = sys.join(format!("devices/system/cpu/cpu{}", vcpu.0));
            let limit = ValueFile::open(&cpu.join("power/pm_qos_resume_latency_us"), journal)?;
            limit.try_out()?;
            let counts = Counts::open(&cpu.join("cpuidle"))?;
            let now = Instant::now();
            let (timeout, last) = (None, (now, 0, 0));
            watched.push(Watched { vcpu, limit, counts, timeout, last, let_go: false, next_look: now, pause: LOOK });
        }
        let had = watched.iter().map(|watched| (watched.limit.path().to_owned(), watched.limit.had().to_owned()));
        let had = had.collect();
        let paths = watched.iter().map(|watched| (watched.vcpu, watched.limit.path().to_owned())).collect();
        let (sender, receiver) = channel();
        let heartbeat = Arc::new(AtomicU64::new(monotonic().0));
        let lost = Lost::default();
        let (beating, losing) = (Arc::clone(&heartbeat), Arc::clone(&lost));
        let watch = std::thread::Builder::new()
            .name("gleaner-qos".into())
            .spawn(move || watch(watched, &receiver, &beating, &losing))
            .map_err(|source| ActError::Unavailable { what: "PM QoS".into(), why: format!("no thread: {source}") })?;
        let (journalled, orders, watch, taken_back) = (false, Some(sender), Some(watch), 0);
        Ok(Self { vcpus: paths, journalled, orders, watch, had, heartbeat, lost, taken_back })
    }

    /// The watch lives as long as its sender.
    fn order(&self, order: Order) {
        self.orders.as_ref().map(|orders| orders.send(order).ok());
    }

    fn journal(&mut self, journal: &mut Journal) -> Result<(), ActError> {
        if self.journalled {
            return Ok(());
        }
        // What others set before the first time is what it had.
        for (path, had) in &mut self.had {
            *had = value_file::read(path)?;
        }
        for (path, had) in self.had.iter().filter(|(_, had)| had != POLLS) {
            journal.before(&FileValue { path: path.clone(), had: had.clone(), set: POLLS.to_owned() })?;
        }
        self.journalled = true;
        self.order(Order::Begin(self.had.iter().map(|(_, had)| had.clone()).collect()));
        Ok(())
    }
}

impl Retainer for PmQos {
    fn means(&self) -> RetainMeans {
        RetainMeans::PmQos
    }

    fn set(&mut self, vcpu: VcpuId, timeout: Option<Nanos>, journal: &mut Journal) -> Result<(), ActError> {
        if !self.vcpus.iter().any(|(id, _)| *id == vcpu) {
            return Ok(());
        }
        self.journal(journal)?;
        self.order(Order::Set(vcpu, timeout));
        Ok(())
    }

    fn was_taken_back(&mut self) {
        self.taken_back += 1;
        self.order(Order::TakenBack(self.taken_back));
    }

    fn lost(&self) -> Option<ActError> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        // What the watch said before it knew that values were taken back tells of that alone.
        lost.take_if(|(taken_back, _)| *taken_back == self.taken_back).map(|(_, why)| why)
    }

    fn beat(&self) {
        self.heartbeat.store(monotonic().0, Relaxed);
    }

    fn values(&self) -> Vec<SetValue> {
        // The watch lets a vCPU go that has been idle for longer than its time-out.
        let set = |(path, had): &(PathBuf, String)| {
            let one_of = vec![had.clone(), POLLS.to_owned()];
            SetValue { path: path.clone(), one_of }
        };
        self.had.iter().filter(|_| self.journalled).map(set).collect()
    }

    fn retire(self: Box<Self>) {}
}

impl Drop for PmQos {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A watch that panicked has nothing to hand over; the journal gives back what it had set.
        self.watch.take().map(std::thread::JoinHandle::join);
    }
}

/// Carries out orders and time-outs until the orders end; then gives everything back. While the owner is silent,
/// nothing is kept awake.
fn watch(mut vcpus: Vec<Watched>, orders: &Receiver<Order>, heartbeat: &AtomicU64, lost: &Lost) {
    let mut taken_back = 0;
    loop {
        let due = vcpus.iter().filter(|watched| watched.timeout.is_some()).map(|watched| watched.next_look).min();
        let order = match due {
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => orders.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        let done = match order {
            Ok(Order::Begin(had)) => {
                vcpus.iter_mut().zip(had).for_each(|(watched, had)| watched.limit.had_been(had));
                Ok(())
            }
            Ok(Order::Set(id, timeout)) => {
                let its = vcpus.iter_mut().filter(|watched| watched.vcpu == id);
                each(its, |watched| watched.order(timeout))
            }
            Ok(Order::TakenBack(times)) => {
                taken_back = times;
                each(vcpus.iter_mut(), |watched| {
                    watched.limit.was_given_back();
                    Ok(())
                })
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let due = |watched: &&mut Watched| watched.timeout.is_some() && watched.next_look <= now;
                let silent = is_silent(heartbeat, monotonic());
                let look = |watched: &mut Watched| if silent { watched.let_go(now) } else { watched.look(now) };
                each(vcpus.iter_mut().filter(due), look)
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Err(why) = done {
            *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some((taken_back, why));
        }
    }
    for error in vcpus.iter_mut().filter_map(|watched| watched.order(None).err()) {
        tracing::info!("{error}");
    }
}

/// Does it for each, whatever becomes of the others; the first failure. A vCPU that was taken away is none.
fn each<'a>(
    all: impl Iterator<Item = &'a mut Watched>,
    mut work: impl FnMut(&mut Watched) -> Result<(), ActError>,
) -> Result<(), ActError> {
    let failed: Vec<ActError> = all.filter_map(|watched| work(watched).err()).filter(|why| !why.is_gone()).collect();
    failed.into_iter().next().map_or(Ok(()), Err)
}

impl Watched {
    fn order(&mut self, timeout: Option<Nanos>) -> Result<(), ActError> {
        self.timeout = timeout;
        self.let_go = false;
        self.begin_pause(LOOK, Instant::now());
        self.apply(timeout.is_some())
    }

    /// Polls or not.
    fn apply(&mut self, polls: bool) -> Result<(), ActError> {
        if polls { self.limit.write(POLLS) } else { self.limit.give_back() }
    }

    fn begin_pause(&mut self, at_least: Duration, now: Instant) {
        let timeout = self.timeout.map_or(Duration::ZERO, Duration::from);
        self.pause = at_least.max(timeout).max(LOOK);
        self.next_look = now + self.pause;
        let (polled, halts) = self.counts.read();
        self.last = (now, polled, halts);
    }

    /// Until it has been busy again.
    fn let_go(&mut self, now: Instant) -> Result<(), ActError> {
        let had_it = !std::mem::replace(&mut self.let_go, true);
        let done = if had_it { self.apply(false) } else { Ok(()) };
        self.begin_pause(LOOK, now);
        done
    }

    fn look(&mut self, now: Instant) -> Result<(), ActError> {
        let (then, polled_before, halts_before) = self.last;
        let (polled, halts) = self.counts.read();
        let passed = now.saturating_duration_since(then).as_secs_f64();
        let polled = Duration::from_micros(polled.saturating_sub(polled_before)).as_secs_f64();
        if self.let_go {
            // An interrupt ends a halt too: only more than one a look is work.
            if halts.saturating_sub(halts_before) > 1 {
                self.let_go = false;
                self.begin_pause(LOOK, now);
                return self.apply(true);
            }
            self.begin_pause((self.pause * 2).min(LOOK_LONGEST), now);
        } else if polled > ALL_THE_TIME * passed {
            return self.let_go(now);
        } else {
            self.begin_pause(LOOK, now);
        }
        // Nothing is written: that somebody else has is noticed all the same.
        self.limit.is_ours()
    }
}

impl Counts {
    fn open(cpuidle: &Path) -> Result<Self, ActError> {
        let open = |path: PathBuf| File::open(&path).map_err(ActError::file("open", &path));
        let polled = open(cpuidle.join("state0/time"))?;
        let mut halts = Vec::new();
        for state in 1.. {
            let path = cpuidle.join(format!("state{state}/usage"));
            if !path.exists() {
                break;
            }
            halts.push(open(path)?);
        }
        Ok(Self { polled, halts })
    }

    /// Microseconds polled and halts, since boot.
    fn read(&self) -> (u64, u64) {
        (number(&self.polled), self.halts.iter().map(number).sum())
    }
}

fn number(file: &File) -> u64 {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    std::str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A /sys with one vCPU.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new(governor: &str, latency: &str) -> Self {
            let sys = Self(tempfile::tempdir().unwrap());
            sys.file("cpuidle/current_governor", governor);
            for (path, text) in [
                ("cpuidle/state0/name", "POLL"),
                ("cpuidle/state0/time", "0"),
                ("cpuidle/state1/latency", latency),
                ("cpuidle/state1/usage", "0"),
                ("power/pm_qos_resume_latency_us", "0"),
            ] {
                sys.file(&format!("cpu0/{path}"), text);
            }
            sys
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join("devices/system/cpu").join(path)
        }

        fn file(&self, path: &str, text: &str) {
            fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
            fs::write(self.path(path), text).unwrap();
        }

        fn limit(&self) -> String {
            fs::read_to_string(self.path("cpu0/power/pm_qos_resume_latency_us")).unwrap()
        }
    }

    #[test]
    fn it_says_why_it_is_not_to_be_had() {
        for (governor, latency, why) in [
            ("teo\n", "0\n", Some("teo governor")),
            ("teo\n", "2\n", None),
            ("menu\n", "0\n", None),
            ("haltpoll\n", "0\n", None),
        ] {
            let sys = Sys::new(governor, latency);
            let said = PmQos::check(sys.0.path(), VcpuId(0)).err().map(|error| error.to_string());
            assert_eq!(said.is_some(), why.is_some(), "{governor}: {said:?}");
            assert!(said.is_none_or(|said| said.contains(why.unwrap_or_default())));
        }
        let sys = Sys::new("menu", "0");
        sys.file("cpu0/cpuidle/state0/name", "C1");
        assert!(PmQos::check(sys.0.path(), VcpuId(0)).unwrap_err().to_string().contains("no POLL state"));
        assert!(PmQos::check(sys.0.path(), VcpuId(1)).unwrap_err().to_string().contains("no cpuidle driver"));
    }

    #[test]
    fn a_vcpu_that_polled_all_the_time_is_let_go_until_it_works_again() {
        let sys = Sys::new("menu", "0");
        let journal = Journal::create(&sys.0.path().join("state"), "run-1").unwrap();
        let limit = ValueFile::open(&sys.path("cpu0/power/pm_qos_resume_latency_us"), &journal).unwrap();
        let counts = Counts::open(&sys.path("cpu0/cpuidle")).unwrap();
        let mut now = Instant::now();
        let mut watched = Watched {
            vcpu: VcpuId(0),
            limit,
            counts,
            timeout: None,
            last: (now, 0, 0),
            let_go: false,
            next_look: now,
            pause: LOOK,
        };
        watched.order(Some(Nanos::from_millis(10))).unwrap();
        assert_eq!(sys.limit(), POLLS);
        let (mut polled, mut halts) = (0, 0);
        now = watched.last.0;
        for (polled_us, more_halts, expected) in [
            // It worked for a fifth of the time.
            (8_000, 0, POLLS),
            (10_000, 0, "0"),
            // What an interrupt ended is no work.
            (0, 1, "0"),
            (0, 0, "0"),
            (0, 2, POLLS),
            (9_500, 0, "0"),
        ] {
            (polled, halts) = (polled + polled_us, halts + more_halts);
            sys.file("cpu0/cpuidle/state0/time", &polled.to_string());
            sys.file("cpu0/cpuidle/state1/usage", &halts.to_string());
            now += Duration::from_millis(10);
            watched.look(now).unwrap();
            assert_eq!(sys.limit(), expected, "{polled_us} us polled, {more_halts} halts");
        }
        // Whose owner is silent is let go, too.
        watched.order(Some(Nanos::from_millis(10))).unwrap();
        assert_eq!(sys.limit(), POLLS);
        watched.let_go(now).unwrap();
        assert_eq!(sys.limit(), "0");
        // Somebody else's limit is seen at the next look, and stays.
        sys.file("cpu0/power/pm_qos_resume_latency_us", "30");
        for done in [watched.look(now), watched.order(Some(Nanos::from_millis(10))), watched.order(None)] {
            assert!(done.unwrap_err().is_theirs());
        }
        assert_eq!(sys.limit(), "30");
    }

    /// Whether it becomes true within a minute; a few looks of the watch are enough on a quiet machine.
    fn soon(met: impl FnMut() -> bool) -> bool {
        std::iter::repeat_with(met).take(60_000).any(|met| {
            std::thread::sleep(Duration::from_millis(1));
            met
        })
    }

    #[test]
    fn a_limit_that_somebody_else_sets_ends_it_and_one_that_was_taken_back_does_not() {
        let sys = Sys::new("menu", "0");
        let mut journal = Journal::create(&sys.0.path().join("state"), "run-1").unwrap();
        let mut means = PmQos::open(sys.0.path(), &CpuSet::first(1), &journal).unwrap();
        // Not set yet: it is the machine's own.
        sys.file("cpu0/power/pm_qos_resume_latency_us", "50");
        let timeout = Some(Nanos::from_millis(10));
        means.set(VcpuId(0), timeout, &mut journal).unwrap();
        let polls = |means: &PmQos| {
            means.beat();
            soon(|| sys.limit() == POLLS)
        };
        assert!(polls(&means) && means.lost().is_none());
        crate::take_values_back(journal.path(), None).unwrap();
        assert_eq!(sys.limit(), "50");
        // However long the watch has seen that by now.
        std::thread::sleep(3 * LOOK_LONGEST);
        means.was_taken_back();
        assert!(means.lost().is_none());
        means.set(VcpuId(0), timeout, &mut journal).unwrap();
        assert!(polls(&means));
        std::thread::sleep(3 * LOOK_LONGEST);
        assert!(means.lost().is_none(), "it was the guardian");
        sys.file("cpu0/power/pm_qos_resume_latency_us", "30");
        assert!(soon(|| means.lost().is_some_and(|why| why.to_string().contains("to 30"))));
        means.set(VcpuId(0), None, &mut journal).unwrap();
        drop(means);
        crate::undo_own(&journal).unwrap();
        assert_eq!(sys.limit(), "30");
    }

    #[test]
    fn a_limit_that_cannot_be_written_is_refused_before_anything_is_set() {
        let sys = Sys::new("menu", "0");
        let journal = Journal::create(&sys.0.path().join("state"), "run-1").unwrap();
        let limit = sys.path("cpu0/power/pm_qos_resume_latency_us");
        fs::rename(&limit, limit.with_extension("real")).unwrap();
        // It can be opened, and no link is followed to write.
        std::os::unix::fs::symlink(limit.with_extension("real"), &limit).unwrap();
        assert!(PmQos::open(sys.0.path(), &CpuSet::first(1), &journal).is_err());
    }
}
