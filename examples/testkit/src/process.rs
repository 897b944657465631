//! A child process that does not outlive its test.

use std::process::{Child, Command};

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        match command.spawn() {
            Ok(child) => Self(child),
            Err(error) => panic!("{command:?} did not start: {error}"),
        }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Ends it without warning, as a crash would.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
