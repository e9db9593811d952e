//! `tidegate mock`: runs a mock provider until the process is interrupted.
//!
//! Standard output gets a line for each model, `listening on http://ADDRESS/v1`, from which a script can read
//! the port, and a table at the end. Standard error gets a status line on a terminal, and failed calls with
//! `--verbose`.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::time::Instant as StdInstant;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Overload, ProviderSpec, Rate};
use tidegate_core::time::Duration;

use super::args::MockArgs;
use super::{BatchStats, BatchStore, CallLog, MockConfig, MockKey, MockServer, MockStats};
use crate::app::answer_shape::{AnswerShapes, AnswersFlag};
use crate::app::error::{Error, Exit};
use crate::app::interrupt::SignalListener;
use crate::app::render::table::{format_seconds, row, write_table};
use crate::app::report::progress::REFRESH;
use crate::app::simulate::{ModelProviders, find_providers, list_scenarios};

/// Serves the models of `args` until Ctrl-C or SIGTERM. Returns the text to print at the end and the exit
/// status.
///
/// Fails if the models are invalid or the address cannot be bound.
pub async fn serve_until_interrupted(args: &MockArgs) -> Result<(String, Exit), Error> {
    if args.list {
        return Ok((list_scenarios(), Exit::Done));
    }
    let models = models(args)?;
    let mut interrupts = SignalListener::listen().map_err(|error| Error::Internal(error.to_string()))?;
    let status = status_line(args.quiet);
    let described = describe_models(&models);
    let shapes = args.answers.iter().map(|AnswersFlag(shape, share)| (*shape, *share));
    let answers = AnswerShapes::new(shapes).map_err(|why| Error::Setting(format!("--answers: {why}")))?;
    let config = MockConfig {
        answers,
        models,
        any_model: args.any_model,
        seed: args.seed,
        key: args.require_key.clone().map(MockKey),
        allow_control: args.allow_control,
        batch_settings: args.batches.clone().unwrap_or_default(),
        batches: BatchStore::default(),
        rate_headers: args.rate_headers,
        log: args.verbose.then(|| call_log(status.clone())),
    };
    let server = MockServer::serve(config, args.listen.0).await?;
    // A closed standard output does not stop the server.
    let mut out = io::stdout();
    let _ = writeln!(out, "{described}listening on {}", server.base_url()).and_then(|()| out.flush());
    loop {
        status.set_message(status_text(&server.stats()));
        tokio::select! {
            _ = interrupts.next() => break,
            () = tokio::time::sleep(REFRESH), if !status.is_hidden() => {}
        }
    }
    status.finish_and_clear();
    let text = if args.quiet { String::new() } else { Summary(server.stats()).to_string() };
    Ok((text, Exit::Done))
}

/// Returns the models to serve: those of the scenario, then those of `--model`, which replace models of the
/// same name.
fn models(args: &MockArgs) -> Result<ModelProviders, Error> {
    let mut models = match args.scenario.as_ref().or(args.by_name.as_ref()) {
        Some(name) => {
            let models = find_providers(name)?;
            if models.is_empty() && args.models.is_empty() {
                return Err(Error::Setting(format!("`{name}` has no model to serve")));
            }
            models
        }
        None if args.models.is_empty() => default_models(),
        None => Vec::new(),
    };
    for flag in &args.models {
        match models.iter_mut().find(|(name, _)| *name == flag.name) {
            Some((_, provider)) => *provider = flag.provider.clone(),
            None => models.push((flag.name.clone(), flag.provider.clone())),
        }
    }
    for (name, provider) in &mut models {
        for fault in &args.faults {
            fault.apply(provider);
        }
        provider.validate().map_err(|error| Error::Setting(format!("model `{name}`: {error}")))?;
    }
    Ok(models)
}

