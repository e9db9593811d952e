//! Which calls are forwarded: those of the list below, and what the file adds for a provider. Nothing else is.
//!
//! Paths are compared as they were sent, byte by byte. No spelling is normalised, so none can mean one thing here and another to a
//! provider: `//`, `..`, `%2e`, `;` and the like are in no path of the list, and are refused in the part that a rule leaves open.

use http::Method;
use percent_encoding::percent_decode_str;

use super::config::PassthroughRule;
use super::error::ProxyError;
use super::upstream::Upstream;

/// What the body of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// There is none.
    Empty,
    Json,
    Form,
    /// One of the two.
    JsonOrForm,
    /// A call that the file allows: JSON, a form, or none.
    Any,
}

/// A call that may be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) body: BodyKind,
    /// The model that the path names.
    pub(super) model: Option<String>,
    /// Whether only providers with a matching `passthrough` serve it.
    is_passthrough: bool,
}

/// The calls that every provider may get, by method and path under `/v1/`.
const SERVED: [(&Method, &str, BodyKind); 12] = [
    (&Method::POST, "chat/completions", BodyKind::Json),
    (&Method::POST, "completions", BodyKind::Json),
    (&Method::POST, "responses", BodyKind::Json),
    (&Method::POST, "embeddings", BodyKind::Json),
    (&Method::POST, "images/generations", BodyKind::Json),
    (&Method::POST, "images/edits", BodyKind::JsonOrForm),
    (&Method::POST, "images/variations", BodyKind::Form),
    (&Method::POST, "audio/speech", BodyKind::Json),
    (&Method::POST, "audio/transcriptions", BodyKind::Form),
    (&Method::POST, "audio/translations", BodyKind::Form),
    (&Method::GET, "models", BodyKind::Empty),
    (&Method::GET, "models/", BodyKind::Empty),
];

impl Endpoint {
    /// What a request for `/v1/PATH` is.
    pub(super) fn find(method: &Method, path: &str, upstreams: &[Upstream]) -> Result<Self, ProxyError> {
        let served = || SERVED.iter().filter(|(_, listed, _)| matches(listed, path));
        if let Some((_, listed, body)) = served().find(|(allowed, ..)| *allowed == method) {
            let model = path.strip_prefix(listed).filter(|rest| !rest.is_empty()).map(decoded);
            return Ok(Self { body: *body, model, is_passthrough: false });
        }
        let rules = || upstreams.iter().flat_map(|upstream| &upstream.config.passthrough);
        let rules = || rules().filter(|rule| rule.matches(path));
        if rules().any(|rule| rule.methods.contains(method)) {
            return Ok(Self { body: BodyKind::Any, model: None, is_passthrough: true });
        }
        let mut allowed: Vec<&str> = served().map(|(allowed, ..)| allowed.as_str()).collect();
        allowed.extend(rules().flat_map(|rule| rule.methods.iter().map(Method::as_str)));
        allowed.sort_unstable();
        allowed.dedup();
        if allowed.is_empty() {
            Err(ProxyError::NotServed)
        } else {
            Err(ProxyError::BadMethod { allow: allowed.join(", ") })
        }
    }

    /// Whether a provider may get it.
    pub(super) fn is_served_by(&self, upstream: &Upstream, method: &Method, path: &str) -> bool {
        let mut rules = upstream.config.passthrough.iter();
        !self.is_passthrough || rules.any(|rule| rule.methods.contains(method) && rule.matches(path))
    }
}

impl PassthroughRule {
    /// Whether `path`, without `/v1/`, is one that the rule is for.
    fn matches(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(prefix) => matches(prefix, path),
            None => self.path == path,
        }
    }
}

/// Whether a path is `listed`, or is below it if that ends in a slash.
fn matches(listed: &str, path: &str) -> bool {
    if !listed.ends_with('/') {
        return path == listed;
    }
    path.strip_prefix(listed).is_some_and(is_plain)
}

