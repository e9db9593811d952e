//! Tests of the servers over which limits are shared: TLS, passwords, permissions, and servers that are no
//! single primary.

use std::sync::Arc;

use super::{LIMIT, ProxyProcess};
use crate::support::Scratch;
use crate::support::authority::Authority;
use crate::support::patience::until;
use crate::support::provider::provider;
use crate::support::redis_server::{RedisServer, free_port};

/// Returns a directory with a proxy file whose `[share]` has these keys more.
pub(super) fn scratch_with(base_url: &str, keys: &str) -> Scratch {
    let scratch = Scratch::new(1);
    write_proxy(&scratch, base_url, keys);
    scratch
}

pub(super) fn write_proxy(scratch: &Scratch, base_url: &str, keys: &str) {
    scratch.write(
        "proxy.toml",
        &format!(
            "listen = \"127.0.0.1:0\"\n[share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\n{keys}\n\
             [[providers]]\nname = \"p\"\nbase_url = \"{base_url}\"\nmax_parallel = {LIMIT}\nlimit = \"fixed\"\n"
        ),
    );
}

/// Checks that a proxy does not start with this address, for this reason, and does not show the password.
pub(super) fn check_rejected(scratch: &mut Scratch, url: &str, reason: &str) {
    scratch.env("SHARE_URL", url);
    for arguments in [&["proxy", "proxy.toml"][..], &["proxy", "proxy.toml", "--check"]] {
        let ended = scratch.run(arguments);
        ended.assert(2, &[reason]);
        assert!(!ended.all().contains("pass-word") && !ended.all().contains("wrong-word"), "{}", ended.all());
    }
}

/// A server with TLS beside its plain port.
pub(super) struct TlsServer {
    plain: RedisServer,
    pub(super) port: u16,
    authority: Arc<Authority>,
    _files: tempfile::TempDir,
}

impl TlsServer {
    /// Starts a server with a certificate for `localhost`, and with a password.
    fn start(keys: &[&str]) -> Self {
        let keys: Vec<_> = ["--requirepass", "pass-word"].iter().chain(keys).copied().collect();
        Self::start_for("localhost", Arc::new(Authority::new()), &keys)
    }

    /// Starts a server with these keys, and a certificate for `host` by `authority`, whose clients it trusts.
    pub(super) fn start_for(host: &str, authority: Arc<Authority>, keys: &[&str]) -> Self {
        let (files, port) = (tempfile::tempdir().unwrap(), free_port());
        let (certificate, key) = authority.certify(host);
        let write = |name: &str, text: String| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let port_text = port.to_string();
        let certificate = write("certificate.pem", certificate.pem());
        let key = write("key.pem", key.serialize_pem());
        let ca = write("authority.pem", authority.pem());
        let mut arguments = keys.to_vec();
        arguments.extend(["--tls-port", &port_text, "--tls-cert-file", &certificate, "--tls-key-file", &key]);
        arguments.extend(["--tls-ca-cert-file", &ca]);
        Self { plain: RedisServer::start_with(&arguments), port, authority, _files: files }
    }

    fn url(&self) -> String {
        format!("rediss://:pass-word@localhost:{}", self.port)
    }
}

/// The keys of `[share]` with the files of [`write_certificates`].
pub(super) const CERTIFICATES: &str =
    "ca_file = \"authority.pem\"\nclient_cert_file = \"client.pem\"\nclient_key_file = \"key.pem\"";

