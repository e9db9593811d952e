//! Decimals to and from text, by the digits that JavaScript finds.
//!
//! Reading and writing floats takes 30 KiB of code and tables. Each engine has them already: the nearest number, and the fewest
//! digits that give it back, as native programs find them. (Of two texts that are as near, the language lets an engine take
//! either; all known ones take the even one, as `serde_json` does.)

/// The number that a text stands for, rounded to the nearest. What JSON does not know as a number gives one as well, or NaN.
pub(crate) fn read(text: &str) -> f64 {
    digits::parse(text)
}

/// A number as `serde_json` writes it: `0.3`, `1.0`, `1e+16`, `-2.5e-7`. O(1).
pub(crate) fn write(number: f64) -> String {
    if !number.is_finite() {
        return "null".to_owned();
    }
    let scientific = digits::scientific(number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let mut digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let text = match exponent.parse::<i32>() {
        Ok(exponent @ 0..=15) => {
            let before_point = exponent as usize + 1;
            while digits.len() <= before_point {
                digits.push('0');
            }
            digits.insert(before_point, '.');
            digits
        }
        Ok(exponent @ -5..=-1) => ["0.", &"0000"[..(-1 - exponent) as usize], &digits].concat(),
        _ => scientific,
    };
    if number.is_sign_negative() { ["-", &text].concat() } else { text }
}

#[cfg(target_arch = "wasm32")]
mod digits {
    use wasm_bindgen::JsCast;
    use wasm_bindgen::prelude::*;

    #[wasm_bindgen]
    extern "C" {
        #[wasm_bindgen(js_name = Number)]
        pub(super) fn parse(text: &str) -> f64;

        type Number;
        /// Without a number of digits it is as many as are needed. `js-sys` wants one.
        #[wasm_bindgen(method, js_name = toExponential)]
        fn to_exponential(this: &Number) -> String;
    }

    /// The fewest digits, with one of them before the point, as in `2.5e-7` and `1e+16`.
    pub(super) fn scientific(number: f64) -> String {
        JsValue::from_f64(number).unchecked_into::<Number>().to_exponential()
    }
}

/// For tests of this crate.
#[cfg(not(target_arch = "wasm32"))]
mod digits {
    pub(super) fn parse(text: &str) -> f64 {
        text.parse().unwrap_or(f64::NAN)
    }

    pub(super) fn scientific(number: f64) -> String {
        let text = format!("{number:e}");
        if text.contains("e-") { text } else { text.replace('e', "e+") }
    }
}
