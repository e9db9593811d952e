//! The processes of a layout, with the provider and the server that they use.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use tidegate_native::app::mock::{MockConfig, MockServer, RateHeaders};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::worker::{Admission, Answer, MAX_PARALLEL, Order, READY, Settings};
use crate::{BoxError, Layout, WINDOW};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
const REDIS_START: Duration = Duration::from_secs(10);

/// An answer to a process, when it arrived.
struct Arrival {
    process: usize,
    at: Instant,
    latency: Duration,
}

/// The processes of a layout. They are killed on drop.
pub(crate) struct Fleet {
    layout: Layout,
    workers: Vec<WorkerProcess>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    mock: MockServer,
    redis: Option<Redis>,
    _proxy: Option<Child>,
    _directory: TempDir,
}

struct WorkerProcess {
    child: Child,
    orders: mpsc::UnboundedSender<String>,
    leads: Arc<AtomicBool>,
    /// The share of the model with slots.
    share: Arc<AtomicU32>,
    is_killed: bool,
}

/// What happened in a part of the time.
#[derive(Default)]
pub(crate) struct Span {
    pub(crate) seconds: f64,
    /// The answers to each process.
    answered: Vec<u64>,
    pub(crate) refused: u64,
    /// The commands to Redis.
    pub(crate) commands: u64,
    latencies: Vec<Duration>,
}

impl Span {
    fn all_answered(&self) -> f64 {
        self.answered.iter().sum::<u64>() as f64
    }

    /// Returns the answers in a second.
    pub(crate) fn per_second(&self) -> f64 {
        self.all_answered() / self.seconds
    }

    /// Returns the refused calls for each 1000 answers.
    pub(crate) fn refused_per_1000(&self) -> f64 {
        1000.0 * self.refused as f64 / self.all_answered().max(1.0)
    }

    /// Returns Jain's index of the answers to the processes: 1 if all got as many.
    pub(crate) fn jain(&self) -> f64 {
        let squares: u64 = self.answered.iter().map(|answered| answered * answered).sum();
        self.all_answered().powi(2) / (self.answered.len() as f64 * squares as f64)
    }

    /// Returns a percentile of the latencies. `None` if there is no answer.
    pub(crate) fn latency(&self, percentile: usize) -> Option<Duration> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) * percentile / 100).copied()
    }

    /// Adds the part of the time that follows.
    pub(crate) fn add(&mut self, next: Self) {
        self.answered.resize(next.answered.len(), 0);
        for (sum, answered) in self.answered.iter_mut().zip(next.answered) {
            *sum += answered;
        }
        self.seconds += next.seconds;
        self.refused += next.refused;
        self.commands += next.commands;
        self.latencies.extend(next.latencies);
    }
}

impl Fleet {
    /// Starts the processes, without load.
    pub(crate) async fn start(layout: Layout) -> Result<Self, BoxError> {
        let directory = tempfile::tempdir()?;
        // Without headers that state rates, a rate is learned.
        let config = MockConfig { models: crate::models(), rate_headers: RateHeaders::None, ..MockConfig::default() };
        let mock = MockServer::serve(config, (Ipv4Addr::LOCALHOST, 0).into()).await?;
        let mut base_url = mock.base_url();
        let redis = match layout {
            Layout::Shared(_) => Some(Redis::start(&directory).await?),
            _ => None,
        };
        let mut proxy = None;
        if layout == Layout::Proxy {
            let (child, url) = start_proxy(&directory, &base_url).await?;
            (proxy, base_url) = (Some(child), url);
        }
        let arrivals = Arc::default();
        let mut workers = Vec::new();
        for process in 0..layout.processes() {
            let admission = match (&redis, &proxy) {
                (Some(redis), _) => Admission::Shared(redis.url()),
                (None, Some(_)) => Admission::Proxy,
                (None, None) => Admission::Own,
            };
            let settings = Settings { tenant: format!("process-{process}"), base_url: base_url.clone(), admission };
            workers.push(WorkerProcess::start(process, &settings, &arrivals).await?);
        }
        Ok(Self { layout, workers, arrivals, mock, redis, _proxy: proxy, _directory: directory })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn processes(&self) -> usize {
        self.workers.len()
    }

    /// Sets the load of each process.
    pub(crate) fn order_all(&mut self, model: &str, clients: usize, pause: Duration) -> Result<(), BoxError> {
        (0..self.processes()).try_for_each(|process| self.order(process, model, clients, pause))
    }

    /// Sets the load of one process.
    pub(crate) fn order(
        &mut self,
        process: usize,
        model: &str,
        clients: usize,
        pause: Duration,
    ) -> Result<(), BoxError> {
        let order = serde_json::to_string(&Order { model: model.to_string(), clients, pause })?;
        Ok(self.workers[process].orders.send(order)?)
    }

    /// Waits, and returns what happened meanwhile.
    pub(crate) async fn watch(&mut self, time: Duration) -> Result<Span, BoxError> {
        let (began, first) = (Instant::now(), self.arrivals.lock().len());
        let (refused, commands) = (self.refused(), self.commands());
        sleep(time).await;
        self.check_processes()?;
        let mut answered = vec![0; self.processes()];
        let arrivals = self.arrivals.lock();
        let arrived = &arrivals[first..];
        for arrival in arrived {
            answered[arrival.process] += 1;
        }
        Ok(Span {
            seconds: began.elapsed().as_secs_f64(),
            answered,
            refused: self.refused() - refused,
            commands: self.commands() - commands,
            latencies: arrived.iter().map(|arrival| arrival.latency).collect(),
        })
    }

    fn refused(&self) -> u64 {
        self.mock.stats().models.values().map(|model| model.counters.refused).sum()
    }

    fn commands(&self) -> u64 {
        self.redis.as_ref().map_or(0, |redis| redis.commands.load(Ordering::Relaxed))
    }

    /// Returns the seconds after `from` at which a second began with this many answers. `None` if there is
    /// none yet.
    pub(crate) fn seconds_until(&self, from: Instant, answers: f64) -> Option<f64> {
        let arrivals = self.arrivals.lock();
        let times: Vec<Instant> = arrivals.iter().map(|arrival| arrival.at).filter(|at| *at >= from).collect();
        let step = Duration::from_millis(100);
        let mut begin = from;
        while begin + WINDOW <= Instant::now() {
            let count = times.iter().filter(|at| (begin..begin + WINDOW).contains(at)).count();
            if count as f64 >= answers {
                return Some((begin - from).as_secs_f64());
            }
            begin += step;
        }
        None
    }

    /// Returns the process that leads, as far as the processes have said.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.workers.iter().position(|worker| !worker.is_killed && worker.leads.load(Ordering::Relaxed))
    }

