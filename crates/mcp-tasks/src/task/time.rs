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

const DAY_MS: u64 = 24 * 3600 * 1000;

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
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, width: usize, mut value: u64| {
            for place in text[at..at + width].iter_mut().rev() {
                // A remainder below ten.
                *place = b'0' + (value % 10) as u8;
                value /= 10;
            }
        };
        let (days, ms) = (self.0 / DAY_MS, self.0 % DAY_MS);
        let (year, month, day) = civil(days);
        put(0, 4, year);
        put(5, 2, month);
        put(8, 2, day);
        put(11, 2, ms / 3_600_000);
        put(14, 2, ms / 60_000 % 60);
        put(17, 2, ms / 1000 % 60);
        put(20, 3, ms % 1000);
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// The date `days` days after 1970-01-01 in the Gregorian calendar. Every poll is answered with two of these, and a
/// general formatter costs more than all else in that answer.
fn civil(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01: the leap day is the last of its year then.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
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
    fn every_day_is_written_as_chrono_writes_it() {
        let written = |ms: u64| {
            let time = chrono::DateTime::from_timestamp_millis(i64::try_from(ms).unwrap()).unwrap();
            time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
        };
        // The last day of the year 9999 is day 2 932 896. A different time of day on each.
        for day in 0..=LATEST_MS / DAY_MS {
            let ms = day * DAY_MS + day * 30_011 % DAY_MS;
            if day % 97 == 0 || day % 365 < 3 {
                assert_eq!(Timestamp::from_millis(ms).to_string(), written(ms));
            }
        }
        assert_eq!(
            Timestamp::from_millis(LATEST_MS).to_string(),
            written(LATEST_MS)
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
