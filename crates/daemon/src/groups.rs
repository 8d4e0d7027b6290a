//! Which groups there are: what the configuration names, as far as it runs now.

use crate::config::{Configuration, GroupEntry};
use crate::joins::Joined;
use gleaner_model::Policy;
use gleaner_observe::{Cgroups, LastRoots, ProcRoot, Selector, Target};
use gleaner_report::{DecisionRecord, StatusWaiting};
use gleaner_runtime::{GroupId, Members};
use gleaner_sys::Stat;
use std::collections::{BTreeMap, BTreeSet};

/// Parents asked for, of one process.
const MOST_PARENTS: usize = 64;

/// A group that is managed.
#[derive(Clone, Debug)]
pub(crate) struct Adopted {
    pub id: GroupId,
    /// That of the configuration; with what a wildcard stands for behind it.
    pub name: String,
    pub entry: GroupEntry,
    pub target: Target,
    /// Its processes whose parents are not its.
    pub roots: Vec<i32>,
    /// Where somebody has handed it over.
    pub joined: Option<Joined>,
    /// Since when somebody had it left alone, or managed again: the newest.
    pub holds: Vec<DecisionRecord>,
}

/// A group that is to be managed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub name: String,
    pub entry: GroupEntry,
    pub target: Target,
    pub roots: Vec<i32>,
}

/// What is to be said of the machine after a look at it.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// To be adopted, in this order.
    pub new: Vec<Candidate>,
    /// Runs, and is another group's already.
    pub taken: BTreeMap<String, String>,
    /// Joined, and has to make way first: why.
    pub lost: BTreeMap<GroupId, String>,
    /// There are more groups than may be.
    pub too_many: bool,
}

/// Orders kept of a group.
const HOLDS: usize = 20;

impl Adopted {
    /// Somebody ordered something.
    pub(crate) fn add_hold(&mut self, order: DecisionRecord) {
        if self.holds.len() >= HOLDS {
            self.holds.remove(0);
        }
        self.holds.push(order);
    }

    /// Whether `name` is its, or that of a wildcard that stands for it and others.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Its processes whose parents are not its, as they are now; none: it has ended.
    pub(crate) fn roots_now(&self, root: &ProcRoot, last: &mut LastRoots) -> Vec<i32> {
        match &self.joined {
            Some(joined) => joined.roots(root, &self.target),
            None => self.target.roots_again(root, last),
        }
    }

    /// Whether there is somebody for whom it is managed.
    pub(crate) fn is_wanted(&self, root: &ProcRoot) -> bool {
        self.joined.as_ref().is_none_or(|joined| joined.lives(root))
    }

    /// What `runtime` calls its members.
    pub(crate) fn members(target: &Target) -> Members {
        match target {
            Target::Process { pid, .. } => Members::ProcessTree { root: *pid },
            Target::Cgroup { folder } => Members::Cgroup { folder: folder.clone() },
            Target::Program { name } => Members::Program { name: name.clone() },
        }
    }
}

