//! Parsing and answering of `POST /v1/images/generations`. Every image is the same: one pixel.

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::answer::count_tokens;
use super::error::ApiError;
use super::reply::{Reply, ReplyBody};

/// Where the image is served, for answers with an address.
pub(super) const PATH: &str = "/mock/image.png";

/// The tokens that an image counts as.
const IMAGE_TOKENS: u32 = 272;

/// The most images of a request.
const MAX_IMAGES: u32 = 10;

/// A PNG of one pixel in base64.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A parsed request.
#[derive(Debug)]
pub(super) struct ImageCall {
    pub(super) model: String,
    /// Tokens of the prompt and of the images.
    pub(super) tokens: (u32, u32),
    images: u32,
    has_address: bool,
}

/// The keys that are used. Others are accepted and ignored.
#[derive(Debug, Deserialize)]
struct Body {
    model: String,
    prompt: String,
    n: Option<u32>,
    response_format: Option<String>,
}

impl ImageCall {
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let Body { model, prompt, n, response_format } = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the body cannot be read: {error}")))?;
        if prompt.trim().is_empty() {
            return Err(ApiError::field("prompt", "`prompt` is empty"));
        }
        let images = n.unwrap_or(1);
        if !(1..=MAX_IMAGES).contains(&images) {
            return Err(ApiError::field("n", format!("`n` is {images}; expected 1 to {MAX_IMAGES}")));
        }
        let tokens = (count_tokens(&prompt), images.saturating_mul(IMAGE_TOKENS));
        Ok(Self { model, tokens, images, has_address: response_format.as_deref() == Some("url") })
    }

    /// Returns the response. `host` is that of the request.
    pub(super) fn reply(self, created: u64, host: &str) -> Reply {
        let (input, output) = self.tokens;
        let image = if self.has_address {
            json!({ "url": format!("http://{host}{PATH}") })
        } else {
            json!({ "b64_json": PIXEL })
        };
        let usage = json!({
            "input_tokens": input, "output_tokens": output, "total_tokens": input.saturating_add(output),
        });
        let data = vec![image; self.images as usize];
        let body = json!({ "created": created, "data": data, "usage": usage });
        Reply { body: ReplyBody::Complete(Bytes::from(body.to_string())), tokens: output }
    }
}

/// Returns the image.
pub(super) fn pixel() -> Vec<u8> {
    STANDARD.decode(PIXEL).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_a_png_and_an_invalid_request_is_rejected_at_its_field() {
        assert_eq!(infer::get(&pixel()).map(|found| found.mime_type()), Some("image/png"));
        let param = |body: serde_json::Value| {
            let error = ImageCall::parse(body.to_string().as_bytes()).unwrap_err();
            error.param().map(str::to_string)
        };
        assert_eq!(param(json!({ "model": "m", "prompt": " " })).as_deref(), Some("prompt"));
        assert_eq!(param(json!({ "model": "m", "prompt": "a buoy", "n": 11 })).as_deref(), Some("n"));
        assert_eq!(param(json!({ "model": "m" })), None);
    }
}
