//! One command's connection to its server, from the handshake to the end, with all that belongs to it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mcp_tasks::client::{RemoteTask, TaskClient, Ticket};
use tokio::sync::Notify;

use crate::{
    ask::{AnswerArgs, Asker},
    connect::{self, Connected, LastWords, Opening},
    exit::Exit,
    failure::Failure,
    show::{Event, Show},
    signals::Signals,
    state::{Kept, Tickets},
    target::{ConnectOptions, Target, TargetArgs},
    text,
};

/// How long saying good-bye may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// A task and its server, as the command line and the tickets name them.
pub(crate) struct Place {
    pub(crate) target: Target,
    /// The whole id.
    pub(crate) id: String,
    pub(crate) kept: Option<Kept>,
}

impl Place {
    /// With a target the id is taken as it is; without one it is (or begins) the id of a ticket.
    pub(crate) fn find(id: &str, target: &TargetArgs) -> Result<Self, Failure> {
        if crate::target::looks_like_url(id) {
            return Err(Failure::usage(format!(
                "{id:?} is a URL: the task's id comes first, then the target"
            )));
        }
        match target.given()? {
            Some(target) => {
                let kept = Tickets::of_user()
                    .ok()
                    .and_then(|tickets| tickets.of_task(id, &target));
                Ok(Self {
                    target,
                    id: id.to_owned(),
                    kept,
                })
            }
            None => Self::of(Tickets::of_user()?.find(id)?),
        }
    }

    /// Where a ticket leads.
    pub(crate) fn of(kept: Kept) -> Result<Self, Failure> {
        Ok(Self {
            target: kept.target()?,
            id: kept.ticket.task_id().to_owned(),
            kept: Some(kept),
        })
    }
}

impl Place {
    fn directory(&self) -> Option<PathBuf> {
        self.kept.as_ref()?.directory.clone()
    }

    fn ticket(&self) -> Option<&Ticket> {
        self.kept.as_ref().map(|kept| &kept.ticket)
    }
}

/// A connection.
pub(crate) struct Session {
    pub(crate) client: TaskClient,
    pub(crate) show: Show,
    pub(crate) signals: Signals,
    pub(crate) asker: Asker,
    /// Told whenever the server announces a status.
    pub(crate) announced: Arc<Notify>,
    target: Target,
    how: ConnectOptions,
    directory: Option<PathBuf>,
    last_words: LastWords,
}

impl Session {
    /// Connects for a command that answers questions.
    pub(crate) async fn open(
        target: Target,
        how: &ConnectOptions,
        directory: Option<PathBuf>,
        answers: AnswerArgs,
        show: Show,
    ) -> Result<Self, Failure> {
        let signals = Signals::listen();
        let asker = Asker::new(show.clone(), signals.interrupter(), answers);
        Self::with(asker, signals, target, how, directory, show).await
    }

    /// Connects for a command that only looks: questions that come stay open.
    pub(crate) async fn open_to_look(
        target: Target,
        how: &ConnectOptions,
        directory: Option<PathBuf>,
        show: Show,
    ) -> Result<Self, Failure> {
        let signals = Signals::listen();
        let asker = Asker::new(show.clone(), signals.interrupter(), AnswerArgs::default());
        asker.leave();
        Self::with(asker, signals, target, how, directory, show).await
    }

    async fn with(
        asker: Asker,
        mut signals: Signals,
        target: Target,
        how: &ConnectOptions,
        directory: Option<PathBuf>,
        show: Show,
    ) -> Result<Self, Failure> {
        let announced = Arc::new(Notify::new());
        let opening = Opening {
            target: &target,
            how,
            directory: directory.as_deref(),
            announced: announced.clone(),
        };
        let Connected { client, last_words } =
            opening.connect(asker.clone(), &show, &mut signals).await?;
        Ok(Self {
            client,
            show,
            signals,
            asker,
            announced,
            target,
            how: how.clone(),
            directory,
            last_words,
        })
    }

