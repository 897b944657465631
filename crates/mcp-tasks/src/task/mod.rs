//! The task state machine: pure, without I/O, clock or async.
//!
//! A [`TaskRecord`] is the durable state of one task. It never changes in place: [`TaskRecord::apply`] takes a
//! [`Change`] and the present time and returns the next record (with `revision + 1`) or a [`Refusal`]. The state is
//! neutral between protocol generations; [`crate::wire`] maps it to what each of them says.

mod change;
mod id;
mod input;
mod outcome;
mod permission;
mod record;
mod time;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod transitions;

pub use change::{Change, Fence, Refusal};
pub use id::{InvalidTaskId, Owner, TaskId, WorkerId};
pub use input::{Answer, Input, InputKind, InputState, Question};
#[cfg(feature = "sqlite")]
pub(crate) use outcome::present;
pub use outcome::{ErrorObject, Outcome, RawJson};
pub use permission::Permissions;
pub use record::{Generation, NewTask, Origin, Phase, State, TaskRecord};
pub use time::{Clock, Timestamp};
