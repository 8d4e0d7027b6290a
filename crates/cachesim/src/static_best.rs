//! SIP-best: the best fixed insertion policy for each context, by trying all combinations (MICRO'14, section V-B: "The applications were run with all
//! possible insertion policies, and we selected the best insertion policy for each context").

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

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Best<O> {
    /// Where each context's lines go.
    pub insertions: Vec<Insertion>,
    /// Its cost; lower is better.
    pub cost: f64,
    /// What the run gave.
    pub outcome: O,
    /// Runs made.
    pub runs: usize,
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

/// Runs every combination and returns the cheapest, the first of equals. `run` simulates with
/// [`PolicyKind::PerContext`](crate::policy::PolicyKind::PerContext); `cost` is usually the sum of the contexts' CPI, each divided by its CPI without
/// time sharing.
pub fn best_static<O, E: From<TooMany>>(
    contexts: usize,
    mut run: impl FnMut(&[Insertion]) -> Result<O, E>,
    cost: impl Fn(&O) -> f64,
) -> Result<Best<O>, E> {
    let mut best: Option<Best<O>> = None;
    let mut runs = 0;
    for insertions in combinations(contexts)? {
        let outcome = run(&insertions)?;
        runs += 1;
        let cost = cost(&outcome);
        if best.as_ref().is_none_or(|best| cost < best.cost) {
            best = Some(Best { insertions, cost, outcome, runs });
        }
    }
    let mut best = best.expect("there is at least the empty combination");
    best.runs = runs;
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Insertion::{Lru, Mru};

    #[test]
    fn it_finds_the_cheapest_of_all_combinations() {
        let wanted = [Mru, Lru, Lru, Mru];
        let run = |insertions: &[Insertion]| {
            Ok::<_, TooMany>(insertions.iter().zip(wanted).filter(|(one, other)| *one != other).count())
        };
        let best = best_static(4, run, |wrong| *wrong as f64).unwrap();
        assert_eq!((best.insertions.as_slice(), best.cost, best.runs), (&wanted[..], 0.0, 16));
    }

    #[test]
    fn equals_stay_with_plain_lru_and_too_many_are_refused() {
        let best = best_static(3, |_| Ok::<_, TooMany>(()), |()| 1.0).unwrap();
        assert_eq!(best.insertions, [Mru; 3]);
        let said = best_static(200, |_| Ok::<_, TooMany>(()), |()| 1.0).unwrap_err().to_string();
        assert!(said.contains("200 contexts") && said.contains("at most 10"), "{said}");
    }
}
