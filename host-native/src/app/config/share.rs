//! The table `[share]` of a pipeline or proxy file: the processes with which limits are shared.

use std::fmt;
use std::ops::{Deref, Range};
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::document::Document;
use super::source::{FileError, SourceText};
use super::transport::{read_certificates, read_private_key};
use super::value::{Checked, Text, WithSpan};
use crate::app::provider::key::is_variable_name;
use crate::share::{OnLoss, ShareSettings, check_name};

/// The name that processes share limits under if only `--share` is given.
const DEFAULT_NAME: &str = "default";

/// The processes with which the limits of all models are shared
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawShare {
    /// The environment variable with the address of the Redis or Valkey server: `redis://` or `rediss://`, or
    /// that of its sentinels: `redis+sentinel://` or `rediss+sentinel://`. Default: the address in `--share`
    url_env: Option<WithSpan<Text>>,
    /// The name that all processes use that share limits: letters, digits, `-`, `_` and `.`
    name: WithSpan<Text>,
    /// A PEM file with the certificate authorities to trust for an address with TLS. Default: those of the
    /// system
    ca_file: Option<WithSpan<Text>>,
    /// A PEM file with the certificate of this process, for a server that requires one of its clients
    client_cert_file: Option<WithSpan<Text>>,
    /// A PEM file with the private key of `client_cert_file`
    client_key_file: Option<WithSpan<Text>>,
    /// What happens when the other processes are lost for longer than five seconds. Default: share
    on_loss: Option<OnLossName>,
}

/// What a process does when it has lost the others.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnLossName {
    /// Calls start within an equal part of the last limit
    Share,
    /// No call starts
    Stop,
    /// Calls start as if nothing were shared
    Alone,
}

/// The checked table. The address is read from the environment when it is needed.
#[derive(Clone, Debug)]
pub struct ShareTable {
    /// The variable with the address, and its place in the file.
    url_env: Option<(String, Range<usize>)>,
    /// The settings without an address.
    settings: ShareSettings,
}

impl RawShare {
    /// Checks the table. Its files are relative to `directory`.
    pub(crate) fn check(self, file: &Document<'_>, directory: &Path) -> Result<ShareTable, FileError> {
        let Checked(name) = self.name.get();
        if check_name(name).is_err() {
            return Err(file
                .error(self.name.span(), format!("`{name}` is not a name to share limits under"))
                .expected("1 to 64 letters, digits and the characters `-`, `_` and `.`"));
        }
        let on_loss = match self.on_loss {
            None | Some(OnLossName::Share) => OnLoss::Share,
            Some(OnLossName::Stop) => OnLoss::Stop,
            Some(OnLossName::Alone) => OnLoss::Alone,
        };
        let mut settings = ShareSettings::new("", name).with_on_loss(on_loss);
        if let Some(name) = self.ca_file {
            settings = settings.with_authorities(&read_certificates(file, &name, directory)?.0);
        }
        let alone = |name: &WithSpan<Text>, key: &str, missing: &str| {
            let error = file.error(name.span(), format!("`{key}` is given without `{missing}`"));
            Err(error.expected(format!("`{missing}` beside it, or neither of them")))
        };
        settings = match (self.client_cert_file, self.client_key_file) {
            (Some(name), Some(key)) => {
                let certificates = read_certificates(file, &name, directory)?.0;
                settings.with_client_certificate(&certificates, &read_private_key(file, &key, directory)?)
            }
            (Some(name), None) => return alone(&name, "client_cert_file", "client_key_file"),
            (None, Some(key)) => return alone(&key, "client_key_file", "client_cert_file"),
            (None, None) => settings,
        };
        let url_env = self.url_env.map(|variable| (variable.get().0.clone(), variable.span()));
        Ok(ShareTable { url_env, settings })
    }
}

impl ShareTable {
    /// Returns the environment variable that holds the address.
    pub(crate) fn variable(&self) -> Option<&str> {
        self.url_env.as_ref().map(|(variable, _)| variable.as_str())
    }

    /// Returns the settings, with the address from the `environment`. `source` is the file of the table.
    ///
    /// Without `url_env` the address is empty. `--share` must have it then.
    pub(crate) fn settings(
        &self,
        source: &SourceText,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ShareSettings, FileError> {
        let Some((variable, span)) = &self.url_env else { return Ok(self.settings_at("")) };
        let url = environment(variable).map(|url| url.trim().to_string()).filter(|url| !url.is_empty());
        let url = url.ok_or_else(|| {
            let expected = "a variable that holds the address of a Redis server, such as redis://host:6379";
            // An address in place of a variable can hold a password, which no output may have.
            if !is_variable_name(variable) {
                let error = source.error(span.clone(), "`url_env` is no name of an environment variable");
                return error.without_excerpt().expected(expected);
            }
            source.error(span.clone(), format!("the environment variable `{variable}` is not set")).expected(expected)
        })?;
        Ok(self.settings_at(&url))
    }

    /// Returns the settings with this address.
    pub(crate) fn settings_at(&self, url: &str) -> ShareSettings {
        self.settings.clone().with_url(url)
    }
}

/// The address in `--share`. It may contain a password, so it is not shown.
#[derive(Clone)]
pub struct StoreUrl(String);

impl From<&str> for StoreUrl {
    fn from(url: &str) -> Self {
        Self(url.to_string())
    }
}

impl Deref for StoreUrl {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Returns the settings of `--share` in a program whose file has no table `[share]`.
pub(crate) fn flag_settings(url: &str) -> ShareSettings {
    ShareSettings::new(url, DEFAULT_NAME)
}
