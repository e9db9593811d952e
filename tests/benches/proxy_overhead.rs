//! What the proxy adds to a call.
//!
//! `cargo bench -p tidegate-tests --bench proxy_overhead` sends chat requests over kept connections on the loopback, to a
//! server that answers at once and through the proxy to the same server, in turns, so that whatever else the machine does
//! falls on both. The difference of the medians is what a call costs more. Where connections call as fast as they can, they
//! mostly wait for each other: the server, the proxy and the load share the machine, and it is throughput that is compared.
//!
//! Without `--bench`, as in `cargo test --benches`, one small turn shows only that it works.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tidegate_native::app::config::pipeline::SourceText;
use tidegate_native::app::proxy::Proxy;
use tidegate_native::app::proxy::config::ProxyConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

const NONE: Duration = Duration::ZERO;

/// Between the calls of one of 32 connections that make 2000 calls a second together.
const PAUSE: Duration = Duration::from_millis(16);

const REQUEST: &str = r#"{"model":"small","messages":[{"role":"system","content":"You are a harbour pilot."},{"role":"user","content":"Is the tide in?"}],"max_tokens":64}"#;
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":0,"model":"small","choices":[{"index":0,"message":{"role":"assistant","content":"It is."},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23}}"#;

fn main() -> anyhow::Result<()> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (turns, calls) = if is_bench { (10, 2_000) } else { (1, 20) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = serve().await?;
        let file = format!(
            "listen = \"127.0.0.1:0\"\n[[providers]]\nname = \"p\"\nbase_url = \"http://{server}/v1\"\nmax_parallel = 64\n"
        );
        let config = ProxyConfig::parse(&SourceText::new("bench", file), &|_| None)?;
        let proxy = Proxy::start(config, false).await?;
        println!("connections               direct p50 / p99    proxied p50 / p99      added p50 / p99   calls/s direct, proxied");
        for (connections, pause, how) in [(1, NONE, "flat out"), (32, PAUSE, "2000/s"), (32, NONE, "flat out")] {
            let (mut direct, mut proxied) = (Load::default(), Load::default());
            for _ in 0..turns {
                direct.turn(server, connections, pause, calls).await?;
                proxied.turn(proxy.address(), connections, pause, calls).await?;
            }
            let ([d50, d99], [p50, p99]) = (direct.quantiles(), proxied.quantiles());
            println!(
                "{connections:>3} {how:<11}   {d50:>8} / {d99:>6} us   {p50:>8} / {p99:>6} us   {:>8} / {:>6} us   {:>8.0}, {:.0}",
                p50.saturating_sub(d50),
                p99.saturating_sub(d99),
                direct.rate(),
                proxied.rate(),
            );
        }
        proxy.stop().await;
        Ok(())
    })
}

/// What a load has measured so far.
#[derive(Default)]
struct Load {
    latencies: Vec<Duration>,
    elapsed: Duration,
}

impl Load {
    /// Makes `calls` over `connections`, after a tenth as many to warm up.
    async fn turn(
        &mut self,
        address: SocketAddr,
        connections: usize,
        pause: Duration,
        calls: usize,
    ) -> anyhow::Result<()> {
        let each = calls.div_ceil(connections);
        let mut clients = JoinSet::new();
        let since = Instant::now();
        for connection in 0..connections {
            clients.spawn(async move {
                // Spread over the pause, so that they do not all call at once.
                sleep(pause * connection as u32 / connections as u32).await;
                let mut stream = connect(address).await?;
                for _ in 0..each / 10 {
                    call(&mut stream).await?;
                }
                let mut latencies = Vec::with_capacity(each);
                for _ in 0..each {
                    let since = Instant::now();
                    call(&mut stream).await?;
                    latencies.push(since.elapsed());
                    if !pause.is_zero() {
                        sleep(pause.saturating_sub(since.elapsed())).await;
                    }
                }
                anyhow::Ok(latencies)
            });
        }
        while let Some(latencies) = clients.join_next().await {
            self.latencies.extend(latencies??);
        }
        self.elapsed += since.elapsed();
        Ok(())
    }

    /// The median and the 99th percentile, in microseconds.
    fn quantiles(&mut self) -> [u64; 2] {
        self.latencies.sort_unstable();
        let at = |percent: usize| self.latencies[(self.latencies.len() - 1) * percent / 100];
        [50, 99].map(|percent| u64::try_from(at(percent).as_micros()).unwrap_or(u64::MAX))
    }

    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }
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
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer sk-bench\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{REQUEST}",
        REQUEST.len()
    );
    connection.stream.write_all(request.as_bytes()).await?;
    if !connection.message().await?.starts_with(b"HTTP/1.1 200") {
        bail!("it was refused: {}", String::from_utf8_lossy(&connection.buffer));
    }
    Ok(())
}

impl Connection {
    /// Reads one message to its end, and answers what was read.
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

/// Where a message ends, once its head is there.
fn whole(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head])?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    Ok(Some(head + 4 + length.context("it does not say how long it is")??))
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