/// Looks for what `configuration` names and nobody manages yet. What the configuration names goes before what joined:
/// anybody may give a process of their own another one's name, and hand it over.
pub(crate) fn look(root: &ProcRoot, configuration: &Configuration, adopted: &[Adopted]) -> Look {
    let mut look = Look::default();
    // What is only watched, because nobody named a group, is everything.
    let goes_before = |group: &Adopted| group.joined.is_none() || configuration.names_no_group;
    let mut owners: BTreeMap<i32, String> = BTreeMap::new();
    for group in adopted.iter().filter(|group| goes_before(group)) {
        owners.extend(group.roots.iter().map(|pid| (*pid, group.name.clone())));
    }
    let mut names: BTreeSet<String> = adopted.iter().map(|group| group.name.clone()).collect();
    let mut places =
        configuration.machine.groups_max().saturating_sub(adopted.iter().filter(|group| goes_before(group)).count());
    let cgroups = Cgroups::default();
    'all: for entry in configuration.groups.iter().filter(|entry| entry.settings.policy() != Policy::Off) {
        let known: BTreeSet<&Target> =
            adopted.iter().filter(|group| group.entry.name == entry.name).map(|group| &group.target).collect();
        let most = configuration.machine.groups_max() + 1;
        for (target, roots) in entry.selector.find_others(root, &cgroups, most, |target| known.contains(target)) {
            let name = name_of(entry, &target, root);
            if let Some(owner) = owner_of(root, &roots, &owners) {
                look.taken.insert(name, owner);
                continue;
            }
            if places == 0 {
                look.too_many = true;
                break 'all;
            }
            places -= 1;
            let name = unlike(&names, name);
            names.insert(name.clone());
            owners.extend(roots.iter().map(|pid| (*pid, name.clone())));
            look.new.push(Candidate { name, entry: entry.clone(), target, roots });
        }
    }
    // Those that joined first stay, as far as there is room.
    for group in adopted.iter().filter(|group| !goes_before(group)) {
        match owner_of(root, &group.roots, &owners) {
            Some(owner) => drop(look.lost.insert(group.id, format!("some of it is {owner}, which was configured"))),
            None if places > 0 => places -= 1,
            None => drop(look.lost.insert(group.id, "configured groups need its place".to_owned())),
        }
    }
    look
}

/// What `configuration` names, and is not managed: none of `managed` is an entry of that name.
pub(crate) fn waiting(configuration: &Configuration, look: &Look, managed: &[&str]) -> Vec<StatusWaiting> {
    let named = configuration.groups.iter().filter(|entry| entry.settings.policy() != Policy::Off);
    let waits = named.filter(|entry| !managed.contains(&entry.name.as_str()));
    let is_found = |name: &str| look.new.iter().any(|candidate| candidate.entry.name == name);
    let of = |GroupEntry { name, selector, .. }: &GroupEntry| {
        let waits_for = match (look.taken.get(name), selector) {
            (Some(owner), _) => format!("{owner} to end, which some of it belongs to"),
            _ if is_found(name) => "room in the observer".to_owned(),
            _ if look.too_many => "a place: there are daemon.groups_max groups".to_owned(),
            (None, Selector::Cgroup(_)) => format!("a process in {selector}"),
            (None, Selector::Pid(_)) => format!("{selector} to be there"),
            _ => format!("{selector} to start"),
        };
        StatusWaiting { name: name.clone(), waits_for }
    };
    waits.map(of).collect()
}

/// The same by a look at this machine, as if none was managed yet.
pub fn waiting_now(configuration: &Configuration) -> Vec<StatusWaiting> {
    let found = look(&ProcRoot::default(), configuration, &[]);
    let managed: Vec<&str> = found.new.iter().map(|candidate| candidate.entry.name.as_str()).collect();
    waiting(configuration, &found, &managed)
}

/// The group that these processes belong to already, and a name of its own for a new one.
pub(crate) fn place_for(root: &ProcRoot, adopted: &[Adopted], roots: &[i32], name: String) -> Result<String, String> {
    let of = |group: &Adopted| group.roots.iter().map(|pid| (*pid, group.name.clone())).collect::<Vec<_>>();
    let owners: BTreeMap<i32, String> = adopted.iter().flat_map(of).collect();
    match owner_of(root, roots, &owners) {
        Some(owner) => Err(owner),
        None => Ok(unlike(&adopted.iter().map(|group| group.name.clone()).collect(), name)),
    }
}

/// The configuration's name; where it may mean several, with which of them.
fn name_of(entry: &GroupEntry, target: &Target, root: &ProcRoot) -> String {
    let which = target.command(root).into_iter().next().unwrap_or_default();
    let which = gleaner_model::printable(which.as_encoded_bytes());
    if entry.selector.has_wildcards() { format!("{}/{which}", entry.name) } else { entry.name.clone() }
}

