//! Tests of providers behind TLS with certificates of a private authority.

use super::{chat, status};
use crate::support::authority::Authority;
use crate::support::provider::provider;
use crate::support::world::World;

#[tokio::test]
async fn a_provider_is_trusted_only_with_a_certificate_of_the_configured_authority() {
    let (own, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, own.pem()).unwrap();
    let ca_file = format!("ca_file = {:?}", file.display().to_string());
    for (authority, host, extra, expected) in [
        (&own, "localhost", ca_file.as_str(), "200"),
        // The authority is not trusted.
        (&own, "localhost", "", "503"),
        // The certificate is for another host.
        (&own, "other.example", &ca_file, "503"),
        // The certificate is signed by another authority.
        (&other, "localhost", &ca_file, "503"),
    ] {
        let port = authority.serve(host, "{}").await;
        let base_url = format!("https://localhost:{port}/v1");
        let world = World::of(&base_url, provider().1, extra, "[retry]\nconnection_errors = 0").await;
        let answer = chat(&world, "{\"model\":\"m\"}").await;
        assert_eq!(status(&answer), expected, "{host} {extra}: {answer}");
    }
}
