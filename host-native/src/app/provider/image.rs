//! Calls to the endpoint of OpenAI-compatible APIs that generates images.
//!
//! | answer | image |
//! | --- | --- |
//! | `b64_json` | its content |
//! | `url` with a data URL | its content |
//! | `url` with an address | the file there, which is downloaded without the key, as part of the call |

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::dns::Resolve;
use reqwest::{Certificate, Url};
use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::time::Duration;

use super::address::{CheckedResolver, SystemResolver, is_inside, is_private};
use super::answer::{CallError, unreadable};
use super::chat::ChatEndpoint;
use super::http::{HttpClient, HttpEndpoint, RequestExtras};
use super::media::{MAX_FILE_BYTES, image_extension};
use super::{CallOutput, with_rate_feedback};
use crate::app::token_counts::TokenCounts;

/// The maximum size of an image in bytes.
const MAX_IMAGE_BYTES: usize = MAX_FILE_BYTES as usize;

/// The maximum size of an answer in bytes: an image in base64, and what is beside it.
const MAX_ANSWER_BYTES: usize = MAX_IMAGE_BYTES / 3 * 4 + (1 << 20);

const WHAT: &str = "an image";

const PRIVATE: &str = "its address is in a private network, and not that of the provider";

/// A client of one model that generates images.
#[derive(Clone)]
pub struct ImageClient {
    http: HttpClient,
    /// Resolves the names in addresses of images.
    lookup: Arc<dyn Resolve>,
    base_url: Url,
    authorities: Option<Vec<Certificate>>,
    timeout: Duration,
    model: String,
    extra_body: Map<String, Value>,
}

impl fmt::Debug for ImageClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageClient").field("model", &self.model).finish_non_exhaustive()
    }
}

/// A request for one image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageRequest {
    /// What the image shows.
    pub prompt: String,
    /// The size, such as `1024x1024`.
    pub size: Option<String>,
    /// Further keys of the request.
    pub extra: Map<String, Value>,
}

/// An image that a model has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedImage {
    /// The content of its file.
    pub bytes: Vec<u8>,
    /// The extension of its type, without a dot.
    pub extension: &'static str,
}

impl ImageClient {
    /// Creates a client with its own connection pool. `images/generations` is appended to the base URL. Fails
    /// if TLS cannot be set up.
    pub fn new(endpoint: ChatEndpoint) -> Result<Self, String> {
        let (base_url, model) = (endpoint.base_url.clone(), endpoint.model.clone());
        let (authorities, timeout) = (endpoint.authorities.clone(), endpoint.timeout);
        let http = endpoint.client("images/generations")?;
        let lookup = Arc::new(SystemResolver);
        Ok(Self { http, lookup, base_url, authorities, timeout, model, extra_body: Map::new() })
    }

    /// Adds `extras` to all requests.
    #[must_use]
    pub fn with_extras(self, extras: RequestExtras) -> Self {
        Self { http: self.http.with_extras(&extras), extra_body: extras.body, ..self }
    }

    /// Checks that the server can be reached and accepts the key. Makes no image.
    pub async fn check_reachable(&self) -> Result<(), CallError> {
        self.http.check_reachable().await
    }

