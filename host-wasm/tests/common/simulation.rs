//! The playground class, as JavaScript drives it.

use js_sys::{Array, Float64Array, JSON, Reflect};
use tidegate_core::sim::report::Report;
use tidegate_core::sim::scenario::builtin;
use tidegate_core::sim::suite;
use tidegate_core::sim::world::World;
use tidegate_wasm::playground::Playground;
use tidegate_wasm::sim::{Simulation, simulate};
use wasm_bindgen::{JsError, JsValue};
use wasm_bindgen_test::wasm_bindgen_test;

use super::built_in::{object, scenario};

/// A day: longer than any built-in scenario runs.
const LONG_MS: f64 = 24.0 * 3.6e6;

const MANY: f64 = 1e9;

fn first() -> String {
    builtin().swap_remove(0).name
}

fn play(name: &str, seed: f64) -> Playground {
    Playground::new(&scenario(name), seed).expect("the scenario is built in")
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
fn every_scenario_of_every_suite_comes_back_as_it_was_handed_in() {
    for listed in suite::scenarios() {
        let object = object(&listed.scenario);
        let run = Simulation::new(&object, None).expect("a scenario that can run");
        assert_eq!(text(&run.scenario().expect("serialisable")), text(&object), "{}", listed.scenario.name);
    }
}

#[wasm_bindgen_test]
fn every_scenario_ends_with_all_rows_accounted_for_and_a_report() {
    for scenario in builtin() {
        let mut run = play(&scenario.name, 1.0);
        assert!(run.report().expect("no report yet").is_undefined());
        assert!(run.advance_to(LONG_MS, MANY).expect("valid arguments"), "{} does not end", scenario.name);
        assert!(run.is_finished());
        let sample = run.sample(&JsValue::UNDEFINED).expect("the sample is serialisable");
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
    let fields = Array::from(&Playground::telemetry_fields().expect("the names are serialisable"));
    let fields: Vec<String> = fields.iter().filter_map(|field| field.as_string()).collect();
    for until in [0.0, 50.0, 20_000.0, LONG_MS] {
        while !run.advance_to(until, 1_000.0).expect("valid arguments") {}
        let buckets = run.read_telemetry(&target).expect("the array is long enough");
        let column =
            |index: usize| target.subarray((index * stride) as u32, (index * stride + buckets) as u32).to_vec();
        let times = column(0);
        assert!(times.is_sorted());
        assert_eq!(times.last().map(|time| time.to_bits()), Some(run.now().to_bits()));
        let sample = run.sample(&JsValue::UNDEFINED).expect("the sample is serialisable");
        let providers = Array::from(&get(&sample, "providers"));
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

fn json(text: &str) -> JsValue {
    JSON::parse(text).expect("the test writes JSON")
}

fn text(value: &JsValue) -> String {
    JSON::stringify(value).expect("a plain object").into()
}

fn finish(run: &mut Playground) -> String {
    while !run.advance_to(LONG_MS, 10_000.0).expect("valid arguments") {}
    run.digest()
}

#[wasm_bindgen_test]
fn a_person_sets_the_capacity_and_gives_it_back() {
    let mut run = play("unknown-limit", 1.0);
    let provider = |run: &Playground| {
        let sample = run.sample(&JsValue::UNDEFINED).expect("the sample is serialisable");
        Array::from(&get(&sample, "providers")).get(0)
    };
    let own = number(&provider(&run), "capacity");
    for (slots, expected) in [("3", 3.0), ("\"schedule\"", own)] {
        let change = format!(r#"{{"set":"capacity","model":"silent","slots":{slots}}}"#);
        run.change(&json(&change)).expect("a known model");
        let next = run.now() + 1e-6;
        while !run.advance_to(next, 100.0).expect("valid arguments") {}
        assert!((number(&provider(&run), "capacity") - expected).abs() < 1e-9);
    }
    let unknown = json(r#"{"set":"capacity","model":"nobody","slots":1}"#);
    assert!(refusal(run.change(&unknown)).contains("nobody"));
    let misspelt = json(r#"{"set":"capacity","model":"silent","slotz":1}"#);
    assert!(refusal(run.change(&misspelt)).contains("unknown field `slotz`"));
    assert_eq!(Array::from(&run.changes().expect("serialisable")).length(), 2);
}

#[wasm_bindgen_test]
fn going_back_and_on_again_makes_the_same_run_and_a_change_then_makes_another() {
    let mut run = play("falling-capacity", 5.0);
    for (until, change) in [
        (2_000.0, r#"{"set":"capacity","model":"silent","slots":2}"#),
        (5_000.0, r#"{"set":"policy","policy":"strict_fair"}"#),
        (9_000.0, r#"{"set":"slow","model":"silent","factor":4,"for_ms":500}"#),
    ] {
        while !run.advance_to(until, 100.0).expect("valid arguments") {}
        run.change(&json(change)).expect("a valid change");
    }
    let first = finish(&mut run);
    let written = run.scenario().expect("serialisable");
    run.seek(6_000.0).expect("a valid time");
    assert!(run.now().abs() < 1e-9, "it begins anew");
    while !run.advance_to(6_000.0, 1_000.0).expect("valid arguments") {}
    assert_eq!(finish(&mut run), first);
    let mut again = Playground::new(&written, 5.0).expect("a scenario with changes");
    assert_eq!(finish(&mut again), first, "the changes are part of the scenario now");
    run.seek(6_000.0).expect("a valid time");
    while !run.advance_to(6_000.0, 1_000.0).expect("valid arguments") {}
    run.change(&json(r#"{"set":"refuse","model":"silent","for_ms":300}"#)).expect("a valid change");
    assert_eq!(Array::from(&run.changes().expect("serialisable")).length(), 3, "the one at 9 s is gone");
    assert_ne!(finish(&mut run), first);
}

#[wasm_bindgen_test]
fn results_are_those_of_the_core_and_a_run_that_goes_on_has_some_too() {
    for listed in suite::scenarios().iter().take(2) {
        let mut run = play(&listed.scenario.name, 2.0);
        let so_far = json(&run.results().expect("an accounted run"));
        assert!(get(&get(&so_far, "run"), "stop").is_null());
        finish(&mut run);
        let mut world = World::accounted(&listed.scenario, 2).expect("a valid scenario");
        while world.step() {}
        let report = Report::of(&listed.scenario, 2, &world).expect("its own scenario");
        let expected = serde_json::to_string_pretty(&report).expect("serialisable") + "\n";
        assert_eq!(run.results().expect("an accounted run"), expected);
        let simulated = simulate(&object(&listed.scenario), Some(2.0)).expect("a scenario that can run");
        assert_eq!(text(&simulated), text(&json(&expected)));
    }
}

#[wasm_bindgen_test]
fn a_simulation_in_parts_is_the_same_run() {
    let object = scenario("unknown-limit");
    let mut parts = Simulation::new(&object, None).expect("a scenario that can run");
    assert!(parts.step());
    while !parts.advance_to(LONG_MS, Some(100.0)).expect("valid arguments") {}
    assert_eq!(parts.digest(), finish(&mut play("unknown-limit", 1.0)));
    assert!(parts.is_finished() && !parts.step());
    let report = parts.report().expect("a report");
    assert_eq!(get(&report, "digest").as_string(), Some(parts.digest()));
    assert_eq!(text(&report), text(&simulate(&object, None).expect("a scenario that can run")));
}

#[wasm_bindgen_test]
fn worker_slots_show_calls_waits_and_local_work_without_overlap() {
    let mut run = play("two-harbours", 1.0);
    let target = Float64Array::new_with_length(run.lanes_length() as u32);
    let lanes = number(&run.layout().expect("serialisable"), "lanes");
    let mut kinds = [0; 3];
    for until in [0.0, 700.0, 5_000.0] {
        while !run.advance_to(until, 1_000.0).expect("valid arguments") {}
        let spans = run.read_lanes(until - 700.0, &target).expect("the array is long enough");
        let numbers = target.subarray(0, (spans * 5) as u32).to_vec();
        let mut ends = vec![-1.0; lanes as usize];
        let mut by_start: Vec<&[f64]> = numbers.chunks(5).collect();
        by_start.sort_by(|one, other| one[1].total_cmp(&other[1]));
        for span in by_start {
            let [lane, start, end, column, kind] = *span else { panic!("five numbers each") };
            assert!(lane < lanes && start <= end && end <= run.now() && column < 5.0, "{span:?}");
            assert!(start >= ends[lane as usize], "one thing at a time: {span:?}");
            ends[lane as usize] = end;
            kinds[kind as usize] += 1;
        }
    }
    assert!(kinds[1] > 0 && kinds[2] > 50, "{kinds:?}");
    assert!(refusal(run.read_lanes(0.0, &Float64Array::new_with_length(5))).contains("not 5"));
}

#[wasm_bindgen_test]
fn the_layout_and_the_idle_split_agree_with_the_sample() {
    let mut run = play("two-harbours", 1.0);
    while !run.advance_to(3_000.0, 1_000.0).expect("valid arguments") {}
    let (layout, sample) =
        (run.layout().expect("serialisable"), run.sample(&JsValue::UNDEFINED).expect("serialisable"));
    for key in ["providers", "columns", "groups", "slots"] {
        let (laid, shown) = (Array::from(&get(&layout, key)), Array::from(&get(&sample, key)));
        assert_eq!(laid.length(), shown.length(), "{key}");
        for (laid, shown) in laid.iter().zip(shown.iter()).filter(|_| key != "columns") {
            assert_eq!(get(&laid, "name"), get(&shown, "name"), "{key}");
        }
    }
    let columns = Array::from(&get(&layout, "columns"));
    let after = |place: u32| text(&get(&columns.get(place), "after"));
    assert_eq!([after(0), after(1), after(2)], ["[]", "[0]", "[1]"]);
    let idle = Array::from(&get(&sample, "idle"));
    let names: Vec<String> = idle.iter().filter_map(|split| get(&split, "name").as_string()).collect();
    assert_eq!(names, ["submission", "narrow", "wide"]);
    for split in idle.iter() {
        let whole: f64 = ["busy", "starved", "frontier"].iter().map(|part| number(&split, part)).sum();
        assert!((whole - 1.0).abs() < 1e-9);
        let causes: f64 = Array::from(&get(&split, "why")).iter().map(|why| number(&why, "share")).sum();
        assert!((causes - number(&split, "starved") - number(&split, "frontier")).abs() < 1e-9);
    }
}

#[wasm_bindgen_test]
fn a_sample_of_many_groups_has_those_with_the_most_queued_tasks_or_those_that_are_held() {
    let mut run = play("very-many/fairness-groups", 1.0);
    while !run.advance_to(100.0, 1_000.0).expect("valid arguments") {}
    let all = run.sample(&JsValue::UNDEFINED).expect("serialisable");
    assert!(get(&all, "only").is_undefined());
    let list = |value: &JsValue, key: &str| Array::from(&get(value, key));
    let groups = list(&all, "groups");
    let queued = |index: f64| number(&groups.get(index as u32), "queued");
    for (shown, held) in [
        (r#"{"columns":64,"groups":3}"#, None),
        (r#"{"columns":64,"groups":3,"held":[1,7]}"#, Some(vec![1.0, 7.0])),
        (r#"{"columns":64,"groups":3,"held":[1,1000000]}"#, None),
    ] {
        let part = run.sample(&json(shown)).expect("serialisable");
        assert_eq!(list(&part, "columns").length(), 64);
        let only = get(&part, "only");
        let indices: Vec<f64> = list(&only, "groups").iter().filter_map(|index| index.as_f64()).collect();
        assert!(indices.is_sorted());
        for (index, group) in indices.iter().zip(list(&part, "groups").iter()) {
            assert_eq!(text(&group), text(&groups.get(*index as u32)));
        }
        let is_left_out = |index: &f64| !indices.contains(index);
        let others: Vec<f64> = (0..groups.length()).map(f64::from).filter(is_left_out).collect();
        let counted = get(&only, "others");
        assert_eq!(number(&counted, "groups"), others.len() as f64);
        assert_eq!(number(&counted, "queued"), others.iter().map(|&index| queued(index)).sum::<f64>());
        match held {
            Some(held) => assert_eq!(indices, held),
            None => {
                let least = indices.iter().map(|&index| queued(index)).fold(f64::INFINITY, f64::min);
                assert!(indices.len() == 3 && others.iter().all(|&index| queued(index) <= least), "{indices:?}");
            }
        }
    }
    let everything = run.sample(&json(r#"{"columns":100000,"groups":100000}"#)).expect("serialisable");
    assert_eq!(text(&everything), text(&all));
}

#[wasm_bindgen_test]
fn what_waits_is_told_why() {
    let mut run = play("two-harbours", 1.0);
    while !run.advance_to(3_000.0, 1_000.0).expect("valid arguments") {}
    let why = |about: &str| Array::from(&run.why(&json(about)).expect("a known kind"));
    let mut told = 0;
    for about in
        ["{\"column\":1}", "{\"group\":1}", "{\"provider\":0}", "{\"slots\":0}", "{\"lane\":0}", "\"row_groups\""]
    {
        for entry in why(about).iter() {
            told += 1;
            assert!(get(&entry, "why").as_string().is_some_and(|why| !why.is_empty()), "{about}");
        }
    }
    assert!(told > 2);
    assert_eq!(why("{\"lane\":64}").length() + why("{\"column\":99}").length(), 0);
    assert!(run.why(&json("{\"colour\":1}")).is_err());
}

#[wasm_bindgen_test]
fn bad_arguments_are_refused_with_the_value_and_what_was_expected() {
    assert!(
        refusal(Playground::new(&"unknown-limit".into(), 1.0)).contains("expected struct Scenario"),
        "names are JavaScript's"
    );
    for seed in [-1.0, 0.5, f64::NAN, 1e300] {
        assert!(refusal(Playground::new(&scenario(&first()), seed)).contains("whole number"));
    }
    let mut run = play(&first(), 1.0);
    for time in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(refusal(run.advance_to(time, 1.0)).contains("milliseconds"));
    }
    assert!(refusal(run.advance_to(1.0, -5.0)).contains("-5"));
    assert!(refusal(run.read_telemetry(&Float64Array::new_with_length(3))).contains("not 3"));
}
