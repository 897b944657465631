//! Wall-clock time as the records keep it: whole milliseconds since the Unix epoch.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since 1970-01-01T00:00:00Z.
///
/// On the wire it is RFC 3339 in UTC (2025-11-25 `basic/utilities/tasks`, `createdAt` and `lastUpdatedAt`);
/// [`Display`](fmt::Display) writes that form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

/// 9999-12-31T23:59:59.999Z: RFC 3339 has four digits for the year.
const LATEST_MS: u64 = 253_402_300_799_999;

impl Timestamp {
    /// The point `ms` milliseconds after the epoch; later than the year 9999 is the end of that year.
    pub fn from_millis(ms: u64) -> Self {
        Self(ms.min(LATEST_MS))
    }

    /// Milliseconds since the epoch.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// The present time of the system clock. A clock set before 1970 reads as the epoch.
    pub fn now() -> Self {
        let elapsed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Self::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(LATEST_MS))
    }

    /// This point moved `ms` milliseconds into the future, never past the year 9999.
    pub fn plus_millis(self, ms: u64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this point; zero if `earlier` is later.
    pub fn millis_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time from this point until `later`; zero if `later` has passed.
    pub fn until(self, later: Timestamp) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = i64::try_from(self.0).unwrap_or(i64::MAX);
        match chrono::DateTime::from_timestamp_millis(ms) {
            Some(time) => write!(f, "{}", time.format("%Y-%m-%dT%H:%M:%S%.3fZ")),
            None => f.write_str("9999-12-31T23:59:59.999Z"),
        }
    }
}

/// Where the runtime reads the time. [`Clock::system`] everywhere but in tests, which move one by hand.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that asks `read` for the time.
    pub fn from_fn(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_in_utc_with_milliseconds() {
        assert_eq!(
            Timestamp::from_millis(0).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
        assert_eq!(
            Timestamp::from_millis(1_764_066_600_123).to_string(),
            "2025-11-25T10:30:00.123Z"
        );
        assert_eq!(
            Timestamp::from_millis(u64::MAX).to_string(),
            "9999-12-31T23:59:59.999Z"
        );
    }

    #[test]
    fn arithmetic_saturates() {
        let late = Timestamp::from_millis(LATEST_MS);
        assert_eq!(late.plus_millis(u64::MAX), late);
        assert_eq!(Timestamp::from_millis(3).millis_since(late), 0);
        assert_eq!(late.until(Timestamp::from_millis(1)), Duration::ZERO);
    }
}