    /// Makes one call, and returns the image.
    pub async fn generate(&self, request: ImageRequest) -> Result<CallOutput<GeneratedImage>, CallError> {
        let ImageRequest { prompt, size, extra } = request;
        let mut body = self.extra_body.clone();
        body.extend(extra);
        body.insert("model".to_string(), self.model.clone().into());
        body.insert("prompt".to_string(), prompt.into());
        body.insert("n".to_string(), 1.into());
        body.extend(size.map(|size| ("size".to_string(), size.into())));
        let CallOutput { value, usage } = self.http.post_up_to(MAX_ANSWER_BYTES, &body, read).await?;
        let bytes = match value {
            Source::Content(bytes) => bytes,
            Source::Address(url) => self.download(url, usage).await?,
        };
        let malformed = |detail: String| CallError::Malformed { what: WHAT, detail, usage };
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err(malformed(format!("it is longer than {MAX_IMAGE_BYTES} bytes")));
        }
        let extension = image_extension(&bytes);
        let extension = extension.ok_or_else(|| malformed("it is no PNG, JPEG, GIF or WebP".to_string()))?;
        Ok(CallOutput { value: GeneratedImage { bytes, extension }, usage })
    }

    /// Reads the image at the address that an answer has.
    async fn download(&self, url: Url, usage: Option<Usage>) -> Result<Vec<u8>, CallError> {
        let malformed = |detail: &str| CallError::Malformed { what: WHAT, detail: detail.to_string(), usage };
        check_address(&url, &self.base_url).map_err(malformed)?;
        let failed = |detail: String| CallError::NotDownloaded { detail, usage };
        let foreign = url.host_str().filter(|host| Some(*host) != self.base_url.host_str()).map(str::to_string);
        let is_refused = Arc::new(AtomicBool::new(false));
        let refused = Arc::clone(&is_refused);
        // Other names than that of the file are those of proxies.
        let accept = move |name: &str, mut addresses: Vec<SocketAddr>| {
            let is_foreign = foreign.as_ref().is_some_and(|host| host.eq_ignore_ascii_case(name));
            if is_foreign && !addresses.is_empty() {
                addresses.retain(|address| !is_private(address.ip()));
                refused.fetch_or(addresses.is_empty(), Ordering::Relaxed);
            }
            if addresses.is_empty() { Err(io::Error::other(PRIVATE)) } else { Ok(addresses) }
        };
        let (authorities, timeout) = (self.authorities.clone(), self.timeout);
        let resolver = CheckedResolver { lookup: Arc::clone(&self.lookup), accept };
        let client = HttpClient::resolving(HttpEndpoint { url, api_key: None, timeout, authorities }, resolver);
        let client = client.map_err(failed)?;
        // Rate limits that the answer states are not those of the model.
        let (file, _) = with_rate_feedback(client.get_up_to(MAX_IMAGE_BYTES)).await;
        let is_refused = is_refused.load(Ordering::Relaxed);
        file.map_err(|error| if is_refused { malformed(PRIVATE) } else { failed(error.to_string()) })
    }
}

/// Checks the address that an answer has. It must not lead to servers that only this machine can reach.
fn check_address(url: &Url, base_url: &Url) -> Result<(), &'static str> {
    if url.scheme() != "https" && url.origin() != base_url.origin() {
        return Err("its address is neither one with https nor that of the provider");
    }
    if url.host_str() != base_url.host_str() && url.host_str().is_some_and(is_inside) {
        return Err(PRIVATE);
    }
    Ok(())
}

/// Where an image is.
#[derive(Debug, PartialEq)]
pub(crate) enum Source {
    Content(Vec<u8>),
    Address(Url),
}

#[derive(Deserialize)]
struct Images {
    data: Vec<Image>,
    #[serde(default)]
    usage: TokenCounts,
}

#[derive(Deserialize)]
struct Image {
    b64_json: Option<String>,
    url: Option<String>,
}

/// Reads where the first image of an answer is.
pub(crate) fn read(body: &[u8]) -> Result<CallOutput<Source>, CallError> {
    let images: Images = serde_json::from_slice(body).map_err(|error| unreadable(WHAT, &error, body))?;
    let usage = images.usage.known();
    let source = source(images.data.into_iter().next());
    let malformed = |detail: &str| CallError::Malformed { what: WHAT, detail: detail.to_string(), usage };
    Ok(CallOutput { value: source.map_err(malformed)?, usage })
}

