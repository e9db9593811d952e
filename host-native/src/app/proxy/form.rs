//! Multipart form bodies. A form is parsed and encoded again for the provider, so it contains only what was
//! checked here.

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use reqwest::multipart::{Form as Writer, Part};
use reqwest::{Client, Url};

use super::error::ProxyError;
use super::model_names::{MODEL, is_model_name, model_parameter};
use crate::app::tokens;

/// The maximum length of a model id in a form, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// The maximum number of fields in a form.
const MAX_FIELDS: usize = 256;

/// A parsed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
    data: Bytes,
}

impl Form {
    /// Parses `body`, whose fields are separated by `boundary`.
    pub(super) async fn read(boundary: String, body: Bytes) -> Result<Self, ProxyError> {
        let refuse = |why: String| ProxyError::BadForm { why };
        let whole = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(body)]);
        let mut reader = multer::Multipart::new(whole, boundary);
        let mut fields: Vec<Field> = Vec::new();
        while let Some(field) = reader.next_field().await.map_err(|error| refuse(error.to_string()))? {
            let name = field.name().unwrap_or_default().to_string();
            if name.is_empty() || !name.chars().all(is_plain) {
                return Err(refuse("a field has no valid name".to_string()));
            }
            if fields.len() == MAX_FIELDS {
                return Err(refuse(format!("it has more than {MAX_FIELDS} fields")));
            }
            match model_parameter(&name) {
                Some(MODEL) if name != MODEL || field.file_name().is_some() => {
                    return Err(refuse("the field `model` must be a text field with exactly that name".to_string()));
                }
                Some(MODEL) if fields.iter().any(|other| other.name == MODEL) => {
                    return Err(refuse("it has two fields `model`".to_string()));
                }
                Some(MODEL) | None => {}
                Some(name) => return Err(ProxyError::SeveralModels { name }),
            }
            // Some Java clients send this header. It has no effect and is not forwarded.
            let is_identity = |encoding: &HeaderValue| ["7bit", "8bit", "binary"].iter().any(|same| encoding == same);
            if !field.headers().get_all("content-transfer-encoding").iter().all(is_identity) {
                return Err(refuse(format!("the field `{name}` has a Content-Transfer-Encoding other than `binary`")));
            }
            let file_name =
                field.file_name().map(|name| name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect());
            let content_type = field.content_type().map(ToString::to_string);
            let data = field.bytes().await.map_err(|error| refuse(error.to_string()))?;
            fields.push(Field { name, file_name, content_type, data });
        }
        if fields.is_empty() {
            return Err(refuse("it has no fields".to_string()));
        }
        let form = Self { fields };
        match form.model() {
            Some(name) if !is_model_name(name) => Err(refuse(
                "the field `model` is empty, too long, not text, surrounded by spaces, or contains commas".to_string(),
            )),
            _ => Ok(form),
        }
    }

    /// Returns the estimated number of tokens of the text fields, such as the prompt of an image.
    pub(super) fn text_tokens(&self) -> usize {
        let texts = self.fields.iter().filter(|field| field.file_name.is_none());
        texts.map(|field| tokens::most(&String::from_utf8_lossy(&field.data))).sum()
    }

    /// Returns the model, or an empty string if the field contains no valid one.
    pub(super) fn model(&self) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.name == MODEL)?;
        let text = std::str::from_utf8(&field.data).unwrap_or_default();
        Some(if text.len() <= MAX_MODEL_BYTES { text } else { "" })
    }

    /// Returns all that is sent besides the model.
    #[cfg(test)]
    pub(super) fn without_model(self) -> Self {
        Self { fields: self.fields.into_iter().filter(|field| field.name != MODEL).collect() }
    }

    /// Encodes the form, with `model` in place of its own model if one is given. Returns the content type and
    /// the body.
    pub(super) async fn encode(&self, http: &Client, url: &Url, model: Option<&str>) -> Option<(HeaderValue, Bytes)> {
        let mut writer = Writer::new().percent_encode_noop();
        for Field { name, file_name, content_type, data } in &self.fields {
            let data = match model.filter(|_| name == MODEL) {
                Some(model) => Bytes::from(model.to_string()),
                None => data.clone(),
            };
            let len = data.len() as u64;
            let mut part = Part::stream_with_length(data, len);
            if let Some(file_name) = file_name {
                part = part.file_name(file_name.clone());
            }
            if let Some(content_type) = content_type {
                part = part.mime_str(content_type).ok()?;
            }
            writer = writer.part(name.clone(), part);
        }
        let mut request = http.post(url.clone()).multipart(writer).build().ok()?;
        let kind = request.headers_mut().remove(CONTENT_TYPE)?;
        let body = request.body_mut().take()?.collect().await.ok()?.to_bytes();
        Some((kind, body))
    }
}

