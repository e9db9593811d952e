//! The limits of open connections: of all clients together, and of each client address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::ConnectionsConfig;
use super::error::ProxyError;

/// The number of connections beyond the limits that are answered at a time. Further ones are closed without a
/// response.
const MAX_REJECTING: usize = 64;

/// Counts the open connections of one listener.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    all: Arc<Semaphore>,
    rejecting: Arc<Semaphore>,
    of_address: Arc<AddressCounts>,
}

/// The right to keep a connection open, or to answer it with an error. Released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    /// The response to all requests of the connection, if it exceeds a limit.
    pub(super) rejection: Option<ProxyError>,
    _permit: OwnedSemaphorePermit,
    _counted: Option<CountedAddress>,
}

impl ConnectionLimit {
    pub(super) fn new(config: ConnectionsConfig) -> Self {
        Self {
            all: Arc::new(Semaphore::new(config.max_connections.get() as usize)),
            rejecting: Arc::new(Semaphore::new(MAX_REJECTING)),
            of_address: Arc::new(AddressCounts {
                max: config.max_connections_per_address.get(),
                open: Mutex::default(),
            }),
        }
    }

    /// Returns the slot of a new connection from `client`, or `None` if it must be closed at once.
    pub(super) fn admit(&self, client: IpAddr) -> Option<ConnectionSlot> {
        let rejection = match self.of_address.count(client) {
            None => ProxyError::TooManyOfAddress { most: self.of_address.max },
            Some(counted) => match Arc::clone(&self.all).try_acquire_owned() {
                Ok(permit) => {
                    return Some(ConnectionSlot { rejection: None, _permit: permit, _counted: Some(counted) });
                }
                Err(_) => ProxyError::TooManyConnections,
            },
        };
        let permit = Arc::clone(&self.rejecting).try_acquire_owned().ok()?;
        Some(ConnectionSlot { rejection: Some(rejection), _permit: permit, _counted: None })
    }
}

/// The number of open connections of each client address.
#[derive(Debug)]
struct AddressCounts {
    max: u32,
    /// Contains no zeros, so its size is bounded by the number of open connections.
    open: Mutex<HashMap<IpAddr, u32>>,
}

impl AddressCounts {
    /// Counts a connection, or returns `None` if its address has the maximum number of connections.
    fn count(self: &Arc<Self>, client: IpAddr) -> Option<CountedAddress> {
        let address = network(client);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        drop(open);
        Some(CountedAddress { counts: Arc::clone(self), address })
    }
}

/// A counted connection.
#[derive(Debug)]
struct CountedAddress {
    counts: Arc<AddressCounts>,
    address: IpAddr,
}

impl Drop for CountedAddress {
    fn drop(&mut self) {
        let mut open = self.counts.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// Returns the address by which a client is counted. An IPv6 client usually has a whole /64 network.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn limit(all: u32, of_address: u32) -> ConnectionLimit {
        let max = |count| NonZeroU32::new(count).unwrap();
        ConnectionLimit::new(ConnectionsConfig {
            max_connections: max(all),
            max_connections_per_address: max(of_address),
            ..ConnectionsConfig::default()
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_its_own_limit_below_that_of_all() {
        let limit = limit(3, 2);
        let rejection = |slot: &ConnectionSlot| slot.rejection.clone();
        let open: Vec<_> = ["10.0.0.1", "10.0.0.1", "10.0.0.2"].map(|text| limit.admit(ip(text)).unwrap()).into();
        assert!(open.iter().all(|slot| slot.rejection.is_none()));
        let of_address = limit.admit(ip("10.0.0.1")).unwrap();
        assert_eq!(rejection(&of_address), Some(ProxyError::TooManyOfAddress { most: 2 }));
        let of_all = limit.admit(ip("10.0.0.2")).unwrap();
        assert_eq!(rejection(&of_all), Some(ProxyError::TooManyConnections));
        drop((open, of_address, of_all));
        assert!(limit.of_address.open.lock().is_empty());
        assert_eq!(rejection(&limit.admit(ip("10.0.0.1")).unwrap()), None);
    }

    #[test]
    fn a_network_of_ipv6_and_a_mapped_address_count_as_one_address() {
        let limit = limit(9, 1);
        for (first, second) in [("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"), ("::ffff:10.0.0.1", "10.0.0.1")] {
            let slot = limit.admit(ip(first)).unwrap();
            assert!(limit.admit(ip(second)).unwrap().rejection.is_some(), "{first} {second}");
            drop(slot);
        }
        let _slot = limit.admit(ip("2001:db8:0:1::1")).unwrap();
        assert_eq!(limit.admit(ip("2001:db8:0:2::1")).unwrap().rejection, None);
    }

    #[test]
    fn connections_beyond_the_rejections_in_progress_are_closed() {
        let limit = limit(1, 1);
        let rejected: Vec<_> = (0..=MAX_REJECTING).map(|_| limit.admit(ip("10.0.0.1")).unwrap()).collect();
        assert!(limit.admit(ip("10.0.0.1")).is_none());
        drop(rejected);
        assert!(limit.admit(ip("10.0.0.1")).is_some());
    }
}
