//! The limits, with their defaults.

use std::time::Duration;

use super::BuildError;

/// What one runtime allows. All are checked when it is built: zero is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Lifetime of a task whose requestor asks for none (1 hour).
    pub default_ttl: Duration,
    /// The longest lifetime; what asks for more, or for unlimited, gets this (7 days).
    pub max_ttl: Duration,
    /// How long an outcome stays readable at the least; lengthens the ttl (60 s). Zero is allowed.
    pub min_result_retention: Duration,
    /// How often requestors are told to ask (1 s).
    pub poll_interval: Duration,
    /// The shortest poll interval a tool may set (100 ms).
    pub min_poll_interval: Duration,
    /// Tasks in all (1 000 000).
    pub tasks: u64,
    /// Tasks of one owner (10 000).
    pub tasks_per_owner: u64,
    /// Bodies that run at one moment; what exceeds it waits as `working` (10 000).
    pub concurrent_runs: usize,
    /// Bytes of a call's arguments (1 MiB).
    pub arguments: usize,
    /// Bytes of a result (16 MiB).
    pub result: usize,
    /// Tasks on one page of a list (100).
    pub page: usize,
    /// How long a worker's lease lasts without a heartbeat (15 s).
    pub lease: Duration,
    /// How often a worker renews its lease (5 s).
    pub heartbeat: Duration,
    /// How long a cancelled body has to end by itself before it is dropped (5 s).
    pub cancel_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            default_ttl: Duration::from_secs(3600),
            max_ttl: Duration::from_secs(7 * 24 * 3600),
            min_result_retention: Duration::from_secs(60),
            poll_interval: Duration::from_secs(1),
            min_poll_interval: Duration::from_millis(100),
            tasks: 1_000_000,
            tasks_per_owner: 10_000,
            concurrent_runs: 10_000,
            arguments: 1024 * 1024,
            result: 16 * 1024 * 1024,
            page: 100,
            lease: Duration::from_secs(15),
            heartbeat: Duration::from_secs(5),
            cancel_grace: Duration::from_secs(5),
        }
    }
}

impl Limits {
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let wrong = |name: &'static str, why: &str| {
            Err(BuildError::Limit {
                name,
                why: why.to_owned(),
            })
        };
        let durations = [
            ("default_ttl", self.default_ttl),
            ("max_ttl", self.max_ttl),
            ("poll_interval", self.poll_interval),
            ("min_poll_interval", self.min_poll_interval),
            ("lease", self.lease),
            ("heartbeat", self.heartbeat),
            ("cancel_grace", self.cancel_grace),
        ];
        for (name, value) in durations {
            if value < Duration::from_millis(1) {
                return wrong(name, "it must be at least 1 ms");
            }
        }
        let counts = [
            ("tasks", self.tasks == 0),
            ("tasks_per_owner", self.tasks_per_owner == 0),
            ("concurrent_runs", self.concurrent_runs == 0),
            ("arguments", self.arguments == 0),
            ("result", self.result == 0),
            ("page", self.page == 0),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, zero)| *zero) {
            return wrong(name, "it must be at least 1");
        }
        if self.default_ttl > self.max_ttl {
            return wrong("default_ttl", "it must not be longer than max_ttl");
        }
        if self.poll_interval < self.min_poll_interval {
            return wrong(
                "poll_interval",
                "it must not be shorter than min_poll_interval",
            );
        }
        if self.heartbeat >= self.lease {
            return wrong("heartbeat", "it must be shorter than lease");
        }
        Ok(())
    }

    /// The ttl that a requestor's wish turns into, in milliseconds.
    pub(crate) fn grant_ttl(&self, asked: Option<Option<u64>>, tool: Option<Duration>) -> u64 {
        const AT_LEAST: u64 = 1000;
        let max = millis(self.max_ttl);
        match asked {
            None => millis(tool.unwrap_or(self.default_ttl)).min(max),
            Some(None) => max,
            Some(Some(ms)) => ms.max(AT_LEAST).min(max),
        }
    }
}

/// Whole milliseconds of a duration.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_contradictions_are_refused_by_name() {
        assert!(Limits::default().check().is_ok());
        type Mistake = (&'static str, fn(&mut Limits));
        let cases: [Mistake; 8] = [
            ("default_ttl", |l| l.default_ttl = Duration::ZERO),
            ("max_ttl", |l| l.max_ttl = Duration::ZERO),
            ("default_ttl", |l| l.max_ttl = Duration::from_secs(1)),
            ("poll_interval", |l| {
                l.poll_interval = Duration::from_millis(50)
            }),
            ("heartbeat", |l| l.heartbeat = l.lease),
            ("tasks", |l| l.tasks = 0),
            ("page", |l| l.page = 0),
            ("concurrent_runs", |l| l.concurrent_runs = 0),
        ];
        for (name, change) in cases {
            let mut limits = Limits::default();
            change(&mut limits);
            let error = limits.check().unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn a_ttl_is_clamped_never_refused() {
        let limits = Limits::default();
        let week = 7 * 24 * 3600 * 1000;
        assert_eq!(limits.grant_ttl(None, None), 3_600_000);
        assert_eq!(limits.grant_ttl(None, Some(Duration::from_secs(5))), 5000);
        assert_eq!(limits.grant_ttl(Some(None), None), week);
        assert_eq!(limits.grant_ttl(Some(Some(u64::MAX)), None), week);
        assert_eq!(limits.grant_ttl(Some(Some(0)), None), 1000);
        assert_eq!(limits.grant_ttl(Some(Some(60_000)), None), 60_000);
    }
}
