//! Measures a run of many rows beside a loop that makes the same calls.
//!
//! ```sh
//! cargo bench -p tidegate-native --bench scale                        # 100 000 rows
//! cargo bench -p tidegate-native --bench scale -- --rows 1000000 --turns 1
//! ```
//!
//! A process `tidegate mock` serves one model that answers at once. In turns, `tidegate run` fills three
//! columns of a dataset by 64 calls at once, and a loop of 64 tasks of `tokio` and `reqwest` reads the same
//! rows, makes the same three calls for each, and writes the answers to a file. The loop has no retries, no
//! limit, no check of answers, no crash safety. It is this program, started again as a child, so both sides
//! are measured in the same way.
//!
//! Each turn yields two ratios, so other load on the machine affects both sides: of the rows per second, and
//! of the CPU time for a row. The second does not depend on the disk, on the limit algorithm or on the CPU
//! time of the mock. Memory is the resident memory of the process: after a tenth of its time, and the most
//! after that.

use std::env;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

type BoxError = Box<dyn Error + Send + Sync>;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
/// The argument of this program for the loop.
const LOOP: &str = "loop";
const CALLS_AT_ONCE: usize = 64;
const COLUMNS: [&str; 3] = ["title", "topic", "mood"];
const MEMORY_INTERVAL: Duration = Duration::from_millis(200);

fn main() -> Result<(), BoxError> {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match &args[..] {
        [first, base_url, dataset, out] if first == LOOP => run_loop(base_url, Path::new(dataset), Path::new(out)),
        args => compare(&Settings::from_args(args)?),
    }
}

fn compare(settings: &Settings) -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let dataset = directory.path().join("notes.jsonl");
    write_dataset(&dataset, settings.rows)?;
    let mock = Mock::start()?;
    let pipeline = directory.path().join("pipeline.toml");
    fs::write(&pipeline, pipeline_text(&mock.base_url))?;

    println!("{} rows, {} calls, {CALLS_AT_ONCE} at once", settings.rows, settings.rows * COLUMNS.len());
    println!("turn {:>20} {:>15} {:>22} {:>11}", "rows/s", "CPU for a row", "memory after a tenth", "at most");
    let (mut rates, mut cpu_times, mut memories) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=settings.turns {
        let out = directory.path().join("loop.jsonl");
        let mut command = Command::new(env::current_exe()?);
        command.arg(LOOP).arg(&mock.base_url).args([&dataset, &out]);
        let of_loop = measure(&mut command, settings.rows)?;
        println!("{turn:4}   loop     {of_loop}");
        let out = directory.path().join(format!("out-{turn}"));
        let mut command = Command::new(TIDEGATE);
        command.arg("run").arg(&pipeline).arg("--out").arg(&out).arg("--json");
        let of_run = measure(&mut command, settings.rows)?;
        println!("{turn:4}   tidegate {of_run}");
        fs::remove_dir_all(&out)?;
        rates.push(of_loop.time.as_secs_f64() / of_run.time.as_secs_f64());
        cpu_times.push(of_loop.cpu_time.as_secs_f64() / of_run.cpu_time.as_secs_f64());
        memories.push(of_run.memory.most as f64 / of_loop.memory.most as f64);
    }
    println!(
        "medians: {:.2} of the rows/s of the loop, {:.2} of its rows in the same CPU time, {:.2} times its memory",
        median(rates),
        median(cpu_times),
        median(memories)
    );
    Ok(())
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

struct Settings {
    rows: usize,
    turns: usize,
}

impl Settings {
    fn from_args(args: &[String]) -> Result<Self, BoxError> {
        let mut settings = Self { rows: 100_000, turns: 3 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let number = args.next().ok_or_else(|| format!("expected a number after {arg}"))?.parse()?;
            match arg.as_str() {
                "--rows" => settings.rows = number,
                "--turns" => settings.turns = number,
                _ => return Err(format!("expected --rows N or --turns N, found {arg}").into()),
            }
        }
        Ok(settings)
    }
}

fn write_dataset(path: &Path, rows: usize) -> Result<(), BoxError> {
    let mut file = BufWriter::new(File::create(path)?);
    for row in 0..rows {
        writeln!(file, "{}", json!({ "id": row, "note": format!("the lamp of breakwater {row} failed at low tide") }))?;
    }
    Ok(file.flush()?)
}

fn prompt(column: &str, note: &str) -> String {
    format!("Find the {column} of this note: {note}")
}

fn pipeline_text(base_url: &str) -> String {
    let mut text = format!(
        "[seed]\npath = \"notes.jsonl\"\n\n[[models]]\nname = \"m\"\nprovider = \"local\"\nmodel = \"m\"\nbase_url = \"{base_url}\"\n\
         max_parallel = {CALLS_AT_ONCE}\n"
    );
    for column in COLUMNS {
        let prompt = prompt(column, "{{ note }}");
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[[columns]]\nname = \"{column}\"\nmodel = \"m\"\nprompt = \"{prompt}\"\n");
    }
    text
}

