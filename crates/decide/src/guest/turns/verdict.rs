//! What the pairs of a trial say together, and for how long.

use super::comparing::PAIRS;
use super::evidence::Compared;
use gleaner_model::Nanos;

/// Speeds that differ by less than this share count as alike. Then the cheaper place is taken.
const ALIKE: f64 = 0.03;
/// Profile `frugal` gives up this share of the speed for a vCPU.
const FRUGAL_LOSS: f64 = 0.2;

/// A pair this clear against one vCPU ends a trial. For it two have to speak: a program that begins gets faster by
/// itself, and one vCPU came second.
const ONE_PAIR: f64 = 1.5;
/// Two pairs this clear end it either way.
const TWO_PAIRS: f64 = 1.1;
/// Places are alike where no pair speaks so much against one vCPU.
const ALIKE_IN_EACH: f64 = 0.07;
/// A pair that speaks so much against one vCPU contradicts all others: nothing is packed.
const CONTRADICTS: f64 = 0.2;
/// From here on the median of four pairs is clear. Where hand-overs are known between two bounds, the upper one is
/// taken, which may be too high by half where a lock's waits are none of `FUTEX_WAIT`: two pairs have to say more.
const UPPER_BOUND_CLEAR: f64 = 1.1;
const UPPER_BOUND_CLEAR_IN_TWO: f64 = 1.25;

/// What two pairs agree on stands for so many times as long: the next trial seldom says otherwise. What one pair alone
/// says, or what one pair contradicts, stands for half of the time.
const AGREED_STANDS_TIMES: u64 = 4;

fn median_of(pairs: &[Compared], of: fn(&Compared) -> f64) -> f64 {
    gleaner_stats::median(&pairs.iter().map(of).collect::<Vec<f64>>()).unwrap_or(1.0)
}

/// Whether one vCPU is better than several, once that is clear. `awake`: idle vCPUs poll where there are several.
pub(super) fn verdict(pairs: &[Compared], frugal: bool, awake: bool) -> Option<bool> {
    // What counts as no slower.
    let par = if frugal { 1.0 - FRUGAL_LOSS } else { 1.0 };
    let all = |clear: &dyn Fn(&Compared) -> bool| !pairs.is_empty() && pairs.iter().all(clear);
    let two = pairs.len() > 1;
    if two && all(&|pair| pair.least / par > TWO_PAIRS || pair.most / par > UPPER_BOUND_CLEAR_IN_TWO) {
        return Some(true);
    }
    if all(&|pair| pair.most / par < 1.0 / ONE_PAIR) || two && all(&|pair| pair.most / par < 1.0 / TWO_PAIRS) {
        return Some(false);
    }
    if pairs.len() < PAIRS {
        return None;
    }
    let median = |of| median_of(pairs, of);
    let (least, most) = (median(|pair| pair.least) / par, median(|pair| pair.most) / par);
    // One vCPU takes less from the host than two of which one polls.
    let cheaper = awake || median(|pair| pair.cpu) < 1.0;
    let clear = most > UPPER_BOUND_CLEAR && all(&|pair| pair.most / par > 1.0 - CONTRADICTS);
    let enough = if cheaper { 1.0 - ALIKE } else { 1.0 + ALIKE };
    let alike = least > enough && all(&|pair| pair.least / par > 1.0 - ALIKE_IN_EACH);
    Some(clear || alike)
}

/// How long it stands that one vCPU `pays`, or does not, where it stands for `usual` as a rule.
pub(super) fn stands(pays: bool, pairs: &[Compared], usual: Nanos) -> Nanos {
    let agreed = pairs.len() == 2 && (!pays || pairs.iter().all(|pair| pair.least > 1.0));
    let is_contradicted = !pays && median_of(pairs, |pair| pair.most) > UPPER_BOUND_CLEAR;
    match (agreed, is_contradicted || pairs.len() == 1) {
        (true, _) => usual.times(AGREED_STANDS_TIMES),
        (_, true) => Nanos(usual.0 / 2),
        _ => usual,
    }
}
