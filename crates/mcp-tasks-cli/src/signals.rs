//! Being told to stop: Ctrl-C (also when a prompt reads the keys), SIGTERM, SIGHUP.

use tokio::sync::mpsc;

use crate::failure::Failure;

/// What told us to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Interrupt,
    Terminate,
    HangUp,
}

impl Signal {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "Ctrl-C",
            Self::Terminate => "SIGTERM",
            Self::HangUp => "SIGHUP",
        }
    }

    /// For a command that it ended.
    pub(crate) fn failure(self) -> Failure {
        let number = match self {
            Self::HangUp => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        };
        Failure::signal(self.name(), number)
    }
}

/// Signals as they come, none lost.
pub(crate) struct Signals {
    sender: mpsc::UnboundedSender<Signal>,
    signals: mpsc::UnboundedReceiver<Signal>,
}

/// Tells of a Ctrl-C that came as a key.
#[derive(Debug, Clone)]
pub(crate) struct Interrupter(mpsc::UnboundedSender<Signal>);

impl Interrupter {
    pub(crate) fn interrupt(&self) {
        let _ = self.0.send(Signal::Interrupt);
    }
}

impl Signals {
    /// From now on signals come here, and end nothing by themselves.
    pub(crate) fn listen() -> Self {
        let (sender, signals) = mpsc::unbounded_channel();
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            for (kind, what) in [
                (SignalKind::interrupt(), Signal::Interrupt),
                (SignalKind::terminate(), Signal::Terminate),
                (SignalKind::hangup(), Signal::HangUp),
            ] {
                let sender = sender.clone();
                if let Ok(mut heard) = signal(kind) {
                    tokio::spawn(async move {
                        while heard.recv().await.is_some() && sender.send(what).is_ok() {}
                    });
                }
            }
        }
        #[cfg(not(unix))]
        {
            let sender = sender.clone();
            tokio::spawn(async move {
                while tokio::signal::ctrl_c().await.is_ok()
                    && sender.send(Signal::Interrupt).is_ok()
                {}
            });
        }
        Self { sender, signals }
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter(self.sender.clone())
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.signals.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