/// The process `tidegate mock`. Dropping it ends the process.
struct Mock {
    child: Child,
    base_url: String,
}

impl Mock {
    fn start() -> Result<Self, BoxError> {
        let model = format!("m=slots={},latency_ms=0", 2 * CALLS_AT_ONCE);
        let mut child = Command::new(TIDEGATE)
            .args(["mock", "--listen", "127.0.0.1:0", "--quiet", "--model", &model])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the mock has no standard output")?;
        let mut mock = Self { child, base_url: String::new() };
        for line in BufReader::new(stdout).lines() {
            if let Some(base_url) = line?.strip_prefix("listening on ") {
                mock.base_url = base_url.to_string();
                return Ok(mock);
            }
        }
        Err("the mock ended before it listened".into())
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a child that fills the rows took.
struct Measured {
    rows: usize,
    time: Duration,
    cpu_time: Duration,
    memory: Memory,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows as f64;
        let (rate, micros) = (rows / self.time.as_secs_f64(), self.cpu_time.as_secs_f64() * 1e6 / rows);
        let Memory { early, most } = self.memory;
        write!(f, "{rate:9.0} {micros:12.0} µs {early:19} kB {most:8} kB")
    }
}

/// Resident memory, in kB.
struct Memory {
    /// After a tenth of the time.
    early: u64,
    /// The most after that.
    most: u64,
}

/// Runs `command`, whose last line is an object with the number of rows that it filled.
fn measure(command: &mut Command, rows: usize) -> Result<Measured, BoxError> {
    let cpu_time = cpu_time_of_children()?;
    let began = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let samples = thread::spawn(move || {
        let mut samples = Vec::new();
        // The file has no `VmRSS` once the process has ended.
        while let Some(memory) = fs::read_to_string(&status).ok().and_then(|text| resident(&text)) {
            samples.push(memory);
            thread::sleep(MEMORY_INTERVAL);
        }
        samples
    });
    let mut summary = String::new();
    let stdout = child.stdout.take().ok_or("the child has no standard output")?;
    for line in BufReader::new(stdout).lines() {
        summary = line?;
    }
    let exit = child.wait()?;
    let time = began.elapsed();
    let cpu_time = cpu_time_of_children()?.saturating_sub(cpu_time);
    let samples = samples.join().map_err(|_| "the sampling of memory panicked")?;
    let summary: Value = serde_json::from_str(&summary).unwrap_or_default();
    if !exit.success() || summary["rows_out"] != json!(rows) {
        return Err(format!("{command:?} ended with {exit}: {summary}").into());
    }
    let from = samples.len() / 10;
    let early = *samples.get(from).ok_or("too short to measure the memory")?;
    let most = samples[from..].iter().copied().max().unwrap_or(early);
    Ok(Measured { rows, time, cpu_time, memory: Memory { early, most } })
}

/// Reads the CPU time, in user and kernel mode, of the children that have ended. The mock has not.
///
/// It counts in hundredths of a second.
fn cpu_time_of_children() -> Result<Duration, BoxError> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // The second field, in parentheses, is the name of the program.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(13).take(2);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    Ok(Duration::from_millis(10 * ticks.iter().sum::<u64>()))
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Makes all calls in a loop.
fn run_loop(base_url: &str, dataset: &Path, out: &Path) -> Result<(), BoxError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        let url: Arc<str> = format!("{base_url}/chat/completions").into();
        let lines = Arc::new(Mutex::new(BufReader::new(File::open(dataset)?).lines()));
        let out = Arc::new(Mutex::new(BufWriter::new(File::create(out)?)));
        let mut tasks = JoinSet::<Result<usize, BoxError>>::new();
        for _ in 0..CALLS_AT_ONCE {
            let (client, url, lines, out) = (client.clone(), Arc::clone(&url), Arc::clone(&lines), Arc::clone(&out));
            tasks.spawn(async move {
                let mut rows = 0;
                loop {
                    let line = lines.lock().map_err(|_| "a task panicked")?.next();
                    let Some(line) = line else { return Ok(rows) };
                    let mut row: Value = serde_json::from_str(&line?)?;
                    for column in COLUMNS {
                        let prompt = prompt(column, row["note"].as_str().unwrap_or_default());
                        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": prompt }] });
                        let response = client.post(&*url).json(&body).send().await?.error_for_status()?;
                        let mut answer: Value = response.json().await?;
                        row[column] = answer["choices"][0]["message"]["content"].take();
                    }
                    let mut out = out.lock().map_err(|_| "a task panicked")?;
                    serde_json::to_writer(&mut *out, &row)?;
                    out.write_all(b"\n")?;
                    rows += 1;
                }
            });
        }
        let mut rows = 0;
        while let Some(end) = tasks.join_next().await {
            rows += end??;
        }
        out.lock().map_err(|_| "a task panicked")?.flush()?;
        Ok::<_, BoxError>(rows)
    })?;
    println!("{}", json!({ "rows_out": rows }));
    Ok(())
}
