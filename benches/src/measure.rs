//! Figures: medians, percentiles, tables, and what the system knows of a process.

use std::{fs, time::Duration};

/// The median; zero of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The value that `percent` of `sorted` do not exceed.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

/// `count` in `time`, per second.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

pub(crate) fn micros(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 10.0 {
        format!("{us:.1} us")
    } else if us < 10_000.0 {
        format!("{us:.0} us")
    } else {
        format!("{:.1} ms", us / 1000.0)
    }
}

pub(crate) fn per_second(rate: f64) -> String {
    format!("{rate:.0}/s")
}

pub(crate) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// `1000000` as `1 000 000`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Prints a table under a heading. The first column is text, the others are figures.
pub(crate) fn table(heading: &str, columns: &[&str], rows: &[Vec<String>]) {
    println!("\n{heading}\n");
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(columns[column].chars().count())
    };
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::from("|");
        for (column, cell) in cells.enumerate() {
            let width = width(column);
            let cell = if column == 0 {
                format!(" {cell:<width$} |")
            } else {
                format!(" {cell:>width$} |")
            };
            text.push_str(&cell);
        }
        println!("{text}");
    };
    line(&mut columns.iter().copied());
    let rules: Vec<String> = (0..columns.len())
        .map(|column| match column {
            0 => "-".repeat(width(column)),
            _ => format!("{}:", "-".repeat(width(column) - 1)),
        })
        .collect();
    line(&mut rules.iter().map(String::as_str));
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

/// One line on where this was measured.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    let build = if cfg!(debug_assertions) {
        "debug build: the figures mean nothing"
    } else {
        "release build"
    };
    format!("{cores} cores, load {load} at the start, {build}")
}

/// The processor time that a process has used so far, where the system tells (Linux).
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let nanos = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(nanos.sum()))
}

/// The resident memory of a process in bytes, where the system tells (Linux).
pub(crate) fn resident(pid: u32) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// A small source of numbers that differ (xorshift); not random enough for anything else.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (seed as u64 + 1).wrapping_mul(0xff51_afd7_ed55_8ccd))
    }

    /// The next, below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (end.max(1) as u64)).unwrap_or(0)
    }
}
