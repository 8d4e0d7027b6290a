//! Which interrupts leave vCPUs that were deactivated (ours).

/// An interrupt that can be moved leaves vCPUs that were deactivated where it lands there at least so often a second:
/// each time it would wake one, and what it wakes runs elsewhere.
const PER_S_MIN: f64 = 50.0;

/// Those that land there often enough, the most frequent first. `landing`: each one's number, and how often a second.
pub fn worth_moving(landing: &[(u32, f64)]) -> Vec<u32> {
    let mut often: Vec<_> = landing.iter().filter(|(_, per_s)| *per_s >= PER_S_MIN).collect();
    often.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    often.into_iter().map(|(irq, _)| *irq).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hardly_ever_happens_stays() {
        let landing = [(4, 1.0), (9, 50.0), (5, 49.9), (7, 3_000.0), (8, 50.0), (6, f64::NAN)];
        assert_eq!(worth_moving(&landing), [7, 8, 9]);
        assert_eq!(worth_moving(&[]), [0; 0]);
    }
}
