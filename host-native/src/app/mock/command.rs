//! `tidegate mock`: serves until it is told to stop.
//!
//! Standard output has a line for each model and `listening on http://ADDRESS/v1`, from which a script reads the port, and
//! at the end a table. Standard error has a status line on a terminal, and with `--verbose` each call that goes wrong.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::time::Instant as StdInstant;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Overload, ProviderSpec, Rate};
use tidegate_core::time::Duration;

use super::args::MockArgs;
use super::{Log, MockConfig, MockKey, MockServer, MockStats};
use crate::app::error::{Error, Exit};
use crate::app::interrupt::Interrupts;
use crate::app::render::table::{format_seconds, row, write_table};
use crate::app::report::progress::REFRESH;
use crate::app::simulate::{Providers, find_providers, list};

/// Serves what `args` say until the program is told to stop; gives what to print then.
pub async fn serve_until_interrupted(args: &MockArgs) -> Result<(String, Exit), Error> {
    if args.list {
        return Ok((list(), Exit::Done));
    }
    let models = models(args)?;
    let mut interrupts = Interrupts::listen().map_err(|error| Error::Internal(error.to_string()))?;
    let status = status_line(args.quiet);
    let described = describe(&models);
    let config = MockConfig {
        models,
        any_model: args.any_model,
        seed: args.seed,
        key: args.require_key.clone().map(MockKey),
        allow_control: args.allow_control,
        rate_headers: args.rate_headers,
        log: args.verbose.then(|| log(status.clone())),
    };
    let server = MockServer::serve(config, args.listen.0).await?;
    // A reader that went away does not stop the server.
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

/// The models to serve: the scenario's, then those of the command line; of two with one name, the latter.
fn models(args: &MockArgs) -> Result<Providers, Error> {
    let mut models = match args.scenario.as_ref().or(args.by_name.as_ref()) {
        Some(name) => {
            let models = find_providers(name)?;
            if models.is_empty() && args.models.is_empty() {
                return Err(Error::Setting(format!("`{name}` has no model, so there is nothing to serve")));
            }
            models
        }
        None if args.models.is_empty() => friendly(),
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

/// What is served when nothing is said: models that push back only under real load.
fn friendly() -> Providers {
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

/// A line for each model.
fn describe(models: &Providers) -> String {
    let width = models.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    models.iter().fold(String::new(), |mut text, (name, provider)| {
        let _ = writeln!(text, "model {name:<width$}  {}", description(provider));
        text
    })
}

/// A provider in a few words.
fn description(provider: &ProviderSpec) -> String {
    let ProviderSpec {
        capacity, overload, latency, requests, tokens, surge, neighbour, outages, closures, faults, ..
    } = provider;
    let mut text = match capacity {
        Capacity::Constant { slots } => format!("{slots} calls at once"),
        Capacity::WarmUp { slots, warm_up } => format!("1 to {slots} calls at once in {}", short(*warm_up)),
        Capacity::Steps { slots, steps } => format!("{slots} calls at once, {} steps", steps.len()),
        Capacity::Drift { from, to, over, .. } => format!("{from} to {to} calls at once in {}", short(*over)),
    };
    let _ = match latency {
        Latency::Constant { latency } => write!(text, " of {}", short(*latency)),
        Latency::Uniform { low, high } => write!(text, " of {} to {}", short(*low), short(*high)),
        Latency::LogNormal { median, .. } => write!(text, " of some {}", short(*median)),
    };
    if matches!(overload, Overload::SlowDown { .. }) {
        text.push_str(", slower beyond");
    }
    for (rate, what) in [(requests, "requests"), (tokens, "tokens")] {
        if let Some(rate) = rate {
            let _ = write!(text, ", {} {what} a minute", rate.per_minute);
            let _ = rate.window.map_or(Ok(()), |window| write!(text, " in windows of {}", short(window)));
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

fn short(span: Duration) -> String {
    format_seconds(span.as_secs_f64())
}

/// A line that is redrawn in place on a terminal; hidden elsewhere, and when `quiet`.
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
    let wrong = sum(|model| model.counters.failed + model.counters.hung + model.counters.corrupted);
    let refused = sum(|model| model.counters.refused);
    format!("{} requests, {in_flight} in flight, {refused} refused, {wrong} gone wrong", stats.requests)
}

/// Writes a line for each call that goes wrong, above the status line if there is one.
fn log(status: ProgressBar) -> Log {
    let start = StdInstant::now();
    Log(Box::new(move |model, what| {
        let line = format!("{:>9.3} s  {model}  {what}", start.elapsed().as_secs_f64());
        if status.is_hidden() {
            // A reader that went away does not stop the server.
            let _ = writeln!(io::stderr(), "{line}");
        } else {
            status.println(line);
        }
    }))
}

/// The table at the end.
struct Summary(MockStats);

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MockStats { requests, rejected, models } = &self.0;
        writeln!(f, "\n{requests} requests, {rejected} of them malformed, unknown or without the key\n")?;
        let titles =
            ["model", "answered", "refused", "by rate", "failed", "hung", "corrupted", "most at once", "tokens"];
        let mut table = vec![row(titles)];
        for (name, stats) in models {
            let counters = &stats.counters;
            let figures = [
                stats.answered,
                counters.refused,
                counters.refused_by_rate,
                counters.failed,
                counters.hung,
                counters.corrupted,
                u64::from(stats.most_in_flight),
                stats.answered_tokens,
            ];
            table.push([name.clone()].into_iter().chain(figures.map(|figure| figure.to_string())).collect());
        }
        write_table(f, &table, 1)
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
    fn without_a_word_two_friendly_models_are_served() {
        assert_eq!(names(&args(None, &[], &[])), ["mock-chat", "mock-embedding"]);
        assert_eq!(names(&args(None, &["a"], &[])), ["a"]);
    }

    #[test]
    fn a_scenario_lends_its_models_and_the_command_line_adds_and_replaces() {
        let args = args(Some("two-harbours"), &["wide=slots=3", "more"], &["cut=0.5"]);
        assert_eq!(names(&args), ["narrow", "wide", "more"]);
        let models = models(&args).unwrap();
        assert_eq!(models[1].1.capacity, Capacity::Constant { slots: 3 });
        let cut = Some(Faults { cut_share: 0.5, ..Faults::default() });
        assert!(models.iter().all(|(_, provider)| provider.faults == cut));
    }

    #[test]
    fn what_cannot_be_served_is_told() {
        let told = |args: &MockArgs| models(args).unwrap_err().to_string();
        assert!(told(&args(Some("tidee"), &[], &[])).contains("did you mean `tide`?"));
        assert_eq!(told(&args(Some("fan/in"), &[], &[])), "`fan/in` has no model, so there is nothing to serve");
        let too_many = args(None, &["a"], &["cut=0.7", "error=0.7"]);
        let expected = "model `a`: `faults.cut_share` is 0.7; expected no more than the other shares leave of 1";
        assert_eq!(told(&too_many), expected);
    }

    #[test]
    fn the_file_that_is_documented_is_served() {
        let page = include_str!("../../../docs/mock.md");
        let (_, file) = page.split_once("```toml\n").unwrap();
        let (file, _) = file.split_once("```").unwrap();
        let models = parse_providers(&SourceText::new("models.toml", file)).unwrap_or_else(|error| panic!("{error}"));
        let told = describe(&models);
        let first = "model harbour-chat       1 to 8 calls at once in 20.0 s of some 400 ms, 600 requests a minute";
        assert!(
            told.starts_with(first) && told.contains("an outage, a closure, faults\nmodel harbour-embedding  32 calls"),
            "{told}"
        );
    }

    #[test]
    fn a_provider_is_described_in_a_line() {
        let told = describe(&friendly());
        assert!(told.starts_with("model mock-chat       64 calls at once of some 250 ms, "), "{told}");
        assert!(told.contains("6000 requests a minute, 2000000 tokens a minute\nmodel mock-embedding"), "{told}");
    }
}
