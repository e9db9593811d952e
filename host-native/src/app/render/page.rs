//! The frame of an HTML report: one file that loads nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Returns the page with the title "tidegate: `title`", the styles and the body.
pub(crate) fn page(title: &str, styles: &str, body: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "tidegate: " (title) }
                style { (PreEscaped(styles)) }
            }
            body { (body) }
        }
    };
    markup.into_string()
}
