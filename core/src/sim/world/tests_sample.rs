use super::tests::{calling, millis, model, scenario};
use super::*;
use crate::pipeline::Strategy;
use crate::sim::scenario::{CallbackSpec, Intervention, Model, ScenarioColumn, builtin};
use alloc::string::ToString;

#[test]
fn the_figures_of_every_instant_add_up() {
    for scenario in builtin() {
        let mut world = World::new(&scenario, 5).unwrap();
        // A limit on the steps: the largest scenario is then checked while it has the most work.
        while world.steps() < 20_000 && world.step() {
            if !world.steps().is_multiple_of(37) {
                continue;
            }
            let sample = world.sample();
            let name = &scenario.name;
            let at_work = |column: &ColumnSample| column.calling + column.waiting + column.local;
            assert_eq!(sample.columns.iter().map(at_work).sum::<u32>(), sample.running as u32, "{name}");
            assert_eq!(sample.columns.iter().map(|column| column.ready).sum::<u32>(), sample.queue_depth as u32);
            assert_eq!(sample.groups.iter().map(|group| group.queued).sum::<u32>(), sample.queue_depth as u32);
            let yielded: u32 = sample.columns.iter().map(|column| column.yielded).sum();
            let holding = sample.groups.iter().map(|group| group.running).sum::<u32>();
            assert_eq!(holding + yielded, sample.running as u32, "{name}");
            assert_eq!((sample.slots[0].name.as_str(), sample.slots[0].used), ("submission", holding));
            for (provider, slots) in sample.providers.iter().zip(&sample.slots[1..]) {
                assert_eq!(slots.name, alloc::format!("request:{}", provider.name));
                let columns_of_model = || {
                    let columns = scenario.columns.iter().zip(&sample.columns);
                    columns
                        .filter(|(column, _)| column.model.as_ref() == Some(&provider.name))
                        .map(|(_, sample)| sample)
                };
                assert_eq!(columns_of_model().map(|column| column.calling).sum::<u32>(), provider.in_flight, "{name}");
                assert_eq!(columns_of_model().map(|column| column.waiting).sum::<u32>(), provider.waiting, "{name}");
                assert_eq!(columns_of_model().map(|column| column.yielded).sum::<u32>(), provider.yielded, "{name}");
            }
        }
        let end = world.sample();
        if !end.finished {
            continue;
        }
        let rows: u64 = end.columns.iter().map(|column| column.dropped).sum();
        assert_eq!((rows, end.rows_done + rows), (end.rows_dropped, end.rows_total), "{}", scenario.name);
        assert_eq!((end.row_groups.open, end.row_groups.done), (0, end.row_groups.total));
    }
}

/// Returns what is explained about one thing, as `what: why`.
fn explain(world: &World, about: WhySubject) -> Vec<String> {
    let whys = world.why(&about);
    whys.iter().map(|why| alloc::format!("{}: {}", why.what, why.why)).collect()
}

/// A column `draft` that calls a model of two slots, and a column `check` that depends on it. Three workers
/// run at once, and a row group has four rows.
fn draft_and_check() -> Scenario {
    let check = ScenarioColumn { after: ["draft".to_string()].into(), ..ScenarioColumn::new("check", Strategy::Cell) };
    let base = scenario(40, &[Model { task_limit: Some(8), ..model("m", 2) }], &[calling("draft", "m"), check]);
    let checkpoint = CallbackSpec { takes: millis(500), fails_at: None };
    Scenario { submission_limit: 3, row_groups: 2, yields: false, checkpoint, ..base }
}

#[test]
fn why_explains_everything_that_waits() {
    let mut world = World::watched(&draft_and_check(), 1).unwrap();
    world.advance_to(Instant::ZERO + millis(5));
    assert_eq!(
        explain(&world, WhySubject::Column(0)),
        [
            "1 worker of `draft`, waiting for a call: the limit of 2 concurrent calls is reached",
            "5 tasks of `draft`: all workers are in use",
        ]
    );
    assert_eq!(explain(&world, WhySubject::Column(1)), ["8 tasks of `check`: waits for `draft`"]);
    assert_eq!(explain(&world, WhySubject::Group(0)), ["5 tasks of group `m/draft`, queued: all workers are in use"]);
    assert_eq!(explain(&world, WhySubject::Slots(0)), ["5 workers, needed by queued tasks: all 3 are in use"]);
    assert_eq!(
        explain(&world, WhySubject::Slots(1)),
        ["5 of 8 worker slots of `m`, free: the next task may not start: all workers are in use"]
    );
    assert_eq!(
        explain(&world, WhySubject::Provider(0)),
        ["1 call to `m`, waiting: the limit of 2 concurrent calls is reached"]
    );
    let block = "8 row groups, not started: the maximum of row groups is in progress";
    assert_eq!(explain(&world, WhySubject::RowGroups), [block]);
    world.advance_to(Instant::ZERO + millis(100));
    let saving = "2 row groups, waiting: their hook or checkpoint has not ended";
    assert_eq!(explain(&world, WhySubject::RowGroups), [saving, block]);
    assert_eq!(explain(&world, WhySubject::Column(0)), [saving, block], "nothing else of it waits");
    assert_eq!(
        explain(&world, WhySubject::Slots(0)),
        ["3 of 3 workers, free: row group 0 waits for its hook or checkpoint"]
    );
    assert_eq!(explain(&world, WhySubject::Provider(0)), ["2 of 2 calls to `m`, unused: no worker requests a call"]);
    for nothing in [
        WhySubject::Column(2),
        WhySubject::Group(9),
        WhySubject::Provider(1),
        WhySubject::Slots(9),
        WhySubject::Worker(7),
    ] {
        assert_eq!(explain(&world, nothing), Vec::<String>::new());
    }
}

#[test]
fn why_explains_a_cooldown_a_cut_limit_a_burst_and_a_slow_patch_with_their_times() {
    let mut world = World::watched(&draft_and_check(), 1).unwrap();
    world.change(Intervention::Refuse { model: "m".to_string(), span: millis(1_000) }).unwrap();
    world.change(Intervention::Slow { model: "m".to_string(), factor: 3.0, span: millis(4_200) }).unwrap();
    world.advance_to(Instant::ZERO + millis(17));
    assert_eq!(
        explain(&world, WhySubject::Provider(0)),
        [
            "3 calls to `m`, waiting: a cooldown is in force until 2.0 s",
            "the limit of `m` is 1 of 2: calls were refused, first at a limit of 2; successes raise it again",
            "`m` refuses every call: a burst of refusals, until 1.0 s",
            "calls to `m` take 3 times as long: a slow patch, until 4.2 s",
        ]
    );
}

#[test]
fn why_explains_what_each_worker_waits_for_or_does() {
    let mut world = World::watched(&draft_and_check(), 1).unwrap();
    world.advance_to(Instant::ZERO + millis(5));
    let mut whys: Vec<String> = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "the explanations are sorted below")]
    let workers: Vec<u64> = world.workers.keys().copied().collect();
    for worker in workers {
        whys.extend(explain(&world, WhySubject::Worker(worker)));
    }
    whys.sort();
    let out = "a worker of `draft`: its call is in flight until 0.0 s";
    let waits = "a worker of `draft`: it waits for a call: the cap of 2 concurrent calls is reached";
    assert_eq!(whys, [waits, out, out]);
}
