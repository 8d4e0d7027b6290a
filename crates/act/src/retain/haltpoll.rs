//! The haltpoll governor with a limit that does not adapt (kernel: drivers/cpuidle/governors/haltpoll.c).
//!
//! Problem: as shipped, haltpoll polls for at most 200 us, and its limit grows only after a halt shorter than
//! `guest_halt_poll_ns`, so an idle period of 500 us never makes it poll. How: with `guest_halt_poll_ns` at its
//! highest, `guest_halt_poll_grow` 0 and `guest_halt_poll_grow_start` T, the first halt of any length makes a vCPU's
//! limit exactly T. A vCPU's limit outlives these parameters; any write to one of its `cpuidle/state*/disable` files
//! sets it to 0.
//!
//! The parameters are the whole machine's: the longest time-out that any vCPU is given is everybody's.

use super::value_file::{self, ValueFile};
use super::{Retainer, SetValue};
use crate::journal::{Change, Run, When, path_bytes};
use crate::{ActError, Journal};
use gleaner_model::{CpuSet, Nanos, RetainMeans, VcpuId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The highest that `guest_halt_poll_ns` can be, in nanoseconds.
const HIGHEST: u32 = u32::MAX;

/// The governor, ours for as long as this lives.
#[derive(Debug)]
pub struct Haltpoll {
    sys: PathBuf,
    highest: ValueFile,
    grow: ValueFile,
    start: ValueFile,
    wanted: BTreeMap<VcpuId, Nanos>,
    /// The time-out in force.
    in_force: Option<Nanos>,
    reset_journalled: bool,
}

fn parameter(sys: &Path, name: &str) -> PathBuf {
    sys.join("module/haltpoll/parameters").join(name)
}

impl Haltpoll {
    /// Whether this machine's idle vCPUs are governed by haltpoll.
    pub fn check(sys: &Path) -> Result<(), ActError> {
        let words = |name: &str| {
            let text = fs::read_to_string(sys.join("devices/system/cpu/cpuidle").join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        let unavailable = |why: String| Err(ActError::Unavailable { what: "the haltpoll governor".into(), why });
        let (driver, governor) = (words("current_driver"), words("current_governor"));
        match (driver.as_str(), governor.as_str()) {
            ("" | "none", _) => unavailable("this machine has no cpuidle driver".into()),
            (_, "haltpoll") => Ok(()),
            ("haltpoll", "") => unavailable("the kernel was built without the governor, only with its driver".into()),
            (_, other) => unavailable(format!("idle vCPUs are governed by {other}")),
        }
    }

    /// Takes the governor's parameters, and changes nothing yet. Each write is tried out: root may lack what one takes.
    ///
    /// # Errors
    /// When the governor is another, another Gleaner has it, or something cannot be written.
    pub fn open(sys: &Path, journal: &Journal) -> Result<Self, ActError> {
        Self::check(sys)?;
        let open = |name: &str| ValueFile::open(&parameter(sys, name), journal);
        let (highest, grow) = (open("guest_halt_poll_ns")?, open("guest_halt_poll_grow")?);
        if (highest.had(), grow.had()) == (HIGHEST.to_string().as_str(), "0") {
            return Err(ActError::Unavailable {
                what: "the haltpoll governor".into(),
                why: "its parameters are a Gleaner's that is not seen from here, or was killed with its container; to reset them, write \
                      200000 to guest_halt_poll_ns and 2 to guest_halt_poll_grow in /sys/module/haltpoll/parameters"
                    .into(),
            });
        }
        let start = open("guest_halt_poll_grow_start")?;
        for file in [&highest, &grow, &start] {
            file.try_out()?;
        }
        reset_limits(sys)?;
        Ok(Self {
            sys: sys.to_owned(),
            highest,
            grow,
            start,
            wanted: BTreeMap::new(),
            in_force: None,
            reset_journalled: false,
        })
    }

    /// How long the governor polls at most by itself, without us; zero: not at all.
    pub fn by_itself(&self) -> Nanos {
        Nanos(self.highest.had().parse().unwrap_or(0))
    }

    /// All of it or nothing.
    fn begin(&mut self, timeout: Nanos, journal: &mut Journal) -> Result<(), ActError> {
        self.are_ours()?;
        if !self.reset_journalled {
            // Undone last, as the oldest: once the parameters are what they were.
            journal.before(&ResetHaltpoll { sys: self.sys.clone() })?;
            self.reset_journalled = true;
        }
        let start = u32::try_from(timeout.0).unwrap_or(HIGHEST);
        let [grow, start, highest] = [0, start, HIGHEST].map(|value| value.to_string());
        let mut values = [(&mut self.grow, grow), (&mut self.start, start), (&mut self.highest, highest)];
        let set = values.iter_mut().try_for_each(|(file, value)| file.set(value, journal));
        set.and_then(|()| reset_limits(&self.sys)).inspect_err(|_| {
            // The first failure is the one to tell.
            let _ = self.end();
            self.in_force = None;
        })
    }

    /// Each that is still ours; the first failure.
    fn end(&mut self) -> Result<(), ActError> {
        let files = [&mut self.highest, &mut self.start, &mut self.grow];
        let given_back = files.map(ValueFile::give_back);
        let reset = reset_limits(&self.sys);
        given_back.into_iter().chain([reset]).collect()
    }

    fn files(&self) -> [&ValueFile; 3] {
        [&self.highest, &self.grow, &self.start]
    }

    fn are_ours(&self) -> Result<(), ActError> {
        self.files().into_iter().try_for_each(ValueFile::is_ours)
    }
}

impl Retainer for Haltpoll {
    fn means(&self) -> RetainMeans {
        RetainMeans::Haltpoll
    }

    fn set(&mut self, vcpu: VcpuId, timeout: Option<Nanos>, journal: &mut Journal) -> Result<(), ActError> {
        match timeout {
            Some(timeout) => self.wanted.insert(vcpu, timeout),
            None => self.wanted.remove(&vcpu),
        };
        let longest = self.wanted.values().copied().max();
        if longest == self.in_force {
            return Ok(());
        }
        match longest {
            Some(timeout) => self.begin(timeout, journal)?,
            None => self.end()?,
        }
        // Only now: what failed is tried again.
        self.in_force = longest;
        Ok(())
    }

    fn was_taken_back(&mut self) {
        self.in_force = None;
        for file in [&mut self.highest, &mut self.grow, &mut self.start] {
            file.was_given_back();
        }
    }

    fn values(&self) -> Vec<SetValue> {
        let set = |file: &ValueFile| SetValue { path: file.path().to_owned(), one_of: vec![file.now().to_owned()] };
        if self.in_force.is_none() {
            return Vec::new();
        }
        self.files().map(set).into()
    }

    fn lost(&self) -> Option<ActError> {
        self.are_ours().err().filter(ActError::is_theirs)
    }

    fn retire(self: Box<Self>) {}
}

/// Each vCPU's haltpoll limit begins at 0 again: it outlives the parameters that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetHaltpoll {
    /// Where `/sys` is.
    #[serde(with = "path_bytes")]
    sys: PathBuf,
}

impl Change for ResetHaltpoll {
    const NAME: &'static str = "reset-haltpoll";
    const WHEN: When = When::WhileSilent;

    fn undo(&self, _: &Run<'_>) -> Result<(), ActError> {
        reset_limits(&self.sys)
    }
}

/// Makes each vCPU begin with a limit of 0: writes its `disable` file's own value into it once more.
fn reset_limits(sys: &Path) -> Result<(), ActError> {
    let online = fs::read_to_string(sys.join("devices/system/cpu/online")).unwrap_or_default();
    let online: CpuSet = online.trim().parse().unwrap_or_default();
    for vcpu in online.iter() {
        let path = sys.join(format!("devices/system/cpu/cpu{}/cpuidle/state0/disable", vcpu.0));
        // A vCPU that has just gone offline has no limit.
        let Ok(value) = fs::read_to_string(&path) else { continue };
        value_file::write(&path, value.trim())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::undo_own;

    /// A /sys with two vCPUs under haltpoll.
    fn fake_sys(governor: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("devices/system/cpu/cpuidle/current_driver", "haltpoll\n");
        file("devices/system/cpu/cpuidle/current_governor", governor);
        file("devices/system/cpu/online", "0-1\n");
        for (name, value) in [("ns", "0"), ("grow", "2"), ("grow_start", "50000")] {
            file(&format!("module/haltpoll/parameters/guest_halt_poll_{name}"), value);
        }
        for vcpu in 0..2 {
            file(&format!("devices/system/cpu/cpu{vcpu}/cpuidle/state0/disable"), "0\n");
        }
        dir
    }

    #[test]
    fn it_says_why_it_is_not_to_be_had() {
        for (governor, why) in [("menu\n", "governed by menu"), ("", "only with its driver")] {
            let sys = fake_sys(governor);
            let error = Haltpoll::check(sys.path()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = Haltpoll::check(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("no cpuidle driver"), "{error}");
    }

    #[test]
    fn what_only_a_gleaner_elsewhere_sets_is_not_taken_for_the_machines_own() {
        let sys = fake_sys("haltpoll\n");
        let journal = Journal::create(&sys.path().join("state"), "run-1").unwrap();
        for (highest, grow, refused) in [("4294967295", "0", true), ("4294967295", "2", false), ("200000", "0", false)]
        {
            for (name, value) in [("ns", highest), ("grow", grow)] {
                fs::write(parameter(sys.path(), &format!("guest_halt_poll_{name}")), value).unwrap();
            }
            let said = Haltpoll::open(sys.path(), &journal).err().map(|error| error.to_string());
            assert_eq!(said.is_some_and(|said| said.contains("not seen from here")), refused, "{highest} {grow}");
        }
    }

    #[test]
    fn nothing_is_set_before_it_is_journalled() {
        let sys = fake_sys("haltpoll\n");
        let mut journal = Journal::create(&sys.path().join("state"), "run-1").unwrap();
        journal.refuse_to_write();
        let mut haltpoll = Haltpoll::open(sys.path(), &journal).unwrap();
        assert!(haltpoll.set(VcpuId(0), Some(Nanos::from_micros(200)), &mut journal).is_err());
        for (name, value) in [("ns", "0"), ("grow", "2"), ("grow_start", "50000")] {
            let path = parameter(sys.path(), &format!("guest_halt_poll_{name}"));
            assert_eq!(fs::read_to_string(path).unwrap(), value);
        }
    }

    fn values(sys: &Path) -> [String; 3] {
        ["ns", "grow", "grow_start"]
            .map(|name| fs::read_to_string(parameter(sys, &format!("guest_halt_poll_{name}"))).unwrap())
    }

    /// As for root without CAP_SYS_ADMIN: it can be read, and not written. No link is followed to write.
    fn refuse_resets(sys: &Path) {
        let file = sys.join("devices/system/cpu/cpu1/cpuidle/state0/disable");
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/proc/version", &file).unwrap();
    }

    #[test]
    fn who_may_not_reset_limits_gets_no_haltpoll() {
        let sys = fake_sys("haltpoll\n");
        let journal = Journal::create(&sys.path().join("state"), "run-1").unwrap();
        let had = values(sys.path());
        refuse_resets(sys.path());
        let said = Haltpoll::open(sys.path(), &journal).unwrap_err().to_string();
        assert!(said.contains("cpu1/cpuidle/state0/disable"), "{said}");
        assert_eq!(values(sys.path()), had);
    }

    #[test]
    fn what_fails_in_the_middle_leaves_nothing() {
        let sys = fake_sys("haltpoll\n");
        let mut journal = Journal::create(&sys.path().join("state"), "run-1").unwrap();
        let mut haltpoll = Haltpoll::open(sys.path(), &journal).unwrap();
        let had = values(sys.path());
        refuse_resets(sys.path());
        for _ in 0..2 {
            let refused = haltpoll.set(VcpuId(0), Some(Nanos::from_micros(200)), &mut journal);
            assert!(refused.unwrap_err().to_string().contains("disable"));
            assert_eq!((values(sys.path()), haltpoll.in_force), (had.clone(), None));
        }
    }

    #[test]
    fn a_parameter_that_somebody_else_has_set_ends_it() {
        for theirs in ["ns", "grow", "grow_start"] {
            for retained in [true, false] {
                let sys = fake_sys("haltpoll\n");
                let mut journal = Journal::create(&sys.path().join("state"), "run-1").unwrap();
                let mut haltpoll = Haltpoll::open(sys.path(), &journal).unwrap();
                let mut had = values(sys.path());
                haltpoll.set(VcpuId(0), Some(Nanos::from_micros(200)), &mut journal).unwrap();
                if !retained {
                    haltpoll.set(VcpuId(0), None, &mut journal).unwrap();
                }
                assert!(haltpoll.lost().is_none());
                fs::write(parameter(sys.path(), &format!("guest_halt_poll_{theirs}")), "77").unwrap();
                assert!(haltpoll.lost().unwrap().to_string().contains("to 77"));
                let before = values(sys.path());
                assert!(haltpoll.set(VcpuId(1), Some(Nanos::from_micros(500)), &mut journal).is_err());
                assert_eq!(values(sys.path()), before, "nothing more is set");
                // What is still ours is given back.
                let _ = haltpoll.set(VcpuId(1), None, &mut journal);
                let _ = haltpoll.set(VcpuId(0), None, &mut journal);
                let place = ["ns", "grow", "grow_start"].iter().position(|name| *name == theirs).unwrap();
                had[place] = "77".to_owned();
                assert_eq!(values(sys.path()), had, "{theirs}");
                undo_own(&journal).unwrap();
                assert_eq!(values(sys.path()), had, "{theirs}");
            }
        }
    }

    #[test]
    fn what_was_taken_back_is_set_again() {
        let sys = fake_sys("haltpoll\n");
        let mut journal = Journal::create(&sys.path().join("state"), "run-1").unwrap();
        let mut haltpoll = Haltpoll::open(sys.path(), &journal).unwrap();
        let values = || {
            ["ns", "grow", "grow_start"]
                .map(|name| fs::read_to_string(parameter(sys.path(), &format!("guest_halt_poll_{name}"))).unwrap())
        };
        let (had, timeout) = (values(), Some(Nanos::from_micros(200)));
        haltpoll.set(VcpuId(0), timeout, &mut journal).unwrap();
        let set = values();
        assert_eq!(set, ["4294967295", "0", "200000"]);
        crate::take_values_back(journal.path(), None).unwrap();
        assert_eq!((values(), journal.path().exists()), (had.clone(), true));
        haltpoll.was_taken_back();
        haltpoll.set(VcpuId(0), timeout, &mut journal).unwrap();
        assert_eq!(values(), set);
        // Each vCPU's limit is reset once the parameters are what they were: undone last, so noted first, and once.
        let lines = fs::read_to_string(journal.path()).unwrap();
        let resets: Vec<bool> = lines.lines().skip(1).map(|line| line.contains("reset-haltpoll")).collect();
        assert_eq!(resets, [true, false, false, false], "{lines}");
        undo_own(&journal).unwrap();
        assert_eq!(values(), had);
    }

    #[test]
    fn the_longest_timeout_is_everybodys() {
        let sys = fake_sys("haltpoll\n");
        let mut journal = Journal::create(&sys.path().join("state"), "run-1").unwrap();
        let mut haltpoll = Haltpoll::open(sys.path(), &journal).unwrap();
        let us = Nanos::from_micros;
        for (vcpu, timeout, in_force) in [
            (0, Some(us(200)), Some(us(200))),
            (1, Some(us(500)), Some(us(500))),
            (0, None, Some(us(500))),
            (1, None, None),
        ] {
            haltpoll.set(VcpuId(vcpu), timeout, &mut journal).unwrap();
            assert_eq!(haltpoll.in_force, in_force);
        }
        undo_own(&journal).unwrap();
    }
}
