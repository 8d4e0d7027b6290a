//! SIP-best: the best fixed insertion policy for each context, by trying all combinations (MICRO'14, section V-B: "The
//! applications were run with all possible insertion policies, and we selected the best insertion policy for each
//! context").

use gleaner_decide::host::Insertion;

/// More contexts than this would mean more than 1,024 simulations.
pub const CONTEXTS_MAX: usize = 10;

/// Too many contexts to try all combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{contexts} contexts have {combinations} combinations of insertion policies: try at most {CONTEXTS_MAX} contexts"
)]
pub struct TooMany {
    contexts: usize,
    combinations: u128,
}

/// All combinations for so many contexts; all at MRU, which is plain LRU replacement, first.
pub fn combinations(contexts: usize) -> Result<impl Iterator<Item = Vec<Insertion>>, TooMany> {
    if contexts > CONTEXTS_MAX {
        let combinations = 1_u128.checked_shl(u32::try_from(contexts).unwrap_or(u32::MAX)).unwrap_or(u128::MAX);
        return Err(TooMany { contexts, combinations });
    }
    let insertion = |bits: u32, context: usize| if bits >> context & 1 == 1 { Insertion::Lru } else { Insertion::Mru };
    Ok((0..1_u32 << contexts).map(move |bits| (0..contexts).map(|context| insertion(bits, context)).collect()))
}

/// The cheapest of what the combinations gave, the first of equals; none of none. `cost` is usually the sum of the
/// contexts' CPI, each divided by its CPI without time sharing; one that is no number is dearer than all.
pub fn cheapest<O>(tried: impl IntoIterator<Item = O>, cost: impl Fn(&O) -> f64) -> Option<O> {
    let cost = |one: &O| Some(cost(one)).filter(|cost| !cost.is_nan()).unwrap_or(f64::INFINITY);
    tried.into_iter().min_by(|one, other| cost(one).total_cmp(&cost(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Insertion::{Lru, Mru};

    #[test]
    fn the_cheapest_of_all_combinations_is_found() {
        let wanted = [Mru, Lru, Lru, Mru];
        let wrong =
            |insertions: &Vec<Insertion>| insertions.iter().zip(wanted).filter(|(one, other)| *one != other).count();
        let all: Vec<_> = combinations(4).unwrap().collect();
        assert_eq!(all.len(), 16);
        assert_eq!(cheapest(all, |insertions| wrong(insertions) as f64).unwrap(), wanted);
    }

    #[test]
    fn equals_stay_with_plain_lru_and_too_many_are_refused() {
        assert_eq!(cheapest(combinations(3).unwrap(), |_| 1.0).unwrap(), [Mru; 3]);
        assert_eq!(cheapest([0.0, 2.0, 1.0], |one| 1.0 / one - 1.0 / one), Some(2.0), "no number is not cheap");
        assert_eq!(cheapest(Vec::<u8>::new(), |_| 1.0), None);
        let said = combinations(200).err().unwrap().to_string();
        assert!(said.contains("200 contexts") && said.contains("at most 10"), "{said}");
    }
}
