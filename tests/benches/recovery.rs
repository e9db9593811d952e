//! What an outage costs, and how soon calls are back after it.
//!
//! `cargo bench -p tidegate-tests --bench recovery` makes calls over 16 connections on the loopback to a server that takes
//! 50 ms, and that for a while closes every connection instead of answering: through a gate, and beside it in a loop that
//! makes a failed call again after 2, 4 and 8 s and then gives it up, as many clients do. Printed are the calls that went out
//! while the server was down, those that were given up, how long after the end of the outage the first answer came, and how
//! long after that nine tenths of the earlier throughput were back, over half a second.
//!
//! Without `--bench`, as in `cargo test --benches`, one short outage shows only that it works.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_core::gate::Gate;
use tidegate_core::request::{Domain, HealthConfig, Outcome, Request, RequestAdmission, RequestConfig};
use tidegate_native::host::TokioHost;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

const SLOTS: u32 = 16;
const CALL: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_millis(500);

fn main() -> anyhow::Result<()> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let outages: &[u64] = if is_bench { &[500, 3_000, 20_000] } else { &[100] };
    let (before, after) = if is_bench { (2_000, 45_000) } else { (200, 3_000) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        println!(
            "outage                     calls made in it   given up   first answer after   nine tenths after that"
        );
        for outage in outages.iter().map(|millis| Duration::from_millis(*millis)) {
            for how in [Calls::Gate, Calls::Loop] {
                let spans = [Duration::from_millis(before), outage, Duration::from_millis(after)];
                let figures = measure(how, spans).await?;
                println!("{:>6} ms, {:<16} {figures}", outage.as_millis(), how.name());
            }
        }
        Ok(())
    })
}

/// Who makes the calls.
#[derive(Clone, Copy)]
enum Calls {
    Gate,
    Loop,
}

impl Calls {
    fn name(self) -> &'static str {
        match self {
            Self::Gate => "a gate",
            Self::Loop => "2, 4 and 8 s",
        }
    }
}

/// A server, and what it has seen.
#[derive(Default)]
struct Server {
    is_down: AtomicBool,
    calls_while_down: AtomicU64,
    answered: Mutex<Vec<Instant>>,
}

/// The figures of one outage, as a line.
async fn measure(how: Calls, [before, outage, after]: [Duration; 3]) -> anyhow::Result<String> {
    let server = Arc::new(Server::default());
    let address = serve(Arc::clone(&server)).await?;
    let given_up = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let ends = begun + before + outage + after;
    let gate = Gate::new(TokioHost::current()?, RequestAdmission::new(config())?);
    let chat = gate.with(|machine, now| {
        machine.register(now, "provider", "model", "default", SLOTS).map(|model| machine.resource(model, Domain::Chat))
    })?;
    let request = Request::new(chat.expect("a known model"));
    let mut clients = JoinSet::new();
    for _ in 0..SLOTS {
        let (gate, given_up) = (gate.clone(), Arc::clone(&given_up));
        clients.spawn(async move {
            while Instant::now() < ends {
                let is_made = match how {
                    Calls::Gate => {
                        gate.run_through_outages(request, None, |_| call(address)).await.is_ok_and(|last| last.is_ok())
                    }
                    Calls::Loop => call_again(address).await,
                };
                given_up.fetch_add(u64::from(!is_made), Ordering::Relaxed);
            }
        });
    }
    sleep(before).await;
    server.is_down.store(true, Ordering::SeqCst);
    sleep(outage).await;
    server.is_down.store(false, Ordering::SeqCst);
    let back = Instant::now();
    sleep_until(ends.into()).await;
    clients.shutdown().await;
    let answered = server.answered.lock().map_err(|_| anyhow::anyhow!("a server broke"))?;
    let first = answered.iter().copied().find(|at| *at > back);
    let span_of = |span: Option<Duration>| span.map_or("never".to_string(), |span| format!("{} ms", span.as_millis()));
    // The first half second is a start.
    let from = begun + before / 4;
    let usual = answered.iter().filter(|at| (from..from + before / 2).contains(at)).count() as u64;
    let wanted = usual * WINDOW.as_millis() as u64 * 9 / 10 / (before / 2).as_millis() as u64;
    let is_back =
        |at: &Instant| answered.iter().filter(|other| (*at..*at + WINDOW).contains(other)).count() as u64 >= wanted;
    let whole = answered.iter().copied().filter(|at| *at > back).find(is_back);
    let calls = server.calls_while_down.load(Ordering::SeqCst);
    Ok(format!(
        "{calls:>18} {:>10} {:>20} {:>24}",
        given_up.load(Ordering::Relaxed),
        span_of(first.map(|at| at - back)),
        span_of(first.zip(whole).map(|(first, whole)| whole - first)),
    ))
}

/// That of a gate, with the jitter of one process.
fn config() -> RequestConfig {
    RequestConfig { health: Some(HealthConfig { seed: 1, ..HealthConfig::default() }), ..RequestConfig::default() }
}

/// Makes a call, and thrice again after a pause that doubles; whether it was answered.
async fn call_again(address: SocketAddr) -> bool {
    for pause in [2, 4, 8] {
        if call(address).await.is_ok() {
            return true;
        }
        sleep(Duration::from_secs(pause)).await;
    }
    call(address).await.is_ok()
}

/// One call, over a connection of its own.
async fn call(address: SocketAddr) -> Result<(), Outcome> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"?").await?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await
    };
    match timeout(Duration::from_secs(10), exchange).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(Outcome::ConnectionFailed),
        Err(_) => Err(Outcome::ProviderTimeout),
    }
}

/// Answers every call after its time, and none while the server is down.
async fn serve(server: Arc<Server>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if server.is_down.load(Ordering::SeqCst) {
                server.calls_while_down.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let mut question = [0];
                stream.read_exact(&mut question).await?;
                sleep(CALL).await;
                if !server.is_down.load(Ordering::SeqCst) {
                    stream.write_all(b"!").await?;
                    if let Ok(mut answered) = server.answered.lock() {
                        answered.push(Instant::now());
                    }
                }
                anyhow::Ok(())
            });
        }
    });
    Ok(address)
}
