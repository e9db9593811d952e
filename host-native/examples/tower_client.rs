//! A hyper client behind the admission layer, calling a server that bears four calls at a time and refuses more.
//!
//! Forty calls are sent at once. The layer finds out how many the server takes, and each one is answered: those that were
//! refused on the way are sent again by the caller.

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

    let call = Call::of(writer.clone());
    let service = ServiceBuilder::new()
        .layer(AdmissionLayer::new(gate.clone(), move |_: &Request<String>| call.clone()))
        .service(Client::builder(TokioExecutor::new()).build_http());

    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (service, address) = (service.clone(), address.clone());
        calls.spawn(async move {
            let mut refused = 0;
            loop {
                let request =
                    Request::post(&address).header(CONTENT_TYPE, "application/json").body(BODY.to_string())?;
                let answer = service.clone().oneshot(request).await?;
                if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                    refused += 1;
                    continue;
                }
                // The slot is held until the body has come through.
                let length = answer.into_body().collect().await?.to_bytes().len();
                return Ok::<_, Box<dyn std::error::Error + Send + Sync>>((length, refused));
            }
        });
    }
    let (mut answered, mut refused) = (0, 0);
    while let Some(done) = calls.join_next().await {
        let (length, refusals) = done?.map_err(|error| error.to_string())?;
        answered += u32::from(length > 0);
        refused += refusals;
    }
    let state = gate.snapshot(&writer).ok_or("it was registered")?;
    println!("{answered} answers, {refused} refusals on the way; the limit came to {} of 16", state.current_limit);
    assert_eq!((answered, state.in_flight, server.in_flight()), (40, 0, 0));
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("every call is answered in the end");
}
