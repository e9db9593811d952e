//! `tidegate inspect`: the rows of an output directory with what was asked for them, and why others are
//! missing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::app::error::{Error, Exit};
use crate::app::output::{
    CallLine, DroppedLine, ModelCallCounts, OutputError, RunState, StoredOutput, StoredRowGroup, open_all,
};
use crate::app::provider::conversation::Role;
use crate::app::render::page::page;

/// The rows that are shown unless the command line says.
const DEFAULT_LIMIT: u64 = 20;

/// The length of a text in the terminal, unless one row is shown.
const EXCERPT_CHARS: usize = 160;

const STYLE: &str = "\
:root{color-scheme:light dark}body{margin:2rem auto;max-width:60rem;padding:0 1rem;font:15px/1.5 system-ui,sans-serif}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}dt{font-weight:600}dd{margin:0 0 .5rem 1.5rem;white-space:pre-wrap}\
.quiet{opacity:.7;font-size:13px}";

/// The arguments of `tidegate inspect`.
#[derive(Clone, Debug, Default)]
pub struct InspectRequest {
    /// The output directory.
    pub out: PathBuf,
    /// The only row to show.
    pub row: Option<u64>,
    /// The maximum number of rows to show.
    pub limit: Option<u64>,
    /// Whether only rows that are missing are shown.
    pub dropped: bool,
    /// The file for a page, instead of text.
    pub html: Option<PathBuf>,
}

/// A row to show.
#[derive(Debug)]
struct RowView {
    number: u64,
    /// Why it is missing.
    dropped: Option<DroppedLine>,
    values: Map<String, Value>,
    calls: Vec<CallLine>,
}

/// What is shown.
#[derive(Debug, Default)]
struct Found {
    rows_out: u64,
    /// Rows that are missing, by column and reason.
    dropped: BTreeMap<(String, String), u64>,
    rows: Vec<RowView>,
    /// Whether the job keeps calls.
    has_calls: bool,
}

/// Shows the rows that `request` selects.
///
/// # Errors
///
/// If the directory is no output of a run, a file cannot be read or written, or there is no such row.
pub fn inspect(request: &InspectRequest) -> Result<(String, Exit), Error> {
    let output = StoredOutput::open(&request.out)?;
    let mut found = Found::default();
    for row_group in output.row_groups()? {
        found.add(request, output.read(row_group)?);
    }
    if let (Some(row), true) = (request.row, found.rows.is_empty()) {
        let first = output.manifest.first_row;
        let known = format!("the job has the rows {first} to {}", (first + output.manifest.rows_in).saturating_sub(1));
        return Err(OutputError::NoRow { path: request.out.clone(), row, known }.into());
    }
    let heading = heading(&output, &found);
    let Some(path) = &request.html else { return Ok((text(request, &heading, &found), Exit::Done)) };
    // It is made of the files there, and must not replace one.
    open_all([("--html", path)], &[], Some(&request.out))?;
    let written = std::fs::write(path, page(&output.manifest.pipeline, STYLE, &markup(&heading, &found)));
    written.map_err(|source| OutputError::Io { path: path.clone(), source })?;
    Ok((format!("{} rows in {}\n", found.rows.len(), path.display()), Exit::Done))
}

