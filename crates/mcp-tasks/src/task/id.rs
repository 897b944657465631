//! Who and what a record names: the task, its owner, the worker that runs it.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// The id of a task: ours (122 random bits, UUID v4) unless a handler proposed one.
///
/// 2025-11-25 `basic/utilities/tasks`, Task ID Requirements; without an authorization context the id is the only
/// thing that protects a task, so it has to be unguessable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(Arc<str>);

/// Why a proposed task id was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a proposed task id is 22 to 128 characters of [A-Za-z0-9_.:-], got {got}")]
pub struct InvalidTaskId {
    got: String,
}

impl TaskId {
    /// A new random id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }

    /// An id that a handler proposes, unguessable by the handler's word: 22 to 128 characters of `[A-Za-z0-9_.:-]`.
    ///
    /// # Errors
    /// [`InvalidTaskId`] if the length or a character is outside that.
    pub fn proposed(id: impl Into<String>) -> Result<Self, InvalidTaskId> {
        let id = id.into();
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
        if !(22..=128).contains(&id.len()) {
            return Err(InvalidTaskId {
                got: format!("{} characters", id.chars().count()),
            });
        }
        match id.bytes().find(|b| !allowed(*b)) {
            Some(b) => Err(InvalidTaskId {
                got: format!("the character {:?}", char::from(b)),
            }),
            None => Ok(Self(id.into())),
        }
    }

    /// An id read from a store or a message; it need not exist.
    pub fn from_stored(id: &str) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TaskId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({})", self.0)
    }
}

/// The principal a task is bound to, never a connection or a session.
///
/// 2025-11-25 `basic/utilities/tasks`, Task Isolation and Access Control.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// Nobody in particular: whoever holds the unguessable id may use the task. Such tasks are never listed.
    Bearer,
    /// A named principal (a user, a tenant, the one user of a stdio server).
    Principal(Arc<str>),
}

impl Owner {
    /// The principal `name`.
    pub fn principal(name: impl Into<Arc<str>>) -> Self {
        Self::Principal(name.into())
    }

    /// The principal's name, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Bearer => None,
            Self::Principal(name) => Some(name),
        }
    }
}

/// The process that runs a task's body. It holds one lease for all its tasks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// A new random worker id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }

    /// A worker id read from a store.
    pub fn from_stored(id: &str) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerId({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposed_ids_are_checked() {
        assert!(TaskId::proposed("job-0123456789abcdefghij").is_ok());
        assert!(TaskId::proposed("x".repeat(128)).is_ok());
        let short = TaskId::proposed("job-17").unwrap_err().to_string();
        assert!(
            short.contains("22 to 128") && short.contains("6 characters"),
            "{short}"
        );
        assert!(TaskId::proposed("x".repeat(129)).is_err());
        let slash = TaskId::proposed("a/bcdefghijklmnopqrstuvwxyz").unwrap_err();
        assert!(slash.to_string().contains("'/'"), "{slash}");
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(TaskId::random(), TaskId::random());
        assert_eq!(TaskId::random().as_str().len(), 36);
    }
}
