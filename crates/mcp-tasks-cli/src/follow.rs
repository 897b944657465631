//! Following a task to its end, or leaving it: what `call`, `resume` and `result` have in common.
//!
//! The first Ctrl-C (or a SIGTERM, or a terminal that hangs up) leaves the task: its ticket is kept. Another Ctrl-C right
//! after the first cancels it. A call that is no task cannot be left: Ctrl-C withdraws it.

use std::time::Duration;

use mcp_tasks::client::{RemoteTask, TaskClientError, TaskEvent, TaskStream};
use rmcp::model::CallToolResult;

use crate::{
    ask::AnswerArgs,
    exit::Exit,
    failure::Failure,
    session::Session,
    show::{Event, Task},
    signals::Signal,
    span,
};

/// How a task is followed.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct FollowArgs {
    /// Give up waiting after this time; the task runs on and can be resumed
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub(crate) timeout: Option<Duration>,
    /// How long after a first Ctrl-C, which detaches, a second one cancels the task
    #[arg(long, value_name = "TIME", value_parser = span::parse, default_value = "2s")]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
}

/// What is followed.
pub(crate) struct Following<'a> {
    pub(crate) tool: Option<&'a str>,
    /// Whether it is a task, or will be one.
    pub(crate) is_task: bool,
    pub(crate) grace: Duration,
}

impl Session {
    /// Tells what happens, up to the result.
    pub(crate) async fn follow(
        &mut self,
        mut events: TaskStream,
        following: &Following<'_>,
    ) -> Result<Exit, Failure> {
        let mut leaving: Option<Signal> = None;
        let mut ended = false;
        loop {
            let event = tokio::select! {
                biased;
                signal = self.signals.next() => match (events.task(), leaving) {
                    (Some(task), _) => return self.leave(&task, signal, following.grace).await,
                    (None, None) if following.is_task => {
                        leaving = Some(signal);
                        self.show.note(
                            "stopping as soon as the server has named the task; once more withdraws the call",
                        );
                        continue;
                    }
                    (None, _) => {
                        drop(events);
                        return Err(signal.failure().and("the call was withdrawn"));
                    }
                },
                event = events.next() => event,
            };
            let Some(event) = event else {
                return Err(TaskClientError::Closed.into());
            };
            match event {
                TaskEvent::Created(info) => {
                    self.show.event(&Event::Created {
                        tool: following.tool.unwrap_or_default(),
                        task: Task::from(&info),
                    });
                    if let (Some(task), Some(signal)) = (events.task(), leaving) {
                        return self.leave(&task, signal, following.grace).await;
                    }
                }
                TaskEvent::Status(info) => {
                    ended = info.status.is_terminal();
                    self.show.event(&Event::Status {
                        task: Task::from(&info),
                    });
                }
                TaskEvent::Progress(step) => self.show.event(&Event::Progress {
                    progress: step.progress,
                    total: step.total,
                    message: step.message.as_deref(),
                }),
                TaskEvent::Result(result) => {
                    return Ok(self.finished(following.tool, events.task().as_ref(), &result));
                }
                TaskEvent::Error(error) => {
                    return Err(self.failed(events.task().as_ref(), ended, error));
                }
                // A later version of the library may tell more.
                _ => {}
            }
        }
    }

    /// The result is there.
    pub(crate) fn finished(
        &self,
        tool: Option<&str>,
        task: Option<&RemoteTask>,
        result: &CallToolResult,
    ) -> Exit {
        self.show.result(tool, task.map(RemoteTask::id), result);
        if let Some(task) = task {
            self.forget(task);
        }
        match result.is_error {
            Some(true) => {
                self.show.note("mcp-tasks: the tool says that it failed");
                Exit::Failed
            }
            _ => Exit::Done,
        }
    }

    /// There is none. The ticket of a task that may run on is kept; `ended`: the server has said that it does not.
    fn failed(&self, task: Option<&RemoteTask>, ended: bool, error: TaskClientError) -> Failure {
        self.asker.leave();
        let failure = Failure::from(error);
        let Some(task) = task else {
            return failure;
        };
        let failure = failure.about(task.id());
        match failure.kind() {
            Exit::Cancelled | Exit::Expired => self.forget(task),
            Exit::Failed if ended => self.forget(task),
            // It is not known here, or the server is not well: a ticket that is there stays.
            Exit::Failed => {}
            _ => {
                return match self.keep(task) {
                    Ok(resume) => {
                        failure.and(&format!("the task may run on; resume with: {resume}"))
                    }
                    Err(other) => failure.and(other.message()),
                };
            }
        }
        failure
    }

    /// Leaves a task running, unless another Ctrl-C follows.
    async fn leave(
        &mut self,
        task: &RemoteTask,
        signal: Signal,
        grace: Duration,
    ) -> Result<Exit, Failure> {
        self.asker.leave();
        self.show.close();
        let resume = self.keep(task)?;
        self.detached(task.id(), &resume);
        if signal != Signal::Interrupt || grace.is_zero() {
            return Ok(Exit::Detached);
        }
        self.show.note(&format!(
            "Ctrl-C again within {} cancels the task",
            span::words(grace)
        ));
        tokio::select! {
            _ = self.signals.next() => {}
            () = tokio::time::sleep(grace) => return Ok(Exit::Detached),
        }
        self.show.note("cancelling the task");
        let info = self
            .unless_stopped(task.cancel())
            .await
            .map_err(|failure| failure.about(task.id()))?;
        self.show.event(&Event::Status {
            task: Task::from(&info),
        });
        self.cancelled(task, &info)
    }

    /// What a cancel came to.
    pub(crate) fn cancelled(
        &self,
        task: &RemoteTask,
        info: &mcp_tasks::client::TaskInfo,
    ) -> Result<Exit, Failure> {
        use mcp_tasks::client::TaskStatus;
        match info.status {
            TaskStatus::Cancelled => {
                self.forget(task);
                Err(
                    Failure::exit(Exit::Cancelled, format!("task {} was cancelled", task.id()))
                        .about(task.id()),
                )
            }
            status => Err(Failure::new(format!(
                "task {} was not cancelled: it is {status} already",
                task.id()
            ))
            .about(task.id())),
        }
    }

    /// Says that a task was left running, and what that means.
    pub(crate) fn detached(&self, task: &str, resume: &str) {
        match self.speaks_to_a_command() {
            true => self.show.note(
                "detached: the server was started for this call and ends with it; the task goes on when the server is \
                 started again, if it keeps its tasks in a file or a database",
            ),
            false => self.show.note("detached: the task runs on"),
        }
        self.show.event(&Event::Detached { task, resume });
    }
}
