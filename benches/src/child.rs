//! Child processes: this program again, as a server or as something whose memory is measured.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::Fallible;

/// A server; it ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) addr: SocketAddr,
    /// Some of the tasks it was filled with.
    pub(crate) tasks: Vec<String>,
}

pub(crate) fn start(args: &[&str]) -> Fallible<(Child, BufReader<ChildStdout>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("a child without output")?;
    Ok((child, BufReader::new(output)))
}

impl Server {
    /// Starts `serve` with these arguments and waits until it listens.
    pub(crate) fn start(args: &[&str]) -> Fallible<Self> {
        let mut all = vec!["serve"];
        all.extend(args);
        let (child, mut lines) = start(&all)?;
        let mut server = Self {
            child,
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            tasks: Vec::new(),
        };
        let mut line = String::new();
        loop {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Err(format!("serve {args:?} ended before it listened").into());
            }
            match line.trim().split_once(' ') {
                Some(("task", id)) => server.tasks.push(id.to_owned()),
                Some(("port", port)) => {
                    server.addr.set_port(port.parse()?);
                    return Ok(server);
                }
                _ => return Err(format!("serve {args:?} said {line:?}").into()),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