/// Whether a part of a path reads the same to everybody: letters, digits and a few signs, in segments that are neither empty nor dots.
/// A slash in it may be written `%2F`, as clients write the ids of models.
fn is_plain(rest: &str) -> bool {
    let plain = decoded(rest);
    let is_sign = |c: char| c.is_ascii_alphanumeric() || "-._~:@+/".contains(c);
    plain.chars().all(is_sign) && plain.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::proxy::config::ProviderConfig;

    fn upstream(passthrough: Vec<PassthroughRule>) -> Upstream {
        let mut config = ProviderConfig::at("p", "http://127.0.0.1:1/v1".parse().unwrap());
        config.passthrough = passthrough;
        Upstream::new(config).unwrap()
    }

    #[test]
    fn the_calls_of_the_api_are_forwarded_and_no_other() {
        let upstreams = [upstream(Vec::new())];
        let find = |method: Method, path| Endpoint::find(&method, path, &upstreams);
        assert_eq!(find(Method::POST, "chat/completions").unwrap().body, BodyKind::Json);
        assert_eq!(find(Method::GET, "models").unwrap().model, None);
        assert_eq!(find(Method::GET, "models/acme%2Flarge").unwrap().model.as_deref(), Some("acme/large"));
        for path in ["files", "files/file-1", "responses/resp_1", "chat", "", "chat/completions/resp_1"] {
            assert_eq!(find(Method::GET, path), Err(ProxyError::NotServed), "{path}");
        }
        let allow = |allow: &str| Err(ProxyError::BadMethod { allow: allow.to_string() });
        for method in [Method::GET, Method::DELETE, Method::TRACE, Method::OPTIONS, Method::HEAD, Method::PUT] {
            assert_eq!(find(method, "chat/completions"), allow("POST"));
        }
        assert_eq!(find(Method::DELETE, "models/mine"), allow("GET"));
    }

    #[test]
    fn no_spelling_of_a_path_is_taken_for_another() {
        let upstreams = [upstream(vec![PassthroughRule { methods: vec![Method::GET], path: "batches/*".to_string() }])];
        for path in [
            "/chat/completions",
            "chat//completions",
            "chat/completions/",
            "chat/./completions",
            "chat/completions;x=1",
            "chat%2fcompletions",
            "%63hat/completions",
            "Chat/Completions",
            "chat\\completions",
            "chat/completions%00",
        ] {
            assert_eq!(Endpoint::find(&Method::POST, path, &upstreams), Err(ProxyError::NotServed), "{path}");
        }
        for rest in [
            "../files",
            "%2e%2e/files",
            "a/..%2ffiles",
            "..%5cfiles",
            "a%252f..",
            "a;b",
            "",
            "/",
            "a//b",
            "a/",
            "%00",
            "a b",
        ] {
            for under in ["models/", "batches/"] {
                let path = format!("{under}{rest}");
                assert_eq!(Endpoint::find(&Method::GET, &path, &upstreams), Err(ProxyError::NotServed), "{path}");
            }
        }
    }

    #[test]
    fn the_file_adds_calls_for_the_providers_that_it_names() {
        let rule = PassthroughRule { methods: vec![Method::GET, Method::DELETE], path: "files/*".to_string() };
        let (with, without) = (upstream(vec![rule]), upstream(Vec::new()));
        let upstreams = [without, with];
        let endpoint = Endpoint::find(&Method::DELETE, "files/file-1", &upstreams).unwrap();
        let serves = |at: usize| endpoint.is_served_by(&upstreams[at], &Method::DELETE, "files/file-1");
        assert_eq!((endpoint.body, serves(0), serves(1)), (BodyKind::Any, false, true));
        let refused = Endpoint::find(&Method::PUT, "files/file-1", &upstreams);
        assert_eq!(refused, Err(ProxyError::BadMethod { allow: "DELETE, GET".to_string() }));
        assert_eq!(Endpoint::find(&Method::GET, "files", &upstreams), Err(ProxyError::NotServed));
    }
}
