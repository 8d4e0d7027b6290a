//! What a recheck comes to: how fast the group is without the step's vCPU, against how fast it was with the step.

use super::*;
use gleaner_model::{GroupWindow, VcpuWindow};

const NOW: Nanos = Nanos::from_secs(50);

/// As fast as that: CPU seconds per second, and hand-overs per second.
fn sample(cpu: f64, handovers: u64) -> Sample {
    let length = Nanos::from_secs(1);
    let group = GroupWindow {
        cpu_time: Nanos::from_f64(cpu * length.as_f64()),
        progress: Some(handovers),
        ..GroupWindow::default()
    };
    let vcpus = CpuSet::first(4);
    let windows = vcpus.iter().map(VcpuWindow::new).collect();
    Sample::of(
        &Window {
            at: NOW,
            length,
            source: gleaner_model::Source::Procfs,
            vcpus: windows,
            idle_entries: None,
            halts: None,
            group,
        },
        &vcpus,
    )
}

/// A recheck after vCPU 3 was given back, and what was measured since.
fn rechecked(cpu: f64, handovers: u64) -> (Consolidation, Recheck) {
    let params = GuestParams::default();
    let mut state = Consolidation::new(CpuSet::first(4), None, params.clone());
    for _ in 0..params.tuning.judge_windows.max(params.tuning.baseline_windows_min) {
        let sample = sample(cpu, handovers);
        state.reference.add(&sample, &params);
        state.history.push_back(sample);
    }
    let lengths = Lengths { l_comp: 1.0, g_comp: 1.0, l_idle: 1.0 };
    let step = Step {
        vcpus: std::iter::once(VcpuId(3)).collect(),
        taken_at: Nanos::from_secs(1),
        n: 4,
        measure: Measure { lengths, utilization: 0.5 },
        before: Speed::default(),
        reference: Reference::default(),
        paid: false,
        faster: None,
    };
    (state, Recheck { step, packed: Speed::of([sample(1.0, 2000)].iter()) })
}

#[test]
fn a_step_is_taken_again_only_where_the_group_is_slower_without_it_and_computes_no_more() {
    for (cpu, handovers, pinned, again) in [
        (1.0, 1000, None, true),
        (1.0, 2000, None, false),
        (1.0, 3000, None, false),
        // Much more, much less, a little more.
        (2.0, 1000, None, false),
        (0.2, 1000, None, true),
        (1.001, 1000, None, true),
        (1.0, 1000, Some(VcpuId(3)), false),
        (1.0, 1000, Some(VcpuId(2)), true),
    ] {
        let (mut state, recheck) = rechecked(cpu, handovers);
        state.pinned = pinned.into_iter().collect();
        let outcome = state.retake(NOW, recheck);
        assert_eq!(outcome.is_some(), again, "{cpu} {handovers} {pinned:?}: {outcome:?}");
        assert_eq!((state.active.len(), state.steps.len()), if again { (3, 1) } else { (4, 0) });
    }
}

#[test]
fn a_step_that_is_taken_again_begins_anew() {
    let (mut state, recheck) = rechecked(0.9, 1000);
    let packed = recheck.packed;
    let Some(Outcome::Deactivate { vcpus, reason: Reason::RecheckSlower { loss } }) = state.retake(NOW, recheck) else {
        panic!("it is slower without");
    };
    assert!(vcpus.iter().eq([VcpuId(3)]) && (loss - 0.5).abs() < 1e-12, "{loss}");
    let step = state.steps.last().unwrap();
    assert_eq!((step.taken_at, step.n, step.paid, step.faster), (NOW, 4, true, Some(packed.cpu)));
    // What it was without the vCPU is what it is compared with from now on, and what comes back with the vCPU.
    assert!((step.before.handovers.median - 1000.0).abs() < 1e-9 && (step.before.cpu.median - 0.9).abs() < 1e-9);
    let params = GuestParams::default();
    assert!(step.reference.ready(&params) && !state.reference.ready(&params));
    assert!(state.history.is_empty());
}
