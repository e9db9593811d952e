//! The values of the flags `--listen`, `--model` and `--fault` of `tidegate mock`.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, Faults, Overload, ProviderSpec, Rate};
use tidegate_core::time::Duration;

/// The address to listen at: `127.0.0.1:8080`, `localhost:8080`, `[::1]:8080`, or only a port of the loopback
/// interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

/// A model: `NAME` or `NAME=slots=8,latency_ms=100`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFlag {
    /// The name of the model.
    pub name: String,
    /// The description of its provider.
    pub provider: ProviderSpec,
}

/// The share of calls that fail in one way: `cut=0.01`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultFlag {
    kind: FaultKind,
    share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    Error,
    Hang,
    Cut,
    Malformed,
    Refused,
}

impl Default for ListenAddress {
    fn default() -> Self {
        Self((Ipv4Addr::LOCALHOST, 8080).into())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        match (port.parse::<u16>(), text.parse::<SocketAddr>()) {
            (Ok(port), _) => Ok(Self((Ipv4Addr::LOCALHOST, port).into())),
            (_, Ok(address)) => Ok(Self(address)),
            _ => Err("expected an address and a port, such as 127.0.0.1:8080, or only a port".to_string()),
        }
    }
}

impl FromStr for ModelFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, list) = text.split_once('=').unwrap_or((text, ""));
        if name.is_empty() {
            return Err("expected a model name before the `=`".to_string());
        }
        let mut settings = ModelSettings::default();
        for setting in list.split(',').filter(|setting| !setting.is_empty()) {
            settings.set(setting)?;
        }
        let provider = settings.provider();
        provider.validate().map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_string(), provider })
    }
}

/// The given settings of a model; `None` for those that are not given.
#[derive(Default)]
struct ModelSettings {
    slots: Option<u32>,
    latency_ms: Option<u32>,
    retry_after_ms: Option<u32>,
    warm_up_ms: Option<u32>,
    requests_per_minute: Option<u32>,
    tokens_per_minute: Option<u32>,
}

impl ModelSettings {
    fn set(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let field = match key {
            "slots" => &mut self.slots,
            "latency_ms" => &mut self.latency_ms,
            "retry_after_ms" => &mut self.retry_after_ms,
            "warm_up_ms" => &mut self.warm_up_ms,
            "requests_per_minute" => &mut self.requests_per_minute,
            "tokens_per_minute" => &mut self.tokens_per_minute,
            _ => {
                return Err(format!(
                    "unknown setting `{key}`; expected slots, latency_ms, retry_after_ms, warm_up_ms, \
                     requests_per_minute or tokens_per_minute"
                ));
            }
        };
        let number = value.parse().map_err(|_| format!("`{key}` is {value:?}; expected a whole number"))?;
        *field = Some(number);
        Ok(())
    }

    fn provider(self) -> ProviderSpec {
        let default = ProviderSpec::default();
        let millis = |millis: u32| Duration::from_millis(u64::from(millis));
        let slots = self.slots.unwrap_or(8);
        ProviderSpec {
            capacity: match self.warm_up_ms {
                Some(warm_up) => Capacity::WarmUp { slots, warm_up: millis(warm_up) },
                None => Capacity::Constant { slots },
            },
            overload: Overload::Refuse { retry_after: self.retry_after_ms.map(millis) },
            latency: self.latency_ms.map_or(default.latency, |latency| Latency::Constant { latency: millis(latency) }),
            requests: self.requests_per_minute.map(Rate::per_minute),
            tokens: self.tokens_per_minute.map(Rate::per_minute),
            ..default
        }
    }
}

impl FromStr for FaultFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            "expected error=SHARE, hang=SHARE, cut=SHARE, malformed=SHARE or refused=SHARE, with a share from 0 to 1";
        let (kind, share) = text.split_once('=').ok_or(expected)?;
        let kind = match kind {
            "error" => FaultKind::Error,
            "hang" => FaultKind::Hang,
            "cut" => FaultKind::Cut,
            "malformed" => FaultKind::Malformed,
            "refused" => FaultKind::Refused,
            _ => return Err(expected.to_string()),
        };
        let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or(expected)?;
        Ok(Self { kind, share })
    }
}

impl FaultFlag {
    /// Sets the share of this kind of fault in the description of a provider.
    pub(super) fn apply(self, provider: &mut ProviderSpec) {
        let faults = provider.faults.get_or_insert_with(Faults::default);
        let field = match self.kind {
            FaultKind::Error => &mut faults.error_share,
            FaultKind::Hang => &mut faults.hang_share,
            FaultKind::Cut => &mut faults.cut_share,
            FaultKind::Malformed => &mut faults.malformed_share,
            FaultKind::Refused => &mut faults.refused_share,
        };
        *field = self.share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_may_be_abbreviated() {
        for (text, address) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("localhost:9", "127.0.0.1:9"),
            ("9", "127.0.0.1:9"),
            ("[::1]:9", "[::1]:9"),
            ("0.0.0.0:9", "0.0.0.0:9"),
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), address);
        }
        assert!("example.com:80".parse::<ListenAddress>().is_err() && "70000".parse::<ListenAddress>().is_err());
    }

    #[test]
    fn a_model_has_its_settings_and_otherwise_the_defaults_of_a_file() {
        let plain: ModelFlag = "llama3:8b".parse().unwrap();
        assert_eq!((plain.name.as_str(), plain.provider), ("llama3:8b", ProviderSpec::default()));
        let flag: ModelFlag = "m=slots=4,latency_ms=20,retry_after_ms=500,tokens_per_minute=9".parse().unwrap();
        assert_eq!(flag.provider.capacity, Capacity::Constant { slots: 4 });
        assert_eq!(flag.provider.overload, Overload::Refuse { retry_after: Some(Duration::from_millis(500)) });
        assert_eq!((flag.provider.requests, flag.provider.tokens), (None, Some(Rate::per_minute(9))));
        let cold: ModelFlag = "m=warm_up_ms=9".parse().unwrap();
        assert_eq!(cold.provider.capacity, Capacity::WarmUp { slots: 8, warm_up: Duration::from_millis(9) });
    }

    #[test]
    fn an_invalid_setting_is_rejected_with_what_is_expected() {
        let error = |text: &str| text.parse::<ModelFlag>().unwrap_err();
        assert!(error("m=slot=4").starts_with("unknown setting `slot`; expected slots, "));
        assert_eq!(error("m=slots=four"), "`slots` is \"four\"; expected a whole number");
        assert_eq!(error("m=slots=2000000"), "`capacity.slots` is 2000000; expected a whole number from 0 to 1000000");
        assert_eq!(error("=slots=4"), "expected a model name before the `=`");
    }

    #[test]
    fn several_faults_apply_to_one_provider_and_the_last_of_a_kind_wins() {
        let mut provider = ProviderSpec::default();
        for text in ["error=0.5", "cut=0.25", "error=0.1"] {
            text.parse::<FaultFlag>().unwrap().apply(&mut provider);
        }
        assert_eq!(provider.faults, Some(Faults { error_share: 0.1, cut_share: 0.25, ..Faults::default() }));
        for wrong in ["cut", "cut=2", "cut=NaN", "cuts=0.1"] {
            assert!(wrong.parse::<FaultFlag>().unwrap_err().starts_with("expected error=SHARE"), "{wrong}");
        }
    }
}
