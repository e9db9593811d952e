//! Sends the requests of a hyper client through the admission layer, to a server that accepts four calls at a
//! time.
//!
//! Forty requests are sent at once. The layer finds out how many concurrent calls the server accepts. The
//! caller sends rate-limited requests again, so that each one is answered in the end.

use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tidegate_core::sim::provider::{Capacity, Overload, ProviderSpec};
use tidegate_core::time::Duration;
use tidegate_native::app::mock::MockServer;
use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
use tidegate_native::middleware::tower::AdmissionLayer;
use tower::{ServiceBuilder, ServiceExt};

const BODY: &str = r#"{"model":"writer","messages":[{"role":"user","content":"A title, please."}]}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = ProviderSpec {
        capacity: Capacity::Constant { slots: 4 },
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(50)) },
        ..ProviderSpec::default()
    };
    let server = MockServer::start(&spec, 1).await?;
    let address = format!("{}/chat/completions", server.base_url());

    let gate = RequestGate::new()?;
    let writer = ResourceKey::chat("mock", "writer");
    gate.register(&writer, &Limits::at_most(16))?;

    let call = Call::new(writer.clone());
    let service = ServiceBuilder::new()
        .layer(AdmissionLayer::new(gate.clone(), move |_: &Request<String>| call.clone()))
        .service(Client::builder(TokioExecutor::new()).build_http());

    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (service, address) = (service.clone(), address.clone());
        calls.spawn(async move {
            let mut rate_limited = 0;
            loop {
                let request =
                    Request::post(&address).header(CONTENT_TYPE, "application/json").body(BODY.to_string())?;
                let response = service.clone().oneshot(request).await?;
                if response.status() == StatusCode::TOO_MANY_REQUESTS {
                    rate_limited += 1;
                    continue;
                }
                // The permit is held until the body is read.
                let length = response.into_body().collect().await?.to_bytes().len();
                return Ok::<_, Box<dyn std::error::Error + Send + Sync>>((length, rate_limited));
            }
        });
    }
    let (mut answered, mut rate_limited) = (0, 0);
    while let Some(done) = calls.join_next().await {
        let (length, retries) = done?.map_err(|error| error.to_string())?;
        answered += u32::from(length > 0);
        rate_limited += retries;
    }
    let state = gate.snapshot(&writer).ok_or("it was registered")?;
    println!("{answered} answers, {rate_limited} rate-limited tries; the limit is {} of 16", state.current_limit);
    assert_eq!((answered, state.in_flight, server.in_flight()), (40, 0, 0));
    Ok(())
}

#[test]
fn the_example_gets_every_request_answered() {
    main().expect("every request is answered in the end");
}
