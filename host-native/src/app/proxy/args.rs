//! The command line of `tidegate proxy`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// The arguments of `tidegate proxy`.
#[derive(Clone, Default, Args)]
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
    /// Share the limits with the other proxies and runs that use this Redis server, redis:// or rediss:// [default:
    /// as in the file]
    #[arg(long, value_name = "URL")]
    pub share: Option<String>,
    /// Read the file and the keys that it names, print a summary, and exit
    #[arg(long)]
    pub check: bool,
    /// Write a line for each response to standard error, without keys and bodies
    #[arg(long, short)]
    pub verbose: bool,
}

/// Shows no address of a store, which may contain a password.
impl fmt::Debug for ProxyArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, upstream, listen, share, check, verbose } = self;
        f.debug_struct("ProxyArgs")
            .field("config", config)
            .field("upstream", upstream)
            .field("listen", listen)
            .field("share", &share.as_ref().map(|_| "(hidden)"))
            .field("check", check)
            .field("verbose", verbose)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_store_is_not_shown() {
        let args = ProxyArgs { share: Some("redis://:pass-word@host".to_string()), ..ProxyArgs::default() };
        assert!(!format!("{args:?}").contains("pass-word"));
    }
}
