//! How long to wait before the next try.

use std::time::Duration;

/// Doubling waits with jitter: each is between half of its step and the whole.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    step: u32,
}

impl Backoff {
    /// Waits from `first`, doubled each time, never beyond `longest`.
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            step: 0,
        }
    }

    /// The usual one: a quarter of a second to half a minute.
    pub(super) fn usual() -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(30))
    }

    /// The next wait.
    pub(super) fn next(&mut self) -> Duration {
        let whole = self
            .first
            .saturating_mul(1 << self.step.min(20))
            .min(self.longest);
        self.step = self.step.saturating_add(1);
        let (half, random) = (whole / 2, uuid::Uuid::new_v4().as_bytes()[0]);
        half + half * u32::from(random) / 255
    }

    /// How many waits there were since the last success.
    pub(super) fn tries(&self) -> u32 {
        self.step
    }

    /// It worked: the next wait is a short one again.
    pub(super) fn reset(&mut self) {
        self.step = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_stay_below_the_longest_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for whole in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next();
            assert!(
                wait >= Duration::from_millis(whole / 2) && wait <= Duration::from_millis(whole),
                "{wait:?} of {whole}"
            );
        }
        (0..100).for_each(|_| assert!(backoff.next() <= Duration::from_secs(1)));
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
    }
}
