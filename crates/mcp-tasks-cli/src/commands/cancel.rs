//! `mcp-tasks cancel`: ends a task.

use mcp_tasks::client::TaskStatus;

use crate::{
    exit::Exit,
    failure::Failure,
    session::{Place, Session},
    show::{Show, ShowArgs, Task, task_lines},
    target::TargetArgs,
};

/// Cancel a task
///
/// The exit code is 0 if the task is cancelled now, and 1 if it had ended in another way already.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The task's id; without a target: of a task that was left running, or the beginning of its id
    id: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let place = Place::find(&options.id, &options.target)?;
    let how = options.target.how();
    let mut session = Session::look(&place, &how, Show::new(options.show)).await?;
    let ended = cancel(&mut session, &place).await;
    session.close(ended).await
}

async fn cancel(session: &mut Session, place: &Place) -> Result<Exit, Failure> {
    let task = session.task(place)?;
    let info = session
        .unless_stopped(task.cancel())
        .await
        .map_err(|failure| {
            if failure.kind() == Exit::Expired {
                session.forget(&task);
            }
            failure.about(&place.id)
        })?;
    if info.status != TaskStatus::Cancelled {
        let words = format!(
            "task {} was not cancelled: it is {} already",
            task.id(),
            info.status
        );
        return Err(Failure::new(words).about(task.id()));
    }
    session.forget(&task);
    let shown = Task::from(&info);
    session.show.document(&shown, &task_lines(&shown));
    Ok(Exit::Done)
}
