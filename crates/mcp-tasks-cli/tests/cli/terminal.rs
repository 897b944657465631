//! `mcp-tasks` in a pseudo-terminal, and somebody who reads and types there.

use std::{
    io::{Read, Write},
    sync::{Arc, Condvar, Mutex},
    time::Instant,
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::program::{SOON, User};

pub(crate) const ENTER: &str = "\r";
pub(crate) const ESC: &str = "\u{1b}";
pub(crate) const DOWN: &str = "\u{1b}[B";
pub(crate) const CTRL_C: &str = "\u{3}";

pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    shown: Arc<Shown>,
    /// How much of what was shown has been read.
    read: usize,
    _master: Box<dyn MasterPty + Send>,
}

#[derive(Default)]
struct Shown {
    bytes: Mutex<(Vec<u8>, bool)>,
    more: Condvar,
}

impl Terminal {
    pub(crate) fn start(user: &User, arguments: &[&str]) -> Self {
        let size = PtySize {
            rows: 40,
            cols: 160,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_mcp-tasks"));
        command.args(arguments);
        command.cwd(user.path());
        command.env("MCP_TASKS_STATE", user.path());
        command.env("MCP_TASKS_PROTOCOL", user.protocol);
        command.env("NO_COLOR", "1");
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let shown = Arc::<Shown>::default();
        let (mut output, seen) = (pair.master.try_clone_reader().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                let read = output.read(&mut bytes).unwrap_or(0);
                let mut all = seen.bytes.lock().unwrap();
                all.0.extend_from_slice(&bytes[..read]);
                all.1 = read == 0;
                seen.more.notify_all();
                if all.1 {
                    return;
                }
            }
        });
        Self {
            child,
            keys: pair.master.take_writer().unwrap(),
            shown,
            read: 0,
            _master: pair.master,
        }
    }

    /// Waits until this is shown, after what was waited for before.
    #[track_caller]
    pub(crate) fn expect(&mut self, words: &str) -> &mut Self {
        let until = Instant::now() + SOON;
        let mut bytes = self.shown.bytes.lock().unwrap();
        loop {
            let text = plain(&bytes.0);
            let rest = &text[self.read.min(text.len())..];
            if let Some(at) = rest.find(words) {
                self.read += at + words.len();
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(
                !bytes.1 && !left.is_zero(),
                "{words:?} was not shown, but:\n{rest}\nof all:\n{text}"
            );
            bytes = self.shown.more.wait_timeout(bytes, left).unwrap().0;
        }
        drop(bytes);
        self
    }

    /// The rest of the line.
    pub(crate) fn line(&mut self) -> String {
        let from = self.read;
        self.expect("\n");
        let bytes = self.shown.bytes.lock().unwrap();
        plain(&bytes.0)[from..self.read].trim().to_owned()
    }

    pub(crate) fn keys(&mut self, keys: &str) -> &mut Self {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
        self
    }

    /// Waits for the end; the exit code, and all that was shown.
    pub(crate) fn ended(mut self) -> (u32, String) {
        let until = Instant::now() + SOON;
        let mut bytes = self.shown.bytes.lock().unwrap();
        while !bytes.1 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let _ = self.child.kill();
                panic!("mcp-tasks hangs after:\n{}", plain(&bytes.0));
            }
            bytes = self.shown.more.wait_timeout(bytes, left).unwrap().0;
        }
        let text = plain(&bytes.0);
        drop(bytes);
        (self.child.wait().unwrap().exit_code(), text)
    }
}

/// What was written without the control sequences.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' if rest.peek() == Some(&'[') => {
                rest.next();
                for c in rest.by_ref() {
                    if ('@'..='~').contains(&c) {
                        break;
                    }
                }
            }
            '\u{1b}' => drop(rest.next()),
            c => plain.push(c),
        }
    }
    plain
}
