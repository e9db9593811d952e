//! Replays recorded traces against the real machines.
//!
//! A trace file is `{component, name, config, steps[]}`; each step is an operation and what came of it. The first step
//! that differs is reported with both values. Steps that differ on purpose carry a quirk's name and are counted apart.

mod queue;
mod request;
mod task;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::lease::{ReleaseDiagnostics, ReleaseResult};

/// Quirks of the recorded system that are not copied. A step tagged with one is carried out and not compared.
const NOT_COPIED: [&str; 5] = [
    "touch_before_register_pins_limit_1",
    "ramp_applied_lazily",
    "stale_deque_entry_revives",
    "group_spec_last_writer_wins",
    "history_bound_8192",
];

/// Steps, by trace and number, that show the recorded system's one queue over all providers: the clock moved and nothing was
/// served yet, the first waiter in turn was one of another provider and model, and so `try_acquire` overtook a waiter of its
/// own that could go. Here every provider and model has a queue, and `try_acquire` never overtakes. What follows from the
/// lease that was granted is not compared.
const ONE_QUEUE: [(&str, usize); 2] = [("random_008", 92), ("random_016", 75)];

/// A recorded trace.
#[derive(Debug, Deserialize)]
pub struct Trace {
    /// The machine it drives.
    pub component: String,
    /// Its name.
    pub name: String,
    /// The machine's settings.
    pub config: Value,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// One operation and what came of it.
#[derive(Debug, Deserialize)]
pub struct Step {
    /// The operation.
    pub op: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Value,
    /// Quirks of the recorded system that show here.
    #[serde(default)]
    pub quirk: Vec<String>,
    /// What came of it.
    pub expect: Value,
}

/// What a replay found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Steps that were compared.
    pub compared: usize,
    /// Steps that were not, with the quirk that says why.
    pub skipped: Vec<(usize, String)>,
    /// The first step that differs.
    pub difference: Option<String>,
    /// Compared steps that told other events, those aside that differ on purpose. Matching them is optional.
    pub other_events: Vec<String>,
}

/// A machine under replay.
trait Subject {
    /// The quirk whose effects outlast the step that showed it, once one has: from then on a difference is excused.
    fn lasting_quirk(&self) -> Option<&'static str> {
        None
    }

    /// Carries out a step and answers what came of it, in the form of its `expect`.
    fn step(&mut self, step: &Step) -> Result<Value>;
}

/// Replays the trace in `text`.
///
/// # Errors
/// Text that is no trace, or an operation that this build does not know.
pub fn replay(text: &str) -> Result<Replay> {
    let trace: Trace = serde_json::from_str(text).context("this is not a trace")?;
    let mut subject: Box<dyn Subject> = match trace.component.as_str() {
        "request_admission" => Box::new(request::Requests::new(&trace.config)?),
        "fair_task_queue" => Box::new(queue::Turns::new(&trace.config)?),
        "task_admission" => Box::new(task::Admission::new(&trace.config)?),
        other => {
            bail!("`{other}` is no known component; expected request_admission, fair_task_queue or task_admission")
        }
    };
    let mut replay = Replay::default();
    for (at, step) in trace.steps.iter().enumerate() {
        let actual = subject.step(step).with_context(|| format!("step {at}: {}", step.op))?;
        let excused = step.quirk.iter().find(|quirk| NOT_COPIED.contains(&quirk.as_str()));
        if let Some(quirk) = excused {
            replay.skipped.push((at, quirk.clone()));
            continue;
        }
        replay.compared += 1;
        if let Some(difference) = compare(&step.expect, &actual, "expect") {
            let one_queue = ONE_QUEUE.contains(&(trace.name.as_str(), at)).then_some("one_queue_over_all_providers");
            if let Some(quirk) = subject.lasting_quirk().or(one_queue) {
                replay.compared -= 1;
                replay.skipped.extend((at..trace.steps.len()).map(|at| (at, quirk.to_owned())));
                break;
            }
            replay.difference = Some(format!("step {at} `{}` {}: {difference}", step.op, step.args));
            break;
        }
        let (recorded, told) = (events(step, &step.expect), events(step, &actual));
        if step.expect["events"].is_array() && recorded != told {
            replay.other_events.push(format!("step {at} `{}`: recorded {recorded:?}, got {told:?}", step.op));
        }
    }
    Ok(replay)
}

