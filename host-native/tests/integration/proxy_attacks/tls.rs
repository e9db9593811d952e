//! Tests of providers behind TLS with certificates of a private authority.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{chat, status};
use crate::support::provider::provider;
use crate::support::world::World;

/// A certificate authority of the test.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Starts a server with a certificate for `host` that gives each connection one response. Returns its
    /// port.
    async fn serve(&self, host: &str) -> u16 {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_string()]).unwrap().signed_by(&key, &self.0).unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut head = [0; 4096];
                    let _ = stream.read(&mut head).await;
                    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        port
    }
}

#[tokio::test]
async fn a_provider_is_trusted_only_with_a_certificate_of_the_configured_authority() {
    let (own, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, own.0.pem()).unwrap();
    let ca_file = format!("ca_file = {:?}", file.display().to_string());
    for (authority, host, extra, expected) in [
        (&own, "localhost", ca_file.as_str(), "200"),
        // The authority is not trusted.
        (&own, "localhost", "", "502"),
        // The certificate is for another host.
        (&own, "other.example", &ca_file, "502"),
        // The certificate is signed by another authority.
        (&other, "localhost", &ca_file, "502"),
    ] {
        let port = authority.serve(host).await;
        let base_url = format!("https://localhost:{port}/v1");
        let world = World::of(&base_url, provider().1, extra, "[retry]\nconnection_errors = 0").await;
        let answer = chat(&world, "{\"model\":\"m\"}").await;
        assert_eq!(status(&answer), expected, "{host} {extra}: {answer}");
    }
}
