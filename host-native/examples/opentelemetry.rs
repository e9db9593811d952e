//! Tasks and calls as OpenTelemetry spans.
//!
//! tidegate knows nothing of OpenTelemetry: the application sets up its provider and exporter, bridges them to `tracing`, and
//! adds the sink. Here a simulated run is exported to memory; put your exporter in its place.
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
    let mut traces = None;
    let begin = |admission: &RequestAdmission| traces = Some(TracingSink::new(Instant::ZERO, admission));
    let mut world = World::with_events(&scenario, 1, begin)?;
    let mut traces = traces.ok_or("the world has no controller")?;
    tracing::subscriber::with_default(Registry::default().with(layer), || {
        world.run_feeding(&mut traces)?;
        traces.finish()
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
    fn it_runs() -> Result<(), Box<dyn std::error::Error>> {
        super::main()
    }
}
