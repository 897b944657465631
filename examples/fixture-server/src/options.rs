//! The command line.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use mcp_tasks::Limits;
use tracing::level_filters::LevelFilter;

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: fixture-server --http ADDR | --stdio [OPTION…]
  --http ADDR           listen on ADDR, such as 127.0.0.1:4000 (port 0: any that is free); the endpoint is /mcp
  --stdio               serve standard input and output
  --store STORE         memory (default) | sqlite:PATH
  --owner-from-bearer   over HTTP the bearer token is the owner (401 without); default: whoever holds a task's id
  --lease-ms N          how long a worker's lease lasts; a heartbeat is a third of it (default 15000)
  --min-retention-ms N  how long an outcome stays readable at the least (default 0)
  --max-per-owner N     tasks of one owner
  --max-tasks N         tasks in all
  --max-ttl-ms N        the longest lifetime of a task
  --log LEVEL           off | error | warn (default) | info | debug | trace, on stderr";

/// What the command line says.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) transport: Transport,
    pub(crate) store: Store,
    pub(crate) owner_from_bearer: bool,
    pub(crate) limits: Limits,
    pub(crate) log: LevelFilter,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http(SocketAddr),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Sqlite(PathBuf),
}

impl Options {
    /// Reads the arguments after the program's name; `None` when help is asked for, an error names the wrong one.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, String> {
        let mut arguments = arguments.into_iter();
        let mut transport = None;
        let mut store = Store::Memory;
        let mut owner_from_bearer = false;
        let mut log = LevelFilter::WARN;
        let mut limits = Limits::default();
        limits.poll_interval = Duration::from_millis(200);
        limits.min_result_retention = Duration::ZERO;
        while let Some(argument) = arguments.next() {
            let option = argument.to_string_lossy().into_owned();
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{option} needs a value"))
            };
            let chosen = match option.as_str() {
                "-h" | "--help" => return Ok(None),
                "--stdio" => Some(Transport::Stdio),
                "--http" => Some(Transport::Http(address(&option, &value()?)?)),
                _ => None,
            };
            if let Some(chosen) = chosen {
                if transport.replace(chosen).is_some() {
                    return Err(format!(
                        "{option}: give one transport, --http ADDR or --stdio"
                    ));
                }
                continue;
            }
            match option.as_str() {
                "--store" => store = Store::parse(value()?)?,
                "--owner-from-bearer" => owner_from_bearer = true,
                "--lease-ms" => {
                    let ms = number(&option, &value()?, 3)?;
                    limits.lease = Duration::from_millis(ms);
                    limits.heartbeat = Duration::from_millis(ms / 3);
                }
                "--min-retention-ms" => {
                    limits.min_result_retention =
                        Duration::from_millis(number(&option, &value()?, 0)?);
                }
                "--max-per-owner" => limits.tasks_per_owner = number(&option, &value()?, 1)?,
                "--max-tasks" => limits.tasks = number(&option, &value()?, 1)?,
                "--max-ttl-ms" => {
                    limits.max_ttl = Duration::from_millis(number(&option, &value()?, 1)?);
                    limits.default_ttl = limits.default_ttl.min(limits.max_ttl);
                }
                "--log" => {
                    let level = value()?;
                    let level = level.to_string_lossy();
                    log = level
                        .parse()
                        .map_err(|_| format!("--log: {level:?} is no level"))?;
                }
                unknown => return Err(format!("{unknown:?} is no option")),
            }
        }
        let transport = transport.ok_or("give --http ADDR or --stdio")?;
        Ok(Some(Self {
            transport,
            store,
            owner_from_bearer,
            limits,
            log,
        }))
    }
}

impl Store {
    fn parse(value: OsString) -> Result<Self, String> {
        // A path need not be Unicode; what comes before it is.
        let text = value.to_string_lossy();
        let later = |what| Err(format!("--store: {what} stores come in a later version"));
        match text.split_once(':') {
            None if text == "memory" => Ok(Self::Memory),
            Some(("sqlite", "")) => Err("--store: sqlite: needs a path".into()),
            Some(("sqlite", path)) => Ok(Self::Sqlite(match value.to_str() {
                Some(_) => path.into(),
                None => return Err(format!("--store: the path {path:?} is not Unicode")),
            })),
            Some(("postgres" | "postgresql", _)) => later("PostgreSQL"),
            Some(("redis" | "rediss", _)) => later("Redis"),
            _ => Err(format!(
                "--store: expected memory or sqlite:PATH, got {text:?}"
            )),
        }
    }
}

fn address(option: &str, value: &OsString) -> Result<SocketAddr, String> {
    let text = value.to_string_lossy();
    text.parse().map_err(|_| {
        format!("{option}: expected an address and a port, such as 127.0.0.1:4000, got {text:?}")
    })
}

fn number(option: &str, value: &OsString, least: u64) -> Result<u64, String> {
    let text = value.to_string_lossy();
    match text.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!(
            "{option}: expected a whole number of at least {least}, got {text:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_whole_command_line() {
        let options = parse(
            "--http 127.0.0.1:0 --store sqlite:a:b.db --owner-from-bearer --lease-ms 3000 --min-retention-ms 5 \
             --max-per-owner 3 --max-tasks 4 --max-ttl-ms 1000 --log off",
        )
        .unwrap()
        .unwrap();
        assert_eq!(
            options.transport,
            Transport::Http("127.0.0.1:0".parse().unwrap())
        );
        assert_eq!(options.store, Store::Sqlite("a:b.db".into()));
        assert!(options.owner_from_bearer);
        let limits = options.limits;
        assert_eq!(limits.lease, Duration::from_secs(3));
        assert_eq!(limits.heartbeat, Duration::from_secs(1));
        assert_eq!(limits.min_result_retention, Duration::from_millis(5));
        assert_eq!((limits.tasks_per_owner, limits.tasks), (3, 4));
        assert_eq!(limits.max_ttl, Duration::from_secs(1));
        assert_eq!(limits.default_ttl, Duration::from_secs(1));
        assert_eq!(limits.poll_interval, Duration::from_millis(200));
    }

    #[test]
    fn wrong_arguments_are_named() {
        let cases = [
            ("", "--http"),
            ("--stdio --http 127.0.0.1:1", "one transport"),
            ("--http", "--http needs"),
            ("--http somewhere", "\"somewhere\""),
            ("--stdio --lease-ms 0", "--lease-ms"),
            ("--stdio --max-tasks -1", "\"-1\""),
            ("--stdio --store sqlite:", "needs a path"),
            ("--stdio --store postgres://h/d", "later version"),
            ("--stdio --store redis://h", "later version"),
            ("--stdio --store file", "\"file\""),
            ("--stdio --fast", "\"--fast\""),
        ];
        for (line, part) in cases {
            let why = parse(line).unwrap_err();
            assert!(why.contains(part), "{line}: {why}");
        }
        assert!(parse("--help").unwrap().is_none());
    }
}
