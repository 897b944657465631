//! `mcp-tasks resume`: goes on with a task that was left running.

use crate::{
    exit::Exit, failure::Failure, follow::FollowArgs, session::Place, show::ShowArgs,
    state::Tickets, target::TargetArgs,
};

/// Go on with a task that was left running, as if it never had been
///
/// The server is the one of the task's ticket; a command is started again in the directory where it was. Answers that
/// were given are not asked for again. ConnectOptions are not kept: give --header and --bearer again.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The task's id, or the beginning of it; may be left out if only one task was left running
    id: Option<String>,
    /// The task that was left last
    #[arg(long, conflicts_with = "id")]
    last: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let place = match &options.id {
        Some(id) => Place::find(id, &options.target)?,
        None => Place::of(Tickets::of_user()?.only(options.last)?)?,
    };
    super::result::go_on(&place, &options.target, options.follow, options.show).await
}
