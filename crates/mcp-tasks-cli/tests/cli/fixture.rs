//! Running `fixture-server`.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

/// The program: `$FIXTURE_SERVER`, or the one beside ours, brought up to date.
pub(crate) fn path() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os("FIXTURE_SERVER") {
            return path.into();
        }
        // TARGET/PROFILE/mcp-tasks
        let ours = Path::new(env!("CARGO_BIN_EXE_mcp-tasks"));
        let directory = ours.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--quiet", "-p", "fixture-server", "--target-dir"])
            .arg(directory.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
        directory.join(format!("fixture-server{}", std::env::consts::EXE_SUFFIX))
    });
    program.to_str().unwrap()
}

/// A SQLite file of its own.
pub(crate) struct Store {
    _directory: tempfile::TempDir,
    option: String,
}

impl Store {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        Self {
            option: format!("sqlite:{}", path.to_str().unwrap()),
            _directory: directory,
        }
    }

    pub(crate) fn arguments(&self) -> [&str; 4] {
        ["--lease-ms", "600", "--store", &self.option]
    }
}

/// A server that listens; killed when dropped.
pub(crate) struct Listening {
    child: Child,
    pub(crate) url: String,
}

impl Listening {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::at("127.0.0.1:0", arguments)
    }

    fn at(addr: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(path())
            .args(["--http", addr])
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = lines.next().expect("it ended").unwrap();
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.to_owned();
            }
            eprintln!("{line}");
        };
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| eprintln!("server: {line}"))
        });
        Self { child, url }
    }

    /// Kills it (SIGKILL), and starts another one in its place.
    pub(crate) fn again(mut self, arguments: &[&str]) -> Self {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let addr = self.url.strip_prefix("http://").unwrap();
        Self::at(addr.strip_suffix("/mcp").unwrap(), arguments)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
