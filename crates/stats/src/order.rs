//! Who goes first in each pair.

use fastrand::Rng;

/// For each of `pairs` pairs, whether the second mode runs first. Random, and balanced in every four pairs, so that a
/// machine's drift meets both modes alike, also when stopped early.
pub fn orders(pairs: usize, seed: u64) -> Vec<bool> {
    let mut random = Rng::with_seed(seed);
    let mut orders = Vec::with_capacity(pairs + 3);
    while orders.len() < pairs {
        let mut four = [false, false, true, true];
        random.shuffle(&mut four);
        orders.extend(four);
    }
    orders.truncate(pairs);
    orders
}

/// For each of `rounds` rounds the order in which `modes` modes run. Of two as [`orders`] has it. Of more each is in
/// each place once in every `modes` rounds, and before each other one as often as behind it by chance.
pub fn rounds(rounds: usize, modes: usize, seed: u64) -> Vec<Vec<usize>> {
    if modes == 2 {
        let order = |second_first| if second_first { vec![1, 0] } else { vec![0, 1] };
        return orders(rounds, seed).into_iter().map(order).collect();
    }
    let mut random = Rng::with_seed(seed);
    let mut all = Vec::with_capacity(rounds + modes);
    while all.len() < rounds {
        let mut order: Vec<usize> = (0..modes).collect();
        random.shuffle(&mut order);
        let mut shifts: Vec<usize> = (0..modes).collect();
        random.shuffle(&mut shifts);
        for shift in shifts {
            let mut shifted = order.clone();
            shifted.rotate_left(shift);
            all.push(shifted);
        }
    }
    all.truncate(rounds);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_modes_each_has_each_place_as_often() {
        for seed in 0..100 {
            let all = rounds(9, 3, seed);
            assert_eq!((all.len(), &all), (9, &rounds(9, 3, seed)));
            for three in all.chunks(3) {
                for place in 0..3 {
                    let mut there: Vec<usize> = three.iter().map(|order| order[place]).collect();
                    there.sort_unstable();
                    assert_eq!(there, [0, 1, 2], "{all:?}");
                }
            }
        }
        let place = |order: &[usize], mode| order.iter().position(|other| *other == mode).unwrap();
        let before = (0..999).filter(|seed| {
            let first = &rounds(1, 3, *seed)[0];
            place(first, 2) < place(first, 0)
        });
        assert!((400..600).contains(&before.count()));
        assert_eq!(rounds(8, 2, 5).iter().map(|order| order[0] == 1).collect::<Vec<_>>(), orders(8, 5));
    }

    #[test]
    fn every_four_pairs_are_balanced_and_the_seed_decides() {
        for seed in 0..100 {
            let orders = orders(21, seed);
            assert_eq!(orders.len(), 21);
            assert!(orders.chunks_exact(4).all(|four| four.iter().filter(|first| **first).count() == 2), "{orders:?}");
            assert_eq!(orders, super::orders(21, seed));
        }
        assert!((0..20).any(|seed| orders(8, seed) != orders(8, seed + 1)), "chance has no effect");
    }

    #[test]
    fn each_mode_goes_first_as_often() {
        let second_first = (0..1_000).filter(|seed| orders(1, *seed)[0]).count();
        assert!((400..600).contains(&second_first), "{second_first}");
    }
}