impl Found {
    fn add(&mut self, request: &InspectRequest, group: StoredRowGroup) {
        let StoredRowGroup { rows, dropped, mut calls } = group;
        self.rows_out += rows.len() as u64;
        self.has_calls |= !calls.is_empty();
        for line in &dropped {
            *self.dropped.entry(line.key()).or_default() += 1;
        }
        let complete = rows.into_iter().filter(|_| !request.dropped).map(|(number, values)| (number, (values, None)));
        let missing = dropped.into_iter().map(|line| (line.row, (Map::new(), Some(line))));
        let shown: BTreeMap<u64, _> = missing.chain(complete).collect();
        let limit = usize::try_from(request.limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(usize::MAX);
        for (number, (values, dropped)) in shown {
            if request.row.is_none_or(|row| row == number) && self.rows.len() < limit {
                // The calls for the whole row group are shown once, with its first row that is shown.
                let calls = calls.extract_if(.., |line| line.row.is_none_or(|row| row == number)).collect();
                self.rows.push(RowView { number, dropped, values, calls });
            }
        }
    }
}

/// Returns the state of the job in one line, the missing rows by column and reason, and how prompts are kept
/// if they are not.
fn heading(output: &StoredOutput, found: &Found) -> Vec<String> {
    let state = match &output.manifest.state {
        RunState::Running => "a run is active, or was killed".to_string(),
        RunState::Ended { reason, .. } => format!("the last run ended: {reason}"),
    };
    let mut lines = vec![format!("{}: {} rows; {state}", output.manifest.pipeline, found.rows_out)];
    lines.extend(found.dropped.iter().map(|((column, reason), rows)| {
        if column.is_empty() {
            format!("{rows} missing: {reason}")
        } else {
            format!("{rows} missing: {reason} at {column}")
        }
    }));
    let was_called = output.manifest.totals.models.values().any(|totals| totals.calls > 0);
    let has_rows = found.rows_out > 0 || !found.dropped.is_empty();
    if was_called && has_rows && !found.has_calls {
        lines.push("prompts and answers are kept if [output] has `calls = true` when rows are made".to_string());
    }
    lines
}

impl RowView {
    fn title(&self) -> String {
        let Some(line) = &self.dropped else { return format!("row {}", self.number) };
        let at = line.column.as_ref().map_or_else(String::new, |column| format!(" at {column}"));
        let detail = line.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
        format!("row {}, missing: {}{at}{detail}", self.number, line.reason)
    }
}

fn describe(call: &CallLine) -> String {
    let of_model = |ModelCallCounts { model, calls, retries }: &ModelCallCounts| {
        let calls = if *calls == 1 { "1 call".to_string() } else { format!("{calls} calls") };
        match retries {
            0 => format!("{calls} of {model}"),
            1 => format!("{calls} of {model} (1 retry)"),
            _ => format!("{calls} of {model} ({retries} retries)"),
        }
    };
    let mut calls = call.models.iter().map(of_model).collect::<Vec<_>>().join(", ");
    if call.row.is_none() {
        calls.push_str(" for the whole row group");
    }
    match (call.is_part, call.input_tokens, call.output_tokens) {
        (true, ..) => format!("{calls}, together with other rows"),
        // Commands have no tokens.
        (false, 0, 0) => calls,
        (false, input, output) => format!("{calls}, {input} input and {output} output tokens"),
    }
}

/// Returns the input, the role, media, text and calls of each message, the answer with its calls, and the
/// error of a call.
fn parts(call: &CallLine) -> impl Iterator<Item = (&'static str, &str)> {
    let role = |role| match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let messages = call.messages.iter().flat_map(move |message| {
        let media = message.media.iter().map(|name| ("media", name.as_str()));
        let author = if message.tool.is_some() { "result" } else { role(message.role) };
        // An answer that calls tools often has no text.
        let text = (!message.content.is_empty() || message.tool_calls.is_empty()).then_some(message.content.as_str());
        media.chain(text.map(|text| (author, text))).chain(called(&message.tool_calls))
    });
    let answer = call.answer.iter().map(|text| ("answer", text.as_str())).chain(called(&call.tool_calls));
    let input = call.input.iter().map(|text| ("input", text.as_str()));
    input.chain(messages).chain(answer).chain(call.error.iter().map(|text| ("error", text.as_str())))
}

/// Returns the calls of tools in an answer, each with its label.
fn called(calls: &[String]) -> impl Iterator<Item = (&'static str, &str)> {
    calls.iter().map(|call| ("calls", call.as_str()))
}

/// Returns a value as it is read: a text without quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn text(request: &InspectRequest, heading: &[String], found: &Found) -> String {
    let is_whole = request.row.is_some();
    let fit = |text: &str| {
        // Control characters of an answer do not reach the terminal.
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let is_long = !is_whole && line.chars().count() > EXCERPT_CHARS;
        if is_long { line.chars().take(EXCERPT_CHARS).chain(['…']).collect() } else { line }
    };
    let mut text = String::new();
    // Writing to a string never fails.
    for line in heading {
        let _ = writeln!(text, "{}", fit(line));
    }
    for row in &found.rows {
        let _ = writeln!(text, "\n{}", fit(&row.title()));
        for (name, value) in &row.values {
            let _ = writeln!(text, "  {}: {}", fit(name), fit(&shown(value)));
        }
        for call in &row.calls {
            let _ = writeln!(text, "  {}: {}", fit(&call.column), fit(&describe(call)));
            for (role, content) in parts(call) {
                let _ = writeln!(text, "    {role}: {}", fit(content));
            }
        }
    }
    text
}

fn markup(heading: &[String], found: &Found) -> Markup {
    html! {
        h1 { (heading.first().map_or("", String::as_str)) }
        @for line in heading.iter().skip(1) { p { (line) } }
        @for row in &found.rows {
            h2 id={ "row-" (row.number) } { (row.title()) }
            dl {
                @for (name, value) in &row.values { dt { (name) } dd { (shown(value)) } }
            }
            @for call in &row.calls {
                details {
                    summary { (call.column) " " span.quiet { (describe(call)) } }
                    dl { @for (role, content) in parts(call) { dt { (role) } dd { (content) } } }
                }
            }
        }
    }
}