/// Returns the models that are served by default. They refuse calls only under high load.
fn default_models() -> ModelProviders {
    let latency = |median_ms| Latency::LogNormal { median: Duration::from_millis(median_ms), sigma: 0.3, tail: None };
    let provider = |median_ms| ProviderSpec {
        capacity: Capacity::Constant { slots: 64 },
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(500)) },
        latency: latency(median_ms),
        requests: Some(Rate::per_minute(6_000)),
        tokens: Some(Rate::per_minute(2_000_000)),
        ..ProviderSpec::default()
    };
    vec![("mock-chat".to_string(), provider(250)), ("mock-embedding".to_string(), provider(60))]
}

/// Returns a line for each model.
fn describe_models(models: &ModelProviders) -> String {
    let width = models.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    models.iter().fold(String::new(), |mut text, (name, provider)| {
        let _ = writeln!(text, "model {name:<width$}  {}", describe_provider(provider));
        text
    })
}

/// Returns a short description of a provider.
fn describe_provider(provider: &ProviderSpec) -> String {
    let ProviderSpec {
        capacity, overload, latency, requests, tokens, surge, neighbour, outages, closures, faults, ..
    } = provider;
    let mut text = match capacity {
        Capacity::Constant { slots } => format!("{slots} calls at once"),
        Capacity::WarmUp { slots, warm_up } => format!("1 to {slots} calls at once in {}", format_duration(*warm_up)),
        Capacity::Steps { slots, steps } => format!("{slots} calls at once, {} steps", steps.len()),
        Capacity::Drift { from, to, over, .. } => format!("{from} to {to} calls at once in {}", format_duration(*over)),
    };
    let _ = match latency {
        Latency::Constant { latency } => write!(text, " of {}", format_duration(*latency)),
        Latency::Uniform { low, high } => write!(text, " of {} to {}", format_duration(*low), format_duration(*high)),
        Latency::LogNormal { median, .. } => write!(text, " of about {}", format_duration(*median)),
    };
    if matches!(overload, Overload::SlowDown { .. }) {
        text.push_str(", slower beyond");
    }
    for (rate, what) in [(requests, "requests"), (tokens, "tokens")] {
        if let Some(rate) = rate {
            let _ = write!(text, ", {} {what} a minute", rate.per_minute);
            let _ = rate.window.map_or(Ok(()), |window| write!(text, " in windows of {}", format_duration(window)));
        }
    }
    if surge.is_some() {
        text.push_str(", no surges");
    }
    if neighbour.is_some() {
        text.push_str(", a neighbour");
    }
    let _ = match outages.len() {
        0 => Ok(()),
        1 => write!(text, ", an outage"),
        more => write!(text, ", {more} outages"),
    };
    let _ = match closures.len() {
        0 => Ok(()),
        1 => write!(text, ", a closure"),
        more => write!(text, ", {more} closures"),
    };
    if faults.is_some() {
        text.push_str(", faults");
    }
    text
}

fn format_duration(span: Duration) -> String {
    format_seconds(span.as_secs_f64())
}

