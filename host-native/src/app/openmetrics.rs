//! Pages of metrics in the text format of Prometheus.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The content type of a page.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a page says, with status 500, if it cannot be encoded.
pub(super) const CANNOT_ENCODE: &str = "the metrics cannot be encoded\n";

/// Returns the page with all metrics of `registry`.
pub(super) fn page(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}
