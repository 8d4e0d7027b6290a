//! What both observers take from `/proc/stat` and the list of online CPUs, and how they split a window of it.
//!
//! `/proc/stat` counts in ticks of `USER_HZ` (10 ms), so a 100 ms window knows a vCPU's idle time and steal to within
//! 10 ms; nothing is lost from window to window, because the counters are cumulative.

use crate::ObserveError;
use gleaner_model::{CpuSet, Nanos, VcpuId, VcpuWindow};
use gleaner_sys::{OnlineReader, ProcRoot, StatReader, own_affinity};

/// The online CPUs, as [`gleaner_sys::online_cpus`].
///
/// # Errors
/// When no file tells, or the list is none.
pub fn online_cpus(root: &ProcRoot) -> Result<CpuSet, ObserveError> {
    Ok(gleaner_sys::online_cpus(root)?)
}

/// The vCPUs that there are now.
#[derive(Clone, Debug)]
pub(crate) struct Present {
    /// All of them.
    pub there: CpuSet,
    /// Of those, the ones that are allowed.
    pub usable: CpuSet,
}

/// The vCPUs that there are now, read again and again.
#[derive(Debug)]
pub(crate) struct PresentReader {
    allowed: Option<CpuSet>,
    /// `None` where no list is to be had, or it is a container's that numbers CPUs anew: then the kernel's own mask
    /// tells.
    online: Option<OnlineReader>,
}

impl PresentReader {
    /// `allowed`: `None` for all.
    pub fn open(root: &ProcRoot, allowed: Option<CpuSet>) -> Result<Self, ObserveError> {
        let opened = OnlineReader::open(root).and_then(|mut reader| Ok((reader.read()?, reader)));
        if let (true, Some(own)) = (root.is_live(), own_affinity())
            && !opened.as_ref().is_ok_and(|(online, _)| own.is_subset(online))
        {
            return Ok(Self { allowed, online: None });
        }
        let online = opened.map(|(_, reader)| Some(reader))?;
        Ok(Self { allowed, online })
    }

    /// What there is now.
    pub fn read(&mut self) -> Result<Present, ObserveError> {
        let there = match &mut self.online {
            Some(online) => online.read()?,
            None => own_affinity().or_else(|| self.allowed.clone()).unwrap_or_default(),
        };
        let usable = self.allowed.as_ref().map_or_else(|| there.clone(), |allowed| allowed.intersection(&there));
        Ok(Present { there, usable })
    }
}

/// Opens `/proc/stat` of this machine where its CPUs are those of the kernel; that of a fixture tree in any case.
///
/// # Errors
/// When it cannot be read, or numbers CPUs otherwise.
pub(crate) fn open_stat(root: &ProcRoot) -> Result<StatReader, ObserveError> {
    /// A CPU that comes or goes between the two readings must not look like a container's file.
    const TRIES: usize = 3;
    let mut reader = StatReader::open(root)?;
    let mut unknown = None;
    for _ in 0..TRIES {
        let Some(own) = root.is_live().then(own_affinity).flatten() else { return Ok(reader) };
        unknown = reader.read()?.unknown_of(&own);
        if unknown.is_none() {
            return Ok(reader);
        }
    }
    match unknown {
        Some(cpu) => Err(ObserveError::OtherCpus { path: root.proc.join("stat"), cpu }),
        None => Ok(reader),
    }
}

/// Splits a window of one vCPU; *busy* is what steal, retained and halted time leave of it. Steal comes in ticks: what
/// is too much for the window is taken from busy time first, then from halted.
pub(crate) fn split(id: VcpuId, length: Nanos, steal: Nanos, retained: Nanos, halted: Nanos) -> VcpuWindow {
    let steal = steal.min(length);
    let retained = retained.min(length - steal);
    let halted = halted.min(length - steal - retained);
    VcpuWindow { busy: length - steal - retained - halted, retained, halted, steal, ..VcpuWindow::new(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_parts_add_up_and_reported_steal_is_never_lost() {
        // steal, retained, halted; then busy, retained, halted, of 100.
        for (steal, retained, halted, parts) in [
            (0, 20, 30, (50, 20, 30)),
            (10, 20, 30, (40, 20, 30)),
            (10, 0, 100, (0, 0, 90)),
            (10, 95, 0, (0, 90, 0)),
            (10, 50, 60, (0, 50, 40)),
            (300, 50, 60, (0, 0, 0)),
        ] {
            let found = split(VcpuId(0), Nanos(100), Nanos(steal), Nanos(retained), Nanos(halted));
            assert_eq!((found.busy.0, found.retained.0, found.halted.0), parts, "{steal} {retained} {halted}");
            assert_eq!(found.steal, Nanos(steal.min(100)));
        }
    }
}
