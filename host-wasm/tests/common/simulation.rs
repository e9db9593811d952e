//! The playground class, as JavaScript drives it.

use js_sys::{Float64Array, Reflect};
use tidegate_core::sim::scenario::builtin;
use tidegate_wasm::playground::{Playground, scenarios};
use wasm_bindgen::{JsError, JsValue};
use wasm_bindgen_test::wasm_bindgen_test;

/// A day: longer than any built-in scenario runs.
const LONG_MS: f64 = 24.0 * 3.6e6;

const MANY: f64 = 1e9;

fn first() -> String {
    builtin().swap_remove(0).name
}

fn play(name: &str, seed: f64) -> Playground {
    Playground::new(name, seed).expect("the scenario is built in")
}

fn get(value: &JsValue, key: &str) -> JsValue {
    Reflect::get(value, &key.into()).expect("the value is an object")
}

fn number(value: &JsValue, key: &str) -> f64 {
    get(value, key).as_f64().unwrap_or_else(|| panic!("{key} is a number"))
}

fn refusal<T>(answer: Result<T, JsError>) -> String {
    let error = JsValue::from(answer.err().expect("the call is refused"));
    get(&error, "message").as_string().expect("an error has a message")
}

#[wasm_bindgen_test]
fn scenarios_are_listed_with_what_a_person_picks_them_by() {
    let listed = js_sys::Array::from(&scenarios().expect("the list is serialisable"));
    assert_eq!(listed.length() as usize, builtin().len());
    for scenario in listed.iter() {
        for key in ["name", "title", "description"] {
            assert!(get(&scenario, key).as_string().is_some_and(|text| !text.is_empty()), "{key}");
        }
    }
}

#[wasm_bindgen_test]
fn every_scenario_ends_with_all_rows_accounted_for_and_a_report() {
    for scenario in builtin() {
        let mut run = play(&scenario.name, 1.0);
        assert!(run.report().expect("no report yet").is_undefined());
        assert!(run.advance_to(LONG_MS, MANY).expect("valid arguments"), "{} does not end", scenario.name);
        assert!(run.is_finished());
        let sample = run.sample().expect("the sample is serialisable");
        let rows = |key: &str| number(&sample, key) as u64;
        assert_eq!(rows("rows_done") + rows("rows_dropped"), rows("rows_total"));
        let report = run.report().expect("the report is serialisable");
        assert_eq!(get(&get(&report, "stop"), "reason").as_string().as_deref(), Some("completed"), "{}", scenario.name);
        assert_eq!(run.explanation().as_deref(), Some("completed"));
    }
}

#[wasm_bindgen_test]
fn slices_of_any_size_make_the_same_run() {
    let mut whole = play(&first(), 3.0);
    assert!(whole.advance_to(LONG_MS, MANY).expect("valid arguments"));
    assert!(whole.next_event_ms().is_none(), "nothing happens after the end");
    let mut cut = play(&first(), 3.0);
    let mut slices = 0;
    while !cut.advance_to(LONG_MS, 17.0).expect("valid arguments") {
        slices += 1;
    }
    assert!(slices > 10, "a bound on events ends a slice early");
    assert_eq!(cut.digest(), whole.digest());
    assert_eq!(cut.now().to_bits(), whole.now().to_bits());
    let mut other = play(&first(), 4.0);
    assert!(other.advance_to(LONG_MS, MANY).expect("valid arguments"));
    assert_ne!(other.digest(), whole.digest(), "another seed is another run");
}

#[wasm_bindgen_test]
fn telemetry_fills_a_reused_array_and_agrees_with_the_sample() {
    let mut run = play(&first(), 1.0);
    let target = Float64Array::new_with_length(run.telemetry_length() as u32);
    let stride = Playground::telemetry_stride();
    let fields = Playground::telemetry_fields();
    for until in [0.0, 50.0, 20_000.0, LONG_MS] {
        while !run.advance_to(until, 1_000.0).expect("valid arguments") {}
        let buckets = run.read_telemetry(&target).expect("the array is long enough");
        let column =
            |index: usize| target.subarray((index * stride) as u32, (index * stride + buckets) as u32).to_vec();
        let times = column(0);
        assert!(times.is_sorted());
        assert_eq!(times.last().map(|time| time.to_bits()), Some(run.now().to_bits()));
        let sample = run.sample().expect("the sample is serialisable");
        let providers = js_sys::Array::from(&get(&sample, "providers"));
        for (provider, shown) in providers.iter().enumerate() {
            let field = |name: &str| {
                let at = fields.iter().position(|field| field == name).expect("a known field");
                column(1 + provider * fields.len() + at)
            };
            assert_eq!(field("refused").iter().sum::<f64>() as u64, number(&shown, "refused") as u64);
            assert_eq!(field("limit").last(), Some(&number(&shown, "limit")));
            assert_eq!(field("capacity").last(), Some(&number(&shown, "capacity")));
            assert!(field("inFlight").iter().zip(field("peak")).all(|(mean, peak)| *mean <= peak + 1e-9));
            assert!(field("cooling").iter().all(|share| (0.0..=1.0).contains(share)));
        }
    }
}

#[wasm_bindgen_test]
fn a_person_sets_the_capacity_and_gives_it_back() {
    let mut run = play(&first(), 1.0);
    let sample = run.sample().expect("the sample is serialisable");
    let provider = js_sys::Array::from(&get(&sample, "providers")).get(0);
    let (name, own) = (get(&provider, "name").as_string().expect("a name"), number(&provider, "capacity"));
    let capacity = |run: &Playground| {
        let sample = run.sample().expect("the sample is serialisable");
        number(&js_sys::Array::from(&get(&sample, "providers")).get(0), "capacity")
    };
    run.set_capacity(&name, Some(own + 3.0)).expect("a known provider");
    assert!((capacity(&run) - own - 3.0).abs() < 1e-9);
    run.set_capacity(&name, None).expect("a known provider");
    assert!((capacity(&run) - own).abs() < 1e-9);
    assert!(refusal(run.set_capacity("nobody", None)).contains("`nobody`"));
}

#[wasm_bindgen_test]
fn bad_arguments_are_refused_with_the_value_and_what_was_expected() {
    assert!(refusal(Playground::new("no such", 1.0)).contains(&first()), "the known names are listed");
    for seed in [-1.0, 0.5, f64::NAN, 1e300] {
        assert!(refusal(Playground::new(&first(), seed)).contains("whole number"));
    }
    let mut run = play(&first(), 1.0);
    for time in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(refusal(run.advance_to(time, 1.0)).contains("milliseconds"));
    }
    assert!(refusal(run.advance_to(1.0, -5.0)).contains("-5"));
    assert!(refusal(run.read_telemetry(&Float64Array::new_with_length(3))).contains("not 3"));
}
