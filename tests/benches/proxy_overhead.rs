//! Measures what the proxy adds to a call.
//!
//! `cargo bench -p tidegate-tests --bench proxy_overhead` sends chat requests over persistent connections on
//! the loopback interface to a server that answers at once, and through the proxy to the same server. Direct
//! and proxied turns alternate in short succession, so other load on the machine affects both. Each pair of
//! turns yields a ratio; the bench prints the median of the ratios with the quartiles, which show how far the
//! machine disturbed the run. With more than one connection, each calls again as soon as it has its response,
//! so server, proxy and load compete for the cores: there, compare calls per second.
//!
//! Without `--bench`, as in `cargo test --benches`, one short turn only shows that it works.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use mimalloc::MiMalloc;
use tidegate_native::app::config::pipeline::SourceText;
use tidegate_native::app::proxy::Proxy;
use tidegate_native::app::proxy::config::ProxyConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// The allocator of the program `tidegate`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The numbers of connections, with the calls of one turn.
const LOADS: [(usize, usize); 3] = [(1, 500), (50, 2_000), (500, 5_000)];

/// The pairs of turns, of one direct and one proxied turn each.
const PAIRS: usize = 20;

const REQUEST: &str = r#"{"model":"small","messages":[{"role":"system","content":"You are a harbour pilot."},{"role":"user","content":"Is the tide in?"}],"max_tokens":64}"#;
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":0,"model":"small","choices":[{"index":0,"message":{"role":"assistant","content":"It is."},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23}}"#;

fn main() -> anyhow::Result<()> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = serve().await?;
        let file = format!(
            "listen = \"127.0.0.1:0\"\n[[providers]]\nname = \"p\"\nbase_url = \"http://{server}/v1\"\n\
             max_parallel = 1000\nlimit = \"fixed\"\n"
        );
        let config = ProxyConfig::parse(&SourceText::new("bench", file), &|_| None)?;
        let proxy = Proxy::start(config, false).await?;
        println!("connections   times in us     direct   proxied   proxied / direct (quartiles)");
        for (connections, calls) in LOADS {
            let (pairs, calls) = if is_bench { (PAIRS, calls) } else { (1, connections) };
            let (mut direct, mut proxied) = (Vec::new(), Vec::new());
            for _ in 0..pairs {
                direct.push(Turn::run(server, connections, calls).await?);
                proxied.push(Turn::run(proxy.address(), connections, calls).await?);
            }
            report(connections, &direct, &proxied);
        }
        proxy.stop().await;
        Ok(())
    })
}

/// The figures of one turn.
struct Turn {
    p50_us: f64,
    p99_us: f64,
    calls_per_second: f64,
}

impl Turn {
    /// Makes `calls` over `connections`, after each connection has made one to warm up.
    async fn run(address: SocketAddr, connections: usize, calls: usize) -> anyhow::Result<Self> {
        let each = calls.div_ceil(connections);
        let start = Arc::new(Barrier::new(connections));
        let mut clients = JoinSet::new();
        for _ in 0..connections {
            let start = Arc::clone(&start);
            clients.spawn(async move {
                let mut stream = connect(address).await?;
                call(&mut stream).await?;
                start.wait().await;
                let begin = Instant::now();
                let mut latencies = Vec::with_capacity(each);
                for _ in 0..each {
                    let since = Instant::now();
                    call(&mut stream).await?;
                    latencies.push(since.elapsed());
                }
                anyhow::Ok((begin, Instant::now(), latencies))
            });
        }
        let mut latencies = Vec::with_capacity(calls);
        let mut times = Vec::with_capacity(2 * connections);
        // An error ends all clients, also those that wait for the start.
        while let Some(client) = clients.join_next().await {
            let (begin, end, of_client) = client??;
            times.extend([begin, end]);
            latencies.extend(of_client);
        }
        times.sort_unstable();
        let elapsed = times[times.len() - 1] - times[0];
        latencies.sort_unstable();
        let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_secs_f64() * 1e6;
        Ok(Self { p50_us: at(50), p99_us: at(99), calls_per_second: latencies.len() as f64 / elapsed.as_secs_f64() })
    }
}

/// Returns a figure of a turn.
type Figure = fn(&Turn) -> f64;

/// Prints the figures of all pairs of turns.
fn report(connections: usize, direct: &[Turn], proxied: &[Turn]) {
    let figures: [(&str, Figure); 3] =
        [("p50", |turn| turn.p50_us), ("p99", |turn| turn.p99_us), ("calls/s", |turn| turn.calls_per_second)];
    for (name, figure) in figures {
        let [_, before, _] = quartiles(direct.iter().map(figure).collect());
        let [_, after, _] = quartiles(proxied.iter().map(figure).collect());
        let ratios = direct.iter().zip(proxied).map(|(direct, proxied)| figure(proxied) / figure(direct));
        let [low, ratio, high] = quartiles(ratios.collect());
        println!("{connections:>11}   {name:<11} {before:>10.0}{after:>10.0}   {ratio:>8.2} ({low:.2} to {high:.2})");
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

async fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Connection { stream, buffer: Vec::with_capacity(4096) })
}

async fn call(connection: &mut Connection) -> anyhow::Result<()> {
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-bench\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{REQUEST}",
        REQUEST.len()
    );
    connection.stream.write_all(request.as_bytes()).await?;
    if !connection.message().await?.starts_with(b"HTTP/1.1 200") {
        bail!("the call failed: {}", String::from_utf8_lossy(&connection.buffer));
    }
    Ok(())
}

impl Connection {
    /// Reads one message to its end and returns it.
    async fn message(&mut self) -> anyhow::Result<&[u8]> {
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the connection was closed");
            }
            if let Some(end) = whole(&self.buffer)?
                && self.buffer.len() >= end
            {
                return Ok(&self.buffer);
            }
        }
    }
}

/// Returns the length of the message at the beginning of `bytes`, or `None` if its head is incomplete.
fn whole(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head])?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    Ok(Some(head + 4 + length.context("the message has no content-length")??))
}

/// A server that answers every message at once.
async fn serve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ANSWER}",
            ANSWER.len()
        );
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let mut connection = Connection { stream, buffer: Vec::with_capacity(4096) };
                while connection.message().await.is_ok() {
                    connection.stream.write_all(answer.as_bytes()).await?;
                }
                anyhow::Ok(())
            });
        }
    });
    Ok(address)
}