/// The events of a step that are told alike. On purpose, an immediate grant forms no queue here, the soft ceiling is
/// passed once and not at every increase above it, ramps and limits that a cap moved tell their steps, a deadline that
/// passed in a stall is told before what the next command brings, and a call is told with its lease: in the recorded
/// system its caller tells it.
fn events<'a>(step: &Step, came: &'a Value) -> Vec<&'a str> {
    const TOLD_OTHERWISE: [&str; 8] = [
        "queue_formed",
        "queue_drained",
        "ramp_step",
        "ramp_aborted",
        "soft_ceiling_recovered",
        "wait_timeout",
        "call_started",
        "call_completed",
    ];
    let kinds = came["events"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let kinds = kinds.filter_map(|kind| kind.strip_prefix("request_"));
    let moved_by_cap = |kind: &str| step.op != "release" && kind.starts_with("limit_");
    kinds.filter(|kind| !TOLD_OTHERWISE.contains(kind) && !moved_by_cap(kind)).collect()
}

/// The first place at which `actual` lacks or contradicts something that was recorded.
fn compare(expected: &Value, actual: &Value, path: &str) -> Option<String> {
    match (expected, actual) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, value)| {
            // The order and choice of event kinds, and the wording of diagnostics, are recorded for information.
            if key == "events" || key == "retry_after_seconds" || key == "diagnostics" {
                return None;
            }
            let found = found.get(key).unwrap_or(&Value::Null);
            if ["debt", "leased", "running_by_group"].contains(&key.as_str()) {
                // Here what is not mentioned is not there.
                let strangers = found.as_object().into_iter().flatten();
                if let Some((stranger, value)) = strangers.into_iter().find(|(name, _)| value.get(name).is_none()) {
                    return Some(format!("{path}.{key}.{stranger}: recorded nothing, got {value}"));
                }
            }
            if key == "refusals" {
                // Deadlines that passed during one stall are told in the order of the deadlines here, of arrival there.
                return compare(&by_waiter(value), &by_waiter(found), &format!("{path}.{key}"));
            }
            compare(value, found, &format!("{path}.{key}"))
        }),
        (Value::Number(wanted), Value::Number(found)) => {
            let gap = wanted.as_f64()? - found.as_f64()?;
            (gap.abs() > 1e-6).then(|| format!("{path}: recorded {wanted}, got {found}"))
        }
        _ if expected == actual => None,
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let pairs = wanted.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(at, (wanted, found))| compare(wanted, found, &format!("{path}[{at}]")))
        }
        _ => Some(format!("{path}: recorded {expected}, got {actual}")),
    }
}

/// A list of refusals in the order of the waiters' names.
fn by_waiter(refusals: &Value) -> Value {
    let mut list = refusals.as_array().cloned().unwrap_or_default();
    list.sort_by_cached_key(|refusal| refusal["waiter"].to_string());
    list.into()
}

/// A text argument.
fn text<'a>(args: &'a Value, key: &str) -> Result<&'a str> {
    args[key].as_str().with_context(|| format!("the argument `{key}` is missing or no text"))
}

/// The answer to a release, as it is recorded.
fn release_result(answer: ReleaseResult) -> Value {
    let reason = match answer {
        ReleaseResult::Released => "released",
        ReleaseResult::Duplicate => "duplicate",
        ReleaseResult::Stale => "stale_lease",
        ReleaseResult::UnknownLease => "unknown_lease",
        ReleaseResult::WrongController => "wrong_controller_generation",
    };
    json!({"released": answer == ReleaseResult::Released, "reason": reason})
}

/// The counts of irregular releases, as they are recorded.
fn release_diagnostics(counts: ReleaseDiagnostics) -> Value {
    json!({"duplicate": counts.duplicate, "stale_lease": counts.stale, "unknown_lease": counts.unknown_lease,
           "wrong_controller_generation": counts.wrong_controller})
}
