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

use super::answer::Refusal;
use super::config::{ConnectionsConfig, ProxyConfig};
use super::stall::{Unstalled, keep_alive};
use super::{ProxyError, Shared, Side};

/// What a connection reads ahead, and the longest head with its request line. A longer one is answered 431 before all of it is there.
const HEAD_BUFFER: usize = 128 << 10;

/// Connections beyond the bound that are told so at a time, and for how long they are listened to.
const TURNED_AWAY: usize = 64;
const TURNED_AWAY_FOR: Duration = Duration::from_secs(2);

/// What is said to a client whose head does not end. hyper closes the connection without an answer then.
const REQUEST_TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The pause after a connection that could not be accepted: most likely, too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

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
    pub async fn start(config: ProxyConfig, is_verbose: bool) -> Result<Self, ProxyError> {
        let (listen, admin_listen, drain) = (config.listen, config.admin_listen, config.drain);
        let clients = bind(listen).await?;
        let admins = match admin_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let address = clients.local_addr().map_err(|source| ProxyError::Listen { address: listen, source })?;
        let admin_address = admins.as_ref().and_then(|admins| admins.local_addr().ok());
        let shared = Arc::new(Shared::new(config, is_verbose)?);
        let stopped = shared.stop.subscribe();
        let mut servers = vec![tokio::spawn(accept(clients, Arc::clone(&shared), stopped.clone(), Side::Clients))];
        if let Some(admins) = admins {
            servers.push(tokio::spawn(accept(admins, Arc::clone(&shared), stopped, Side::Admins)));
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

async fn bind(address: SocketAddr) -> Result<TcpListener, ProxyError> {
    TcpListener::bind(address).await.map_err(|source| ProxyError::Listen { address, source })
}

/// Accepts until it is told to stop, and ends once every connection has.
async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>, side: Side) {
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(shared.connections.max_connections.get() as usize));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let place = Arc::clone(&places).try_acquire_owned().map(|place| (place, Some(side)));
                    // Beyond the bound, a few at a time are told so, and others are closed.
                    let place = place.or_else(|_| Arc::clone(&turned_away).try_acquire_owned().map(|place| (place, None)));
                    if let Ok((place, side)) = place {
                        let served = converse(stream, Arc::clone(&shared), stopped.clone(), side);
                        connections.spawn(async move {
                            served.await;
                            drop(place);
                        });
                    }
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
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
async fn converse(stream: TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>, side: Option<Side>) {
    // Without it the last piece of an answer may wait for the client's acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let _ = keep_alive(&stream);
    let Ok(local) = stream.local_addr() else { return };
    let ConnectionsConfig { header_timeout, write_timeout, .. } = shared.connections;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move {
            Ok::<_, Infallible>(match side {
                Some(side) => shared.answer(request, side, local).await,
                None => Refusal::TooManyConnections.answer(),
            })
        }
    });
    let mut stream = pin!(Unstalled::new(stream, write_timeout));
    let end = {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(if side.is_some() { header_timeout } else { header_timeout.min(TURNED_AWAY_FOR) })
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
    if end.is_err_and(|error| error.is_timeout()) && stream.has_unanswered() {
        let _ = stream.write_all(REQUEST_TIMEOUT).await;
        let _ = stream.shutdown().await;
    }
}
