//! Connections: accepted, served, and ended in good order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::config::{ConnectionsConfig, ProxyConfig};
use super::error::ProxyError;
use super::write_timeout::{WriteTimeout, keep_alive};
use super::{ListenerKind, Shared, StartError};

/// What a connection reads ahead, and the longest head with its request line. A longer one is answered 431 before all of it is there.
const HEAD_BUFFER: usize = 128 << 10;

/// Connections beyond the bound that are told so at a time, and for how long they are listened to.
const MAX_REJECTING: usize = 64;
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What is said to a client whose head does not end. hyper closes the connection without an answer then.
const REQUEST_TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The pause after a connection that could not be accepted: most likely, too many files are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// A proxy at work. Dropping it ends every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    drain: Duration,
    shared: Arc<Shared>,
    servers: Vec<JoinHandle<()>>,
}

/// How the calls ended that were out when a proxy was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Calls that were cut, because they took longer than the bound.
    pub cut: usize,
}

impl Proxy {
    /// Listens and serves, on the runtime that the caller runs in; with `is_verbose`, writes a line for each answer to the
    /// standard error.
    pub async fn start(config: ProxyConfig, is_verbose: bool) -> Result<Self, StartError> {
        let (listen, admin_listen, drain) = (config.listen, config.admin_listen, config.drain);
        let clients = bind(listen).await?;
        let admins = match admin_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let address = clients.local_addr().map_err(|source| StartError::Listen { address: listen, source })?;
        let admin_address = admins.as_ref().and_then(|admins| admins.local_addr().ok());
        let shared = Arc::new(Shared::new(config, is_verbose)?);
        let stopped = shared.stop.subscribe();
        let mut servers =
            vec![tokio::spawn(accept(clients, Arc::clone(&shared), stopped.clone(), ListenerKind::Clients))];
        if let Some(admins) = admins {
            servers.push(tokio::spawn(accept(admins, Arc::clone(&shared), stopped, ListenerKind::Admins)));
        }
        Ok(Self { address, admin_address, drain, shared, servers })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin pages are, if not there.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Accepts no more connections, refuses everybody who waits, and lets the calls that are out end within the
    /// configured bound.
    pub async fn stop(mut self) -> Drained {
        self.shared.stop.send_replace(true);
        self.shared.gate.core().shutdown();
        let all = async {
            for server in &mut self.servers {
                let _ = server.await;
            }
        };
        let cut = match timeout(self.drain, all).await {
            Ok(()) => 0,
            Err(_) => self.shared.gate.core().with(|machine, _| machine.active_leases()),
        };
        Drained { cut }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.servers.iter().for_each(JoinHandle::abort);
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Accepts until it is told to stop, and ends once every connection has.
async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>, kind: ListenerKind) {
    let mut connections = JoinSet::new();
    let slots = Arc::new(Semaphore::new(shared.connections.max_connections.get() as usize));
    let rejecting = Arc::new(Semaphore::new(MAX_REJECTING));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let slot = Arc::clone(&slots).try_acquire_owned().map(|slot| (slot, Some(kind)));
                    // Beyond the bound, a few at a time are told so, and others are closed.
                    let slot = slot.or_else(|_| Arc::clone(&rejecting).try_acquire_owned().map(|slot| (slot, None)));
                    if let Ok((slot, kind)) = slot {
                        let served = serve_connection(stream, Arc::clone(&shared), stopped.clone(), kind);
                        connections.spawn(async move {
                            served.await;
                            drop(slot);
                        });
                    }
                }
                Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(_) = connections.join_next() => {}
            _ = stopped.changed() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection; without a side, only says that there are too many. Ends at once when the client goes away, and every request
/// of it with it.
async fn serve_connection(
    stream: TcpStream,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
    kind: Option<ListenerKind>,
) {
    // Without it the last piece of an answer may wait for the client's acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let _ = keep_alive(&stream);
    let Ok(local) = stream.local_addr() else { return };
    let ConnectionsConfig { header_timeout, write_timeout, .. } = shared.connections;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move {
            Ok::<_, Infallible>(match kind {
                Some(kind) => shared.handle(request, kind, local).await,
                None => ProxyError::TooManyConnections.response(),
            })
        }
    });
    let mut stream = pin!(WriteTimeout::new(stream, write_timeout));
    let end = {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(if kind.is_some() { header_timeout } else { header_timeout.min(REJECT_TIMEOUT) })
            .max_buf_size(HEAD_BUFFER)
            .serve_connection(TokioIo::new(stream.as_mut()), service);
        let mut connection = pin!(connection);
        tokio::select! {
            end = connection.as_mut() => end,
            _ = stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    // Otherwise, how a connection ends is the client's affair. One that was idle is closed without a word.
    if end.is_err_and(|error| error.is_timeout()) && stream.has_unanswered_bytes() {
        let _ = stream.write_all(REQUEST_TIMEOUT).await;
        let _ = stream.shutdown().await;
    }
}
