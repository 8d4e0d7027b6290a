//! From one observer to the other, where the one in use costs too much.

use super::Machine;
use crate::event::Warning;
use crate::events::Events;
use crate::observing::Together;
use gleaner_model::Nanos;
use gleaner_settings::ObserverChoice;

impl Machine {
    /// Goes over to /proc when groups switch so often that BPF would slow them down. `trial`: one still needs what only
    /// BPF sees.
    pub(crate) fn fall_back_to_procfs(&mut self, all: &Together, trial: bool, events: &mut Events) {
        let Some(switches_per_s) = self.observing.too_dear(all, trial, &self.params) else { return };
        let at = all.at;
        let left = self.unpinned(|machine| machine.leave_bpf(at, events));
        events.warn(match left {
            Ok(()) => Warning::LeftBpf { at, switches_per_s },
            Err(why) => {
                self.observing.change_no_more();
                Warning::StaysWithBpf { switches_per_s, why }
            }
        });
    }

    pub(super) fn leave_bpf(&mut self, at: Nanos, events: &mut Events) -> Result<(), String> {
        tracing::debug!("leaving BPF");
        let observer = self.observing.other(ObserverChoice::Procfs).map_err(|error| error.to_string())?;
        if let (Some(retention), Some(session)) = (&mut self.retention, &mut self.session) {
            let left = retention.nap_instead(&self.vcpus, &self.params, &mut session.journal);
            for (vcpu, error) in left.map_err(|error| error.to_string())? {
                events.warn(Warning::NotRetained { vcpu, why: error.to_string() });
            }
        }
        self.bursts.end();
        tracing::debug!("new yielding threads");
        let counters = self.counters();
        self.observing.change_to(observer, at, &counters).map_err(|error| error.to_string())?;
        tracing::debug!("BPF is left");
        Ok(())
    }

    /// `/proc` was chosen because it costs no switch anything: where it costs more, BPF may take its place.
    pub(crate) fn may_take_bpf(&mut self) {
        self.observing.may_take_bpf();
    }

    /// Goes over to BPF when there are so many threads that reading their files costs more.
    pub(crate) fn go_over_to_bpf(&mut self, all: &Together, events: &mut Events) {
        let Some(threads) = self.observing.too_crowded(all, &self.params) else { return };
        let at = all.at;
        events.warn(match self.unpinned(|machine| machine.take_bpf(at)) {
            Ok(()) => Warning::TookBpf { at, threads },
            Err(why) => Warning::StaysWithProcfs { threads, why },
        });
    }

    fn take_bpf(&mut self, at: Nanos) -> Result<(), String> {
        let observer = self.observing.other(ObserverChoice::Bpf).map_err(|error| error.to_string())?;
        self.bursts.end();
        let counters = self.counters();
        match self.observing.change_to(observer, at, &counters) {
            Ok(true) => Ok(()),
            Ok(false) => Err("it has no room for so many groups".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