/// Returns whether a character of a name has no meaning in a header. Some parsers find a second name, or that
/// of a file, also within quotes.
fn is_plain(c: char) -> bool {
    !c.is_control() && !['"', '\\', ';', '='].contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::proxy::upstream::client_for_tests as client;

    async fn read(text: &str) -> Result<Form, String> {
        let body = Bytes::from(text.replace('\n', "\r\n"));
        Form::read("b".to_string(), body).await.map_err(|error| error.to_string())
    }

    fn field(disposition: &str, value: &str) -> String {
        format!("--b\nContent-Disposition: form-data; {disposition}\n\n{value}\n")
    }

    #[tokio::test]
    async fn the_model_field_is_found_and_replaced() {
        let file =
            field("name=\"file\"; filename=\"a.wav\"", "--bc\nContent-Disposition: form-data; name=\"model\"\n\nx");
        let other = field("filename=\"model\"; name=\"timestamp_granularities[]\"", "word");
        let text = format!("before\n{file}{other}{}--b--\nafter", field("name=\"model\"", "whisper"));
        let form = read(&text).await.unwrap();
        assert_eq!(form.model(), Some("whisper"));
        let (http, url) = (client(), "http://h/".parse().unwrap());
        let (kind, body) = form.encode(&http, &url, Some("other")).await.unwrap();
        let boundary = multer::parse_boundary(kind.to_str().unwrap()).unwrap();
        let mut sent = Form::read(boundary, body.clone()).await.unwrap();
        assert_eq!(sent.model(), Some("other"));
        sent.fields[2].data = Bytes::from_static(b"whisper");
        assert_eq!(sent, form, "all other fields are unchanged");
        let text = String::from_utf8_lossy(&body);
        assert!(!text.contains("before") && !text.contains("after"), "{text}");
    }

    #[tokio::test]
    async fn an_ambiguous_form_is_rejected() {
        let model = field("name=\"model\"", "cheap");
        for (body, why) in [
            (format!("{model}{model}--b--"), "it has two fields `model`"),
            (format!("{model}{}--b--", field("name=\"Model\"", "dear")), "must be a text field"),
            (format!("{model}{}--b--", field("name=\"model[]\"", "dear")), "must be a text field"),
            (format!("{}--b--", field("name=\"model\"; filename=\"x\"", "dear")), "must be a text field"),
            (format!("{}--b--", field("name=\"model\"", "cheap,dear")), "contains commas"),
            (format!("{}--b--", field("name=\"model\"", "")), "is empty"),
            (format!("{}--b--", field("name=\"model\"", "whisper ")), "surrounded by spaces"),
            (format!("{}--b--", field("filename=\"x\"", "a")), "has no valid name"),
            (format!("{}--b--", field("name=\"x; name=model\"", "dear")), "has no valid name"),
            (format!("{model}{}--b--", field("name=\"models\"", "dear")), "`models` lists more models"),
            (format!("{model}{}--b--", field("name=\"Fallbacks[]\"", "dear")), "`fallbacks` lists more models"),
            (
                format!(
                    "{model}--b\nContent-Disposition: form-data; name=\"x\"\nContent-Transfer-Encoding: base64\n\nAA\n--b--"
                ),
                "Content-Transfer-Encoding",
            ),
            ("--b\nContent-Disposition: form-data; name=\"model\"\n\nno end".to_string(), "incomplete"),
            ("no form".to_string(), "incomplete"),
            (format!("--b--{model}--b--"), "it has no fields"),
        ] {
            let error = read(&body).await.expect_err(&body);
            assert!(error.contains(why), "{why:?} is not in {error:?}");
        }
    }
}
