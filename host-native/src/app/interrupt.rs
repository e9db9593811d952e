//! Ctrl-C and its kin.

use std::io;

/// Who asks a program to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// A person, by Ctrl-C.
    Interrupt,
    /// Another program, which kills after a while what has not ended by itself.
    Terminate,
}

/// Listens for the signals that ask a program to stop.
#[derive(Debug)]
pub(crate) struct Interrupts {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    /// Starts to listen; from now on the signals no longer end the program by themselves.
    #[cfg(unix)]
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Starts to listen; from now on the signals no longer end the program by themselves.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Ends when the next signal comes.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
    }

    /// Ends when the next signal comes.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> StopSignal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        StopSignal::Interrupt
    }
}
