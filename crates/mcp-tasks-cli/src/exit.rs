//! How a command ended, as its exit code: the one table, which `--help`, the man page and `docs/cli.md` show.

use std::process::ExitCode;

/// What `--help` says of exit codes.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    everything the command promises has happened
  1    the tool or its task failed, the server answered with an error, or something of ours failed
  2    the command line is wrong, or nobody is there to answer
  3    the task was cancelled
  4    the task no longer exists: its time to live has passed
  5    the server cannot be reached, was lost, refused us, or broke the protocol
  6    the time given with --timeout has passed, or a request was not answered in time
  7    detached: the task runs on, and `mcp-tasks resume` goes on with it
  8    a task was insisted on (--detach, --ttl), but the server or the tool has none
  130  interrupted (Ctrl-C) with nothing left to resume; likewise 143 (SIGTERM), 129 (SIGHUP)";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    Cancelled,
    Expired,
    Lost,
    Deadline,
    Detached,
    NoTasks,
    /// A signal of this number ended it.
    Signal(u8),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Cancelled => 3,
            Self::Expired => 4,
            Self::Lost => 5,
            Self::Deadline => 6,
            Self::Detached => 7,
            Self::NoTasks => 8,
            Self::Signal(number) => 128 + number,
        }
    }

    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Lost => "lost",
            Self::Deadline => "deadline",
            Self::Detached => "detached",
            Self::NoTasks => "no_tasks",
            Self::Signal(_) => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_table() {
        for exit in [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Cancelled,
            Exit::Expired,
            Exit::Lost,
            Exit::Deadline,
            Exit::Detached,
            Exit::NoTasks,
            Exit::Signal(2),
        ] {
            let start = format!("\n  {:<5}", exit.code());
            assert!(TABLE.contains(&start), "{exit:?}");
        }
    }
}
