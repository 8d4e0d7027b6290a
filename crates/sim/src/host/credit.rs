//! Xen's credit accounting: every period the host's time is given out by weight to the virtual machines that want any.

use crate::config::Scheduler;
use crate::ids::VcpuIx;
use crate::world::World;

impl World {
    /// Gives credit out, and sorts the queues anew: classes have changed.
    pub(crate) fn give_credit(&mut self) {
        let Scheduler::Credit(params) = self.scheduler() else { return };
        let period = i64::try_from(params.period).unwrap_or(i64::MAX);
        let mut wanting = vec![0i64; self.vms.len()];
        for n in 0..self.vcpus.len() {
            self.charge(VcpuIx::of(n));
            wanting[self.vcpus[n].vm.at()] += i64::from(self.vcpus[n].entity.active || self.vcpus[n].place.wants());
        }
        let weight_of = |vm: usize| i64::from(self.vms[vm].weight);
        let weights: i64 = (0..wanting.len()).filter(|vm| wanting[*vm] > 0).map(weight_of).sum();
        let all = period * i64::try_from(self.host.pcpus.len()).unwrap_or(1);
        for n in 0..self.vcpus.len() {
            let vm = self.vcpus[n].vm.at();
            let place = self.vcpus[n].place;
            let entity = &mut self.vcpus[n].entity;
            if wanting[vm] > 0 && (entity.active || place.wants()) {
                let share = all * i64::from(self.vms[vm].weight) / weights.max(1) / wanting[vm];
                // Xen caps what can be saved at one period, and what can be owed likewise.
                entity.credit = (entity.credit + share).clamp(-period, period);
            }
            entity.active = false;
        }
        for p in 0..self.host.pcpus.len() {
            self.sort_queue(p);
        }
        let next = self.now + params.period;
        self.timers.set(self.slots.credit(), next);
    }

    fn sort_queue(&mut self, p: usize) {
        let scheduler = self.scheduler();
        let waiting: Vec<VcpuIx> = self.host.pcpus[p].queue.iter().collect();
        for v in waiting {
            let entity = &self.vcpus[v.at()].entity;
            let queue = &mut self.host.pcpus[p].queue;
            queue.remove(v);
            queue.push(v, scheduler.key(entity));
        }
    }
}
