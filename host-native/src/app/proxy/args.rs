//! The command line of `tidegate proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// The arguments of `tidegate proxy`.
#[derive(Clone, Debug, Default, Args)]
pub struct ProxyArgs {
    /// The proxy file: providers, limits, tenants
    #[arg(value_name = "CONFIG.toml", required_unless_present = "upstream")]
    pub config: Option<PathBuf>,
    /// Call this one provider, with defaults for everything and the clients' own keys
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub upstream: Option<String>,
    /// Where to listen [default: what the file says, or 127.0.0.1:4180]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Read the file and the keys it names, say what they come to, and serve nothing
    #[arg(long)]
    pub check: bool,
    /// Write a line for each answer to the standard error; never a key, never a body
    #[arg(long, short)]
    pub verbose: bool,
}
