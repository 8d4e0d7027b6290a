//! What one look tells: of the machine once, and of each group what is its own.
//!
//! Hundreds of groups on hundreds of vCPUs would be tens of thousands of vCPUs in windows, of which most tell the same.
//! So a group's window is put together for whoever wants it, and a quiet group's need not be.

use gleaner_model::{GroupWindow, Nanos, VcpuId, Window};

/// What happened since the last look.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the vCPUs did, whoever it was for. Nothing of a group is in it.
    pub machine: Window,
    /// Each group, in their order.
    pub groups: Vec<SeenGroup>,
}

/// What one group did.
#[derive(Clone, Debug, Default)]
pub struct SeenGroup {
    /// None of its threads ran, came, went or was woken, as far as the observer looked.
    pub quiet: bool,
    /// Altogether.
    pub group: GroupWindow,
    /// Where it worked; `None` where the observer cannot tell. On all other vCPUs it did not.
    pub(crate) work: Option<Vec<(VcpuId, Work)>>,
}

/// What a group did on one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub time: Nanos,
    pub switches: u64,
    pub cross_wakeups: u64,
}

impl Seen {
    /// The window of the group at this place; what is its own is moved there.
    pub fn take(&mut self, group: usize) -> Option<Window> {
        let own = std::mem::take(self.groups.get_mut(group)?);
        Some(own.on(self.machine.clone()))
    }

    /// The windows of all groups, in their order.
    pub fn into_windows(mut self) -> Vec<Window> {
        (0..self.groups.len()).filter_map(|group| self.take(group)).collect()
    }
}

impl SeenGroup {
    /// One to which nothing happened, as far as its observer tells.
    pub fn at_rest(group: GroupWindow) -> Self {
        Self { quiet: true, group, work: None }
    }

    /// Its window, in which the machine did this.
    pub fn on(self, machine: Window) -> Window {
        let mut window = Window { group: self.group, ..machine };
        let Some(work) = self.work else { return window };
        for vcpu in &mut window.vcpus {
            let of = work.iter().find(|(id, _)| *id == vcpu.id).map_or_else(Work::default, |(_, of)| *of);
            vcpu.work = Some(of.time);
            vcpu.work_switches = Some(of.switches);
            vcpu.cross_wakeups = Some(of.cross_wakeups);
        }
        window
    }
}
