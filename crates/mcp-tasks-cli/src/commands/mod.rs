//! The commands, one file each. All of them end with an [`Exit`](crate::exit::Exit) or a
//! [`Failure`](crate::failure::Failure), from which `main` makes the exit code.

pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod result;
pub(crate) mod resume;
pub(crate) mod tools;
pub(crate) mod watch;