    /// Is gone for a time, and connects again.
    pub(crate) async fn step_aside(&mut self, time: Duration) -> Result<(), Failure> {
        let client = self.client.clone();
        let gone = async {
            let _ = tokio::time::timeout(GOODBYE, client.close()).await;
            tokio::time::sleep(time).await;
        };
        tokio::select! {
            () = gone => {}
            signal = self.signals.next() => return Err(signal.failure()),
        }
        let opening = Opening {
            target: &self.target,
            how: &self.how,
            directory: self.directory.as_deref(),
            announced: self.announced.clone(),
        };
        let connected = opening
            .connect(self.asker.clone(), &self.show, &mut self.signals)
            .await?;
        self.client = connected.client;
        self.last_words = connected.last_words;
        Ok(())
    }

    /// Connects to the server of a task, to take part in it.
    pub(crate) async fn at(
        place: &Place,
        how: &ConnectOptions,
        answers: AnswerArgs,
        show: Show,
    ) -> Result<Self, Failure> {
        let how = how.for_ticket(place.ticket());
        let target = place.target.clone();
        Self::open(target, &how, place.directory(), answers, show).await
    }

    /// Connects to the server of a task, to look at it.
    pub(crate) async fn look(
        place: &Place,
        how: &ConnectOptions,
        show: Show,
    ) -> Result<Self, Failure> {
        let how = how.for_ticket(place.ticket());
        Self::open_to_look(place.target.clone(), &how, place.directory(), show).await
    }

    /// The task, with what its ticket remembers.
    pub(crate) fn task(&self, place: &Place) -> Result<RemoteTask, Failure> {
        match &place.kept {
            Some(kept) => Ok(self.client.resume(&kept.ticket)?),
            None => Ok(self.client.task(&place.id)),
        }
    }

    /// Tells who has answered.
    pub(crate) fn tell_connected(&self) {
        self.show.event(&Event::Connected {
            server: &connect::server_name(&self.client),
            protocol: self.client.protocol_version(),
            generation: connect::generation(&self.client),
        });
    }

    pub(crate) fn speaks_to_a_command(&self) -> bool {
        self.target.is_command()
    }

    /// Does one thing that a signal may end.
    pub(crate) async fn unless_stopped<T, E: Into<Failure>>(
        &mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done.map_err(Into::into),
            signal = self.signals.next() => Err(signal.failure()),
        }
    }

    /// Keeps the task's ticket; gives the command that goes on with it.
    pub(crate) fn keep(&self, task: &RemoteTask) -> Result<String, Failure> {
        let kept = Kept::new(task.ticket(), &self.target, self.directory.clone());
        let saved = Tickets::of_user().and_then(|tickets| tickets.save(&kept));
        match saved {
            Ok(()) => Ok(format!("mcp-tasks resume {}", text::quoted(task.id()))),
            Err(failure) => {
                let by_id = self.by_id(task.id());
                Err(failure
                    .about(task.id())
                    .and(&format!("the task runs on; its result: {by_id}")))
            }
        }
    }

    /// The command that gets the result without a ticket.
    fn by_id(&self, id: &str) -> String {
        match &self.target {
            Target::Url(url) => format!(
                "mcp-tasks result {} {}",
                text::quoted(id),
                text::quoted(url)
            ),
            Target::Command(_) => {
                format!("mcp-tasks result {} -- {}", text::quoted(id), self.target)
            }
        }
    }

    /// Forgets the ticket of a task that needs it no more.
    pub(crate) fn forget(&self, task: &RemoteTask) {
        let removed = Tickets::of_user().and_then(|tickets| tickets.remove(&task.ticket()));
        if let Err(failure) = removed {
            self.show.warn(&format!("mcp-tasks: {}", failure.message()));
        }
    }

    /// Ends the connection, and adds a server's last words to a failure that may be its fault.
    pub(crate) async fn close(self, ended: Result<Exit, Failure>) -> Result<Exit, Failure> {
        let Self {
            client,
            show,
            mut signals,
            last_words,
            ..
        } = self;
        show.close();
        tokio::select! {
            _ = tokio::time::timeout(GOODBYE, client.close()) => {}
            _ = signals.next() => {}
        }
        match ended {
            Err(failure) if failure.kind() == Exit::Lost && !show.is_verbose() => {
                Err(match last_words.told() {
                    Some(told) => failure.and(&told),
                    None => failure,
                })
            }
            ended => ended,
        }
    }
}
