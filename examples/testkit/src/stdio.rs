//! A client of a server on standard input and output.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Command, ExitStatus, Stdio as Pipe},
    sync::mpsc::{Receiver, channel},
    time::Instant,
};

use serde_json::Value;

use crate::{
    Client, PATIENCE, Process,
    client::{Ids, answer_to, answers, notification},
};

/// A client, and the server's process.
#[derive(Debug)]
pub struct Stdio {
    process: Process,
    stdin: ChildStdin,
    /// The server's messages; it ends with the server's output.
    messages: Receiver<Value>,
    ids: Ids,
}

impl Stdio {
    /// Starts the server.
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command.stdin(Pipe::piped()).stdout(Pipe::piped()));
        let child = process.child();
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            panic!("the server has no pipes");
        };
        let (read, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                match serde_json::from_str(&line) {
                    Ok(message) => {
                        if read.send(message).is_err() {
                            return;
                        }
                    }
                    Err(error) => panic!("{line:?} on stdout: {error}"),
                }
            }
        });
        Self {
            process,
            stdin,
            messages,
            ids: Ids::default(),
        }
    }

    fn send(&mut self, message: &Value) {
        if let Err(error) = writeln!(self.stdin, "{message}").and_then(|()| self.stdin.flush()) {
            panic!("the server does not read: {error}");
        }
    }

    /// Closes the server's input and waits until it has ended.
    pub fn close(self) -> ExitStatus {
        let Self {
            mut process,
            stdin,
            messages,
            ..
        } = self;
        drop(stdin);
        let until = Instant::now() + PATIENCE;
        // The messages end when the process has closed its output.
        while messages
            .recv_timeout(until.saturating_duration_since(Instant::now()))
            .is_ok()
        {}
        match process.child().wait() {
            Ok(status) => status,
            Err(error) => panic!("waiting for the server: {error}"),
        }
    }

    /// Kills the server, as a crash would.
    pub fn kill(self) {
        self.process.kill();
    }

    /// Reads messages until one is as wanted; returns that.
    pub fn read_until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let message = self.read(until);
            if wanted(&message) {
                return message;
            }
        }
    }

    fn read(&mut self, until: Instant) -> Value {
        match self
            .messages
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            Ok(message) => message,
            Err(error) => panic!("no message from the server: {error}"),
        }
    }
}

impl Client for Stdio {
    fn exchange(
        &mut self,
        method: &str,
        params: Value,
        seen: &mut dyn FnMut(&Value) -> Option<Value>,
    ) -> Value {
        let (id, request) = self.ids.request(method, params);
        self.send(&request);
        let until = Instant::now() + PATIENCE;
        loop {
            let message = self.read(until);
            if answers(&message, &id) {
                return message;
            }
            if let Some(answer) = answer_to(&message, seen) {
                self.send(&answer);
            }
        }
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.send(&notification(method, params));
    }
}
