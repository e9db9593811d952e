//! The settings of a gate, read from a plain JavaScript object.

use js_sys::{Object, Reflect};
use tidegate_core::request::{AimdConfig, RequestConfig};
use wasm_bindgen::prelude::*;

use crate::convert::{duration, whole};

/// Sets one field of the configuration from a number.
type Setter = fn(&mut RequestConfig, &str, f64) -> Result<(), JsError>;

/// Every setting by its name in JavaScript. Ranges beyond a number's own are checked by the core.
const SETTINGS: [(&str, Setter); 9] = [
    ("initialLimit", |config, key, value| calls(key, value).map(|limit| aimd(config).initial_limit = Some(limit))),
    ("maxLimit", |config, key, value| calls(key, value).map(|limit| aimd(config).max_limit = Some(limit))),
    ("decreaseFactor", |config, _, value| {
        aimd(config).decrease_factor = value;
        Ok(())
    }),
    ("increaseStep", |config, key, value| calls(key, value).map(|step| aimd(config).increase_step = step)),
    ("successesUntilIncrease", |config, key, value| {
        calls(key, value).map(|successes| aimd(config).successes_until_increase = successes)
    }),
    ("cooldownMs", |config, key, value| duration(key, value).map(|span| aimd(config).cooldown = span)),
    ("maxCooldownMs", |config, key, value| duration(key, value).map(|span| aimd(config).max_cooldown = span)),
    ("rampMs", |config, key, value| duration(key, value).map(|span| aimd(config).ramp = span)),
    ("defaultTimeoutMs", |config, key, value| duration(key, value).map(|span| config.default_timeout = Some(span))),
];

/// The configuration that `options` describes; undefined and missing settings keep their defaults.
pub(super) fn parse(options: &JsValue) -> Result<RequestConfig, JsError> {
    let mut config = RequestConfig::default();
    if options.is_undefined() || options.is_null() {
        return Ok(config);
    }
    let Some(options) = options.dyn_ref::<Object>() else {
        return Err(JsError::new("the settings of a gate must be an object"));
    };
    for key in Object::keys(options).iter().filter_map(|key| key.as_string()) {
        let Some((_, set)) = SETTINGS.iter().find(|(name, _)| *name == key) else {
            let names = SETTINGS.map(|(name, _)| name).join(", ");
            return Err(JsError::new(&format!("a gate has no setting `{key}`; there are {names}")));
        };
        let value = Reflect::get(options, &key.as_str().into()).unwrap_or(JsValue::UNDEFINED);
        if value.is_undefined() {
            continue;
        }
        let Some(value) = value.as_f64() else {
            return Err(JsError::new(&format!("the setting `{key}` must be a number")));
        };
        set(&mut config, &key, value)?;
    }
    Ok(config)
}

fn aimd(config: &mut RequestConfig) -> &mut AimdConfig {
    &mut config.aimd
}

fn calls(key: &str, value: f64) -> Result<u32, JsError> {
    whole(key, value, f64::from(u32::MAX)).map(|calls| calls as u32)
}
