//! Sends the requests of a `reqwest` client through a gate: two tenants share a model with three concurrent
//! calls.
//!
//! Each tenant sends thirty requests at once. One tenant has three times the weight of the other, and gets
//! three times as many permits while both wait.

use reqwest_middleware::ClientBuilder;
use tidegate_core::sim::provider::{Capacity, Overload, ProviderSpec};
use tidegate_core::time::Duration;
use tidegate_native::app::mock::MockServer;
use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
use tidegate_native::middleware::reqwest::AdmissionMiddleware;

const BODY: &str = r#"{"model":"writer","messages":[{"role":"user","content":"A title, please."}]}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = ProviderSpec {
        capacity: Capacity::Constant { slots: 3 },
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(50)) },
        ..ProviderSpec::default()
    };
    let server = MockServer::start(&spec, 1).await?;
    let address = format!("{}/chat/completions", server.base_url());

    let gate = RequestGate::new()?;
    let writer = ResourceKey::chat("mock", "writer");
    gate.register(&writer, &Limits::at_most(3))?;
    gate.register_tenant("paying", 3.0)?;
    gate.register_tenant("free", 1.0)?;

    // A request header names the tenant.
    let call = Call::new(writer);
    let admission = AdmissionMiddleware::new(gate, move |request: &reqwest::Request| {
        let tenant = request.headers().get("x-tenant").and_then(|tenant| tenant.to_str().ok());
        call.clone().for_tenant(tenant.unwrap_or("free"))
    });
    // `reqwest` is built without a default TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
    let client = ClientBuilder::new(http).with(admission).build();

    let mut calls = tokio::task::JoinSet::new();
    for index in 0..60 {
        let tenant = if index % 2 == 0 { "paying" } else { "free" };
        let request = client.post(&address).header("x-tenant", tenant).header("content-type", "application/json");
        let request = request.body(BODY);
        calls.spawn(async move {
            let response = request.send().await?.error_for_status()?;
            response.text().await?;
            Ok::<_, reqwest_middleware::Error>(tenant)
        });
    }
    let mut order = Vec::new();
    while let Some(done) = calls.join_next().await {
        order.push(done??);
    }
    let paying = order.iter().take(32).filter(|tenant| **tenant == "paying").count();
    println!("{paying} of the first 32 responses were for the tenant with three quarters of the weight");
    assert_eq!((order.len(), server.in_flight()), (60, 0));
    assert!((20..=28).contains(&paying));
    Ok(())
}

#[test]
fn the_example_serves_tenants_by_weight() {
    main().expect("every request is answered");
}
