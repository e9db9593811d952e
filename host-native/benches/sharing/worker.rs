//! A process that calls the provider: through a gate that shares its limit or learns it alone, or through a
//! proxy.
//!
//! Lines of its standard input say how many clients make calls. For each answer, it writes a line with the
//! latency, its share, and whether it leads.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
use tidegate_native::http::InFlightCall;
use tidegate_native::share::{Share, ShareSettings};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::{BoxError, SLOTS, WANTED};

/// The most calls at once over all processes, far above the capacity.
pub(crate) const MAX_PARALLEL: u32 = 64;
/// What it writes once it can make calls.
pub(crate) const READY: &str = "ready";

/// The settings of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The name of the process, for a proxy.
    pub(crate) tenant: String,
    /// The address of the provider or of the proxy.
    pub(crate) base_url: String,
    pub(crate) admission: Admission,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Admission {
    /// A limit that is shared over the server at this address.
    Shared(String),
    /// A limit of its own.
    Own,
    /// None: the proxy has the limit.
    Proxy,
}

/// The load of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) model: String,
    /// The number of clients that make calls.
    pub(crate) clients: usize,
    /// The pause of a client after each call.
    pub(crate) pause: Duration,
}

/// An answered call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) latency: Duration,
    /// Whether the process leads the limit of the model with slots.
    pub(crate) leads: bool,
    /// Its share of that limit; 0 without one.
    pub(crate) share: u32,
}

struct Worker {
    settings: Settings,
    gate: Option<RequestGate>,
    http: Client,
}

/// Runs the process until its standard input ends.
pub(crate) fn run(settings: &str) -> Result<(), BoxError> {
    let settings: Settings = serde_json::from_str(settings)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let gate = match &settings.admission {
            Admission::Shared(url) => {
                let gate = RequestGate::new()?;
                gate.share(Share::connect(&ShareSettings::new(url, "bench")).await?)?;
                Some(gate)
            }
            Admission::Own => Some(RequestGate::new()?),
            Admission::Proxy => None,
        };
        let http = Client::builder().no_proxy().tls_certs_only([]).build()?;
        let worker = Arc::new(Worker { settings, gate, http });
        let (orders, order) = watch::channel(Order::default());
        for number in 0..WANTED {
            let (worker, order) = (Arc::clone(&worker), order.clone());
            tokio::spawn(async move {
                if let Err(error) = worker.make_calls(number, order).await {
                    eprintln!("{}: {error}", worker.settings.tenant);
                    std::process::exit(1);
                }
            });
        }
        let mut lines = stdin_lines();
        println!("{READY}");
        while let Some(line) = lines.recv().await {
            let order: Order = serde_json::from_str(&line)?;
            worker.register(&order.model)?;
            orders.send_replace(order);
        }
        Ok(())
    })
}

/// Returns the lines of the standard input.
fn stdin_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

fn key(model: &str) -> ResourceKey {
    ResourceKey::chat("mock", model)
}

impl Worker {
    /// Registers a model before its first call.
    fn register(&self, model: &str) -> Result<(), BoxError> {
        if let Some(gate) = self.gate.as_ref().filter(|gate| gate.resource(&key(model)).is_none()) {
            gate.register(&key(model), &Limits::at_most(MAX_PARALLEL))?;
        }
        Ok(())
    }

    /// Makes one call after the other while the order is for more than `number` clients.
    async fn make_calls(&self, number: usize, mut order: watch::Receiver<Order>) -> Result<(), BoxError> {
        loop {
            let Order { model, pause, .. } = order.wait_for(|order| number < order.clients).await?.clone();
            let began = Instant::now();
            while !self.call(&model).await? {}
            let latency = began.elapsed();
            let member = self.gate.as_ref().and_then(|gate| gate.share_status(&key(SLOTS))).map(|status| status.member);
            let (leads, share) = member.map_or((false, 0), |member| (member.is_leader, member.share));
            let answer = Answer { latency, leads, share };
            println!("{}", serde_json::to_string(&answer)?);
            sleep(pause).await;
        }
    }

    /// Makes one call. Returns whether it was answered and not refused.
    async fn call(&self, model: &str) -> Result<bool, BoxError> {
        let mut in_flight = match &self.gate {
            Some(gate) => Some(InFlightCall::new(gate.acquire(&Call::new(key(model))).await?)),
            None => None,
        };
        let request = self.http.post(format!("{}/chat/completions", self.settings.base_url));
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": "A title, please." }] });
        let response = request.header("x-tenant", &self.settings.tenant).json(&body).send().await?;
        let status = response.status();
        if let Some(call) = &mut in_flight {
            call.record_response(status, response.headers(), SystemTime::now());
        }
        response.bytes().await?;
        if let Some(call) = &mut in_flight {
            call.finish();
        }
        match status {
            StatusCode::OK => Ok(true),
            StatusCode::TOO_MANY_REQUESTS if self.gate.is_some() => Ok(false),
            status => Err(format!("expected an answer, found {status}").into()),
        }
    }
}
