//! A token bucket: what somebody may use by time, with a credit for who used little of late.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Of each user.
#[derive(Debug)]
pub(crate) struct Allowance {
    credit: Duration,
    longest_wait: Duration,
    paid_until: BTreeMap<u32, Instant>,
}

impl Allowance {
    /// So much time may be used ahead. Nobody waits longer than `longest_wait`.
    pub(crate) fn new(credit: Duration, longest_wait: Duration) -> Self {
        Self { credit, longest_wait, paid_until: BTreeMap::new() }
    }

    /// How long until this user may go on.
    pub(crate) fn wait(&self, user: u32, now: Instant) -> Duration {
        let paid_until = self.paid_until.get(&user).copied().unwrap_or(now);
        paid_until.saturating_duration_since(now + self.credit)
    }

    /// It used so much.
    pub(crate) fn spend(&mut self, user: u32, now: Instant, time: Duration) {
        self.paid_until.retain(|_, until| *until > now);
        let until = self.paid_until.get(&user).copied().unwrap_or(now) + time;
        self.paid_until.insert(user, until.min(now + self.credit + self.longest_wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_used_much_waits_and_nobody_else_does() {
        let (now, s) = (Instant::now(), Duration::from_secs);
        let mut allowance = Allowance::new(s(2), s(5));
        allowance.spend(1, now, s(2));
        assert_eq!(allowance.wait(1, now), s(0), "the credit");
        allowance.spend(1, now, s(1));
        let waits = |allowance: &Allowance, after| [1, 2].map(|user| allowance.wait(user, now + after));
        assert_eq!(waits(&allowance, s(0)), [s(1), s(0)]);
        assert_eq!(waits(&allowance, s(1)), [s(0); 2]);
        allowance.spend(1, now, s(1000));
        assert_eq!(waits(&allowance, s(0))[0], s(5), "nobody waits for ever");
        allowance.spend(2, now + s(60), s(1));
        assert_eq!(allowance.paid_until.len(), 1, "who owes nothing is forgotten");
    }
}