/// Writes the authority, and a certificate by it for a client.
pub(super) fn write_certificates(scratch: &Scratch, authority: &Authority) {
    let (certificate, key) = authority.certify("client");
    scratch.write("authority.pem", &authority.pem());
    scratch.write("client.pem", &certificate.pem());
    scratch.write("key.pem", &key.serialize_pem());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_shared_over_tls_with_a_private_authority() {
    let server = TlsServer::start(&["--tls-auth-clients", "no"]);
    let (base_url, seen) = provider();
    let mut scratch = scratch_with(&base_url, "ca_file = \"authority.pem\"");
    scratch.write("authority.pem", &server.authority.pem());
    scratch.env("SHARE_URL", &server.url());
    let proxies = [ProxyProcess::start(&scratch), ProxyProcess::start(&scratch)];
    assert_eq!(proxies[0].sharing, format!("shares limits as `test` over rediss://localhost:{}/0", server.port));
    let mut answers = tokio::task::JoinSet::new();
    for proxy in &proxies {
        proxy.send(LIMIT, &mut answers);
    }
    for proxy in &proxies {
        proxy.until_members(2).await;
    }
    until(async || seen.in_flight(), |calls| *calls == LIMIT).await;
    seen.go.add_permits(2 * LIMIT as usize);
    assert!(answers.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(seen.peak.load(std::sync::atomic::Ordering::SeqCst), LIMIT);
    // A pipeline file has the same key.
    let pipeline = "[seed]\npath = \"data.csv\"\n[share]\nurl_env = \"SHARE_URL\"\nname = \"test\"\n\
                    ca_file = \"authority.pem\"\n\
                    [[models]]\nname = \"writer\"\nprovider = \"mock\"\nmax_parallel = 4\nmock = {}\n\
                    [[columns]]\nname = \"title\"\nmodel = \"writer\"\nprompt = \"A title for {{ note }}\"\n";
    scratch.write("pipeline.toml", pipeline);
    scratch.run(&["run", "pipeline.toml"]).assert(0, &["shares limits as `test` over rediss://localhost:"]);
}

#[test]
fn a_server_whose_certificate_does_not_fit_the_settings_is_an_error_that_says_what_to_do() {
    let server = TlsServer::start(&["--tls-auth-clients", "no"]);
    let at = "http://127.0.0.1:1/v1";
    let mut scratch = scratch_with(at, "");
    scratch.write("authority.pem", &server.authority.pem());
    scratch.write("other.pem", &Authority::new().pem());
    scratch.write("empty.pem", "nothing");
    let unknown = "no known authority has signed its certificate; `ca_file` in [share] names a private one";
    check_rejected(&mut scratch, &server.url(), unknown);
    write_proxy(&scratch, at, "ca_file = \"other.pem\"");
    check_rejected(&mut scratch, &server.url(), unknown);
    write_proxy(&scratch, at, "ca_file = \"empty.pem\"");
    check_rejected(&mut scratch, &server.url(), "proxy.toml:5:11: empty.pem holds no certificate");
    write_proxy(&scratch, at, "ca_file = \"authority.pem\"");
    let by_address = server.url().replace("localhost", "127.0.0.1");
    check_rejected(&mut scratch, &by_address, "its certificate is for another host");
    check_rejected(&mut scratch, &server.plain.url(), "which has no TLS: expected an address with `rediss://`");
    let plain_port = format!("rediss://:pass-word@localhost:{}", server.plain.port());
    check_rejected(&mut scratch, &plain_port, "which must be one for TLS with `rediss://`");
    write_proxy(&scratch, at, "");
    let without_tls = format!("redis://:pass-word@localhost:{}", server.port);
    check_rejected(&mut scratch, &without_tls, "if it expects TLS, the address begins with `rediss://`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_requires_certificates_of_its_clients_gets_that_of_the_settings() {
    let server = TlsServer::start(&["--tls-auth-clients", "yes"]);
    let (base_url, seen) = provider();
    let mut scratch = scratch_with(&base_url, CERTIFICATES);
    write_certificates(&scratch, &server.authority);
    scratch.env("SHARE_URL", &server.url());
    let proxy = ProxyProcess::start(&scratch);
    let mut answers = tokio::task::JoinSet::new();
    proxy.send(1, &mut answers);
    until(async || seen.in_flight(), |calls| *calls == 1).await;
    proxy.until_members(1).await;
    seen.go.add_permits(1);
    assert_eq!(answers.join_all().await, [200]);
}

#[test]
fn a_client_certificate_that_is_missing_or_does_not_fit_is_an_error_that_says_what_to_do() {
    let server = TlsServer::start(&["--tls-auth-clients", "yes"]);
    let at = "http://127.0.0.1:1/v1";
    let mut scratch = scratch_with(at, "ca_file = \"authority.pem\"");
    write_certificates(&scratch, &server.authority);
    let required =
        "it requires a certificate of its clients; expected `client_cert_file` and `client_key_file` in [share]";
    check_rejected(&mut scratch, &server.url(), required);
    write_proxy(&scratch, at, "client_cert_file = \"client.pem\"");
    check_rejected(&mut scratch, &server.url(), "`client_cert_file` is given without `client_key_file`");
    write_proxy(&scratch, at, "client_key_file = \"key.pem\"");
    check_rejected(&mut scratch, &server.url(), "`client_key_file` is given without `client_cert_file`");
    write_proxy(&scratch, at, CERTIFICATES);
    let plain = server.plain.url();
    check_rejected(&mut scratch, &plain, "which has no TLS: expected an address with `rediss://`");
    let other = Authority::new().certify("client");
    scratch.write("key.pem", &other.1.serialize_pem());
    check_rejected(&mut scratch, &server.url(), "`client_key_file` in [share] is not the key of `client_cert_file`");
    scratch.write("client.pem", &other.0.pem());
    check_rejected(&mut scratch, &server.url(), "it does not know the authority that has signed the certificate");
    scratch.write("key.pem", &other.0.pem());
    check_rejected(&mut scratch, &server.url(), "key.pem holds no private key");
}

#[test]
fn a_wrong_or_missing_password_is_an_error_that_says_what_to_do() {
    let server = RedisServer::start_with_password();
    let mut scratch = scratch_with("http://127.0.0.1:1/v1", "");
    let at = format!("127.0.0.1:{}", server.port());
    let rejected = "it rejects the user or the password in the address; check both";
    check_rejected(&mut scratch, &format!("redis://:wrong-word@{at}"), rejected);
    check_rejected(&mut scratch, &format!("redis://user:pass-word@{at}"), rejected);
    let missing = "it requires a password; expected an address such as `redis://user:password@host:port`";
    check_rejected(&mut scratch, &format!("redis://{at}"), missing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_no_more_permissions_than_the_documented_ones() {
    let server = RedisServer::start();
    let page = include_str!("../../../docs/sharing.md");
    let rule = page.lines().find(|line| line.starts_with("ACL SETUSER tidegate ")).unwrap();
    assert!(server.send(rule).unwrap().contains("+OK"), "{rule}");
    let url = format!("redis://tidegate:password@127.0.0.1:{}", server.port());
    let (base_url, seen) = provider();
    let mut scratch = scratch_with(&base_url, "");
    scratch.env("SHARE_URL", &url);
    let mut proxy = ProxyProcess::start(&scratch);
    let mut answers = tokio::task::JoinSet::new();
    proxy.send(1, &mut answers);
    until(async || seen.in_flight(), |calls| *calls == 1).await;
    seen.go.add_permits(1);
    assert_eq!(answers.join_all().await, [200]);
    proxy.until_members(1).await;
    assert!(proxy.share().await["error"].is_null());
    scratch.run(&["proxy", "proxy.toml", "--check"]).assert(0, &["  p/held/chat: 8 slots, 1 process, leader "]);
    proxy.signal("-INT");
    assert!(proxy.child.wait().unwrap().success());
    // Without one of them, a proxy does not start, and says why.
    for command in ["eval", "set"] {
        assert!(server.send(&format!("ACL SETUSER tidegate -{command}")).unwrap().contains("+OK"));
        check_rejected(&mut scratch, &url, "the user in the address may not do this");
        assert!(server.send(&format!("ACL SETUSER tidegate +{command}")).unwrap().contains("+OK"));
    }
    // The list of limits is a part of the check only.
    assert!(server.send("ACL SETUSER tidegate -scan").unwrap().contains("+OK"));
    scratch.run(&["proxy", "proxy.toml", "--check"]).assert(0, &["  the shared limits cannot be listed: "]);
}

#[test]
fn a_node_of_a_cluster_is_an_error_whichever_keys_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let server = RedisServer::start_with(&["--cluster-enabled", "yes", "--dir", &path]);
    let mut scratch = scratch_with("http://127.0.0.1:1/v1", "");
    let cluster = "it is a node of a Redis Cluster, expected a single primary";
    // It has no keys.
    check_rejected(&mut scratch, &server.url(), cluster);
    // It has all keys.
    assert!(server.send("CLUSTER ADDSLOTSRANGE 0 16383").unwrap().contains("+OK"));
    let state = || server.send("CLUSTER INFO").unwrap();
    crate::support::patience::wait_until(state, |info| info.contains("cluster_state:ok"));
    check_rejected(&mut scratch, &server.url(), cluster);
}
