//! The yielding thread's spin/halt state machine: a table of scenes, and what holds for any sequence of events.

use gleaner_decide::guest::{ContentionGuard, GuestParams, SIGNAL_CHECK, UNTIL_ORDERED, YieldingThread};
use gleaner_model::{Nanos, Next, Order, YieldMachine, YieldReturn};
use proptest::prelude::*;

const RETAIN: Order = Order::Retain { timeout: us(100) };

const fn us(n: u64) -> Nanos {
    Nanos::from_micros(n)
}

const fn sleep(at_most: Nanos, until_busy: bool) -> Next {
    Next::Sleep { at_most, until_busy }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Order(Order),
    Returned(Nanos, YieldReturn),
    Woke(Nanos, Option<bool>),
}
use Event::{Order as Ordered, Returned, Woke};
use YieldReturn::{Displaced, Immediate, Stolen};

/// Feeds the events, each as long as it says, and returns the answers.
fn feed(thread: &mut YieldingThread, now: &mut Nanos, event: Event) -> Next {
    match event {
        Ordered(order) => thread.order(*now, order),
        Returned(elapsed, how) => {
            *now += elapsed;
            thread.returned(*now, elapsed, how)
        }
        Woke(asleep_for, busy) => {
            *now += asleep_for;
            thread.woke(*now, asleep_for, busy)
        }
    }
}

fn check(name: &str, can_be_signalled: bool, scene: &[(Event, Next)]) {
    let mut thread = YieldingThread::new(RETAIN, can_be_signalled, &GuestParams::default());
    let mut now = Nanos::from_secs(10);
    for (step, (event, expected)) in scene.iter().enumerate() {
        assert_eq!(feed(&mut thread, &mut now, *event), *expected, "{name}, event {step}: {event:?}");
    }
}

#[test]
fn past_the_timeout_the_vcpu_may_halt_until_it_has_been_busy() {
    check(
        "signalled",
        true,
        &[
            (Ordered(RETAIN), Next::Yield),
            (Returned(us(60), Immediate), Next::Yield),
            (Returned(us(60), Immediate), sleep(SIGNAL_CHECK, true)),
            (Woke(SIGNAL_CHECK, Some(false)), sleep(SIGNAL_CHECK, true)),
            (Woke(us(300), Some(true)), Next::Yield),
            (Returned(us(60), Immediate), Next::Yield),
            (Returned(us(60), Displaced), Next::Yield),
            (Returned(us(60), Immediate), Next::Yield),
            (Returned(us(40), Immediate), sleep(SIGNAL_CHECK, true)),
        ],
    );
}

#[test]
fn without_a_signal_naps_double_until_somebody_came() {
    let mut scene = vec![(Ordered(RETAIN), Next::Yield), (Returned(us(100), Immediate), sleep(us(50), false))];
    let mut nap = 50;
    for _ in 0..10 {
        scene.push((Woke(us(nap), None), Next::Yield));
        scene.push((Returned(us(30), Immediate), Next::Yield));
        nap = (nap * 2).min(10_000);
        scene.push((Returned(us(30), Immediate), sleep(us(nap), false)));
    }
    assert_eq!(nap, 10_000);
    scene.extend([
        (Woke(us(nap), None), Next::Yield),
        (Returned(us(5), Immediate), Next::Yield),
        (Returned(us(5), Displaced), Next::Yield),
        (Returned(us(99), Immediate), Next::Yield),
        (Returned(us(1), Immediate), sleep(us(50), false)),
    ]);
    check("naps", false, &scene);
}

#[test]
fn a_late_wake_means_that_the_vcpu_was_busy() {
    check(
        "late",
        false,
        &[
            (Ordered(RETAIN), Next::Yield),
            (Returned(us(100), Immediate), sleep(us(50), false)),
            (Woke(us(50), None), Next::Yield),
            (Returned(us(60), Immediate), sleep(us(100), false)),
            (Woke(us(700), Some(true)), Next::Yield),
            (Returned(us(99), Immediate), Next::Yield),
            (Returned(us(1), Immediate), sleep(us(50), false)),
        ],
    );
}

