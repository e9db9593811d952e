//! Where an address leads: to this machine, or to another one, also after its name is resolved.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, Url};

/// The addresses of the names of this machine. The port is that of the URL.
const LOOPBACK: [SocketAddr; 2] =
    [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0)];

/// Returns whether requests to `url` leave this machine unencrypted.
pub(crate) fn is_plain_and_far(url: &Url) -> bool {
    url.scheme() == "http" && !url.host_str().is_some_and(is_loopback)
}

/// Returns whether a host is always this machine. Browsers resolve `localhost` and its subdomains without a
/// DNS query.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || ip_address(host).is_some_and(|ip| ip.is_loopback())
}

/// Makes a client connect to this machine itself if `url` is on it. A proxy of the environment is another
/// machine, and so may be what a name server returns for a name such as `app.localhost`. Either would see
/// the key.
pub(crate) fn stay_on_loopback(builder: ClientBuilder, url: &Url) -> ClientBuilder {
    match url.host_str() {
        Some(host) if is_loopback(host) => builder.no_proxy().resolve_to_addrs(host, &LOOPBACK),
        _ => builder,
    }
}

/// Returns the IP address that a host consists of, or `None` for a name.
pub(crate) fn ip_address(host: &str) -> Option<IpAddr> {
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    plain.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Returns whether a host is always this machine or in a private network.
pub(crate) fn is_inside(host: &str) -> bool {
    is_loopback(host) || ip_address(host).is_some_and(is_private)
}

/// Returns whether an IP address belongs to this machine or to a network that is not public.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => {
            // 100.64.0.0/10 is that of carriers (RFC 6598).
            let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || is_shared
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Resolves names as the system does.
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

/// Resolves names by `lookup`. Connections are made only to those addresses of a name that `accept` returns.
pub(crate) struct CheckedResolver<A> {
    pub(crate) lookup: Arc<dyn Resolve>,
    pub(crate) accept: A,
}

impl<A, E> Resolve for CheckedResolver<A>
where
    A: Fn(&str, Vec<SocketAddr>) -> Result<Vec<SocketAddr>, E> + Clone + Send + Sync + 'static,
    E: Error + Send + Sync + 'static,
{
    fn resolve(&self, name: Name) -> Resolving {
        let (text, accept) = (name.as_str().to_string(), self.accept.clone());
        let found = self.lookup.resolve(name);
        Box::pin(async move {
            let accepted: Addrs = Box::new(accept(&text, found.await?.collect())?.into_iter());
            Ok(accepted)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::net::TcpListener;

    use super::*;

    /// A name server that knows no name.
    struct NoNames;

    impl Resolve for NoNames {
        fn resolve(&self, _: Name) -> Resolving {
            Box::pin(async { Err(io::Error::other("no such name").into()) })
        }
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_resolved_without_a_name_server() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "app.localhost", "App.LocalHost", "app.localhost."] {
            let url = Url::parse(&format!("http://{host}:{port}/v1")).unwrap();
            let builder = reqwest::Client::builder().tls_certs_only([]).dns_resolver(Arc::new(NoNames));
            let client = stay_on_loopback(builder, &url).build().unwrap();
            tokio::select! {
                answer = client.get(url).send() => panic!("{host}: {answer:?}"),
                accepted = listener.accept() => drop(accepted.unwrap()),
            }
        }
    }
}
