use super::*;

#[test]
fn case_names_are_unique_and_targets_refer_to_cases_of_the_same_set() {
    for cases in [cases(), quick_cases()] {
        let names: alloc::collections::BTreeSet<&str> = cases.iter().map(IdleCase::name).collect();
        assert_eq!(names.len(), cases.len());
        for target in cases.iter().flat_map(|case| &case.targets) {
            if let Target::AsBusyAs { case, .. }
            | Target::FasterThan { case }
            | Target::NoSlowerThan { case }
            | Target::ShorterGap { case } = target
            {
                assert!(names.contains(case), "{case}");
            }
        }
    }
}

#[test]
fn the_quick_set_meets_its_targets() {
    let cases = quick_cases();
    let figures: Vec<CaseFigures> = cases.iter().map(|case| measure(case).unwrap()).collect();
    for check in judge(&cases, &figures) {
        assert!(check.holds, "{}: {}: {}", check.case, check.what, check.found);
    }
}