/// What the /proc observer computes from these counters: idle periods = idle exits - idle_naps + displaced.
#[test]
fn idle_periods_come_out_right_whenever_the_nap_ends() {
    let nap = [Returned(us(100), Immediate)];
    for (scene, exits, periods, events) in [
        ("work yield work", 0, 1, vec![Returned(us(50), Displaced)]),
        (
            "work idle yield work",
            1,
            1,
            vec![Woke(us(50), None), Returned(us(5), Immediate), Returned(us(5), Displaced)],
        ),
        ("work idle yield idle work", 2, 1, vec![Woke(us(50), None), Returned(us(60), Immediate)]),
        ("work [nap ends] yield work", 0, 1, vec![Woke(us(900), Some(true)), Returned(us(9), Displaced)]),
        ("work [nap ends] yield idle work", 1, 1, vec![Woke(us(900), Some(true)), Returned(us(100), Immediate)]),
        ("idle work idle yield work", 2, 2, vec![Woke(us(50), None), Returned(us(5), Displaced)]),
    ] {
        let mut thread = YieldingThread::new(RETAIN, false, &GuestParams::default());
        let mut now = Nanos::ZERO;
        let napped = matches!(events[0], Woke(..));
        for event in nap.into_iter().filter(|_| napped).chain(events) {
            feed(&mut thread, &mut now, event);
        }
        let found = thread.counters();
        assert_eq!(exits + found.displaced - found.idle_naps, periods, "{scene}");
    }
}

#[test]
fn a_stolen_share_over_15_percent_stops_it_and_a_quiet_time_forgives() {
    let second = Nanos::from_secs(1);
    let gap = Nanos::from_millis(20);
    check(
        "guard",
        true,
        &[
            (Ordered(RETAIN), Next::Yield),
            (Returned(gap, Stolen), Next::Yield),
            (Returned(gap, Stolen), sleep(second, false)),
            (Woke(Nanos::from_millis(400), Some(true)), sleep(Nanos::from_millis(600), false)),
            (Ordered(RETAIN), sleep(Nanos::from_millis(600), false)),
            (Ordered(Order::Sleep), sleep(UNTIL_ORDERED, false)),
            (Ordered(RETAIN), sleep(Nanos::from_millis(600), false)),
            (Woke(Nanos::from_millis(600), None), Next::Yield),
            (Returned(gap, Stolen), Next::Yield),
            (Returned(gap, Stolen), sleep(second.times(2), false)),
            (Woke(second.times(2), None), Next::Yield),
            (Returned(second.times(3), Displaced), Next::Yield),
            (Returned(gap, Stolen), Next::Yield),
            (Returned(gap, Stolen), sleep(second, false)),
        ],
    );
}

#[test]
fn an_order_to_sleep_lasts_until_the_next_order() {
    check(
        "orders",
        true,
        &[
            (Ordered(RETAIN), Next::Yield),
            (Returned(us(99), Immediate), Next::Yield),
            (Ordered(Order::Sleep), sleep(UNTIL_ORDERED, false)),
            (Woke(us(1), Some(true)), sleep(UNTIL_ORDERED, false)),
            (Returned(us(1), Immediate), sleep(UNTIL_ORDERED, false)),
            (Ordered(RETAIN), Next::Yield),
            (Returned(us(99), Immediate), Next::Yield),
            (Ordered(RETAIN), Next::Yield),
            (Returned(us(1), Immediate), sleep(SIGNAL_CHECK, true)),
        ],
    );
}

#[test]
fn counters_tell_retained_from_stolen_and_idle_naps_from_wakeups() {
    let mut thread = YieldingThread::new(RETAIN, false, &GuestParams::default());
    let mut now = Nanos::ZERO;
    for event in [
        Returned(us(60), Immediate),
        Returned(us(300), Stolen),
        Returned(us(40), Immediate),
        Woke(us(50), None),
        Returned(us(50), Immediate),
        // Prompt, and displaced by the very first yield: out of idleness all the same.
        Woke(us(100), None),
        Returned(us(10), Displaced),
        Returned(us(100), Immediate),
        // Late: another task had the vCPU when the nap ended.
        Woke(us(900), Some(true)),
        Returned(us(10), Immediate),
    ] {
        feed(&mut thread, &mut now, event);
    }
    let found = thread.counters();
    assert_eq!((found.retained, found.stolen), (us(260), us(300)));
    assert_eq!((found.displaced, found.sleeps, found.idle_naps, found.guard_trips), (1, 3, 2, 0));
}