    /// Returns the processes that were not killed.
    pub(crate) fn living(&self) -> impl Iterator<Item = usize> {
        self.workers.iter().enumerate().filter(|(_, worker)| !worker.is_killed).map(|(process, _)| process)
    }

    /// Returns the sum of the shares of these processes, as far as they have said.
    pub(crate) fn slots(&self) -> u32 {
        self.living().map(|process| self.workers[process].share.load(Ordering::Relaxed)).sum()
    }

    /// Kills a process, as `kill -9` does.
    pub(crate) async fn kill(&mut self, process: usize) -> Result<(), BoxError> {
        self.workers[process].is_killed = true;
        Ok(self.workers[process].child.kill().await?)
    }

    /// Returns an error if a process has ended that was not killed.
    pub(crate) fn check_processes(&mut self) -> Result<(), BoxError> {
        for (process, worker) in self.workers.iter_mut().enumerate().filter(|(_, worker)| !worker.is_killed) {
            if let Some(exit) = worker.child.try_wait()? {
                return Err(format!("process {process} of {} ended with {exit}", self.layout.name()).into());
            }
        }
        Ok(())
    }
}

impl WorkerProcess {
    async fn start(process: usize, settings: &Settings, arrivals: &Arc<Mutex<Vec<Arrival>>>) -> Result<Self, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--worker").arg(serde_json::to_string(settings)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or("a process has no standard input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("a process has no standard output")?).lines();
        if lines.next_line().await?.as_deref() != Some(READY) {
            return Err(format!("process {process} ended before it was ready").into());
        }
        let (orders, mut next_order) = mpsc::unbounded_channel::<String>();
        tokio::spawn(async move {
            while let Some(order) = next_order.recv().await {
                // Fails if the process was killed.
                let _ = stdin.write_all(format!("{order}\n").as_bytes()).await;
            }
        });
        let leads = Arc::new(AtomicBool::new(false));
        let share = Arc::new(AtomicU32::new(0));
        let (arrivals, is_leader, slots) = (Arc::clone(arrivals), Arc::clone(&leads), Arc::clone(&share));
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // The last line of a process that was killed may be incomplete.
                let Ok(Answer { latency, leads, share }) = serde_json::from_str(&line) else { continue };
                is_leader.store(leads, Ordering::Relaxed);
                slots.store(share, Ordering::Relaxed);
                arrivals.lock().push(Arrival { process, at: Instant::now(), latency });
            }
        });
        Ok(Self { child, orders, leads, share, is_killed: false })
    }
}

/// Starts `tidegate proxy` in front of the provider. Returns it with its address.
async fn start_proxy(directory: &TempDir, base_url: &str) -> Result<(Child, String), BoxError> {
    let file = directory.path().join("proxy.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[tenants]\nby = \"header:x-tenant\"\n\
         [[providers]]\nname = \"mock\"\nbase_url = \"{base_url}\"\nmax_parallel = {MAX_PARALLEL}\n"
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new(TIDEGATE);
    let mut child = command.arg("proxy").arg(file).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("the proxy has no standard output")?).lines();
    let line = lines.next_line().await?.ok_or("the proxy ended before it listened")?;
    let url = line.strip_prefix("listening on ").ok_or_else(|| format!("the proxy wrote {line}"))?;
    let url = url.to_string();
    // Its lines are read to their end, so that it never waits for a reader.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, url))
}

/// A process `redis-server`. It is killed on drop.
struct Redis {
    port: u16,
    /// The commands of its clients. Those inside scripts do not count.
    commands: Arc<AtomicU64>,
    _child: Child,
}

impl Redis {
    async fn start(directory: &TempDir) -> Result<Self, BoxError> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => "redis-server is missing: expected the program in PATH".to_string(),
            _ => format!("redis-server does not start: {error}"),
        })?;
        let began = Instant::now();
        let mut monitor = loop {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                break stream;
            }
            if began.elapsed() > REDIS_START || child.try_wait()?.is_some() {
                return Err(format!("redis-server does not listen on port {port}").into());
            }
            sleep(Duration::from_millis(20)).await;
        };
        monitor.write_all(b"MONITOR\r\n").await?;
        let commands = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&commands);
        tokio::spawn(async move {
            let mut lines = BufReader::new(monitor).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if !line.contains(" lua] ") {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { port, commands, _child: child })
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}
