//! Exports tasks and calls as OpenTelemetry spans.
//!
//! tidegate does not depend on OpenTelemetry. The application sets up a tracer provider and an exporter,
//! connects them to `tracing`, and adds the sink to its run. This example exports a simulated run to memory.
//! Replace the exporter by your own.
//!
//! ```text
//! cargo run -p tidegate-native --example opentelemetry --features opentelemetry
//! ```

use std::error::Error;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tidegate_core::observe::Sink as _;
use tidegate_core::request::RequestAdmission;
use tidegate_core::sim::scenario::builtin;
use tidegate_core::sim::world::World;
use tidegate_core::time::Instant;
use tidegate_native::observe::tracing::TracingSink;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

fn main() -> Result<(), Box<dyn Error>> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tidegate"));

    let scenario = builtin().remove(0);
    let mut sink = None;
    let begin = |admission: &RequestAdmission| sink = Some(TracingSink::new(Instant::ZERO, admission));
    let mut world = World::with_events(&scenario, 1, begin)?;
    let mut sink = sink.ok_or("the world has no controller")?;
    tracing::subscriber::with_default(Registry::default().with(layer), || {
        world.run_feeding(&mut sink)?;
        sink.finish()
    })?;

    let spans = exporter.get_finished_spans()?;
    for name in ["task", "call"] {
        let count = spans.iter().filter(|span| span.name == name).count();
        println!("{count} spans `{name}` of the scenario {}", scenario.name);
        assert!(count > 0);
    }
    provider.shutdown()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_exports_spans_of_tasks_and_calls() -> Result<(), Box<dyn std::error::Error>> {
        super::main()
    }
}
