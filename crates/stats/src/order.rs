//! Who goes first in each pair.

use fastrand::Rng;

/// For each of `pairs` pairs, whether the second mode runs first. Random, and balanced in every four pairs (two and
/// two), so that a machine that warms up or slows down meets both modes alike, also when the comparison is stopped
/// early.
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

#[cfg(test)]
mod tests {
    use super::*;

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
