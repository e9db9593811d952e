//! A certificate authority of a test, and servers with its certificates.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate authority of the test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns the certificate of the authority in PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a certificate for `host`, and its key.
    pub(crate) fn certify(&self, host: &str) -> (Certificate, KeyPair) {
        self.certify_with(host, |_| ())
    }

    /// Returns a certificate for `host` with other properties, and its key.
    pub(crate) fn certify_with(
        &self,
        host: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_string()]).unwrap();
        // With the default name, which is that of the authority, OpenSSL takes it for one that signs itself.
        params.distinguished_name.push(DnType::CommonName, host);
        change(&mut params);
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    /// Starts a server with a certificate for `host` that gives each connection one response with the JSON
    /// `body`. Returns its port.
    pub(crate) async fn serve(&self, host: &str, body: &'static str) -> u16 {
        Self::serve_with(self.certify(host), body).await
    }

    /// Starts a server with a certificate for `host` that passes each connection on to the server without TLS
    /// at `to`. Returns its port.
    pub(crate) async fn forward(&self, host: &str, to: SocketAddr) -> u16 {
        Self::accept_with(self.certify(host), move |mut stream| async move {
            let Ok(mut server) = TcpStream::connect(to).await else { return };
            let _ = copy_bidirectional(&mut stream, &mut server).await;
        })
        .await
    }

    /// Starts a server with this certificate and key like [`serve`](Self::serve).
    pub(crate) async fn serve_with(certified: (Certificate, KeyPair), body: &'static str) -> u16 {
        Self::accept_with(certified, move |mut stream| async move {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        })
        .await
    }

    /// Starts a server for `localhost` with this version of TLS that requires a certificate of its clients.
    /// Returns its port.
    pub(crate) async fn serve_requiring_certificate(&self, version: &'static SupportedProtocolVersion) -> u16 {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let config = ServerConfig::builder_with_protocol_versions(&[version]).with_client_cert_verifier(verifier);
        let (certificate, key) = self.certify("localhost");
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        Self::accept(config, |_| async {}).await
    }

    /// Starts a server with this certificate and key that treats each connection with `handle`. Returns its
    /// port.
    async fn accept_with<F: Future<Output = ()> + Send + 'static>(
        (certificate, key): (Certificate, KeyPair),
        handle: impl Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
    ) -> u16 {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        Self::accept(config, handle).await
    }

    async fn accept<F: Future<Output = ()> + Send + 'static>(
        config: ServerConfig,
        handle: impl Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
    ) -> u16 {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, handle) = (acceptor.clone(), handle.clone());
                tokio::spawn(async move {
                    match acceptor.accept(stream).into_fallible().await {
                        Ok(stream) => handle(stream).await,
                        // A socket that is closed with bytes to read is reset, and the alert is lost.
                        Err((_, mut stream)) => drop(stream.read_to_end(&mut Vec::new()).await),
                    }
                });
            }
        });
        port
    }
}