fn any_event() -> impl Strategy<Value = Event> {
    let how = prop_oneof![8 => Just(Immediate), 2 => Just(Displaced), 1 => Just(Stolen)];
    let busy = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    prop_oneof![
        1 => Just(Ordered(Order::Sleep)),
        1 => (1u64..10_000).prop_map(|timeout| Ordered(Order::Retain { timeout: us(timeout) })),
        30 => (1u64..40_000, how).prop_map(|(elapsed, how)| Returned(us(elapsed), how)),
        10 => (1u64..2_000_000, busy).prop_map(|(asleep, busy)| Woke(us(asleep), busy)),
    ]
}

proptest! {
    /// Whatever happens: no yielding when ordered to sleep, none past the time-out, naps within their limits, times add
    /// up.
    #[test]
    fn it_obeys_its_order_its_timeout_and_its_limits(
        signalled in any::<bool>(),
        events in proptest::collection::vec(any_event(), 0..200),
    ) {
        let params = GuestParams::default();
        let mut thread = YieldingThread::new(RETAIN, signalled, &params);
        let (mut now, mut timeout, mut idle) = (Nanos::ZERO, Some(us(100)), Nanos::ZERO);
        let mut next = thread.order(now, RETAIN);
        let (mut immediate, mut stolen) = (Nanos::ZERO, Nanos::ZERO);
        for event in events {
            // act/ answers a yield with a return and a sleep with a wake-up; an order may come at any time.
            match (event, next) {
                (Returned(..), Next::Sleep { .. }) | (Woke(..), Next::Yield) => continue,
                (Ordered(Order::Sleep), _) => timeout = None,
                // An order may begin the idle period anew.
                (Ordered(Order::Retain { timeout: new }), _) => (timeout, idle) = (Some(new), Nanos::ZERO),
                (Returned(elapsed, Immediate), _) => { immediate += elapsed; idle += elapsed; }
                (Returned(elapsed, Stolen), _) => stolen += elapsed,
                (Returned(_, Displaced) | Woke(..), _) => idle = Nanos::ZERO,
            }
            next = feed(&mut thread, &mut now, event);
            match (next, timeout) {
                (_, None) => prop_assert_eq!(next, sleep(UNTIL_ORDERED, false)),
                (Next::Yield, Some(timeout)) => {
                    let ended_by_return = matches!(event, Returned(_, Immediate));
                    prop_assert!(!ended_by_return || idle < timeout.max(us(params.tuning.nap_check_us)));
                }
                (Next::Sleep { at_most, .. }, Some(_)) => {
                    idle = Nanos::ZERO;
                    prop_assert!(at_most > Nanos::ZERO && at_most <= ContentionGuard::HOLD_OFF_MAX);
                }
            }
            prop_assert_eq!(thread.counters().retained, immediate);
            prop_assert_eq!(thread.counters().stolen, stolen);
        }
    }
}

#[test]
fn a_thread_that_seldom_spins_still_feels_a_contended_host() {
    // Every 5 ms it spins 100 us and then loses the vCPU for 400 us: a tenth of the wall clock, four fifths of its own
    // time.
    let mut thread = YieldingThread::new(RETAIN, true, &GuestParams::default());
    let mut now = Nanos::from_secs(10);
    thread.order(now, RETAIN);
    let tripped = (0..100).position(|_| {
        now += us(4_500);
        thread.woke(now, us(4_500), Some(true));
        for (elapsed, how) in [(us(90), Immediate), (us(400), Stolen)] {
            now += elapsed;
            thread.returned(now, elapsed, how);
        }
        thread.counters().guard_trips > 0
    });
    // 30 ms of stolen time, 15 % of the span, is 75 such gaps.
    assert_eq!(tripped, Some(75), "{:?}", thread.counters());
}
