//! iperf in a guest: packets that arrive whether or not the vCPU runs that is to handle them.

use super::bed::{MS, US};
use super::kernel::Kernel;
use crate::Timeline;
use crate::engine::Time;
use crate::program::{Builder, Op, Span};

/// Interrupts go to the first vCPU, as Linux has it without irqbalance.
const VCPU: u64 = 1;

/// Packets in Xen's network ring (NET_RX_RING_SIZE): more are not on their way.
const RING_PACKETS: u64 = 256;
/// 1,500 bytes at 1 Gbit/s.
const PACKET_NS: Time = 12_000;

/// TCP: as much is on its way as the ring takes; what has been handled, by iperf's one thread, is sent anew.
pub(super) fn tcp(b: &mut Builder, kernel: &Kernel) {
    let again = b.label_here();
    b.op(Op::Io(Span::Fixed(RING_PACKETS * PACKET_NS))).op(Op::Compute(kernel.hold()));
    kernel.done(b);
    b.jump(again);
    b.threads(1, VCPU);
}

/// What a rate of full rings means, Mbit/s.
pub(super) fn mbits(rings_per_s: f64) -> f64 {
    rings_per_s * (RING_PACKETS * 1_500 * 8) as f64 / 1e6
}

/// iperf -u: 1,470 bytes at 1 Mbit/s, its defaults.
const DATAGRAM_EVERY: Time = 11_760 * US;
/// Until then the threads that stand for datagrams begin.
const BEGINNING: Time = 500 * MS;

/// UDP: datagrams at regular times, a thread each, handled when they can be.
pub(super) fn udp(b: &mut Builder, kernel: &Kernel, length: Time) {
    for arrives in arrivals(length) {
        b.op(Op::Io(Span::Fixed(arrives))).op(Op::Compute(kernel.hold()));
        b.threads(1, VCPU);
    }
}

fn arrivals(length: Time) -> impl Iterator<Item = Time> {
    (1..).map(|n| 2 * BEGINNING + n * DATAGRAM_EVERY).take_while(move |arrives| *arrives < length)
}

/// How many threads [`udp`] has.
pub(super) fn datagrams(length: Time) -> u32 {
    u32::try_from(arrivals(length).count()).unwrap_or(u32::MAX)
}

/// iperf's jitter, milliseconds: the mean difference between consecutive transit times. The datagrams are the threads
/// of virtual machine 0 from `first` on.
pub(super) fn jitter_ms(timeline: &Timeline, first: u32, length: Time) -> f64 {
    let mut asked = vec![0; datagrams(length) as usize];
    let mut handled: Vec<Option<Time>> = vec![None; asked.len()];
    for span in timeline.spans.iter().filter(|span| span.vm == 0) {
        let Some(n) = span.thread.and_then(|thread| thread.checked_sub(first)) else { continue };
        let Some(handled) = handled.get_mut(n as usize) else { continue };
        // A thread runs twice: it asks at the beginning, and it handles.
        if span.from_ns < BEGINNING {
            asked[n as usize] = span.from_ns + span.length_ns;
        } else {
            handled.get_or_insert(span.from_ns);
        }
    }
    let arrived = asked.iter().zip(arrivals(length)).map(|(asked, after)| asked + after);
    let transits: Vec<Time> = handled
        .iter()
        .zip(arrived)
        .filter_map(|(handled, arrived)| Some(handled.as_ref()?.saturating_sub(arrived)))
        .collect();
    let differences: Vec<f64> = transits.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).collect();
    differences.iter().sum::<f64>() / differences.len() as f64 / MS as f64
}
