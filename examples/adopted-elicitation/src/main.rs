//! A tool that was written for rmcp and asks its user, with rmcp's own `elicit`. As a task its question waits with the
//! task; for a client of 2026-07-28, where a server may not ask by itself, it becomes an answer to the call.
//!
//!     cargo run -p adopted-elicitation
#![forbid(unsafe_code)]

use std::error::Error;

use mcp_tasks::{TaskSupport, Tasks};
use rmcp::{
    Peer, RoleServer, elicit_safe, handler::server::wrapper::Parameters, service::ElicitationError,
    tool, tool_router,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The server as it was before there were tasks.
struct Tables;

#[derive(Deserialize, JsonSchema)]
struct Table {
    people: u32,
}

/// What the user is asked for.
#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// Whose table it is.
    name: String,
}

elicit_safe!(Booking);

#[tool_router(server_handler)]
impl Tables {
    #[tool(description = "Books a table, in whose name it asks")]
    async fn book(
        &self,
        Parameters(Table { people }): Parameters<Table>,
        peer: Peer<RoleServer>,
    ) -> Result<String, String> {
        let question = format!("A table for {people}: in whose name?");
        match peer.elicit::<Booking>(question).await {
            Ok(Some(Booking { name })) => Ok(format!("{name} has a table for {people}")),
            Ok(None) | Err(ElicitationError::UserDeclined | ElicitationError::UserCancelled) => {
                Err("no table was booked".to_owned())
            }
            Err(error) => Err(format!("nobody could be asked: {error}")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tasks = Tasks::builder()
        .augment("book", TaskSupport::Optional)
        .build()?;
    Ok(tasks.serve_stdio(Tables).await?)
}