fn unlike(names: &BTreeSet<String>, name: String) -> String {
    let others = (2..).map(|n| format!("{name}~{n}"));
    std::iter::once(name.clone()).chain(others).find(|name| !names.contains(name)).unwrap_or(name)
}

/// The group that has one of these processes, a parent of one, or a child.
fn owner_of(root: &ProcRoot, roots: &[i32], owners: &BTreeMap<i32, String>) -> Option<String> {
    let above = roots.iter().find_map(|pid| lineage(root, *pid).find_map(|pid| owners.get(&pid)));
    let below = || {
        let ours = |pid: &i32| lineage(root, *pid).any(|parent| roots.contains(&parent));
        owners.iter().find(|(pid, _)| ours(pid)).map(|(_, owner)| owner)
    };
    above.or_else(below).cloned()
}

/// A process and its parents.
fn lineage(root: &ProcRoot, pid: i32) -> impl Iterator<Item = i32> {
    let parent = |pid: &i32| {
        let text = std::fs::read(root.proc.join(format!("{pid}/stat"))).ok()?;
        Stat::parse(&text)?.parent().filter(|parent| *parent > 0)
    };
    std::iter::successors(Some(pid), move |pid| parent(pid)).take(MOST_PARENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn machine(folder: &Path, processes: &[(i32, i32, &str)], cgroups: &[(&str, &str)]) -> ProcRoot {
        let root = ProcRoot::below(folder);
        for (pid, parent, comm) in processes {
            let path = root.proc.join(pid.to_string());
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("stat"), format!("{pid} ({comm}) S {parent} {}1 0\n", "0 ".repeat(17))).unwrap();
            fs::write(path.join("comm"), format!("{comm}\n")).unwrap();
        }
        for (path, pids) in cgroups {
            let path = root.sys.join("fs/cgroup").join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), pids).unwrap();
        }
        root
    }

    fn configuration(text: &str) -> Configuration {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        fs::write(&file, text).unwrap();
        Configuration::load(Some(&file)).unwrap()
    }

    fn adopted(candidate: Candidate, id: u64) -> Adopted {
        let Candidate { name, entry, target, roots } = candidate;
        Adopted { id: GroupId(id), name, entry, target, roots, joined: None, holds: Vec::new() }
    }

    #[test]
    fn each_process_is_one_groups_and_the_first_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let processes = [(1, 0, "init"), (10, 1, "redis"), (11, 10, "fork"), (20, 1, "web"), (30, 1, "web")];
        let cgroups = [("a.service", "10\n11\n"), ("w@1.service", "20\n"), ("w@2.service", "30\n")];
        let root = machine(folder.path(), &processes, &cgroups);
        let text = "[group.a]\nunit = \"a\"\n[group.b]\npid = 11\n[group.c]\npid = 1\n[group.off]\npid = 20\npolicy = \"off\"\n\
                    [group.w]\nunit = \"w@*\"\n[group.x]\nprogram = \"web\"\n[group.y]\nprogram = \"nobody\"\n";
        let configuration = configuration(text);
        let first = look(&root, &configuration, &[]);
        let names: Vec<&str> = first.new.iter().map(|candidate| candidate.name.as_str()).collect();
        assert_eq!(names, ["a", "w/w@1.service", "w/w@2.service"]);
        let taken = [("b", "a"), ("c", "a"), ("x", "w/w@1.service")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(first.taken, BTreeMap::from(taken));
        let all: Vec<Adopted> = first.new.into_iter().zip(1..).map(|(candidate, id)| adopted(candidate, id)).collect();
        let again = look(&root, &configuration, &all);
        assert!(again.new.is_empty(), "known already");
        let entries: Vec<&str> = all.iter().map(|group| group.entry.name.as_str()).collect();
        let waits = waiting(&configuration, &again, &entries);
        let waits: Vec<String> = waits.iter().map(ToString::to_string).collect();
        let of_a = ["b, for a to end, which some of it belongs to", "c, for a to end, which some of it belongs to"];
        assert_eq!(waits[..2], of_a);
        assert_eq!(
            waits[2..],
            ["x, for w/w@1.service to end, which some of it belongs to", "y, for program nobody to start"]
        );
        assert!(!look(&root, &configuration, &all).too_many);
    }

    #[test]
    fn there_are_no_more_than_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let processes: Vec<_> = (10..20).map(|pid| (pid, 1, "x")).collect();
        let cgroups: Vec<_> = (10..20).map(|pid| (format!("x@{pid}.service"), format!("{pid}\n"))).collect();
        let cgroups: Vec<_> = cgroups.iter().map(|(path, pids)| (path.as_str(), pids.as_str())).collect();
        let root = machine(folder.path(), &processes, &cgroups);
        let found = look(&root, &configuration("[daemon]\ngroups_max = 3\n[group.x]\nunit = \"x@*\"\n"), &[]);
        assert_eq!((found.new.len(), found.too_many), (3, true));
        let two = configuration("[daemon]\ngroups_max = 1\n[group.x]\nunit = \"x@10\"\n[group.y]\nunit = \"x@11\"\n");
        let waits = waiting(&two, &look(&root, &two, &[]), &["x"]);
        assert_eq!(waits[0].to_string(), "y, for a place: there are daemon.groups_max groups");
    }

    fn joined(root: &ProcRoot, id: u64, pid: i32) -> Adopted {
        let join = crate::Join { name: "x".to_owned(), pid: Some(pid), ..crate::Join::default() };
        let status = root.proc.join(format!("{pid}/status"));
        fs::write(status, format!("Uid:\t0\t0\t0\t0\nNSpid:\t{pid}\n")).unwrap();
        let peer = crate::server::Peer { process: Some((pid, 0)), is_trusted: true };
        let (runner, target) = crate::joins::check(root, &join, &peer).unwrap();
        let entry = join.entry().unwrap();
        let (config, before) =
            (crate::service::machine_config(&configuration(""), true), crate::joins::Before::default());
        let joined = Some(Joined { runner, config, of_runner: false, before });
        Adopted {
            id: GroupId(id),
            name: format!("run/x~{id}"),
            entry,
            target: target.unwrap(),
            roots: vec![pid],
            joined,
            holds: Vec::new(),
        }
    }

    #[test]
    fn what_joined_makes_way_for_what_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let processes =
            [(10, 1, "sh"), (11, 10, "victim"), (20, 1, "victim"), (30, 1, "x"), (31, 1, "y"), (32, 1, "z")];
        let root = machine(folder.path(), &processes, &[]);
        // A parent of one, one itself, one of another name.
        let all = [joined(&root, 1, 10), joined(&root, 2, 20), joined(&root, 3, 30)];
        let text = "[group.v]\nprogram = \"victim\"\n";
        let found = look(&root, &configuration(text), &all);
        assert_eq!((found.new.len(), found.taken.len(), found.too_many), (1, 0, false));
        assert_eq!(found.new[0].roots, [11, 20]);
        assert_eq!(found.lost.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 2], "{:?}", found.lost);
        // No matter which of them came first.
        let Look { mut new, .. } = look(&root, &configuration(text), &[]);
        let both = [adopted(new.remove(0), 9), all[1].clone(), all[2].clone()];
        assert_eq!(look(&root, &configuration(text), &both).lost.len(), 1);
        // Whoever joined last makes room.
        let text = "[daemon]\ngroups_max = 2\n[group.y]\npid = 31\n";
        let found = look(&root, &configuration(text), &[all[2].clone(), joined(&root, 4, 32)]);
        assert_eq!((found.new.len(), found.lost.into_keys().collect::<Vec<_>>()), (1, vec![GroupId(4)]));
    }
}
