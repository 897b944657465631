//! The tickets of tasks that were left running: one file each, in a directory of the user's own.
//!
//! A file is written whole under another name and then renamed, and each task has a name of its own: processes that
//! detach at the same time do not meet. ConnectOptions are never in it; a command's words are.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use mcp_tasks::{client::Ticket, task::Timestamp};
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, target::Target, text};

/// The version of the files.
const VERSION: u32 = 1;

/// A ticket and what else its resumption needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    version: u32,
    /// When it was detached, in milliseconds since 1970.
    saved_at_ms: u64,
    /// Where the command was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) directory: Option<PathBuf>,
    pub(crate) ticket: Ticket,
}

/// A file that is no ticket.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) file: PathBuf,
    pub(crate) why: String,
}

/// The directory of tickets.
#[derive(Debug, Clone)]
pub(crate) struct Tickets(PathBuf);

impl Kept {
    pub(crate) fn new(ticket: Ticket, target: &Target, directory: Option<PathBuf>) -> Self {
        let here = || std::env::current_dir().ok();
        Self {
            version: VERSION,
            saved_at_ms: Timestamp::now().as_millis(),
            directory: target
                .is_command()
                .then(|| directory.or_else(here))
                .flatten(),
            ticket,
        }
    }

    pub(crate) fn saved_at(&self) -> Timestamp {
        Timestamp::from_millis(self.saved_at_ms)
    }

    /// Where its server is.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        Target::of(self.ticket.endpoint()).ok_or_else(|| {
            Failure::new(format!(
                "the ticket of task {} is for {}, which this program cannot reach",
                self.ticket.task_id(),
                self.ticket.endpoint()
            ))
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let kept: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match kept.version {
            VERSION => Ok(kept),
            other => Err(format!(
                "version {other} of ticket files is not known here, only {VERSION} is"
            )),
        }
    }
}

impl Tickets {
    /// The user's directory: `$MCP_TASKS_STATE`, else `mcp-tasks/tickets` in `$XDG_STATE_HOME` or `~/.local/state`.
    pub(crate) fn of_user() -> Result<Self, Failure> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(directory) = set("MCP_TASKS_STATE") {
            return Ok(Self(directory.into()));
        }
        let base = set("XDG_STATE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| std::env::home_dir().map(|home| home.join(".local").join("state")));
        let base = base.ok_or_else(|| {
            Failure::new(
                "there is no home directory to keep tickets in: set MCP_TASKS_STATE to a directory",
            )
        })?;
        Ok(Self(base.join("mcp-tasks").join("tickets")))
    }

    /// Keeps a ticket, in place of an earlier one of the same task.
    pub(crate) fn save(&self, kept: &Kept) -> Result<(), Failure> {
        let file = self.file_of(&kept.ticket);
        self.write(&file, kept).map_err(|error| {
            Failure::new(format!(
                "the ticket could not be kept in {}: {error}",
                file.display()
            ))
        })
    }

    fn write(&self, file: &Path, kept: &Kept) -> io::Result<()> {
        make_private(&self.0)?;
        // Readable for its owner only, as all temporary files of this crate are.
        let mut temporary = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(&self.0)?;
        serde_json::to_writer(&mut temporary, kept)?;
        temporary.write_all(b"\n")?;
        temporary.as_file().sync_all()?;
        temporary.persist(file).map_err(|error| error.error)?;
        Ok(())
    }

    /// Forgets a ticket, if it is there.
    pub(crate) fn remove(&self, ticket: &Ticket) -> Result<(), Failure> {
        let file = self.file_of(ticket);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::new(format!(
                "the ticket {} could not be removed: {error}",
                file.display()
            ))),
            _ => Ok(()),
        }
    }

    /// All tickets, the oldest first, and the files that are none.
    pub(crate) fn all(&self) -> Result<(Vec<Kept>, Vec<Broken>), Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!(
                "the tickets in {} cannot be read: {error}",
                self.0.display()
            ))
        };
        let files = match std::fs::read_dir(&self.0) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(failed(&error)),
        };
        let (mut kept, mut broken) = (Vec::new(), Vec::new());
        for file in files {
            let file = file.map_err(|e| failed(&e))?.path();
            if file.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = match std::fs::read_to_string(&file) {
                // Another process has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(error.to_string()),
                Ok(text) => Kept::read(&text),
            };
            match read {
                Ok(ticket) => kept.push(ticket),
                Err(why) => broken.push(Broken { file, why }),
            }
        }
        kept.sort_by_key(|kept| kept.saved_at_ms);
        broken.sort_by(|a, b| a.file.cmp(&b.file));
        Ok((kept, broken))
    }

    /// The ticket of the task with this id, or whose id alone begins like this.
    pub(crate) fn find(&self, id: &str) -> Result<Kept, Failure> {
        let (kept, broken) = self.all()?;
        let is = |kept: &&Kept| kept.ticket.task_id() == id;
        let begins = |kept: &&Kept| kept.ticket.task_id().starts_with(id);
        let found: Vec<&Kept> = match kept.iter().any(|kept| is(&kept)) {
            true => kept.iter().filter(is).collect(),
            false => kept.iter().filter(begins).collect(),
        };
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(Failure::usage(format!(
                "no ticket here is of a task {id:?}: `mcp-tasks list --local` shows those that are; for any other task \
                 name its server too, as a URL or a command after `--`"
            ))
            .and_broken(&broken)),
            several => {
                let several: Vec<String> = several
                    .iter()
                    .map(|kept| format!("  {} at {}", kept.ticket.task_id(), kept.ticket.endpoint()))
                    .collect();
                Err(Failure::usage(format!(
                    "{id:?} may be any of these tasks:\n{}\ngive more of the id, or name the server too",
                    several.join("\n")
                )))
            }
        }
    }

    /// The ticket of this task at this server, if there is one.
    pub(crate) fn of_task(&self, id: &str, target: &Target) -> Option<Kept> {
        let (kept, _) = self.all().ok()?;
        kept.into_iter().find(|kept| {
            kept.ticket.task_id() == id
                && Target::of(kept.ticket.endpoint()).as_ref() == Some(target)
        })
    }

    /// The only ticket, or with `last` the one that was kept last.
    pub(crate) fn only(&self, last: bool) -> Result<Kept, Failure> {
        let (mut kept, broken) = self.all()?;
        if (last || kept.len() == 1)
            && let Some(kept) = kept.pop()
        {
            return Ok(kept);
        }
        Err(match kept.len() {
            0 => Failure::usage("no task was left running: there is no ticket here")
                .and_broken(&broken),
            number => Failure::usage(format!(
                "{number} tasks were left running: give the id of one, or --last; `mcp-tasks list --local` shows them"
            )),
        })
    }

    fn file_of(&self, ticket: &Ticket) -> PathBuf {
        let plain = |c: char| match c {
            c if c.is_ascii_alphanumeric() || c == '-' => c,
            _ => '_',
        };
        let id: String = ticket.task_id().chars().take(40).map(plain).collect();
        let whole = format!("{:?} {}", ticket.endpoint(), ticket.task_id());
        self.0
            .join(format!("{id}-{:016x}.json", fnv1a(whole.as_bytes())))
    }
}

