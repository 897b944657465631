//! `mcp-tasks watch`: a task's status up to its end, without taking part in it.

use std::time::Duration;

use mcp_tasks::client::{TaskInfo, TaskStatus};

use crate::{
    exit::Exit,
    failure::Failure,
    session::{Place, Session},
    show::{Event, Show, ShowArgs, Task},
    span,
    target::TargetArgs,
};

/// Show a task's status whenever it changes, until the task has ended
///
/// Only looks: no question is answered and no result is fetched. The exit code tells how the task ended.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The task's id; without a target: of a task that was left running, or the beginning of its id
    id: String,
    #[command(flatten)]
    target: TargetArgs,
    /// Give up after this time
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let place = Place::find(&options.id, &options.target)?;
    let how = options.target.how();
    let mut session = Session::look(&place, &how, Show::new(options.show)).await?;
    session.tell_connected();
    let deadline = async {
        match options.timeout {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = watch(&mut session, &place) => ended,
        () = deadline => Err(Failure::exit(Exit::Deadline, "the task has not ended in that time").about(&place.id)),
    };
    session.close(ended).await
}

async fn watch(session: &mut Session, place: &Place) -> Result<Exit, Failure> {
    let announced = session.announced.clone();
    let mut told = None;
    loop {
        let task = session.task(place)?;
        let info = match session.unless_stopped(task.get()).await {
            Ok(info) => info,
            Err(failure) => {
                if failure.kind() == Exit::Expired {
                    session.forget(&task);
                }
                return Err(failure.about(&place.id));
            }
        };
        if told.as_ref() != Some(&info) {
            session.show.event(&Event::Status {
                task: Task::from(&info),
            });
        }
        if info.status.is_terminal() {
            session.show.close();
            if info.status == TaskStatus::Cancelled {
                session.forget(&task);
            }
            return ended(session, info);
        }
        let interval = info.poll_interval.unwrap_or(Duration::from_secs(1));
        let interval = interval.max(Duration::from_millis(100));
        let asks = info.status == TaskStatus::InputRequired;
        told = Some(info);
        if asks && !session.speaks_to_a_command() {
            // The server may have sent the question to us, who look on, and would not send it to anybody else meanwhile.
            session.step_aside(interval).await?;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = announced.notified() => {}
            signal = session.signals.next() => return Err(signal.failure()),
        }
    }
}

fn ended(session: &Session, info: TaskInfo) -> Result<Exit, Failure> {
    let words = format!("task {} is {}", info.task_id, info.status);
    match info.status {
        TaskStatus::Completed => {
            // On a terminal the status was only on the bar.
            session.show.note(&words);
            Ok(Exit::Done)
        }
        TaskStatus::Cancelled => Err(Failure::exit(Exit::Cancelled, words).about(&info.task_id)),
        _ => Err(Failure::new(words).about(&info.task_id)),
    }
}
