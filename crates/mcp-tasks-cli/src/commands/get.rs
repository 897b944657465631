//! `mcp-tasks get`: one look at a task.

use mcp_tasks::client::TaskStatus;

use crate::{
    exit::Exit,
    failure::Failure,
    session::{Place, Session},
    show::{Show, ShowArgs, Task, task_lines},
    target::TargetArgs,
};

/// Show a task as it is now
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
    let show = Show::new(options.show);
    let mut session = Session::look(&place, &how, show).await?;
    let ended = get(&mut session, &place).await;
    session.close(ended).await
}

async fn get(session: &mut Session, place: &Place) -> Result<Exit, Failure> {
    let task = session.task(place)?;
    let info = session
        .unless_stopped(task.get())
        .await
        .map_err(|failure| {
            if failure.kind() == Exit::Expired {
                session.forget(&task);
            }
            failure.about(&place.id)
        })?;
    if info.status == TaskStatus::Cancelled {
        session.forget(&task);
    }
    let shown = Task::from(&info);
    session.show.document(&shown, &task_lines(&shown));
    Ok(Exit::Done)
}
