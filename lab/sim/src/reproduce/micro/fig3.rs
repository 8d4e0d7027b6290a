//! Figure 3: iperf alone, beside x264 in another machine, and with x264 in its own as well.

use super::bed::{Bed, S};
use super::guests::{App, guest};
use super::network::{jitter_ms, mbits};
use crate::reproduce::result::{Extent, ReproduceError, Reproduced, reproduced};
use gleaner_papers::Found;
use rayon::prelude::*;

const X264: App = App::Parsec("x264");

/// Throughput and jitter of one configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    pub mbits: f64,
    pub jitter_ms: f64,
}

/// Of iperf in a machine with these programs, beside other machines.
pub(super) fn network(with: &[App], others: &[&[App]], bed: &Bed) -> Result<Network, ReproduceError> {
    let machines = |iperf: App| {
        let own: Vec<App> = std::iter::once(iperf).chain(with.iter().copied()).collect();
        let others = others.iter().map(|apps| guest(apps, apps[0], bed));
        std::iter::once(guest(&own, iperf, bed)).chain(others).collect::<Vec<_>>()
    };
    let tcp = bed.rates(|| machines(App::Tcp))?;
    let jitter = |bed: Bed| Ok(jitter_ms(&bed.traced(machines(App::Udp))?.1, 0, bed.length) / bed.runs as f64);
    let jitter_ms: Result<f64, ReproduceError> = bed.each().map(jitter).sum();
    Ok(Network { mbits: mbits(tcp[0]), jitter_ms: jitter_ms? })
}

pub(super) fn reproduce(extent: &Extent) -> Result<Reproduced, ReproduceError> {
    let bed = Bed::xen(if extent.smoke { 2 * S } else { 6 * S }, extent);
    let settings: [(&[App], &[&[App]]); 3] = [(&[], &[]), (&[], &[&[X264]]), (&[X264], &[&[X264]])];
    let measured: Result<Vec<Network>, ReproduceError> =
        settings.par_iter().map(|(own, others)| network(own, others, &bed)).collect();
    let measured = measured?;
    let mut found = Found::default();
    for (case, network) in ["solo", "co-run", "mixed"].iter().zip(&measured) {
        found.put(*case, network.mbits);
        found.put(format!("{case} jitter"), network.jitter_ms);
        found.put(format!("{case} / solo"), network.mbits / measured[0].mbits);
    }
    Ok(reproduced("micro:fig3", super::common::parameters(), &found))
}
