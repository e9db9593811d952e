//! Runs a pipeline of two columns, each a closure, whose calls go over HTTP to a server that accepts five
//! calls at a time.
//!
//! No row is lost. A task whose call was rate limited is retried after the Retry-After of the server, and
//! a call that fails in an outage is repeated once the server is back.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::gate::Classify as _;
use tidegate_core::pipeline::{Column, PipelineConfig, Strategy, TaskOutcome};
use tidegate_core::sim::provider::{Capacity, Overload, ProviderSpec};
use tidegate_core::time::Duration;
use tidegate_native::app::mock::MockServer;
use tidegate_native::app::provider::{ChatClient, ChatEndpoint, ChatRequest};
use tidegate_native::gate::{Limits, RequestGate, ResourceKey};
use tidegate_native::pipeline::PipelineRunner;

const ROWS: u64 = 60;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = ProviderSpec {
        capacity: Capacity::Constant { slots: 5 },
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(50)) },
        ..ProviderSpec::default()
    };
    let server = MockServer::start(&spec, 1).await?;
    let client = ChatClient::new(ChatEndpoint {
        base_url: server.base_url().parse()?,
        model: "writer".to_string(),
        api_key: None,
        timeout: Duration::from_secs(60),
        authorities: None,
    })?;

    let gate = RequestGate::new()?;
    let writer = ResourceKey::chat("mock", "writer");
    gate.register(&writer, &Limits::at_most(12))?;

    let titles = Arc::new(Mutex::new(vec![None; usize::try_from(ROWS)?]));
    let saved_titles = Arc::clone(&titles);
    let config = PipelineConfig { rows: ROWS, row_group_size: 20, ..PipelineConfig::default() };
    let report = PipelineRunner::new(config)
        .with_gate(&gate)
        .column(Column::new("note", Strategy::Cell), async |_context| Ok(TaskOutcome::Success))
        .model_column(Column::new("title", Strategy::Cell).with_upstream("note"), &writer, move |context, call| {
            let (client, titles) = (client.clone(), Arc::clone(&saved_titles));
            async move {
                let row = context.task.first_row + u64::from(context.task.row.unwrap_or(0));
                let prompt = format!("A title for note {row}");
                // Called once for each try. There are further tries only after a failure in an outage.
                let attempt = || client.complete(ChatRequest { prompt: &prompt, ..ChatRequest::default() });
                match context.call(&call, attempt).await {
                    Ok(Ok(title)) => {
                        titles.lock()[row as usize] = Some(title);
                        Ok(TaskOutcome::Success)
                    }
                    Ok(Err(error)) => Ok(error.completion().into()),
                    Err(denied) => denied.into(),
                }
            }
        })
        .save(async |group| {
            println!("row group {}: {} rows", group.row_group, group.live.len());
            Ok(())
        })
        .start()?
        .await;

    let refused = server.counters().refused;
    println!("{} rows in {}; {refused} calls were rate limited", report.rows_out, report.ended);
    assert_eq!((report.rows_out, titles.lock().iter().flatten().count() as u64), (ROWS, ROWS));
    Ok(())
}

#[test]
fn the_example_completes_every_row() {
    main().expect("no row is lost");
}
