//! The order of combinations: each once a round, interleaved, the same for the same seed.

use gleaner_scenario::{HostSlice, Plan, Scenario, Step};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

fn scenario(together: bool, seed: u64) -> Scenario {
    let vm = |name: &str, role: &str, rest: &str| {
        format!("[[vm]]\nname = \"{name}\"\nrole = \"{role}\"\nvcpus = 1\n{rest}\n")
    };
    let measured =
        "policies = [\"off\", \"full\"]\nworkloads = [{ program = \"a\" }, { program = \"b\" }, \"nothing\"]";
    let text = format!(
        "name = \"p\"\ndescription = \"\"\nrounds = 1\nseed = {seed}\ntogether = {together}\n{}{}{}",
        vm("one", "measured", measured),
        vm("two", "measured", measured),
        vm("near", "background", "workloads = [\"nothing\", { program = \"m\" }, { program = \"f\" }]"),
    );
    Scenario::parse(&text, Path::new("p.toml")).unwrap()
}

#[test]
fn together_every_measured_vm_takes_part_in_the_same_way() {
    let plan = Plan::of(&scenario(true, 0));
    // 3 workloads x 2 policies x 3 neighbours.
    assert_eq!(plan.combinations().len(), 18);
    for combination in plan.combinations() {
        let [one, two] = combination.measured.as_slice() else { panic!("{combination:?}") };
        assert_eq!((one.workload, one.policy), (two.workload, two.policy));
        assert_eq!((one.vm, two.vm), (0, 1));
        assert_eq!(combination.background.len(), 1);
    }
}

#[test]
fn in_turn_one_measured_vm_takes_part() {
    let plan = Plan::of(&scenario(false, 0));
    assert_eq!(plan.combinations().len(), 36);
    assert!(plan.combinations().iter().all(|combination| combination.measured.len() == 1));
}

#[test]
fn every_combination_is_measured_with_each_slice() {
    let mut scenario = scenario(true, 0);
    scenario.machine.slices = vec![HostSlice::Kernel, HostSlice::Fixed(Duration::from_millis(1)), HostSlice::Adaptive];
    let plan = Plan::of(&scenario);
    assert_eq!((plan.combinations().len(), Plan::count(&scenario)), (54, 54));
    for slice in &scenario.machine.slices {
        assert_eq!(plan.combinations().iter().filter(|it| it.slice == Some(*slice)).count(), 18, "{slice}");
    }
    let solos = plan.round(0).iter().filter(|step| matches!(step, Step::Solo(_))).count();
    assert_eq!(solos, 2, "alone nobody competes, whatever the slice");
}

#[test]
fn counting_and_making_agree() {
    for together in [true, false] {
        let scenario = scenario(together, 0);
        assert_eq!(Plan::count(&scenario), Plan::of(&scenario).combinations().len());
    }
}

#[test]
fn what_neighbours_do_alone_is_measured_once_a_round() {
    let plan = Plan::of(&scenario(true, 0));
    let solos = plan.round(0).into_iter().filter(|step| matches!(step, Step::Solo(_))).count();
    assert_eq!(solos, 2, "matmul and freqsleep, not nothing");
    let mut without = scenario(true, 0);
    without.solo = std::time::Duration::ZERO;
    assert_eq!(Plan::of(&without).steps_per_round(), 18);
}

proptest! {
    #[test]
    fn a_round_holds_everything_once(seed in any::<u64>().prop_map(|seed| seed >> 1), round in 0u32..100) {
        let plan = Plan::of(&scenario(true, seed));
        let steps = plan.round(round);
        prop_assert_eq!(steps.len(), plan.steps_per_round());
        prop_assert_eq!(steps.iter().collect::<BTreeSet<_>>().len(), steps.len());
        prop_assert_eq!(&Plan::of(&scenario(true, seed)).round(round), &steps, "the same seed, the same order");
    }
}

/// Places in the round of the runs of each case: measured programs and background.
fn places(plan: &Plan, round: u32) -> BTreeMap<Vec<(usize, usize)>, Vec<usize>> {
    let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (place, step) in plan.round(round).iter().enumerate() {
        let Step::Run(run) = step else { continue };
        let who = run.measured.iter().chain(&run.background).map(|choice| (choice.vm, choice.workload)).collect();
        places.entry(who).or_default().push(place);
    }
    places
}

#[test]
fn what_is_compared_comes_one_after_the_other() {
    let slices =
        [HostSlice::Fixed(Duration::from_millis(30)), HostSlice::Fixed(Duration::from_millis(1)), HostSlice::Adaptive];
    for together in [true, false] {
        let mut scenario = scenario(together, 3);
        scenario.machine.slices = slices.to_vec();
        let plan = Plan::of(&scenario);
        for round in 0..10 {
            for (who, places) in places(&plan, round) {
                assert_eq!(places.len(), 6, "two policies by three slices");
                assert_eq!(places.last().unwrap() - places[0], 5, "{who:?} of round {round} is torn apart: {places:?}");
            }
        }
    }
}

#[test]
fn cases_and_settings_are_both_shuffled() {
    let mut scenario = scenario(true, 5);
    scenario.machine.slices = vec![HostSlice::Kernel, HostSlice::Fixed(Duration::from_millis(1)), HostSlice::Adaptive];
    let plan = Plan::of(&scenario);
    // Which case comes first, and which slice and policy within it: sixty rounds show each.
    let (mut cases, mut settings) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..60 {
        let steps = plan.round(round);
        let first = steps.iter().find_map(|step| match step {
            Step::Run(run) => Some(run),
            Step::Solo(_) => None,
        });
        let first = first.unwrap();
        cases.insert((first.measured[0].workload, first.background[0].workload));
        settings.insert((first.slice, first.measured[0].policy));
    }
    assert_eq!((cases.len(), settings.len()), (9, 6));
}

#[test]
fn rounds_have_orders_of_their_own() {
    let plan = Plan::of(&scenario(true, 7));
    let orders: BTreeSet<Vec<Step>> = (0..20).map(|round| plan.round(round)).collect();
    assert_eq!(orders.len(), 20);
    // Neither policy is always the first of its pair.
    let firsts: BTreeSet<usize> = (0..20)
        .filter_map(|round| {
            plan.round(round).iter().find_map(|step| match step {
                Step::Run(combination) => Some(combination.measured[0].policy),
                Step::Solo(_) => None,
            })
        })
        .collect();
    assert_eq!(firsts.len(), 2);
}