/// Creates a status line, which is redrawn in place. It is hidden if `quiet`, or if standard error is not a
/// terminal.
fn status_line(quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{elapsed_precise}  {msg}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

fn status_text(stats: &MockStats) -> String {
    let models = || stats.models.values();
    let sum = |of: fn(&super::ModelStats) -> u64| models().map(of).sum::<u64>();
    let in_flight = sum(|model| u64::from(model.in_flight));
    let failed = sum(|model| model.counters.failed + model.counters.hung + model.counters.corrupted);
    let refused = sum(|model| model.counters.refused);
    format!("{} requests, {in_flight} in flight, {refused} refused, {failed} failed", stats.requests)
}

/// Returns a callback that writes a line for each failed call, above the status line if it is visible.
fn call_log(status: ProgressBar) -> CallLog {
    let start = StdInstant::now();
    CallLog(Box::new(move |model, what| {
        let line = format!("{:>9.3} s  {model}  {what}", start.elapsed().as_secs_f64());
        if status.is_hidden() {
            // A closed standard error does not stop the server.
            let _ = writeln!(io::stderr(), "{line}");
        } else {
            status.println(line);
        }
    }))
}

/// Displays the statistics at the end as a table.
struct Summary(MockStats);

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MockStats { requests, rejected, models, batches } = &self.0;
        writeln!(f, "\n{requests} requests, {rejected} of them malformed, for an unknown model, or without the key\n")?;
        let titles = [
            "model",
            "answered",
            "refused",
            "by rate",
            "closed",
            "failed",
            "hung",
            "corrupted",
            "most at once",
            "tokens",
        ];
        let mut table = vec![row(titles)];
        for (name, stats) in models {
            let counters = &stats.counters;
            let figures = [
                stats.answered,
                counters.refused,
                counters.refused_by_rate,
                counters.closed,
                counters.failed,
                counters.hung,
                counters.corrupted,
                u64::from(stats.most_in_flight),
                stats.answered_tokens,
            ];
            table.push([name.clone()].into_iter().chain(figures.map(|figure| figure.to_string())).collect());
        }
        write_table(f, &table, 1)?;
        match batches {
            BatchStats { created: 0, .. } => Ok(()),
            BatchStats { created, requests, .. } => writeln!(f, "\n{created} batches with {requests} requests"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::sim::provider::Faults;

    use super::*;
    use crate::app::config::pipeline::SourceText;
    use crate::app::simulate::parse_providers;

    fn args(scenario: Option<&str>, models: &[&str], faults: &[&str]) -> MockArgs {
        MockArgs {
            scenario: scenario.map(str::to_string),
            models: models.iter().map(|text| text.parse().unwrap()).collect(),
            faults: faults.iter().map(|text| text.parse().unwrap()).collect(),
            ..MockArgs::default()
        }
    }

    fn names(args: &MockArgs) -> Vec<String> {
        models(args).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn two_default_models_are_served_if_none_are_given() {
        assert_eq!(names(&args(None, &[], &[])), ["mock-chat", "mock-embedding"]);
        assert_eq!(names(&args(None, &["a"], &[])), ["a"]);
    }

    #[test]
    fn models_of_the_command_line_are_added_to_those_of_a_scenario_or_replace_them() {
        let args = args(Some("two-harbours"), &["wide=slots=3", "more"], &["cut=0.5"]);
        assert_eq!(names(&args), ["narrow", "wide", "more"]);
        let models = models(&args).unwrap();
        assert_eq!(models[1].1.capacity, Capacity::Constant { slots: 3 });
        let cut = Some(Faults { cut_share: 0.5, ..Faults::default() });
        assert!(models.iter().all(|(_, provider)| provider.faults == cut));
    }

    #[test]
    fn invalid_models_are_rejected() {
        let error = |args: &MockArgs| models(args).unwrap_err().to_string();
        assert!(error(&args(Some("outagee"), &[], &[])).contains("did you mean `outage`?"));
        assert_eq!(error(&args(Some("fan/in"), &[], &[])), "`fan/in` has no model to serve");
        let too_many = args(None, &["a"], &["cut=0.7", "error=0.7"]);
        let expected = "model `a`: `faults.cut_share` is 0.7; expected no more than the other shares leave of 1";
        assert_eq!(error(&too_many), expected);
    }

    #[test]
    fn the_file_in_the_documentation_is_valid() {
        let page = include_str!("../../../docs/mock.md");
        let (_, file) = page.split_once("```toml\n").unwrap();
        let (file, _) = file.split_once("```").unwrap();
        let models = parse_providers(&SourceText::new("models.toml", file)).unwrap_or_else(|error| panic!("{error}"));
        let description = describe_models(&models);
        let first = "model harbour-chat       1 to 8 calls at once in 20.0 s of about 400 ms, 600 requests a minute";
        assert!(
            description.starts_with(first)
                && description.contains("an outage, a closure, faults\nmodel harbour-embedding  32 calls"),
            "{description}"
        );
    }

    #[test]
    fn a_provider_is_described_in_a_line() {
        let description = describe_models(&default_models());
        assert!(description.starts_with("model mock-chat       64 calls at once of about 250 ms, "), "{description}");
        assert!(
            description.contains("6000 requests a minute, 2000000 tokens a minute\nmodel mock-embedding"),
            "{description}"
        );
    }
}