fn source(image: Option<Image>) -> Result<Source, &'static str> {
    let Image { b64_json, url } = image.ok_or("it has no data")?;
    // Gateways send the one that they do not have as an empty text.
    let given = |field: Option<String>| field.filter(|field| !field.is_empty());
    let base64 = match (given(b64_json), given(url)) {
        (Some(base64), _) => base64,
        (None, Some(url)) => match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
            Some((_, base64)) => base64.to_string(),
            None => return Url::parse(&url).map(Source::Address).map_err(|_| "its `url` is no address"),
        },
        (None, None) => return Err("it has neither `b64_json` nor `url`"),
    };
    STANDARD.decode(base64).map(Source::Content).map_err(|_| "it is not valid base64")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use reqwest::dns::{Addrs, Name, Resolving};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_in_a_private_network_is_read_only_from_the_host_of_the_provider() {
        let is_read =
            |url: &str, base_url: &str| check_address(&url.parse().unwrap(), &base_url.parse().unwrap()).is_ok();
        let public = "https://api.test/v1";
        for url in ["https://cdn.test/a.png", "https://api.test/a.png", "https://9.9.9.9/a.png"] {
            assert!(is_read(url, public), "{url}");
        }
        for host in ["127.0.0.1", "localhost", "10.0.0.7", "169.254.169.254", "[::1]", "[fd00::1]", "[::ffff:10.0.0.7]"]
        {
            let url = format!("https://{host}/a.png");
            assert!(!is_read(&url, public), "{url}");
            assert!(is_read(&url, &format!("https://{host}:8443/v1")), "{url}");
        }
        assert!(!is_read("http://api.test/a.png", public) && !is_read("ftp://api.test/a.png", public));
    }

    /// Resolves every name to these addresses.
    struct Names(&'static [&'static str]);

    impl Resolve for Names {
        fn resolve(&self, _: Name) -> Resolving {
            let addresses = self.0.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect::<Vec<_>>();
            Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
        }
    }

    /// Downloads a file from `host`, which has these addresses, for a provider at `own`. Returns the error,
    /// and the number of connections to a server on this machine.
    async fn download(host: &str, own: &str, addresses: &'static [&'static str]) -> (CallError, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&connections);
        // It closes each connection at once.
        let server = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
        let local = ChatEndpoint::local(&format!("http://{own}:{port}/v1"));
        // The machine may have no authorities.
        let endpoint = ChatEndpoint { authorities: Some(Vec::new()), ..local };
        let client = ImageClient { lookup: Arc::new(Names(addresses)), ..ImageClient::new(endpoint).unwrap() };
        let scheme = if host == own { "http" } else { "https" };
        let url = format!("{scheme}://{host}:{port}/a.png").parse().unwrap();
        let error = client.download(url, None).await.unwrap_err();
        server.abort();
        (error, connections.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_a_private_network_is_read_only_if_it_is_that_of_the_provider() {
        for addresses in [&["127.0.0.1"][..], &["10.0.0.7", "::1"], &["169.254.169.254"], &["::ffff:127.0.0.1"]] {
            let (error, connections) = download("cdn.test", "api.test", addresses).await;
            assert!(matches!(&error, CallError::Malformed { detail, .. } if detail == PRIVATE), "{error}");
            assert_eq!(connections, 0, "{addresses:?}");
        }
        let (error, connections) = download("api.test", "api.test", &["127.0.0.1"]).await;
        assert!(matches!(error, CallError::NotDownloaded { .. }), "the server answers nothing: {error}");
        assert!(connections > 0);
    }

    #[test]
    fn an_answer_has_its_image_as_base64_or_at_an_address() {
        let answer = |data: &str| read(format!(r#"{{"created":1,"data":[{data}]}}"#).as_bytes());
        let content = |bytes: &[u8]| Source::Content(bytes.to_vec());
        assert_eq!(answer(r#"{"b64_json":"AAEC","revised_prompt":"A boat."}"#).unwrap().value, content(&[0, 1, 2]));
        assert_eq!(
            answer(r#"{"b64_json":null,"url":"data:image/png;base64,AAEC"}"#).unwrap().value,
            content(&[0, 1, 2])
        );
        let address = Source::Address("https://h.test/a.png?sig=1".parse().unwrap());
        assert_eq!(answer(r#"{"url":"https://h.test/a.png?sig=1"}"#).unwrap().value, address);
        for (data, why) in [
            ("", "it has no data"),
            ("{}", "neither `b64_json` nor `url`"),
            (r#"{"b64_json":"A"}"#, "not valid base64"),
            (r#"{"url":"boat.png"}"#, "its `url` is no address"),
        ] {
            let error = answer(data).unwrap_err();
            assert!(matches!(error, CallError::Malformed { .. }) && error.to_string().contains(why), "{error}");
        }
        let usage = read(br#"{"data":[{"b64_json":"AA=="}],"usage":{"input_tokens":5,"output_tokens":9}}"#);
        assert_eq!(usage.unwrap().usage, Some(Usage::tokens(5, 9)));
        assert!(matches!(read(b"<html>"), Err(CallError::Unreadable { .. })));
    }
}
