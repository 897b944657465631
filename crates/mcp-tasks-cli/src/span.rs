//! Spans of time on the command line: `500ms`, `90s`, `10m`, `1h30m`, `7d`.

use std::time::Duration;

/// Reads one.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("{text:?} is no span of time: expected one such as 500ms, 90s, 10m, 1h30m or 7d")
    };
    let mut rest = text.trim();
    let mut span = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let ms: u64 = match &rest[..unit] {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[unit..];
        let part = number.checked_mul(ms).map(Duration::from_millis);
        span = part
            .and_then(|part| span.checked_add(part))
            .ok_or_else(wrong)?;
    }
    Ok(span)
}

/// A time to live: a span, or `unlimited`.
pub(crate) fn parse_ttl(text: &str) -> Result<Ttl, String> {
    match text {
        "unlimited" => Ok(Ttl(None)),
        _ => match parse(text) {
            Ok(Duration::ZERO) => Err("a task needs some time to live".to_owned()),
            Ok(span) => Ok(Ttl(Some(span))),
            Err(why) => Err(format!("{why}, or unlimited")),
        },
    }
}

/// A time to live; none is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ttl(pub(crate) Option<Duration>);

/// A span for a person: its largest two units.
pub(crate) fn words(span: Duration) -> String {
    let ms = span.as_millis();
    let two = |big: u128, unit: &str, small: u128, sub: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{sub}"),
    };
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => two(ms / 1000, "s", ms % 1000, "ms"),
        60_000..3_600_000 => two(ms / 60_000, "m", ms / 1000 % 60, "s"),
        3_600_000..86_400_000 => two(ms / 3_600_000, "h", ms / 60_000 % 60, "m"),
        _ => two(ms / 86_400_000, "d", ms / 3_600_000 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_told() {
        for (text, ms) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(words(Duration::from_secs(90)), "1m30s");
        assert_eq!(words(Duration::from_secs(3600)), "1h");
        assert_eq!(words(Duration::from_millis(1500)), "1s500ms");
        assert_eq!(parse_ttl("unlimited"), Ok(Ttl(None)));
    }

    #[test]
    fn what_is_none_is_named() {
        for text in [
            "",
            "10",
            "m",
            "-5s",
            "1.5h",
            "5 s",
            "9999999999999999d",
            "1y",
            "1s2",
            "½s",
        ] {
            assert!(
                parse(text).unwrap_err().contains(&format!("{text:?}")),
                "{text}"
            );
        }
        assert!(parse_ttl("0s").is_err());
    }
}
