//! The server's process.

use std::{
    net::SocketAddr,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::failure::Failure;

/// How long a worker's lease lasts: a task whose server was killed goes on after that.
const LEASE_MS: &str = "1000";
/// How long the server may take to end when its input ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running server. It ends when this is dropped, or when this process ends in whatever way: its input ends then.
pub(super) struct Server {
    child: Child,
    pid: u32,
    addr: SocketAddr,
    input: Option<ChildStdin>,
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server on this file, and waits until it listens.
    pub(super) async fn start(db: &Path, addr: SocketAddr) -> Result<Self, Failure> {
        let failed = Failure::at("the server could not be started");
        let program = std::env::current_exe().map_err(|e| failed(&e))?;
        let mut child = Command::new(program)
            .arg("demo-server")
            .arg("--db")
            .arg(db)
            .args(["--addr", &addr.to_string(), "--lease-ms", LEASE_MS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| failed(&e))?;
        let (Some(pid), Some(input), Some(output)) =
            (child.id(), child.stdin.take(), child.stdout.take())
        else {
            return Err(failed(&"it has no standard input and output"));
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).await.map_err(|e| failed(&e))?;
        let line = line.trim_end();
        let listens = line
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_suffix("/mcp")?.parse().ok());
        let Some(addr) = listens else {
            let status = child.wait().await.map_err(|e| failed(&e))?;
            return Err(match line.strip_prefix("error: ") {
                Some(why) => failed(&why),
                None => failed(&format!("it ended at once ({status})")),
            });
        };
        Ok(Self {
            child,
            pid,
            addr,
            input: Some(input),
            _output: output,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// Completes when the process has ended.
    pub(super) async fn ended(&mut self) -> Failure {
        match self.child.wait().await {
            Ok(status) => Failure::new(format!("the server ended by itself ({status})")),
            Err(error) => Failure::at("the server is lost")(&error),
        }
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    pub(super) async fn kill(&mut self) -> Result<ExitStatus, Failure> {
        let failed = Failure::at("the server could not be killed");
        self.child.start_kill().map_err(|e| failed(&e))?;
        self.child.wait().await.map_err(|e| failed(&e))
    }

    /// Lets the process end by itself, kills it if it does not, and waits until it is gone.
    pub(super) async fn stop(mut self) {
        self.input = None;
        if tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .is_err()
        {
            let _ = self.kill().await;
        }
    }
}
