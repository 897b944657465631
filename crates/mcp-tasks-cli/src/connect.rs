//! Opening the connection, for every command: the one place that chooses transport, credentials and protocol.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use mcp_tasks::client::{TaskClient, TaskClientBuilder};
use rmcp::ClientHandler;
use tokio::{process::Command, sync::Notify};

use crate::{
    failure::Failure,
    show::Show,
    signals::Signals,
    target::{ConnectOptions, Target},
    text,
};

/// How many lines of a server's stderr are kept for when it fails.
const KEPT_LINES: usize = 20;

/// The last words of a server process on its stderr.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    /// All of them, each on a line that says whose it is.
    pub(crate) fn told(&self) -> Option<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told: Vec<String> = lines
            .iter()
            .map(|line| format!("  server: {line}"))
            .collect();
        (!told.is_empty()).then(|| told.join("\n"))
    }

    /// Reads them, and shows them at once if `show` is there.
    fn listen(&self, stderr: impl std::io::Read + Send + 'static, show: Option<Show>) {
        let lines = self.0.clone();
        std::thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut line = Vec::new();
            while stderr
                .read_until(b'\n', &mut line)
                .is_ok_and(|bytes| bytes > 0)
            {
                let text = text::line(&String::from_utf8_lossy(&line));
                line.clear();
                if let Some(show) = &show {
                    show.note(&format!("server: {text}"));
                }
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() == KEPT_LINES {
                    lines.pop_front();
                }
                lines.push_back(text);
            }
        });
    }
}

/// A server that is connected.
pub(crate) struct Connected {
    pub(crate) client: TaskClient,
    pub(crate) last_words: LastWords,
}

/// What a connection is made of.
pub(crate) struct Opening<'a> {
    pub(crate) target: &'a Target,
    pub(crate) how: &'a ConnectOptions,
    /// Where a command is run; here if there is none.
    pub(crate) directory: Option<&'a Path>,
    /// Told whenever the server announces a status.
    pub(crate) announced: Arc<Notify>,
}

impl Opening<'_> {
    /// Connects; a signal ends that.
    pub(crate) async fn connect<H: ClientHandler>(
        self,
        handler: H,
        show: &Show,
        signals: &mut Signals,
    ) -> Result<Connected, Failure> {
        let Self {
            target,
            how,
            directory,
            announced,
        } = self;
        let builder = TaskClient::builder(handler)
            .protocol(how.protocol.choice())
            .on_status(move |_| announced.notify_one());
        connect(builder, target, how, directory, show, signals).await
    }
}

async fn connect<H: ClientHandler>(
    builder: TaskClientBuilder<H>,
    target: &Target,
    how: &ConnectOptions,
    directory: Option<&Path>,
    show: &Show,
    signals: &mut Signals,
) -> Result<Connected, Failure> {
    let last_words = LastWords::default();
    let opening = async {
        match target {
            Target::Url(url) => {
                let mut builder = builder;
                for (name, value) in &how.headers {
                    builder = builder.header(name, value);
                }
                if let Some(token) = &how.bearer {
                    builder = builder.bearer(token);
                }
                builder.http(url).await.map_err(Failure::from)
            }
            Target::Command(words) => {
                let command = child(words, directory, show, &last_words)?;
                builder.child(command).await.map_err(Failure::from)
            }
        }
    };
    let opened = tokio::select! {
        opened = opening => opened,
        signal = signals.next() => return Err(signal.failure()),
    };
    match opened {
        Ok(client) => Ok(Connected { client, last_words }),
        Err(failure) => {
            let failure = failure.within(&format!("connecting to {target}"));
            Err(match last_words.told() {
                Some(told) => failure.and(&told),
                None => failure,
            })
        }
    }
}

fn child(
    words: &[String],
    directory: Option<&Path>,
    show: &Show,
    last_words: &LastWords,
) -> Result<Command, Failure> {
    let failed = Failure::at("the server's standard error");
    let Some((program, arguments)) = words.split_first() else {
        return Err(Failure::usage("there is no command after `--`"));
    };
    let (reader, writer) = std::io::pipe().map_err(|e| failed(&e))?;
    last_words.listen(reader, show.is_verbose().then(|| show.clone()));
    let mut command = Command::new(program);
    command.args(arguments).stderr(writer);
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    // Ctrl-C is for us: we say what becomes of the task, and end the server by closing its input.
    #[cfg(unix)]
    command.process_group(0);
    Ok(command)
}

/// `2025-11-25 (G1)`: the revision and the generation of tasks it has.
pub(crate) fn protocol_words(client: &TaskClient) -> String {
    match generation(client) {
        Some(generation) => format!("{} ({generation})", client.protocol_version()),
        None => format!("{} (no tasks)", client.protocol_version()),
    }
}

/// The generation of tasks that is spoken; none if the server has no tasks.
pub(crate) fn generation(client: &TaskClient) -> Option<&'static str> {
    match client.protocol_version() {
        "2025-11-25" if client.supports_tasks() => Some("G1"),
        "2026-07-28" if client.supports_tasks() => Some("G2"),
        _ => None,
    }
}

/// What the server calls itself.
pub(crate) fn server_name(client: &TaskClient) -> String {
    let info = client.peer().peer_info();
    info.and_then(|info| Some(info.server_info.as_ref()?.name.clone()))
        .unwrap_or_default()
}
