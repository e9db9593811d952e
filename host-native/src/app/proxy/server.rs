//! Accepts, serves and shuts down connections.

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
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::config::{ConnectionsConfig, ProxyConfig};
use super::connection_limit::{ConnectionLimit, ConnectionSlot};
use super::head_scanner::HeadScanner;
use super::write_timeout::{WriteTimeout, keep_alive};
use super::{ListenerKind, Shared, StartError};
use crate::share::Share;

/// The read buffer of a connection, in bytes, and the maximum length of a request head. A longer head is
/// answered 431 before it has been read completely.
const HEAD_BUFFER: usize = 128 << 10;

/// How long a connection beyond the limits may take to send its request.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The response to a client that does not complete its request head. hyper closes such a connection without a
/// response.
const REQUEST_TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The delay after a failed accept; the usual cause is the limit of open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// A running proxy. Dropping it closes every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    drain: Duration,
    shared: Arc<Shared>,
    servers: Vec<JoinHandle<()>>,
}

/// The result of stopping a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The number of calls that were aborted because they exceeded the drain timeout.
    pub cut: usize,
}

impl Proxy {
    /// Binds the listeners and serves them on the current runtime. Connects to the store of shared limits
    /// first, if limits are shared. With `is_verbose`, writes a line for each response to standard error.
    pub async fn start(config: ProxyConfig, is_verbose: bool) -> Result<Self, StartError> {
        let (listen, admin_listen, drain) = (config.listen, config.admin_listen, config.drain);
        let (share, sharing) = match &config.share {
            Some(settings) => {
                let share = Share::connect(settings).await?;
                let sharing = share.describe().await;
                (Some(share), Some(sharing))
            }
            None => (None, None),
        };
        let clients = bind(listen).await?;
        let admins = match admin_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let address = clients.local_addr().map_err(|source| StartError::Listen { address: listen, source })?;
        let admin_address = admins.as_ref().and_then(|admins| admins.local_addr().ok());
        let shared = Arc::new(Shared::new(config, share, sharing, is_verbose)?);
        let stopped = shared.stop.subscribe();
        let mut servers =
            vec![tokio::spawn(accept(clients, Arc::clone(&shared), stopped.clone(), ListenerKind::Clients))];
        if let Some(admins) = admins {
            servers.push(tokio::spawn(accept(admins, Arc::clone(&shared), stopped, ListenerKind::Admins)));
        }
        Ok(Self { address, admin_address, drain, shared, servers })
    }

    /// Returns the address of the client listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Describes with which processes limits are shared, for people. `None` if they are not shared.
    #[must_use]
    pub fn sharing(&self) -> Option<&str> {
        self.shared.sharing.as_deref()
    }

    /// Returns the address of the admin listener, if it is separate.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Stops accepting connections, rejects all waiting requests, lets the calls in flight end within the
    /// configured drain timeout, and gives the shares of limits back.
    pub async fn stop(self) -> Drained {
        self.stop_unless(std::future::pending()).await
    }

    /// Stops like [`Proxy::stop`], and aborts the calls in flight once `abort` has ended.
    pub(super) async fn stop_unless(mut self, abort: impl Future<Output = ()>) -> Drained {
        self.shared.stop.send_replace(true);
        self.shared.gate.core().shutdown();
        let all = async {
            for server in &mut self.servers {
                let _ = server.await;
            }
        };
        let drained = tokio::select! {
            drained = timeout(self.drain, all) => drained.is_ok(),
            () = abort => false,
        };
        let cut = if drained { 0 } else { self.shared.gate.core().with(|machine, _| machine.active_leases()) };
        // A share is given back once its calls have ended.
        self.servers.iter().for_each(JoinHandle::abort);
        self.shared.gate.leave_share().await;
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

/// Accepts connections until the proxy stops, and returns once all of them are closed.
async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>, kind: ListenerKind) {
    let mut connections = JoinSet::new();
    let limit = ConnectionLimit::new(shared.connections);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, client)) => {
                    if let Some(slot) = limit.admit(client.ip()) {
                        connections.spawn(serve_connection(stream, Arc::clone(&shared), stopped.clone(), kind, slot));
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

/// Serves one connection. When the client disconnects, the connection and all its requests end at once.
async fn serve_connection(
    stream: TcpStream,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
    kind: ListenerKind,
    slot: ConnectionSlot,
) {
    // Otherwise the last chunk of a response may wait for the acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let _ = keep_alive(&stream);
    let Ok(local) = stream.local_addr() else { return };
    let ConnectionsConfig { header_timeout, write_timeout, .. } = shared.connections;
    let is_rejected = slot.rejection.is_some();
    let heads = Arc::new(HeadScanner::default());
    let mut stream = pin!(WriteTimeout::new(stream, write_timeout, Arc::clone(&heads)));
    let service = service_fn(move |request| {
        let (shared, rejection, heads) = (Arc::clone(&shared), slot.rejection.clone(), Arc::clone(&heads));
        async move {
            Ok::<_, Infallible>(match rejection {
                Some(error) => error.response(),
                None => shared.handle(request, kind, local, &heads).await,
            })
        }
    });
    let end = {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(if is_rejected { header_timeout.min(REJECT_TIMEOUT) } else { header_timeout })
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
    // Other errors concern the client only. An idle connection is closed without a response.
    if end.is_err_and(|error| error.is_timeout()) && stream.has_unanswered_bytes() {
        let _ = stream.write_all(REQUEST_TIMEOUT).await;
        let _ = stream.shutdown().await;
    }
}
