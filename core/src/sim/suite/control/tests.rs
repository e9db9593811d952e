use super::*;

#[test]
fn equal_seeds_give_equal_figures() {
    let case = Case::all().remove(0).lasting_secs(10);
    let figures = || measure(&case, &Contender::aimd(), &Oracle::of(&case, 3).unwrap()).unwrap();
    assert_eq!(figures(), figures());
}

#[test]
fn two_equal_tenants_are_answered_equally_where_most_calls_are_refused() {
    let case = Case::all().into_iter().find(|case| case.name == "few requests per minute").unwrap().lasting_secs(60);
    for contender in Contender::all() {
        let figures = measure(&case, &contender, &Oracle::of(&case, 1).unwrap()).unwrap();
        assert!(figures.jain_permille >= 995, "{}: {figures:?}", contender.name);
    }
}

#[test]
fn the_oracle_is_never_refused_and_nobody_has_more_answers() {
    for seed in 0..60 {
        let case = Case::drawn(seed).lasting_secs(10);
        let oracle = Oracle::of(&case, seed).unwrap();
        assert_eq!((oracle.run().refused, oracle.run().failed), (0, 0), "{}", case.name);
        for contender in Contender::all() {
            let (goodput, _) = goodput(&case, &contender, &oracle).unwrap();
            // A flat knee lets more calls through past it; so does luck in the order of latencies.
            assert!(goodput <= 1_080 || case.name.starts_with("knee"), "{}: {} {goodput}", case.name, contender.name);
        }
    }
}
