//! The command line of `tidegate proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::app::config::share::StoreUrl;

/// The arguments of `tidegate proxy`.
#[derive(Clone, Debug, Default, Args)]
pub struct ProxyArgs {
    /// The configuration file: providers, limits, tenants
    #[arg(value_name = "CONFIG.toml", required_unless_present = "upstream")]
    pub config: Option<PathBuf>,
    /// Use this provider only, with default settings and the clients' own keys
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub upstream: Option<String>,
    /// The address to listen on [default: as in the file, or 127.0.0.1:4180]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Share the limits with the other proxies and runs that use this Redis server, redis:// or rediss://, or
    /// redis+sentinel:// with the addresses of sentinels [default: as in the file]
    #[arg(long, value_name = "URL")]
    pub share: Option<StoreUrl>,
    /// Read the file and the keys that it names, print a summary, and exit
    #[arg(long)]
    pub check: bool,
    /// Write a line for each response to standard error, without keys and bodies
    #[arg(long, short)]
    pub verbose: bool,
}
