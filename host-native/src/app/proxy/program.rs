//! The command `tidegate proxy`.

use std::fmt::Write as _;
use std::io::Write as _;

use reqwest::Url;

use super::Proxy;
use super::args::ProxyArgs;
use super::config::{ProviderConfig, ProxyConfig};
use crate::app::config::share::flag_settings;
use crate::app::error::{Error, Exit};
use crate::app::interrupt::SignalListener;
use crate::app::provider::address::is_plain_and_far;
use crate::gate::Limits;
use crate::share::{Share, ShareError};

/// Runs the proxy until the first interrupt, and then until the calls in flight have ended, the drain timeout
/// has passed, or a second interrupt arrives.
pub async fn proxy(args: &ProxyArgs) -> Result<Exit, Error> {
    let config = configuration(args)?;
    if args.check {
        let sharing = sharing(&config).await.map_err(|error| Error::Setting(error.to_string()))?;
        // A closed standard output is not an error.
        let _ = write!(std::io::stdout(), "{}{sharing}", overview(&config));
        return Ok(Exit::Done);
    }
    let mut interrupts = SignalListener::listen().map_err(|error| Error::Internal(error.to_string()))?;
    let proxy = Proxy::start(config, args.verbose).await.map_err(|error| Error::Setting(error.to_string()))?;
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "listening on http://{}/v1", proxy.address());
    if let Some(sharing) = proxy.sharing() {
        let _ = writeln!(stdout, "{sharing}");
    }
    if let Some(admin) = proxy.admin_address() {
        let _ = writeln!(stdout, "admin pages on http://{admin}");
    }
    let _ = stdout.flush();
    interrupts.next().await;
    let _ = writeln!(std::io::stderr(), "stopping: calls in flight may end; interrupt again to abort them");
    let mut is_interrupted = false;
    let drained = proxy
        .stop_unless(async {
            interrupts.next().await;
            is_interrupted = true;
        })
        .await;
    Ok(if is_interrupted || drained.cut > 0 { Exit::Interrupted } else { Exit::Done })
}

fn configuration(args: &ProxyArgs) -> Result<ProxyConfig, Error> {
    let mut config = match (&args.config, &args.upstream) {
        (Some(path), _) => ProxyConfig::load(path, args.share.as_deref())?,
        (None, Some(upstream)) => {
            let share = args.share.as_deref().map(flag_settings);
            ProxyConfig { share, ..ProxyConfig::upstream(address(upstream)?) }
        }
        (None, None) => return Err(Error::Setting("neither a file nor --upstream names a provider".to_string())),
    };
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    Ok(config)
}

/// Connects to the store of shared limits, and describes it and the limits that are shared now, for
/// `--check`. The text is empty if limits are not shared.
async fn sharing(config: &ProxyConfig) -> Result<String, ShareError> {
    let Some(settings) = &config.share else { return Ok(String::new()) };
    let share = Share::connect(settings).await?;
    let mut lines = vec![share.to_string()];
    lines.extend(share.describe_limits().await.iter().map(|line| format!("  {line}")));
    Ok(lines.join("\n") + "\n")
}

fn address(text: &str) -> Result<Url, Error> {
    let refuse = |why: &str| Error::Setting(format!("--upstream {why}; expected an address such as https://host/v1"));
    let url = Url::parse(text).map_err(|error| refuse(&format!("is not an address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("holds a user name or password"));
    }
    if is_plain_and_far(&url) {
        let why = "would get the clients' keys unencrypted; expected https, an address of this machine, or a file that says \
                   `allow_plain_http = true`";
        return Err(Error::Setting(format!("--upstream {why}")));
    }
    Ok(url)
}

/// Describes the limit of calls in flight.
fn ceiling(limits: &Limits) -> String {
    format!("at most {} calls in flight, limited by {}", limits.max_parallel, limits.algorithm.name())
}

/// Describes a configuration, for `--check`.
fn overview(config: &ProxyConfig) -> String {
    let mut text = format!("the configuration is well formed\nlistens on {}\n", config.listen);
    // Writing to a string does not fail.
    for provider in &config.providers {
        let key = match provider {
            ProviderConfig { api_key: Some(_), .. } => "its own key",
            ProviderConfig { forwards_client_key: true, .. } => "the clients' keys",
            _ => "no key",
        };
        let serves: Vec<String> = provider.serves.iter().map(ToString::to_string).collect();
        let (name, url, serves) = (&provider.name, &provider.base_url, serves.join(" "));
        let most = ceiling(&provider.limits);
        let _ = writeln!(text, "{name} at {url}: {serves}, with {key}, per model {most}");
        for model in &provider.models {
            let _ = writeln!(text, "  {}: {}", model.name, ceiling(&model.limits));
        }
    }
    let tenants = config.tenants.known.iter().map(|known| format!("{} ({})", known.name, known.weight));
    let tenants: Vec<String> = tenants.collect();
    if !tenants.is_empty() {
        let _ = writeln!(text, "tenants and their weights: {}", tenants.join(", "));
    }
    text
}
