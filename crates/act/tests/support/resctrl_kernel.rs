//! What the kernel's resctrl knows and answers, without the file system around it.

use super::resctrl_load::Load;
use fuser::{Errno, INodeNo};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What the machine has.
#[derive(Clone, Debug)]
pub struct Machine {
    /// L3 allocation at all.
    pub cat: bool,
    /// Code and data apart.
    pub cdp: bool,
    pub cbm_mask: u64,
    pub min_cbm_bits: u32,
    pub sparse_masks: bool,
    pub shareable_bits: u64,
    pub closids: usize,
    /// 0: no monitoring.
    pub rmids: usize,
    /// Ids of the L3 caches.
    pub domains: Vec<u64>,
    /// Ways that a group of somebody else's has for itself.
    pub exclusive: u64,
}

impl Default for Machine {
    /// An Intel server with two sockets.
    fn default() -> Self {
        Self {
            cat: true,
            cdp: false,
            cbm_mask: 0x7ff,
            min_cbm_bits: 1,
            sparse_masks: false,
            shareable_bits: 0x600,
            closids: 16,
            rmids: 64,
            domains: vec![0, 1],
            exclusive: 0,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// By domain; the same for code and data unless written apart.
    masks: BTreeMap<String, BTreeMap<u64, u64>>,
    tasks: BTreeSet<i32>,
    /// Monitoring groups and their tasks.
    monitors: BTreeMap<String, BTreeSet<i32>>,
}

/// What the kernel knows.
pub struct State {
    machine: Machine,
    /// All but the root, which has every task that is nowhere else.
    groups: BTreeMap<String, Group>,
    root: Group,
    status: String,
    inodes: Vec<String>,
    /// Every change there was, in order.
    pub log: Vec<String>,
    /// What threads do with the caches, and the counters that say so: `counters/TID`, which no listing shows.
    pub load: Load,
}

pub enum Node {
    Folder(Vec<String>),
    File(String),
}

impl State {
    pub fn new(machine: Machine) -> Self {
        let root = Group { masks: full(&machine), ..Group::default() };
        Self {
            machine,
            groups: BTreeMap::new(),
            root,
            status: "ok".into(),
            inodes: vec![String::new()],
            log: Vec::new(),
            load: Load::default(),
        }
    }

    /// An interval of a thread's life is over: its counters move on, by what it could fill meanwhile.
    pub fn opened(&mut self, path: &str) {
        if let Some(tid) = counted(path) {
            let masks: BTreeMap<i32, u64> = self.load.natures.keys().map(|tid| (*tid, self.mask_of(*tid))).collect();
            self.load.run(tid, &masks, self.machine.cbm_mask);
        }
    }

    /// The ways that a thread may fill.
    fn mask_of(&self, tid: i32) -> u64 {
        let group = self.groups.values().find(|group| group.tasks.contains(&tid)).unwrap_or(&self.root);
        group.masks.values().flat_map(BTreeMap::values).next().copied().unwrap_or(0)
    }

    fn resources(&self) -> &'static [&'static str] {
        resources(&self.machine)
    }

    fn group(&self, name: &str) -> Option<&Group> {
        if name.is_empty() { Some(&self.root) } else { self.groups.get(name) }
    }

    fn group_mut(&mut self, name: &str) -> Option<&mut Group> {
        if name.is_empty() { Some(&mut self.root) } else { self.groups.get_mut(name) }
    }

    fn children(&self, group: &str) -> Vec<String> {
        let mut names: Vec<String> = ["tasks", "cpus", "mode"].map(str::to_owned).to_vec();
        if self.machine.cat {
            names.push("schemata".into());
        }
        if self.machine.rmids > 0 {
            names.extend(["mon_groups", "mon_data"].map(str::to_owned));
        }
        if group.is_empty() {
            names.push("info".into());
            names.extend(self.groups.keys().cloned());
        }
        names
    }

    /// Splits a path into the group it is in and what is asked of it.
    fn place<'a>(&self, path: &'a str) -> (String, Vec<&'a str>) {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.split_first() {
            Some((first, rest)) if self.groups.contains_key(*first) => ((*first).to_owned(), rest.to_vec()),
            _ => (String::new(), parts),
        }
    }

    pub fn node(&self, path: &str) -> Option<Node> {
        if let Some(tid) = counted(path) {
            return self.load.counters(tid).map(Node::File);
        }
        if path == "/counters" {
            return Some(Node::Folder(Vec::new()));
        }
        let (name, parts) = self.place(path);
        let group = self.group(&name)?;
        let monitored = self.machine.rmids > 0;
        let folder = |names: &[&str]| Some(Node::Folder(names.iter().map(|name| (*name).to_owned()).collect()));
        match parts.as_slice() {
            [] => Some(Node::Folder(self.children(&name))),
            ["tasks"] => Some(Node::File(lines(&self.tasks(&name)))),
            ["cpus"] => Some(Node::File("0\n".into())),
            ["mode"] => Some(Node::File("shareable\n".into())),
            ["schemata"] if self.machine.cat => Some(Node::File(self.schemata(group))),
            ["mon_groups"] if monitored => Some(Node::Folder(group.monitors.keys().cloned().collect())),
            ["mon_groups", monitor] => group.monitors.get(*monitor).and(folder(&["tasks", "mon_data"])),
            ["mon_groups", monitor, "tasks"] => group.monitors.get(*monitor).map(|tasks| Node::File(lines(tasks))),
            ["mon_groups", monitor, "mon_data", rest @ ..] => {
                group.monitors.get(*monitor).and_then(|_| self.mon_data(rest))
            }
            ["mon_data", rest @ ..] if monitored => self.mon_data(rest),
            ["info", rest @ ..] if name.is_empty() => self.info(rest),
            _ => None,
        }
    }

    fn mon_data(&self, rest: &[&str]) -> Option<Node> {
        let domains = self.machine.domains.iter().map(|domain| format!("mon_L3_{domain:02}"));
        match rest {
            [] => Some(Node::Folder(domains.collect())),
            [domain] if domains.clone().any(|found| found == **domain) => {
                Some(Node::Folder(["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"].map(str::to_owned).to_vec()))
            }
            [_, "llc_occupancy"] => Some(Node::File("65536\n".into())),
            [_, "mbm_total_bytes"] => Some(Node::File("1000\n".into())),
            [_, "mbm_local_bytes"] => Some(Node::File("Unavailable\n".into())),
            _ => None,
        }
    }

    fn info(&self, rest: &[&str]) -> Option<Node> {
        let machine = &self.machine;
        let file = |text: String| Some(Node::File(text + "\n"));
        let l3 = |name: &str| self.resources().contains(&name);
        match rest {
            [] => {
                let mut names = vec!["last_cmd_status".to_owned()];
                names.extend(self.resources().iter().map(|name| (*name).to_owned()));
                if machine.rmids > 0 {
                    names.push("L3_MON".into());
                }
                Some(Node::Folder(names))
            }
            ["last_cmd_status"] => file(self.status.clone()),
            ["L3_MON"] if machine.rmids > 0 => {
                Some(Node::Folder(["num_rmids", "mon_features"].map(str::to_owned).to_vec()))
            }
            ["L3_MON", "num_rmids"] => file(machine.rmids.to_string()),
            ["L3_MON", "mon_features"] => file("llc_occupancy\nmbm_total_bytes\nmbm_local_bytes".into()),
            [name] if l3(name) => Some(Node::Folder(
                ["num_closids", "cbm_mask", "min_cbm_bits", "shareable_bits", "bit_usage", "sparse_masks"]
                    .map(str::to_owned)
                    .to_vec(),
            )),
            [name, "num_closids"] if l3(name) => file(machine.closids.to_string()),
            [name, "cbm_mask"] if l3(name) => file(format!("{:x}", machine.cbm_mask)),
            [name, "min_cbm_bits"] if l3(name) => file(machine.min_cbm_bits.to_string()),
            [name, "shareable_bits"] if l3(name) => file(format!("{:x}", machine.shareable_bits)),
            [name, "sparse_masks"] if l3(name) => file(u8::from(machine.sparse_masks).to_string()),
            [name, "bit_usage"] if l3(name) => {
                let letter = |bit: u32| if machine.exclusive >> bit & 1 == 1 { 'E' } else { 'S' };
                let ways: String = (0..machine.cbm_mask.count_ones()).rev().map(letter).collect();
                file(machine.domains.iter().map(|domain| format!("{domain}={ways}")).collect::<Vec<_>>().join(";"))
            }
            _ => None,
        }
    }

    fn schemata(&self, group: &Group) -> String {
        let line = |name: &str| {
            let masks = &group.masks[name];
            let all: Vec<String> = masks.iter().map(|(domain, mask)| format!("{domain}={mask:03x}")).collect();
            format!("{name:>8}:{}\n", all.join(";"))
        };
        let mut text = "    MB:0=100;1=100\n".to_owned();
        self.resources().iter().for_each(|name| text += &line(name));
        text
    }

    pub fn tasks(&self, group: &str) -> BTreeSet<i32> {
        let living = |tid: &i32| Path::new(&format!("/proc/{tid}")).exists();
        if !group.is_empty() {
            return self.groups[group].tasks.iter().copied().filter(living).collect();
        }
        let elsewhere: BTreeSet<i32> = self.groups.values().flat_map(|group| &group.tasks).copied().collect();
        all_threads().into_iter().filter(|tid| !elsewhere.contains(tid)).collect()
    }

    pub fn make(&mut self, path: &str) -> Result<(), Errno> {
        let monitors = self.groups.len() + self.groups.values().map(|group| group.monitors.len()).sum::<usize>();
        let rmids = self.machine.rmids;
        if rmids > 0 && monitors + self.root.monitors.len() + 1 >= rmids {
            self.status = "Out of RMIDs".into();
            return Err(Errno::ENOSPC);
        }
        let (name, parts) = self.place(path);
        match parts.as_slice() {
            ["mon_groups", monitor] if rmids > 0 => {
                let monitor = (*monitor).to_owned();
                self.group_mut(&name).ok_or(Errno::ENOENT)?.monitors.insert(monitor, BTreeSet::new());
            }
            [new] if name.is_empty() => {
                if self.machine.cat && self.groups.len() + 1 >= self.machine.closids {
                    self.status = "Out of CLOSIDs".into();
                    return Err(Errno::ENOSPC);
                }
                let mut group = Group { masks: full(&self.machine), ..Group::default() };
                let exclusive = self.machine.exclusive;
                group.masks.values_mut().flat_map(BTreeMap::values_mut).for_each(|mask| *mask &= !exclusive);
                self.groups.insert((*new).to_owned(), group);
            }
            _ => return Err(Errno::EPERM),
        }
        self.status = "ok".into();
        self.log.push(format!("mkdir {path}"));
        Ok(())
    }

    pub fn remove(&mut self, path: &str) -> Result<(), Errno> {
        let (name, parts) = self.place(path);
        match parts.as_slice() {
            ["mon_groups", monitor] => {
                let group = self.group_mut(&name).ok_or(Errno::ENOENT)?;
                group.monitors.remove(*monitor).ok_or(Errno::ENOENT)?;
            }
            // The kernel takes a group's monitoring groups along; its tasks fall back to the root.
            [] if !name.is_empty() => drop(self.groups.remove(&name)),
            _ => return Err(Errno::EPERM),
        }
        self.log.push(format!("rmdir {path}"));
        Ok(())
    }

    pub fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let (name, parts) = self.place(path);
        let result = match parts.as_slice() {
            ["tasks"] => self.move_task(&name, None, text),
            ["mon_groups", monitor, "tasks"] => self.move_task(&name, Some(monitor), text),
            ["schemata"] => text.lines().try_for_each(|line| self.set_schema(&name, line)),
            _ => Err(("read only".to_owned(), Errno::EACCES)),
        };
        match result {
            Ok(()) => {
                self.status = "ok".into();
                self.log.push(format!("{path} < {}", text.trim_end()));
                Ok(())
            }
            Err((status, errno)) => {
                self.status = status;
                Err(errno)
            }
        }
    }

    fn move_task(&mut self, name: &str, monitor: Option<&str>, text: &str) -> Result<(), (String, Errno)> {
        let tid: i32 = text.trim().parse().map_err(|_| ("Task list parsing error".to_owned(), Errno::EINVAL))?;
        if !Path::new(&format!("/proc/{tid}")).exists() {
            return Err((format!("No task {tid}"), Errno::ESRCH));
        }
        if let Some(monitor) = monitor {
            if !self.tasks(name).contains(&tid) {
                return Err(("Can't move task to different control group".to_owned(), Errno::EINVAL));
            }
            let group = self.group_mut(name).ok_or(("gone".to_owned(), Errno::ENOENT))?;
            group.monitors.values_mut().for_each(|tasks| {
                tasks.remove(&tid);
            });
            group.monitors.get_mut(monitor).ok_or(("gone".to_owned(), Errno::ENOENT))?.insert(tid);
            return Ok(());
        }
        for group in self.groups.values_mut().chain([&mut self.root]) {
            group.tasks.remove(&tid);
            group.monitors.values_mut().for_each(|tasks| {
                tasks.remove(&tid);
            });
        }
        if let Some(group) = self.groups.get_mut(name) {
            group.tasks.insert(tid);
        }
        Ok(())
    }

    fn set_schema(&mut self, name: &str, line: &str) -> Result<(), (String, Errno)> {
        let bad = |status: &str| (status.to_owned(), Errno::EINVAL);
        let (resource, domains) = line.split_once(':').ok_or_else(|| bad("Missing ':'"))?;
        let machine = self.machine.clone();
        let resource = resource.trim().to_owned();
        for domain in domains.split(';') {
            let (id, mask) = domain.split_once('=').ok_or_else(|| bad("Missing '='"))?;
            let id: u64 = id.trim().parse().map_err(|_| bad("Bad domain"))?;
            let mask = u64::from_str_radix(mask.trim(), 16).map_err(|_| bad("Non-hex character in the mask"))?;
            if (machine.min_cbm_bits > 0 && mask == 0) || mask & !machine.cbm_mask != 0 {
                return Err(bad("Mask out of range"));
            }
            let run = mask >> mask.trailing_zeros().min(63);
            if !machine.sparse_masks && mask != 0 && run & (run + 1) != 0 {
                return Err(bad(&format!("The mask {mask:x} has non-consecutive 1-bits")));
            }
            if mask.count_ones() < machine.min_cbm_bits {
                return Err(bad("Need at least more bits in the mask"));
            }
            if mask & machine.exclusive != 0 {
                return Err(bad("Overlaps with exclusive group"));
            }
            let group = self.group_mut(name).ok_or_else(|| bad("gone"))?;
            let masks = group.masks.get_mut(&resource).ok_or_else(|| bad("Unknown or unsupported resource name"))?;
            *masks.get_mut(&id).ok_or_else(|| bad("Unknown domain"))? = mask;
        }
        Ok(())
    }

    /// Names of the groups there are, and of the monitoring groups.
    pub fn names(&self) -> Vec<String> {
        let monitors = |name: &str, group: &Group| {
            let name = name.to_owned();
            group.monitors.keys().map(move |monitor| format!("{name}/mon_groups/{monitor}")).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = monitors("", &self.root);
        for (name, group) in &self.groups {
            all.push(name.clone());
            all.extend(monitors(name, group));
        }
        all
    }

    pub fn inode(&mut self, path: &str) -> u64 {
        let at = self.inodes.iter().position(|known| known == path).unwrap_or_else(|| {
            self.inodes.push(path.to_owned());
            self.inodes.len() - 1
        });
        at as u64 + 1
    }

    pub fn path(&self, inode: INodeNo) -> String {
        self.inodes.get(usize::try_from(inode.0).unwrap_or(0) - 1).cloned().unwrap_or_default()
    }
}

/// The thread whose counters a path is.
fn counted(path: &str) -> Option<i32> {
    path.strip_prefix("/counters/")?.parse().ok()
}

fn resources(machine: &Machine) -> &'static [&'static str] {
    match (machine.cat, machine.cdp) {
        (false, _) => &[],
        (true, false) => &["L3"],
        (true, true) => &["L3CODE", "L3DATA"],
    }
}

fn full(machine: &Machine) -> BTreeMap<String, BTreeMap<u64, u64>> {
    let masks: BTreeMap<u64, u64> = machine.domains.iter().map(|domain| (*domain, machine.cbm_mask)).collect();
    resources(machine).iter().map(|name| ((*name).to_owned(), masks.clone())).collect()
}

fn lines(tasks: &BTreeSet<i32>) -> String {
    let tids: Vec<String> = tasks.iter().map(ToString::to_string).collect();
    tids.join("\n") + if tids.is_empty() { "" } else { "\n" }
}

fn all_threads() -> Vec<i32> {
    let numbers = |folder: PathBuf| -> Vec<i32> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    numbers("/proc".into()).into_iter().flat_map(|pid| numbers(format!("/proc/{pid}/task").into())).collect()
}
