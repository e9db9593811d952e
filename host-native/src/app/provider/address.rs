//! Where an address leads: to this machine, or to another one.

use std::net::IpAddr;

use reqwest::Url;

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
