//! What a request asks for: as much of its body as admission needs to know.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::budget::Usage;
use tidegate_core::request::Domain;

use super::answer::Refusal;

/// Bytes of text for each token, as the usual rule of thumb has it.
const BYTES_PER_TOKEN: usize = 4;

/// What a body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    /// The model, if it names one.
    pub(super) model: Option<Cow<'a, str>>,
    /// Where the model stands in the body, with the quotes that it has in JSON.
    model_at: Option<Range<usize>>,
    is_form: bool,
    /// What it may use: a token for every four bytes of text sent, and as many received as it allows. Embedded files are
    /// not counted; nothing is assumed of answers without a bound.
    pub(super) estimate: Usage,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_output_tokens: Option<&'a RawValue>,
}

impl<'a> Asked<'a> {
    /// Reads a body of JSON or a form. One that claims to be neither says nothing.
    ///
    /// JSON that is none, or names its model twice, is refused: another reader might find a model in it all the same, and
    /// the call would have gone out under the limits of no model.
    pub(super) fn read(content_type: &str, body: &'a [u8]) -> Result<Self, Refusal> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let claims = |kind: &str| content_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind));
        if claims("multipart/form-data") {
            let model_at = form_model(content_type, body)?;
            let model = model_at.clone().and_then(|at| std::str::from_utf8(&body[at]).ok());
            return Ok(Self { model: model.map(Cow::Borrowed), model_at, is_form: true, ..Self::default() });
        }
        let estimate = Usage::tokens(tokens(text_bytes(body)), 0);
        let said = match serde_json::from_slice::<Body<'_>>(body) {
            Ok(said) => said,
            Err(_) if claims("application/json") => return Err(Refusal::BadJson),
            Err(_) => return Ok(Self { estimate, ..Self::default() }),
        };
        let most = said.max_completion_tokens.or(said.max_output_tokens).or(said.max_tokens);
        let output = most.and_then(|most| most.get().parse::<u64>().ok()).unwrap_or(0);
        let output = u32::try_from(output).unwrap_or(u32::MAX);
        let model = said.model.and_then(|raw| serde_json::from_str::<Text<'_>>(raw.get()).ok());
        let model_at = said.model.map(|raw| {
            let start = raw.get().as_ptr() as usize - body.as_ptr() as usize;
            start..start + raw.get().len()
        });
        let estimate = Usage::tokens(estimate.input_tokens, output);
        Ok(Self { model: model.map(|text| text.0), model_at, is_form: false, estimate })
    }

    /// `body` with another model in the place of its own; as it is, if it names none.
    pub(super) fn with_model(&self, body: &Bytes, model: &str) -> Bytes {
        let Some(at) = self.model_at.clone() else { return body.clone() };
        let written = if self.is_form { model.to_string() } else { serde_json::Value::from(model).to_string() };
        let parts = [&body[..at.start], written.as_bytes(), &body[at.end..]];
        Bytes::from(parts.concat())
    }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn tokens(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// The length of a body without the files that are embedded in it as `data:` addresses.
fn text_bytes(body: &[u8]) -> usize {
    let mut embedded = 0;
    let mut from = 0;
    while let Some(at) = memmem::find(&body[from..], b"\"data:") {
        let start = from + at + 1;
        let len = memchr::memchr(b'"', &body[start..]).unwrap_or(body.len() - start);
        embedded += len;
        from = start + len;
    }
    body.len() - embedded
}

/// Where the value of the field `model` stands in a form. A form that has two is refused, like JSON that does.
fn form_model(content_type: &str, body: &[u8]) -> Result<Option<Range<usize>>, Refusal> {
    const LONGEST: usize = 256;
    let Some(boundary) = boundary(content_type) else { return Ok(None) };
    let line = format!("--{boundary}");
    let is_delimiter = |at: &usize| {
        let after = &body[at + line.len()..];
        (*at == 0 || body[..*at].ends_with(b"\r\n")) && (after.starts_with(b"\r\n") || after.starts_with(b"--"))
    };
    let delimiters: Vec<usize> = memmem::find_iter(body, line.as_bytes()).filter(is_delimiter).collect();
    let mut found = None;
    for part in delimiters.windows(2) {
        let (start, end) = (part[0] + line.len(), part[1] - 2);
        let Some(head) = memmem::find(&body[start..end], b"\r\n\r\n") else { continue };
        if !is_named_model(&body[start..start + head]) {
            continue;
        }
        if found.is_some() {
            return Err(Refusal::BadJson);
        }
        found = Some(start + head + 4..end);
    }
    let Some(value) = found else { return Ok(None) };
    let Ok(text) = std::str::from_utf8(&body[value.clone()]) else { return Ok(None) };
    let start = value.start + (text.len() - text.trim_start().len());
    let len = text.trim().len();
    Ok((1..=LONGEST).contains(&len).then(|| start..start + len))
}

/// What the parts of a form are separated by.
fn boundary(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.trim().split_once('=')?;
        let value = value.trim_matches('"');
        (name.eq_ignore_ascii_case("boundary") && !value.is_empty()).then_some(value)
    })
}

/// Whether these are the headers of a part with the name `model`.
fn is_named_model(head: &[u8]) -> bool {
    let Ok(head) = std::str::from_utf8(head) else { return false };
    head.lines().any(|line| {
        let mut parameters = line.split(';').map(str::trim);
        let kind = parameters.next().unwrap_or_default();
        kind.to_ascii_lowercase().starts_with("content-disposition:")
            && parameters.any(|parameter| matches!(parameter, "name=\"model\"" | "name=model"))
    })
}

