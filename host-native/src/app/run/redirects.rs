//! Which redirects a download follows.
//!
//! A redirect must not lead to another machine without encryption, and not from a public host to an address
//! of this machine or of its network: what is there may trust its own network. A host in the own network may
//! redirect within it. The addresses that a name has are checked when a connection to it is made.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{ClientBuilder, Url};

use crate::app::provider::address::{CheckedResolver, SystemResolver, is_inside, is_plain_and_far, is_private};

/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 10;

/// Lets the clients of `builder` follow redirects from `url`. Unless `allow_plain_http`, another machine must
/// be encrypted.
pub(super) fn follow_redirects(builder: ClientBuilder, url: &Url, allow_plain_http: bool) -> ClientBuilder {
    let origin = Arc::new(Origin::new(url.host_str().unwrap_or_default()));
    let of_addresses = Arc::clone(&origin);
    let accept = move |name: &str, addresses: Vec<SocketAddr>| of_addresses.accept(name, addresses);
    let resolver = CheckedResolver { lookup: Arc::new(SystemResolver), accept };
    let follow = move |attempt: Attempt<'_>| {
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error(RedirectError::TooMany);
        }
        let host = attempt.url().host_str().unwrap_or_default().to_string();
        if !allow_plain_http && is_plain_and_far(attempt.url()) {
            return attempt.error(RedirectError::Plain(host));
        }
        match origin.redirect(host) {
            Ok(()) => attempt.follow(),
            Err(error) => attempt.error(error),
        }
    };
    builder.redirect(Policy::custom(follow)).dns_resolver(resolver)
}

/// The host of the address in the pipeline file, and those that it redirects to.
#[derive(Debug)]
struct Origin {
    host: String,
    /// Whether its name has a public address. Empty until it is resolved; a proxy resolves it elsewhere.
    has_public_address: OnceLock<bool>,
    redirected: Mutex<BTreeSet<String>>,
}

impl Origin {
    fn new(host: &str) -> Self {
        let has_public_address = OnceLock::new();
        Self { host: host.to_ascii_lowercase(), has_public_address, redirected: Mutex::default() }
    }

    fn is_public(&self) -> bool {
        !is_inside(&self.host) && self.has_public_address.get().copied().unwrap_or(true)
    }

    /// Records a redirect to `host`, unless it is not followed.
    fn redirect(&self, host: String) -> Result<(), RedirectError> {
        if is_inside(&host) && self.is_public() {
            return Err(RedirectError::Private(host));
        }
        self.redirected.lock().insert(host.to_ascii_lowercase());
        Ok(())
    }

    /// Returns which of the addresses of `name` are connected to.
    fn accept(&self, name: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, RedirectError> {
        let is_public = |address: &SocketAddr| !is_private(address.ip());
        let name = name.to_ascii_lowercase();
        if name == self.host {
            // The first time only: the name may have other addresses after a redirect to itself.
            let _ = self.has_public_address.set(addresses.iter().any(is_public));
        } else if !self.redirected.lock().contains(&name) {
            // A proxy.
            return Ok(addresses);
        }
        if !self.is_public() {
            return Ok(addresses);
        }
        let public: Vec<SocketAddr> = addresses.into_iter().filter(is_public).collect();
        if public.is_empty() { Err(RedirectError::Private(name)) } else { Ok(public) }
    }
}

/// Why a redirect is not followed.
#[derive(Debug, PartialEq, Eq)]
enum RedirectError {
    TooMany,
    /// To this host, unencrypted.
    Plain(String),
    /// From a public host to this one.
    Private(String),
}

impl fmt::Display for RedirectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "more than {MAX_REDIRECTS} redirects"),
            Self::Plain(host) => write!(
                f,
                "it redirects to `{host}` without encryption; expected an address with https, or `allow_plain_http = true` in \
                 [seed]"
            ),
            Self::Private(host) => write!(
                f,
                "it redirects to `{host}`, which is this machine or in its network; expected a public address, or the \
                 address of the file itself as `path` in [seed]"
            ),
        }
    }
}

impl std::error::Error for RedirectError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect()
    }

    #[test]
    fn a_public_host_leads_to_public_addresses_only() {
        let origin = Origin::new("data.test");
        let own = addresses(&["93.184.216.34"]);
        assert_eq!(origin.accept("data.test", own.clone()), Ok(own));
        assert_eq!(origin.redirect("files.test".to_string()), Ok(()));
        let mixed = addresses(&["10.0.0.1", "93.184.216.34", "::1"]);
        assert_eq!(origin.accept("files.test", mixed), Ok(addresses(&["93.184.216.34"])));
        let private =
            ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "fd00::1", "fe80::1", "::ffff:10.0.0.1"];
        for inside in private {
            for name in ["files.test", "data.test"] {
                let refused = Err(RedirectError::Private(name.to_string()));
                assert_eq!(origin.accept(name, addresses(&[inside])), refused, "{inside}");
            }
        }
        for host in ["localhost", "127.0.0.1", "[::1]", "192.168.0.1"] {
            assert_eq!(origin.redirect(host.to_string()), Err(RedirectError::Private(host.to_string())));
        }
    }

    #[test]
    fn a_host_in_the_own_network_leads_anywhere() {
        let origin = Origin::new("Files.lan");
        origin.accept("files.lan", addresses(&["192.168.0.7"])).unwrap();
        let inside = addresses(&["192.168.0.8"]);
        for host in ["store.lan", "127.0.0.1"] {
            assert_eq!(origin.redirect(host.to_string()), Ok(()));
        }
        assert_eq!(origin.accept("store.lan", inside.clone()), Ok(inside));
    }

    #[test]
    fn a_proxy_may_be_in_the_own_network() {
        let proxy = addresses(&["10.0.0.1"]);
        assert_eq!(Origin::new("data.test").accept("proxy.lan", proxy.clone()), Ok(proxy));
    }
}
