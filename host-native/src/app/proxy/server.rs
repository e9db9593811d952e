//! Connections: accepted, served, and ended in good order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::answer::Refusal;
use super::config::ProxyConfig;
use super::stall::{Unstalled, keep_alive};
use super::{ProxyError, ReplyBody, Shared, admin};

/// How long a connection may be open between two requests, and a head may take.
const IDLE: Duration = Duration::from_mins(3);

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

/// Who calls at a port.
#[derive(Clone, Copy, Debug)]
enum Side {
    Clients,
    Admins,
}

/// Accepts until it is told to stop, and ends once every connection has.
async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>, side: Side) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, Arc::clone(&shared), stopped.clone(), side));
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

/// Serves one connection. Ends at once when the client goes away, and every request of it with it.
async fn converse(stream: TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>, side: Side) {
    // Without it the last piece of an answer may wait for the client's acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let _ = keep_alive(&stream);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request, side).await) }
    });
    let stream = pin!(Unstalled::new(stream));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection ends is the client's affair.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(shared: &Arc<Shared>, request: Request<Incoming>, side: Side) -> Response<ReplyBody> {
    match side {
        Side::Clients => shared.serve(request).await,
        Side::Admins => {
            let page = admin::answer(shared, request.method(), request.uri().path(), request.headers());
            page.unwrap_or_else(|| Refusal::NoSuchAddress.answer())
        }
    }
}
