//! Invented people. Their names are drawn from the lists of the crate `fake`.

use deunicode::deunicode;
use fake::locales::{
    AR_SA, CY_GB, DE_DE, Data, EN, FA_IR, FR_FR, IT_IT, JA_JP, NL_NL, PT_BR, PT_PT, TR_TR, ZH_CN, ZH_TW,
};
use serde_json::{Value, json};
use tidegate_core::sim::rng::Rng;

use crate::app::config::pipeline::Locale;

/// Draws a person of `youngest` to `oldest` years.
///
/// The mail address is in a domain that is reserved for examples (RFC 2606), so it is nobody's.
pub(super) fn person(locale: Locale, (youngest, oldest): (u32, u32), rng: &mut Rng) -> Value {
    let (first_names, last_names) = names(locale);
    let (first, last) = (pick(first_names, rng), pick(last_names, rng));
    let name = match locale {
        // The family name comes first, without a space.
        Locale::JaJp | Locale::ZhCn | Locale::ZhTw => format!("{last}{first}"),
        _ => format!("{first} {last}"),
    };
    let age = u64::from(youngest) + rng.below(u64::from(oldest - youngest) + 1);
    let email = format!("{}.{}{}@example.com", mail_part(first), mail_part(last), rng.below(100));
    json!({ "name": name, "first_name": first, "last_name": last, "age": age, "email": email })
}

/// Returns the first and the last names of a locale.
fn names(locale: Locale) -> (&'static [&'static str], &'static [&'static str]) {
    fn of<L: Data>() -> (&'static [&'static str], &'static [&'static str]) {
        (L::NAME_FIRST_NAME, L::NAME_LAST_NAME)
    }
    match locale {
        Locale::ArSa => of::<AR_SA>(),
        Locale::CyGb => of::<CY_GB>(),
        Locale::DeDe => of::<DE_DE>(),
        Locale::EnUs => of::<EN>(),
        Locale::FaIr => of::<FA_IR>(),
        Locale::FrFr => of::<FR_FR>(),
        Locale::ItIt => of::<IT_IT>(),
        Locale::JaJp => of::<JA_JP>(),
        Locale::NlNl => of::<NL_NL>(),
        Locale::PtBr => of::<PT_BR>(),
        Locale::PtPt => of::<PT_PT>(),
        Locale::TrTr => of::<TR_TR>(),
        Locale::ZhCn => of::<ZH_CN>(),
        Locale::ZhTw => of::<ZH_TW>(),
    }
}

fn pick(list: &'static [&'static str], rng: &mut Rng) -> &'static str {
    usize::try_from(rng.below(list.len() as u64)).ok().and_then(|at| list.get(at)).copied().unwrap_or_default().trim()
}

/// Returns the letters of a name as they may stand in a mail address.
fn mail_part(name: &str) -> String {
    deunicode(name).chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_locale_has_names_and_a_mail_address_in_ascii() {
        let locales = [
            Locale::ArSa,
            Locale::CyGb,
            Locale::DeDe,
            Locale::EnUs,
            Locale::FaIr,
            Locale::FrFr,
            Locale::ItIt,
            Locale::JaJp,
            Locale::NlNl,
            Locale::PtBr,
            Locale::PtPt,
            Locale::TrTr,
            Locale::ZhCn,
            Locale::ZhTw,
        ];
        for locale in locales {
            let mut rng = Rng::new(3);
            for _ in 0..500 {
                let drawn = person(locale, (30, 31), &mut rng);
                let text = |key: &str| drawn[key].as_str().unwrap().to_string();
                assert!(!text("first_name").is_empty() && !text("last_name").is_empty(), "{drawn}");
                assert!(text("email").is_ascii() && !text("email").starts_with('.'), "{drawn}");
                assert!([30, 31].contains(&drawn["age"].as_u64().unwrap()), "{drawn}");
            }
        }
    }

    #[test]
    fn a_person_is_the_same_on_every_machine() {
        let drawn = [Locale::EnUs, Locale::JaJp].map(|locale| person(locale, (18, 90), &mut Rng::new(7)));
        let (american, japanese) = ("amya.damore42@example.com", "yisa.lin42@example.com");
        let pinned = json!([
            { "name": "Amya D'Amore", "first_name": "Amya", "last_name": "D'Amore", "age": 70, "email": american },
            { "name": "林一颯", "first_name": "一颯", "last_name": "林", "age": 70, "email": japanese },
        ]);
        assert_eq!(json!(drawn), pinned);
    }
}