/// What kind of call an address under `/v1/` is, however it is spelled. Kinds without a name of their own go by the first
/// part of it.
pub(super) fn domain(path: &str) -> Domain {
    let plain = decoded(path.split('/').next().unwrap_or_default()).to_ascii_lowercase();
    match plain.split('/').next().unwrap_or_default() {
        "chat" | "completions" | "responses" => Domain::Chat,
        "embeddings" => Domain::Embedding,
        "images" => Domain::Image,
        other => Domain::Other(other.to_string()),
    }
}

/// `text` with every `%xx` replaced by the byte it stands for.
pub(super) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |ahead: usize| char::from(*bytes.get(at + ahead)?).to_digit(16);
        if let (b'%', Some(high), Some(low)) = (byte, digit(1), digit(2)) {
            plain.push((high * 16 + low) as u8);
            at += 3;
        } else {
            plain.push(*byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_and_the_bound_of_the_answer_are_read_and_the_rest_is_left_alone() {
        let body = br#"{"messages":[{"role":"user","content":"hi"}],"model":"gpt\/x","max_tokens":7,"stream":true}"#;
        let asked = Asked::read("application/json", body).unwrap();
        assert_eq!(asked.model.as_deref(), Some("gpt/x"));
        assert_eq!(asked.estimate, Usage::tokens((body.len() as u32).div_ceil(4), 7));
        let renamed = asked.with_model(&Bytes::from_static(body), "other \"one\"");
        let renamed: serde_json::Value = serde_json::from_slice(&renamed).unwrap();
        assert_eq!((&renamed["model"], &renamed["max_tokens"]), (&"other \"one\"".into(), &7.into()));
    }

    #[test]
    fn a_body_that_is_nothing_known_says_nothing() {
        for body in ["", "{\"model\":3}", "{\"model\":null}"] {
            assert_eq!(Asked::read("application/json", body.as_bytes()).unwrap().model, None, "{body}");
        }
        assert_eq!(Asked::read("audio/wav", b"RIFF\x01").unwrap().model, None);
        assert_eq!(Asked::read("", br#"{"model":"a","max_tokens":"many"}"#).unwrap().estimate.output_tokens, 0);
    }

    #[test]
    fn json_that_others_might_read_otherwise_is_refused() {
        for body in
            ["{", "[]", "\u{1}", r#"{"model":"a","x":NaN}"#, r#"{"model":"a","model":"b"}"#, r#"{"model":"a"} {}"#]
        {
            let refused = Asked::read("Application/JSON; charset=utf-8", body.as_bytes());
            assert_eq!(refused, Err(Refusal::BadJson), "{body}");
        }
    }

    #[test]
    fn embedded_files_are_no_text() {
        let body = format!(r#"{{"model":"m","url":"data:image/png;base64,{}"}}"#, "A".repeat(4_000));
        let asked = Asked::read("application/json", body.as_bytes()).unwrap();
        assert!(asked.estimate.input_tokens < 20, "{:?}", asked.estimate);
        assert_eq!(text_bytes(b"{\"url\":\"data:never ends"), 8);
    }

    #[test]
    fn the_model_of_a_form_is_found() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\0\x01\r\n\
            --b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--b--\r\n";
        let asked = Asked::read("multipart/form-data; boundary=b", body).unwrap();
        assert_eq!(asked.model.as_deref(), Some("whisper"));
        let renamed = asked.with_model(&Bytes::from_static(body), "other");
        let expected = String::from_utf8_lossy(body).replace("whisper", "other");
        assert_eq!(renamed, expected.as_bytes());
        let model = |body: &[u8]| form_model("multipart/form-data; boundary=\"b\"", body);
        assert_eq!(model(b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nno end"), Ok(None));
        let twice = b"--b\r\ncontent-disposition: form-data; name=model\r\n\r\na\r\n".repeat(2);
        assert_eq!(model(&[&twice[..], b"--b--"].concat()), Err(Refusal::BadJson));
    }

    #[test]
    fn what_is_in_a_file_of_a_form_is_no_model() {
        let of_other_names = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n\
            Content-Disposition: form-data; name=\"model\"\r\n\r\ncheap\r\n--bc\r\n\
            --b\r\nContent-Disposition: form-data; filename=\"model\"; xname=\"model\"\r\n\r\ncheap\r\n\
            --b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ndear\r\n--b--\r\n";
        let asked = Asked::read("Multipart/Form-Data; charset=x; Boundary=b", of_other_names).unwrap();
        assert_eq!(asked.model.as_deref(), Some("dear"));
    }

    #[test]
    fn an_address_says_what_kind_of_call_it_is() {
        assert_eq!([domain("chat/completions"), domain("responses/resp_1")], [Domain::Chat, Domain::Chat]);
        assert_eq!([domain("embeddings"), domain("images/edits")], [Domain::Embedding, Domain::Image]);
        assert_eq!(domain("audio/speech"), Domain::Other("audio".to_string()));
        for other_spelling in ["%63hat/completions", "CHAT/completions", "chat%2Fcompletions", "ch%61%74"] {
            assert_eq!(domain(other_spelling), Domain::Chat, "{other_spelling}");
        }
        assert_eq!(domain("100%/%f"), Domain::Other("100%".to_string()));
    }
}
