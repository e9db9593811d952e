//! The server with the store: one with a fixed address, or the primary that sentinels name.
//!
//! A primary behind Redis Sentinel is asked for whenever a connection is opened. As every error ends the
//! connection, also that of a server that has become a replica and rejects writes, a failover leads to a new
//! question.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode, parse_redis_url,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::timeout;

use super::store::StoreError;
use super::{ShareError, ShareSettings, check_name};

/// The port of a sentinel whose address has none.
const SENTINEL_PORT: u16 = 26379;

/// How long the sentinels may take to name a primary. It is below the time of one step, so that a sentinel
/// that does not answer hides no error of another one.
const ASK_TIMEOUT: Duration = Duration::from_millis(700);

/// Where a server is found.
pub(super) enum Server {
    /// The server has a fixed address.
    Fixed(Box<Client>),
    /// The sentinels of the server, each with the connection to it. The first that names a primary wins: a
    /// sentinel that hangs, for example on the machine that has failed, delays nothing.
    Sentinels(Vec<SentinelClient>),
}

impl Server {
    /// Returns the server with the URL and certificates in `settings`, and its address without credentials.
    /// No connection is opened.
    pub(super) fn new(settings: &ShareSettings) -> Result<(Self, String), ShareError> {
        // The errors of the library are not shown: they may contain a part of the URL.
        if let Some((scheme, rest)) = settings.url.split_once("+sentinel://") {
            return SentinelUrl::parse(scheme, rest).ok_or(ShareError::Url)?.server(settings);
        }
        let info = settings.url.as_str().into_connection_info().map_err(|_| ShareError::Url)?;
        let scheme = match info.addr() {
            ConnectionAddr::Tcp(..) => "redis",
            ConnectionAddr::TcpTls { .. } => "rediss",
            _ => "unix",
        };
        let address = format!("{scheme}://{}/{}", host_and_port(info.addr()), info.redis_settings().db());
        let client = match certificates(settings, info.addr(), &address)? {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        };
        let client = client.map_err(|_| ShareError::Authorities)?;
        Ok((Self::Fixed(Box::new(client)), address))
    }

    /// Opens a connection.
    pub(super) async fn connect(
        &mut self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, StoreError> {
        let client = match self {
            Self::Fixed(client) => Client::clone(client),
            Self::Sentinels(sentinels) => primary(sentinels).await?,
        };
        Ok(client.get_multiplexed_async_connection_with_config(config).await?)
    }
}

/// Returns the part of an address after its scheme. An IPv6 address has brackets, which the library leaves
/// out.
fn host_and_port(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
            format!("[{host}]:{port}")
        }
        other => other.to_string(),
    }
}

/// Asks all sentinels for their primary. The library checks that the server confirms to be one.
async fn primary(sentinels: &mut [SentinelClient]) -> Result<Client, StoreError> {
    let mut asked: FuturesUnordered<_> = sentinels.iter_mut().map(SentinelClient::async_get_client).collect();
    let mut why = None;
    let answers = async {
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(client) => return Some(client),
                // The error of a sentinel that answers says more than that of one that cannot be reached.
                Err(error) if why.is_none() || !error.is_io_error() => why = Some(error),
                Err(_) => {}
            }
        }
        None
    };
    if let Ok(Some(client)) = timeout(ASK_TIMEOUT, answers).await {
        return Ok(client);
    }
    let why = match why {
        Some(error) if error.kind() == ErrorKind::MasterNameNotFoundBySentinel => {
            "they monitor none of this name that is up and is no replica; expected a name in `sentinel monitor` of \
             their configuration"
                .to_string()
        }
        Some(error) => error.to_string(),
        None => format!("they did not answer within {ASK_TIMEOUT:?}"),
    };
    Err(StoreError::Failed(format!("the sentinels name no primary that can be reached: {why}")))
}

/// A URL `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/primary[/database]`, or the same
/// with `rediss`, with the parameters `sentinel_username` and `sentinel_password`.
struct SentinelUrl {
    scheme: String,
    sentinels: Vec<ConnectionInfo>,
    /// The name of the primary.
    name: String,
    /// The database and the credentials for the primary.
    primary: RedisConnectionInfo,
}

