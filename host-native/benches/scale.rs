//! Measures a run of many rows beside a loop that makes the same calls.
//!
//! ```sh
//! cargo bench -p tidegate-native --bench scale                        # 100 000 rows
//! cargo bench -p tidegate-native --bench scale -- --rows 1000000 --turns 1
//! ```
//!
//! A process `tidegate mock` serves one model that answers at once. In turns, `tidegate run` fills three
//! columns of a dataset by 64 calls at once, and 64 tasks of `tokio` and `reqwest` in this process read the
//! same rows, make the same three calls for each, and write the answers to a file. The loop has no retries,
//! no limit, no check of answers, no crash safety.
//!
//! Each turn yields two ratios, so other load on the machine affects both sides: of the rows per second, and
//! of the CPU time for a row. The second does not depend on the disk, on the limit algorithm or on the CPU
//! time of the mock. Memory is the resident memory of the process `tidegate run`: after a tenth of its time,
//! and the most after that.

use std::error::Error;
use std::fmt::Write as _;
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
const CALLS_AT_ONCE: usize = 64;
const COLUMNS: [&str; 3] = ["title", "topic", "mood"];
const MEMORY_INTERVAL: Duration = Duration::from_millis(200);

fn main() -> Result<(), BoxError> {
    let settings = Settings::from_args()?;
    let directory = tempfile::tempdir()?;
    let dataset = directory.path().join("notes.jsonl");
    write_dataset(&dataset, settings.rows)?;
    let mock = Mock::start()?;
    let pipeline = directory.path().join("pipeline.toml");
    fs::write(&pipeline, pipeline_text(&mock.base_url))?;

    println!("{} rows, {} calls, {CALLS_AT_ONCE} at once", settings.rows, settings.rows * COLUMNS.len());
    println!(
        "turn   loop rows/s   tidegate rows/s   ratio   loop CPU   tidegate CPU   ratio   memory after a tenth   at most"
    );
    let (mut ratios, mut cpu_ratios) = (Vec::new(), Vec::new());
    for turn in 1..=settings.turns {
        let before = CpuTime::read()?;
        let loop_time = run_loop(&mock.base_url, &dataset, &directory.path().join("loop.jsonl"))?;
        let between = CpuTime::read()?;
        let out = directory.path().join(format!("out-{turn}"));
        let (run_time, memory) = run_tidegate(&pipeline, &out, settings.rows)?;
        // The mock is another child, but has not ended.
        let of_run = CpuTime::read()?.of_children.saturating_sub(between.of_children);
        let of_loop = between.of_process.saturating_sub(before.of_process);
        fs::remove_dir_all(&out)?;
        let rate = |time: Duration| settings.rows as f64 / time.as_secs_f64();
        let ratio = rate(run_time) / rate(loop_time);
        let cpu_ratio = of_loop.as_secs_f64() / of_run.as_secs_f64();
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / settings.rows as f64;
        println!(
            "{turn:4} {:13.0} {:17.0} {ratio:7.2} {:7.0} µs {:11.0} µs {cpu_ratio:7.2} {:19} kB {:6} kB",
            rate(loop_time),
            rate(run_time),
            micros(of_loop),
            micros(of_run),
            memory.early,
            memory.most
        );
        ratios.push(ratio);
        cpu_ratios.push(cpu_ratio);
    }
    println!("median ratio {:.2}, of CPU time {:.2}", median(ratios), median(cpu_ratios));
    Ok(())
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// CPU time in user and kernel mode.
struct CpuTime {
    /// Of this process.
    of_process: Duration,
    /// Of its children that have ended.
    of_children: Duration,
}

impl CpuTime {
    /// Reads the times, which count in hundredths of a second.
    fn read() -> Result<Self, BoxError> {
        let text = fs::read_to_string("/proc/self/stat")?;
        // The second field, in parentheses, is the name of the program.
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(4);
        let ticks = fields.map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [user, kernel, children_user, children_kernel] = ticks[..] else {
            return Err(format!("expected four times in {text}").into());
        };
        let time = |ticks: u64| Duration::from_millis(10 * ticks);
        Ok(Self { of_process: time(user + kernel), of_children: time(children_user + children_kernel) })
    }
}

struct Settings {
    rows: usize,
    turns: usize,
}

impl Settings {
    fn from_args() -> Result<Self, BoxError> {
        let mut settings = Self { rows: 100_000, turns: 3 };
        let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
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

/// Makes all calls in a loop, and returns the time that it took.
fn run_loop(base_url: &str, dataset: &Path, out: &Path) -> Result<Duration, BoxError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let began = Instant::now();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        let url: Arc<str> = format!("{base_url}/chat/completions").into();
        let lines = Arc::new(Mutex::new(BufReader::new(File::open(dataset)?).lines()));
        let out = Arc::new(Mutex::new(BufWriter::new(File::create(out)?)));
        let mut tasks = JoinSet::<Result<(), BoxError>>::new();
        for _ in 0..CALLS_AT_ONCE {
            let (client, url, lines, out) = (client.clone(), Arc::clone(&url), Arc::clone(&lines), Arc::clone(&out));
            tasks.spawn(async move {
                loop {
                    let line = lines.lock().map_err(|_| "a task panicked")?.next();
                    let Some(line) = line else { return Ok(()) };
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
                }
            });
        }
        while let Some(end) = tasks.join_next().await {
            end??;
        }
        Ok::<_, BoxError>(out.lock().map_err(|_| "a task panicked")?.flush()?)
    })?;
    Ok(began.elapsed())
}

/// Resident memory, in kB.
struct Memory {
    /// After a tenth of the time.
    early: u64,
    /// The most after that.
    most: u64,
}

/// Runs the pipeline, and returns the time that it took and its memory.
fn run_tidegate(pipeline: &Path, out: &Path, rows: usize) -> Result<(Duration, Memory), BoxError> {
    let began = Instant::now();
    let mut child = Command::new(TIDEGATE)
        .arg("run")
        .arg(pipeline)
        .arg("--out")
        .arg(out)
        .arg("--json")
        .stdout(Stdio::piped())
        .spawn()?;
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
    let stdout = child.stdout.take().ok_or("the run has no standard output")?;
    for line in BufReader::new(stdout).lines() {
        summary = line?;
    }
    let exit = child.wait()?;
    let time = began.elapsed();
    let samples = samples.join().map_err(|_| "the sampling of memory panicked")?;
    let summary: Value = serde_json::from_str(&summary)?;
    if !exit.success() || summary["rows_out"] != json!(rows) {
        return Err(format!("the run ended with {exit}: {summary}").into());
    }
    let from = samples.len() / 10;
    let early = *samples.get(from).ok_or("the run was too short to measure its memory")?;
    let most = samples[from..].iter().copied().max().unwrap_or(early);
    Ok((time, Memory { early, most }))
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
