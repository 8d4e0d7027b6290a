//! Figure 3: iperf alone, beside x264 in another machine, and with x264 in its own as well.

use super::bed::{Bed, S};
use super::guests::{App, guest};
use super::network::{jitter_ms, mbits};
use crate::reproduce::{Basis, Extent, ReproduceError, Reproduced, Row};
use rayon::prelude::*;

const X264: App = App::Parsec("x264");

/// Why a row may disagree.
const RATELIMIT: &str = "whoever handles packets is woken for each ring, and waits for the ratelimit (1 ms) of a vCPU that it finds on its pCPU";

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
    let [solo, corun, mixed] = [measured[0], measured[1], measured[2]];
    let order = |case: &str, metric: &str, says: &str, value: f64, agrees, criterion: &str| {
        Row::order(case, metric, says, value, agrees, criterion, Basis::Predicted)
    };
    let (throughput, jitter) = ("throughput / solo, ratio", "jitter, ms");
    let of_solo = [corun.mbits / solo.mbits, mixed.mbits / solo.mbits];
    // Jitter of a machine that nobody disturbs is nothing here, so there is no ratio to it.
    let grows = |before: Network| mixed.jitter_ms > 1.25 * before.jitter_ms;
    let mut rows = vec![
        order("co-run", throughput, "almost matches", of_solo[0], of_solo[0] > 0.75, "above 0.75").because(RATELIMIT),
        order("mixed", throughput, "drops", of_solo[1], of_solo[1] < 0.75, "below 0.75"),
        order("mixed", jitter, "increases significantly over solo", mixed.jitter_ms, grows(solo), "by a quarter"),
        order("mixed", jitter, "increases significantly over co-run", mixed.jitter_ms, grows(corun), "by a quarter"),
    ];
    for (case, network) in [("solo", solo), ("co-run", corun), ("mixed", mixed)] {
        rows.push(Row::measured(case, "throughput, Mbit/s", network.mbits, Basis::Predicted));
        rows.push(Row::measured(case, "jitter, ms", network.jitter_ms, Basis::Predicted));
    }
    Ok(Reproduced {
        title: "Figure 3: iperf alone, beside x264, and with x264 in its own machine".to_owned(),
        parameters: super::parameters(),
        rows,
        notes: vec![super::IPERF.to_owned()],
    })
}
