//! A link between programs and a server of a test, which the test can cut, stall or slow down.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// What happens to the bytes in one direction.
#[derive(Clone, Copy)]
enum Flow {
    /// They arrive later by this time.
    Delayed(Duration),
    /// They are accepted, and arrive when the flow changes.
    Stalled,
}

/// They arrive at once.
const PASSES: Flow = Flow::Delayed(Duration::ZERO);

#[derive(Clone, Copy)]
struct State {
    /// The port of the server.
    target: u16,
    /// Whether new connections end at once.
    is_cut: bool,
    /// How often all connections were ended.
    cuts: u32,
    requests: Flow,
    replies: Flow,
    /// Whether the keys of shared limits are those of [another version](Link::open_to_other_version).
    is_other_version: bool,
}

/// A link to a port of the loopback interface, for any number of connections. It lasts as long as the
/// runtime.
pub(crate) struct Link {
    port: u16,
    state: watch::Sender<State>,
}

impl Link {
    /// Opens a link to the port `target`.
    pub(crate) async fn open(target: u16) -> Self {
        Self::open_with(target, false).await
    }

    /// Opens a link to the Redis server at the port `target`, which makes the programs behind it ones of
    /// another version of tidegate. Their keys for shared limits are those of version 1, and so are those of
    /// all others for them.
    pub(crate) async fn open_to_other_version(target: u16) -> Self {
        Self::open_with(target, true).await
    }

    async fn open_with(target: u16, is_other_version: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, replies) = (PASSES, PASSES);
        let state = State { target, is_cut: false, cuts: 0, requests, replies, is_other_version };
        let state = watch::Sender::new(state);
        let states = state.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, states.clone()));
            }
        });
        Self { port, state }
    }

    /// The port at which programs reach the server over this link.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections. New ones end at once.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| (state.is_cut, state.cuts) = (true, state.cuts + 1));
    }

    /// Accepts bytes and connections, and passes nothing on.
    pub(crate) fn stall(&self) {
        self.state.send_modify(|state| (state.requests, state.replies) = (Flow::Stalled, Flow::Stalled));
    }

    /// Accepts requests and passes none on. Replies arrive.
    pub(crate) fn stall_requests(&self) {
        self.state.send_modify(|state| state.requests = Flow::Stalled);
    }

    /// Passes requests on, and no replies.
    pub(crate) fn stall_replies(&self) {
        self.state.send_modify(|state| state.replies = Flow::Stalled);
    }

    /// Passes requests on later by `delay`, and replies at once.
    pub(crate) fn delay_requests(&self, delay: Duration) {
        self.state.send_modify(|state| state.requests = Flow::Delayed(delay));
    }

    /// Passes requests on at once, and replies later by `delay`.
    pub(crate) fn delay_replies(&self, delay: Duration) {
        self.state.send_modify(|state| state.replies = Flow::Delayed(delay));
    }

    /// Passes all on later by `delay`, in each direction.
    pub(crate) fn delay(&self, delay: Duration) {
        let flow = Flow::Delayed(delay);
        self.state.send_modify(|state| (state.requests, state.replies) = (flow, flow));
    }

    /// Ends all faults. Stalled bytes of connections that were not cut arrive now.
    pub(crate) fn heal(&self) {
        self.state.send_modify(|state| (state.is_cut, state.requests, state.replies) = (false, PASSES, PASSES));
    }

    /// Ends all connections, and passes new ones to the port `target`.
    pub(crate) fn redirect(&self, target: u16) {
        self.state.send_modify(|state| (state.target, state.cuts) = (target, state.cuts + 1));
    }
}

/// Passes the bytes of one connection on, until one side or the link ends it.
async fn connect(client: TcpStream, mut states: watch::Receiver<State>) {
    let State { target, is_cut, cuts, .. } = *states.borrow();
    if is_cut {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (requests, to_client) = client.into_split();
    let (replies, to_server) = server.into_split();
    select! {
        () = pass_on(requests, to_server, states.clone(), |state| state.requests) => {}
        () = pass_on(replies, to_client, states.clone(), |state| state.replies) => {}
        _ = states.wait_for(|state| state.cuts != cuts) => {}
    }
}

/// Passes bytes on in one direction until it ends.
async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut states: watch::Receiver<State>,
    flow: fn(&State) -> Flow,
) {
    // A test sends few bytes, so the queue needs no bound.
    let (sender, mut queue) = mpsc::unbounded_channel();
    let is_other_version = states.borrow().is_other_version;
    let read = async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if is_other_version {
                swap_versions(&mut buffer[..count]);
            }
            if sender.send((Instant::now(), buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    };
    let write = async move {
        while let Some((at, bytes)) = queue.recv().await {
            let Ok(delay) = states.wait_for(|state| matches!(flow(state), Flow::Delayed(_))).await.map(|state| {
                match flow(&state) {
                    Flow::Delayed(delay) => delay,
                    Flow::Stalled => Duration::ZERO,
                }
            }) else {
                return;
            };
            sleep_until(at + delay).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

/// Replaces the keys of version 1 by those of version 2, and the other way round. A key arrives in one piece,
/// since commands and replies are short.
fn swap_versions(bytes: &mut [u8]) {
    for start in 0..bytes.len() {
        if let [b't', b'g', version @ (b'1' | b'2'), b':', b'{', ..] = &mut bytes[start..] {
            *version = if *version == b'1' { b'2' } else { b'1' };
        }
    }
}
