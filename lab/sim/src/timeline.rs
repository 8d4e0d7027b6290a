//! Every vCPU's timeline, for a person to look at: Chrome's trace format, which Perfetto opens.

use crate::engine::Time;
use crate::ids::VcpuIx;
use serde::Serialize;

/// More spans than this are not kept: viewers do not open such files.
const SPANS_MAX: usize = 2_000_000;

/// What a vCPU did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineSpan {
    /// Which virtual machine.
    pub vm: u32,
    pub vcpu: u32,
    /// From when.
    pub from_ns: Time,
    /// How long.
    pub length_ns: Time,
    /// In a word.
    pub what: &'static str,
    /// The virtual machine's thread that ran.
    pub thread: Option<u32>,
    pub pcpu: Option<u32>,
}

/// Spans as they end.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    open: Vec<Option<TimelineSpan>>,
    /// What has ended, in that order.
    pub spans: Vec<TimelineSpan>,
    /// Spans that were not kept.
    pub dropped: u64,
}

impl Timeline {
    pub(crate) fn new(vcpus: usize) -> Self {
        Self { open: vec![None; vcpus], ..Self::default() }
    }

    pub(crate) fn change(&mut self, v: VcpuIx, now: Time, next: Option<TimelineSpan>) {
        let open = &mut self.open[v.at()];
        let same = |a: &TimelineSpan, b: &TimelineSpan| (a.what, a.thread, a.pcpu) == (b.what, b.thread, b.pcpu);
        if let (Some(before), Some(next)) = (&*open, &next)
            && same(before, next)
        {
            return;
        }
        if let Some(mut ended) = std::mem::replace(open, next) {
            ended.length_ns = now - ended.from_ns;
            if ended.length_ns == 0 {
                return;
            }
            if self.spans.len() < SPANS_MAX {
                self.spans.push(ended);
            } else {
                self.dropped += 1;
            }
        }
    }

    pub(crate) fn end(&mut self, now: Time) {
        for n in 0..self.open.len() {
            self.change(VcpuIx::of(n), now, None);
        }
    }

    /// The events of a Chrome trace: names of virtual machines and vCPUs, then spans. Virtual machines are processes,
    /// vCPUs threads.
    pub fn chrome<'a>(&'a self, vms: &'a [(String, u32)]) -> impl Iterator<Item = ChromeEvent> + 'a {
        let names = vms.iter().zip(0..).flat_map(|((name, vcpus), vm)| {
            let process = ChromeEvent::name("process_name", vm, 0, name.clone());
            let of_vcpu = move |vcpu| ChromeEvent::name("thread_name", vm, vcpu, format!("vCPU {vcpu}"));
            std::iter::once(process).chain((0..*vcpus).map(of_vcpu))
        });
        names.chain(self.spans.iter().map(ChromeEvent::span))
    }
}

/// One event of Chrome's trace format.
#[derive(Clone, Debug, Serialize)]
pub struct ChromeEvent {
    name: String,
    ph: &'static str,
    pid: u32,
    tid: u32,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: ChromeArgs,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ChromeArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pcpu: Option<u32>,
}

impl ChromeEvent {
    fn name(what: &str, pid: u32, tid: u32, name: String) -> Self {
        let args = ChromeArgs { name: Some(name), pcpu: None };
        Self { name: what.to_owned(), ph: "M", pid, tid, ts: 0.0, dur: None, args }
    }

    fn span(span: &TimelineSpan) -> Self {
        let name = span.thread.map_or_else(|| span.what.to_owned(), |thread| format!("thread {thread}"));
        let us = |ns: Time| ns as f64 / 1e3;
        let args = ChromeArgs { name: None, pcpu: span.pcpu };
        let (ts, dur) = (us(span.from_ns), Some(us(span.length_ns)));
        Self { name, ph: "X", pid: span.vm, tid: span.vcpu, ts, dur, args }
    }
}
