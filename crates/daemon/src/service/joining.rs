//! Groups that come by the socket, and go by it.

use super::{Adopted, Service};
use crate::allowance::Allowance;
use crate::groups::place_for;
use crate::joins::{Before, Join, Joined, check, has_room};
use crate::protocol::Answer;
use crate::server::Peer;
use gleaner_observe::{ProcRoot, vcpus_of};
use gleaner_runtime::{Config, GroupId};
use gleaner_settings::RetainChoice;
use std::time::{Duration, Instant};

/// A user's programs may join so often ...
const JOIN_EVERY: Duration = Duration::from_millis(500);
/// ... and so many at once.
const JOINS_AT_ONCE: u32 = 16;

pub(super) fn rate() -> Allowance {
    Allowance::new(JOIN_EVERY * (JOINS_AT_ONCE - 1), JOIN_EVERY)
}

impl Service {
    /// Manages what somebody hands over, or says whether it would.
    pub(super) fn join(&mut self, join: &Join, peer: &Peer) -> Result<Answer, String> {
        let root = ProcRoot::default();
        let (runner, target) = check(&root, join, peer)?;
        let entry = join.entry()?;
        self.acts_for(join)?;
        if !self.joins.wait(runner.uid, Instant::now()).is_zero() {
            return Err(format!("more than {JOINS_AT_ONCE} programs of yours joined within a few seconds"));
        }
        let joined: Vec<&Joined> = self.groups.iter().filter_map(|group| group.joined.as_ref()).collect();
        let of_user = joined.iter().filter(|joined| joined.runner.uid == runner.uid).count();
        has_room(joined.len(), of_user, self.configuration.machine.groups_max(), peer.is_trusted)?;
        if self.groups.len() >= self.configuration.machine.groups_max() {
            return Err("there are daemon.groups_max groups already".to_owned());
        }
        let Some(target) = target else { return Ok(Answer::Welcome) };
        let roots = target.roots(&root);
        if roots.is_empty() {
            return Err(format!("nothing runs in {target}"));
        }
        // What is only watched, because nobody named a group, is everything.
        let named = self.groups.iter().filter(|group| group.joined.is_some() || !self.configuration.names_no_group);
        let named: Vec<Adopted> = named.cloned().collect();
        let name = place_for(&root, &named, &roots, join.group_name())
            .map_err(|owner| format!("it is managed already, as {owner}"))?;
        self.cut_window();
        let config = Config { dry_run: false, ..self.group_config(&name, &entry) };
        // Each costs everybody a window.
        self.joins.spend(runner.uid, Instant::now(), JOIN_EVERY);
        let before = Before::of(&self.runtime.snapshot());
        let Some(id) = self.runtime.adopt(&config, &vcpus_of(&roots), Adopted::members(&target), &roots) else {
            return Err("the observer has no room for it".to_owned());
        };
        (self.say)(&format!("gleaner: {name}: {target} joins, handed over by process {}", runner.pid));
        let of_runner = join.pid.is_some_and(|pid| is_child(&root, pid, runner.pid));
        let joined = Some(Joined { runner, config, of_runner, before });
        self.groups.push(Adopted { id, name: name.clone(), entry, target, roots, joined, holds: Vec::new() });
        Ok(Answer::Joined { group: id.0, name, pid: rustix::process::getpid().as_raw_nonzero().get() })
    }

    /// Lets it go, and tells what there is to tell.
    pub(super) fn leave(&mut self, id: u64, peer: &Peer) -> Result<Answer, String> {
        let asker = peer.process.map(|(pid, _)| pid);
        let may = |joined: &Joined| peer.is_trusted || Some(joined.runner.pid) == asker;
        let is_it = |group: &Adopted| group.id == GroupId(id) && group.joined.as_ref().is_some_and(may);
        let place = self
            .groups
            .iter()
            .position(is_it)
            .ok_or("no such group of yours (the configuration's own groups go before it)")?;
        self.cut_window();
        let group = self.groups.remove(place);
        self.runtime.rouse_all();
        let mut snapshot = self.runtime.snapshot();
        snapshot.groups.retain(|found| found.id == group.id);
        let restored = self.runtime.let_go(group.id).is_some_and(|(_, restored)| restored);
        (self.say)(&format!("gleaner: {}: {} leaves", group.name, group.target));
        let Some(joined) = group.joined else { return Err("nobody handed it over".to_owned()) };
        let mut report = (self.options.summarize)(&joined.config, &joined.since(snapshot));
        report.restored = restored;
        Ok(Answer::Left(Box::new(report)))
    }

    /// Whether this daemon changes anything at all.
    fn acts_for(&self, join: &Join) -> Result<(), String> {
        let retains = self.configuration.machine.retain() != RetainChoice::None;
        match join.settings.policy().retains() {
            true if self.options.dry_run => Err("the daemon only watches (--dry-run)".to_owned()),
            true if !retains => Err("the daemon keeps no vCPU awake (daemon.retain = \"none\")".to_owned()),
            _ => Ok(()),
        }
    }
}

fn is_child(root: &ProcRoot, pid: i32, parent: i32) -> bool {
    let text = std::fs::read(root.proc.join(format!("{pid}/stat"))).unwrap_or_default();
    gleaner_sys::Stat::parse(&text).and_then(|stat| stat.parent()) == Some(parent)
}
