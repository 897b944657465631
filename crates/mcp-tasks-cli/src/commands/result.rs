//! `mcp-tasks result`: a task's result, by its id.

use mcp_tasks::client::CallOptions;

use crate::{
    exit::Exit,
    failure::Failure,
    follow::{FollowArgs, Following},
    session::{Place, Session},
    show::{Show, ShowArgs},
    target::TargetArgs,
};

/// Wait for a task's result and print it, as `call` does
///
/// The exit code is that of the call. Questions of the task are asked here.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The task's id; without a target: of a task that was left running, or the beginning of its id
    id: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let place = Place::find(&options.id, &options.target)?;
    go_on(&place, &options.target, options.follow, options.show).await
}

/// Follows a task that is there.
pub(crate) async fn go_on(
    place: &Place,
    target: &TargetArgs,
    follow: FollowArgs,
    show: ShowArgs,
) -> Result<Exit, Failure> {
    let answers = follow.answers.clone();
    let mut session = Session::at(place, &target.how(), answers, Show::new(show)).await?;
    session.tell_connected();
    let ended = followed(&mut session, place, &follow).await;
    session.close(ended).await
}

async fn followed(
    session: &mut Session,
    place: &Place,
    follow: &FollowArgs,
) -> Result<Exit, Failure> {
    let mut options = CallOptions::new();
    if let Some(timeout) = follow.timeout {
        options = options.deadline(timeout);
    }
    let task = session.task(place)?.with_options(options);
    let tool = place.kept.as_ref().and_then(|kept| kept.ticket.tool());
    let following = Following {
        tool,
        is_task: true,
        grace: follow.grace,
    };
    session.follow(task.events(), &following).await
}
