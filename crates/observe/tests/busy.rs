//! "Wake me when this vCPU works again": no wake-up is lost, none comes without work, and another thread can end a
//! wait.

mod support;

use gleaner_model::{RetainCounters, VcpuId};
use gleaner_observe::{BpfObserver, ObserverConfig};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use support::{alone, bpf_expected, compute, my_cpus, pin, play};

#[test]
fn player() {
    play();
}

fn last_cpu() -> (usize, VcpuId) {
    let cpu = *my_cpus().last().unwrap();
    (cpu, VcpuId(u32::try_from(cpu).unwrap()))
}

fn i_yield_on(vcpu: VcpuId) -> RetainCounters {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    RetainCounters { vcpu: Some(vcpu), tid, ..RetainCounters::default() }
}

#[test]
fn every_wait_ends_when_work_starts_and_not_by_its_time_out() {
    const ROUNDS: u32 = 300;
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let (cpu, vcpu) = last_cpu();
    let mut observer = BpfObserver::new(&ObserverConfig::default()).unwrap();
    let mut signal = observer.busy_signal(vcpu).unwrap();
    let (tell, told) = mpsc::channel();
    let (order, orders) = mpsc::channel::<()>();
    let waiter = thread::spawn(move || {
        pin(cpu);
        tell.send(i_yield_on(vcpu)).unwrap();
        orders.recv().unwrap();
        let limit = Duration::from_secs(20);
        let mut late = 0;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let busy = signal.wait(limit);
            assert!(busy, "a wait ended without work");
            late += u32::from(began.elapsed() >= limit);
        }
        late
    });
    observer.set_yielding(&[told.recv().unwrap()]);
    order.send(()).unwrap();
    // Work that starts over and over, at all distances from the waiter's going to sleep.
    let worker = thread::spawn(move || {
        pin(cpu);
        let mut pause_us = 0;
        while !waiter.is_finished() {
            compute(Duration::from_micros(20));
            pause_us = (pause_us + 7) % 200;
            thread::sleep(Duration::from_micros(50 + pause_us));
        }
        waiter.join().unwrap()
    });
    assert_eq!(worker.join().unwrap(), 0, "wake-ups were lost");
}

#[test]
fn another_thread_ends_a_wait_even_before_it_begins() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let (_, vcpu) = last_cpu();
    let observer = BpfObserver::new(&ObserverConfig::default()).unwrap();
    let mut signal = observer.busy_signal(vcpu).unwrap();
    let waker = signal.waker();
    waker.clone().wake();
    let began = Instant::now();
    signal.wait(Duration::from_secs(60));
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        waker.wake();
    });
    signal.wait(Duration::from_secs(60));
    assert!(began.elapsed() < Duration::from_secs(60));
    later.join().unwrap();
}

#[test]
fn a_vcpu_that_cannot_be_has_no_signal() {
    if !bpf_expected() {
        return;
    }
    let _turn = alone();
    let observer = BpfObserver::new(&ObserverConfig::default()).unwrap();
    assert!(observer.busy_signal(VcpuId(100_000)).unwrap_err().to_string().contains("100000"));
}
