//! Running `fixture-server`.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::soon;

/// The program: `$FIXTURE_SERVER`, or the one beside ours, brought up to date.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os("FIXTURE_SERVER") {
            return path.into();
        }
        // TARGET/PROFILE/client-stream
        let ours = Path::new(env!("CARGO_BIN_EXE_client-stream"));
        let directory = ours.parent().unwrap();
        let mut build = std::process::Command::new(env!("CARGO"));
        build
            .args(["build", "--quiet", "-p", "fixture-server", "--target-dir"])
            .arg(directory.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
        let name = format!("fixture-server{}", std::env::consts::EXE_SUFFIX);
        directory.join(name)
    })
}

/// A command that serves stdio.
pub(crate) fn on_stdio(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("--stdio").args(arguments);
    command
}

/// A server that listens.
pub(crate) struct Listening {
    child: Child,
    pub(crate) url: String,
}

impl Listening {
    /// Starts one on an address such as `127.0.0.1:0`.
    pub(crate) async fn start(addr: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program())
            .args(["--http", addr])
            .args(arguments)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = soon(lines.next_line()).await.unwrap().expect("it ended");
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.to_owned();
            }
            eprintln!("{line}");
        };
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("server: {line}");
            }
        });
        Self { child, url }
    }

    /// Kills it (SIGKILL).
    pub(crate) async fn killed(mut self) -> Self {
        soon(self.child.kill()).await.unwrap();
        self
    }

    /// Starts another one in its place.
    pub(crate) async fn again(self, arguments: &[&str]) -> Self {
        let addr = self.url.strip_prefix("http://").unwrap();
        Self::start(addr.strip_suffix("/mcp").unwrap(), arguments).await
    }
}