impl SentinelUrl {
    /// Parses the parts of a URL before and after `+sentinel://`. Returns `None` if it is not valid.
    fn parse(scheme: &str, rest: &str) -> Option<Self> {
        // Other schemes, such as `unix`, have no hosts.
        if !["redis", "rediss", "valkey", "valkeys"].contains(&scheme) {
            return None;
        }
        let (authority, path) = rest.split_once('/')?;
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        // The parser of URLs knows only one host. That of the primary is not known yet.
        let mut url = parse_redis_url(&format!("{scheme}://{login}primary/{path}"))?;
        let (name, database) =
            url.path().trim_matches('/').split_once('/').unwrap_or((url.path().trim_matches('/'), ""));
        check_name(name).ok()?;
        let (name, database) = (name.to_string(), database.to_string());
        let mut of_sentinels = RedisConnectionInfo::default();
        // In the query, too, a plus sign is one: it is no space, as it would be in a form.
        let query = url.query().map(|query| query.replace('+', "%2B"));
        url.set_query(query.as_deref());
        for (key, value) in url.query_pairs() {
            of_sentinels = match &*key {
                "sentinel_username" => of_sentinels.set_username(value),
                "sentinel_password" => of_sentinels.set_password(value),
                _ => return None,
            };
        }
        url.set_query(None);
        url.set_path(&database);
        let primary = url.into_connection_info().ok()?.redis_settings().clone();
        let sentinel = |host: &str| {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
            let info = format!("{scheme}://{host}{port}").into_connection_info().ok()?;
            Some(info.set_redis_settings(of_sentinels.clone()))
        };
        let sentinels = hosts.split(',').map(sentinel).collect::<Option<_>>()?;
        Some(Self { scheme: scheme.to_string(), sentinels, name, primary })
    }

    fn server(self, settings: &ShareSettings) -> Result<(Server, String), ShareError> {
        let Self { scheme, sentinels, name, primary } = self;
        let hosts: Vec<_> = sentinels.iter().map(|sentinel| host_and_port(sentinel.addr())).collect();
        let address = format!("{scheme}+sentinel://{}/{name}/{}", hosts.join(","), primary.db());
        let client = |sentinel: &ConnectionInfo| {
            let certificates = certificates(settings, sentinel.addr(), &address)?;
            let client = sentinel_client(sentinel, &name, &primary, certificates);
            client.map_err(|_| ShareError::Authorities)
        };
        let clients = sentinels.iter().map(client).collect::<Result<_, _>>()?;
        Ok((Server::Sentinels(clients), address))
    }
}

/// Returns a client of one sentinel. The certificates are those for the sentinel and for the primary.
fn sentinel_client(
    sentinel: &ConnectionInfo,
    name: &str,
    primary: &RedisConnectionInfo,
    certificates: Option<TlsCertificates>,
) -> RedisResult<SentinelClient> {
    let mut builder = SentinelClientBuilder::new([sentinel.addr().clone()], name, SentinelServerType::Master)?;
    builder = builder.set_client_to_redis_db(primary.db());
    if let Some(user) = primary.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = primary.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = sentinel.redis_settings().username() {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = sentinel.redis_settings().password() {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if matches!(sentinel.addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(certificates) = certificates {
        builder = builder.set_client_to_redis_certificates(certificates.clone());
        builder = builder.set_client_to_sentinel_certificates(certificates);
    }
    builder.build()
}

/// Returns the certificates in `settings`, after a check that they can be used for `server`.
fn certificates(
    settings: &ShareSettings,
    server: &ConnectionAddr,
    address: &str,
) -> Result<Option<TlsCertificates>, ShareError> {
    let ShareSettings { authorities, client_certificate, .. } = settings;
    let has_certificates = authorities.is_some() || client_certificate.is_some();
    if !matches!(server, ConnectionAddr::TcpTls { .. }) {
        return if has_certificates { Err(ShareError::NoTls { address: address.to_string() }) } else { Ok(None) };
    }
    // An error means that the process already has a TLS provider, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The library takes a file without a certificate for no certificate.
    let are_certificates = |pem: &[u8]| {
        let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
        certificates.peek().is_some() && certificates.all(|certificate| certificate.is_ok())
    };
    if authorities.as_deref().is_some_and(|pem| !are_certificates(pem)) {
        return Err(ShareError::Authorities);
    }
    let client_tls = client_certificate.clone().map(|(client_cert, client_key)| {
        let is_valid = are_certificates(&client_cert) && PrivateKeyDer::from_pem_slice(&client_key).is_ok();
        is_valid.then_some(ClientTlsConfig { client_cert, client_key }).ok_or(ShareError::ClientCertificate)
    });
    let certificates = TlsCertificates { client_tls: client_tls.transpose()?, root_cert: authorities.clone() };
    Ok(has_certificates.then_some(certificates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        for url in ["redis://[::1]:7000/2", "rediss://[::1]:7000/2", "redis+sentinel://[::1]:7000,one:9/main/2"] {
            let (_, address) = Server::new(&ShareSettings::new(url, "test")).unwrap();
            assert_eq!(address, url);
        }
    }

    #[test]
    fn a_password_in_an_address_is_as_it_is_written_also_with_a_plus_sign() {
        let url = SentinelUrl::parse("redis", "user:a+b@one,two:9/main/2?sentinel_password=c+d%2Fe").unwrap();
        assert_eq!((url.primary.password(), url.primary.db()), (Some("a+b"), 2));
        let passwords = url.sentinels.iter().map(|sentinel| sentinel.redis_settings().password());
        assert_eq!(passwords.collect::<Vec<_>>(), [Some("c+d/e"); 2]);
    }
}
