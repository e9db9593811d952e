//! A pipeline of two columns, each a closure, whose calls go over HTTP to a server that refuses what is too much.
//!
//! Not one row is lost to the refusals: a task that was refused is tried again when the server said. Nor would one be lost to an
//! outage: a call that meets one is made again once the server is back.

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
        bypass_proxy: true,
    })?;

    let gate = RequestGate::new()?;
    let writer = ResourceKey::chat("mock", "writer");
    gate.register(&writer, &Limits::at_most(12))?;

    let titles = Arc::new(Mutex::new(vec![None; usize::try_from(ROWS)?]));
    let kept = Arc::clone(&titles);
    let config = PipelineConfig { rows: ROWS, row_group_size: 20, ..PipelineConfig::default() };
    let report = PipelineRunner::new(config)
        .through(&gate)
        .column(Column::new("note", Strategy::Cell), async |_work| Ok(TaskOutcome::Success))
        .calling(Column::new("title", Strategy::Cell).with_upstream("note"), &writer, move |work, call| {
            let (client, titles) = (client.clone(), Arc::clone(&kept));
            async move {
                let row = work.task.first_row + u64::from(work.task.row.unwrap_or(0));
                let prompt = format!("A title for note {row}");
                // Called for each try: once, unless the provider is down meanwhile.
                let attempt = || client.complete(ChatRequest { prompt: &prompt, ..ChatRequest::default() });
                match work.call(&call, attempt).await {
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
    println!("{} rows in {}, {refused} refusals on the way", report.rows_out, report.ended);
    assert_eq!((report.rows_out, titles.lock().iter().flatten().count() as u64), (ROWS, ROWS));
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("no row is lost");
}
