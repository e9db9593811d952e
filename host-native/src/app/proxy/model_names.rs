//! The names of models in requests, and of the parameters that select models.

use percent_encoding::percent_decode_str;

/// The name of the field that selects the model.
pub(super) const MODEL: &str = "model";

/// The names of lists of more models, in JSON and in forms. Some providers call these if `model` fails:
/// models that the client may not be allowed to use, outside of their limits and budgets.
pub(super) const MODEL_LISTS: [&str; 4] =
    ["models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks"];

/// Returns which name of [`MODEL`] and [`MODEL_LISTS`] a parameter has for some server: in any case, and as
/// an item such as `models[]`, `models[0]` and `[models]`.
pub(super) fn model_parameter(name: &str) -> Option<&'static str> {
    let name = name.split(['[', ']']).find(|part| !part.is_empty())?.trim();
    [MODEL].into_iter().chain(MODEL_LISTS).find(|parameter| parameter.eq_ignore_ascii_case(name))
}

/// Returns the first parameter of a query that selects models. Some servers separate parameters by
/// semicolons.
pub(super) fn model_in_query(query: &str) -> Option<&'static str> {
    let names = query.split(['&', ';']).map(|pair| pair.split('=').next().unwrap_or_default());
    names.map(|name| percent_decode_str(name).decode_utf8_lossy()).find_map(|name| model_parameter(&name))
}

/// Returns whether a model name is unambiguous: not empty, not surrounded by spaces, and without control
/// characters and commas. Some servers read names between commas as a list of models.
pub(super) fn is_model_name(name: &str) -> bool {
    !name.is_empty() && name.trim() == name && !name.chars().any(|c| c.is_control() || c == ',')
}
