//! The list of calls that are forwarded. The configuration file can add others for a provider.
//!
//! Paths are compared byte by byte as they were sent. Nothing is normalised, so a path cannot mean one thing
//! here and another to a provider. `//`, `..`, `%2e`, `;` and the like occur in no listed path, and are
//! rejected in the part that a rule leaves open.

use http::Method;
use percent_encoding::percent_decode_str;

use super::config::PassthroughRule;
use super::error::ProxyError;
use super::upstream::Upstream;

/// The kind of body that a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// No body.
    Empty,
    Json,
    Form,
    /// JSON or a form.
    JsonOrForm,
    /// A `passthrough` call: JSON, a form, or no body.
    Any,
}

/// A call that may be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) body: BodyKind,
    /// The model that the path names.
    pub(super) model: Option<String>,
    /// Whether only providers with a matching `passthrough` rule serve the call.
    is_passthrough: bool,
}

/// The calls that are forwarded to every provider, by method and path under `/v1/`.
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
    /// Returns the call for a request to `/v1/PATH`.
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

    /// Returns whether the call may be forwarded to a provider.
    pub(super) fn is_served_by(&self, upstream: &Upstream, method: &Method, path: &str) -> bool {
        let mut rules = upstream.config.passthrough.iter();
        !self.is_passthrough || rules.any(|rule| rule.methods.contains(method) && rule.matches(path))
    }
}

impl PassthroughRule {
    /// Returns whether the rule matches `path`, which is without `/v1/`.
    fn matches(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(prefix) => matches(prefix, path),
            None => self.path == path,
        }
    }
}

/// Returns whether a path equals `listed`, or is below it if `listed` ends in a slash.
fn matches(listed: &str, path: &str) -> bool {
    if !listed.ends_with('/') {
        return path == listed;
    }
    path.strip_prefix(listed).is_some_and(is_plain)
}

/// Returns whether the rest of a path is unambiguous: letters, digits and a few symbols, in segments that are
/// neither empty nor dots. A slash may be written `%2F`, as clients do in model ids.
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
    fn only_listed_calls_are_forwarded() {
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
    fn another_spelling_of_a_path_is_rejected() {
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
    fn passthrough_adds_calls_for_one_provider() {
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
