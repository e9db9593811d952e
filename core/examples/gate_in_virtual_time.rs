//! A gate on the virtual-time executor, without tokio: three callers, one slot, and no real waiting.

use tidegate_core::gate::Gate;
use tidegate_core::request::{Domain, Outcome, Request, RequestAdmission, RequestConfig};
use tidegate_core::runtime::{Spawn, Timer};
use tidegate_core::sim::executor::Executor;
use tidegate_core::time::{Clock, Duration, Instant};

fn main() -> Result<(), tidegate_core::error::ConfigError> {
    let mut machine = RequestAdmission::new(RequestConfig::default())?;
    let model = machine.register(Instant::ZERO, "provider", "model", "default", 1)?;
    let chat = machine.resource(model, Domain::Chat)?;

    let executor = Executor::new();
    let host = executor.host();
    let gate = Gate::new(host.clone(), machine);
    for caller in 1..=3 {
        let (gate, host_of_caller) = (gate.clone(), host.clone());
        host.spawn(async move {
            match gate.acquire(Request::new(chat)).await {
                Ok(permit) => {
                    println!("{}: call {caller} starts", host_of_caller.now());
                    host_of_caller.sleep_until(host_of_caller.now() + Duration::from_secs(60)).await;
                    permit.finish(Outcome::Success);
                }
                Err(denial) => println!("call {caller}: {denial}"),
            }
        });
    }
    executor.run();
    assert_eq!(host.now(), Instant::ZERO + Duration::from_secs(180));
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the settings are valid");
}