impl Failure {
    fn and_broken(self, broken: &[Broken]) -> Self {
        broken
            .iter()
            .fold(self, |failure, broken| failure.and(&broken.to_string()))
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} is no ticket, and was left alone: {}",
            self.file.display(),
            text::line(&self.why)
        )
    }
}

/// The directory, with what leads to it, for its owner only.
fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(directory)
}

/// Tells names apart; the same in every version of this program.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn kept(task: &str, url: &str, at: u64) -> Kept {
        let ticket = format!(
            r#"{{"version":1,"endpoint":{{"url":"{url}"}},"server":"s","protocol":"2025-11-25","task":"{task}"}}"#
        );
        Kept {
            version: VERSION,
            saved_at_ms: at,
            directory: None,
            ticket: Ticket::from_json(&ticket).unwrap(),
        }
    }

    #[test]
    fn tickets_are_kept_found_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let tickets = Tickets(directory.path().join("a").join("b"));
        assert!(tickets.all().unwrap().0.is_empty());
        assert_eq!(tickets.only(true).unwrap_err().kind(), Exit::Usage);
        let (one, two) = (
            kept("abc/../x", "http://a/", 2),
            kept("abd", "http://a/", 1),
        );
        tickets.save(&one).unwrap();
        tickets.save(&one).unwrap();
        assert_eq!(tickets.only(false).unwrap().ticket, one.ticket);
        tickets.save(&two).unwrap();
        tickets.save(&kept("abd", "http://b/", 3)).unwrap();
        let (all, broken) = tickets.all().unwrap();
        let ids: Vec<&str> = all.iter().map(|kept| kept.ticket.task_id()).collect();
        assert_eq!((ids, broken.len()), (vec!["abd", "abc/../x", "abd"], 0));
        assert_eq!(tickets.find("abc").unwrap().ticket, one.ticket);
        for (id, what) in [
            ("ab", "any of these"),
            ("abd", "any of these"),
            ("b", "no ticket here"),
            ("", "any of"),
        ] {
            let failure = tickets.find(id).unwrap_err();
            assert_eq!(failure.kind(), Exit::Usage);
            assert!(format!("{failure:?}").contains(what), "{failure:?}");
        }
        let b = Target::Url("http://b/".to_owned());
        assert_eq!(tickets.of_task("abd", &b).unwrap().saved_at_ms, 3);
        assert_eq!(tickets.only(true).unwrap().saved_at_ms, 3);
        assert!(tickets.only(false).is_err());
        tickets.remove(&one.ticket).unwrap();
        tickets.remove(&one.ticket).unwrap();
        assert_eq!(tickets.all().unwrap().0.len(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_them() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let tickets = Tickets(directory.path().join("mcp-tasks").join("tickets"));
        let kept = kept("t", "http://a/", 1);
        tickets.save(&kept).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&tickets.0), 0o700);
        assert_eq!(mode(&tickets.file_of(&kept.ticket)), 0o600);
    }

    #[test]
    fn broken_files_are_named_and_the_others_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let tickets = Tickets(directory.path().to_owned());
        tickets.save(&kept("t", "http://a/", 1)).unwrap();
        let good = serde_json::to_string(&kept("t", "http://a/", 1)).unwrap();
        for (name, text) in [
            ("1.json", "{"),
            ("2.json", &*good.replacen(":1", ":9", 1)),
            ("3.json", ""),
            ("half.tmp", "not looked at"),
        ] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        std::fs::create_dir(directory.path().join("4.json")).unwrap();
        let (all, broken) = tickets.all().unwrap();
        assert_eq!((all.len(), broken.len()), (1, 4));
        assert!(broken[1].to_string().contains("version 9"), "{}", broken[1]);
        let failure = format!("{:?}", tickets.find("x").unwrap_err());
        assert!(
            failure.contains("1.json") && failure.contains("4.json"),
            "{failure}"
        );
    }
}
