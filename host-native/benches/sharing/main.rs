//! Measures what it costs to share a limit: one process, several that share its limit, several that call
//! through one proxy, and several that each learn the limit alone, all against the same provider.
//!
//! ```sh
//! cargo bench -p tidegate-native --bench sharing                  # about five minutes
//! cargo bench -p tidegate-native --bench sharing -- --turns 3     # all of it three times: least and most
//! cargo bench -p tidegate-native --bench sharing -- --seconds 60  # longer loads
//! ```
//!
//! The provider is a mock in this process, whose capacity is known. It refuses what goes beyond it. The
//! processes are this program, each with a gate of the library; they are real, as are the proxy and
//! `redis-server`. In turns, each layout gets the same loads:
//!
//! | load | provider | calls wanted at once, over all processes |
//! | --- | --- | --- |
//! | even | 12 slots, calls of 20 to 300 ms | 60, as many in each process |
//! | moving | the same | 36, of which 30 are in one of several processes, and in another one every 3 s |
//! | rate | 3000 calls a minute, 10 at once after a quiet time | 60, as many in each process |
//! | light | 12 slots, calls of 160 ms | 8 clients, each of which pauses after a call |
//!
//! Then processes are killed under the even load, and of four that share a limit one that has no calls. The
//! result is a table and a picture, as they are in `docs/sharing.md`.

mod fleet;
mod worker;

use std::error::Error;
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_core::sim::latency::Latency;
use tidegate_core::sim::provider::{Capacity, ProviderSpec, Rate, RetryAfter};
use tidegate_core::time::Duration as CoreDuration;
use tokio::time::{Instant, sleep};

use fleet::{Fleet, Span};

type BoxError = Box<dyn Error + Send + Sync>;

/// The models of the provider.
const SLOTS: &str = "slots";
const RATE: &str = "rate";
const LIGHT: &str = "light";
/// What the provider answers in a second of the models with slots: 12 calls of 160 ms at once.
const SLOTS_PER_SECOND: f64 = 75.0;
const RATE_PER_SECOND: f64 = 50.0;
const LIGHT_CALL: Duration = Duration::from_millis(160);

/// The calls wanted at once of the even load.
const WANTED: usize = 60;
/// Those of the moving load: in one process, and in each other one.
const WANTED_HERE: usize = 30;
const WANTED_ELSEWHERE: usize = 2;
const MOVES_EVERY: Duration = Duration::from_secs(3);
const LIGHT_CLIENTS: usize = 8;
const LIGHT_PAUSE: Duration = Duration::from_millis(170);

/// The time until a limit has been learned. Figures besides those of the start are of the time after it.
const START: Duration = Duration::from_secs(3);
/// The time in which requests that wait are answered when a load ends.
const SETTLE: Duration = Duration::from_secs(1);
const EVEN_ANSWERED: &str = "even: answered, % of the capacity";
const EVEN_REFUSED: &str = "even: refused of 1000";
const MOVING_ANSWERED: &str = "moving: answered, % of the capacity";
const MOVING_REFUSED: &str = "moving: refused of 1000";
/// The rows that are also shown as a part of the figure of one process in the same turn.
const BESIDE_ONE: [(&str, &str); 4] = [
    (EVEN_ANSWERED, "even: answered, of what one process has"),
    (EVEN_REFUSED, "even: refused, of what one process has"),
    (MOVING_ANSWERED, "moving: answered, of what one process has"),
    (MOVING_REFUSED, "moving: refused, of what one process has"),
];
/// The calls that each process wants at once before one without calls is killed.
const WANTED_BEFORE_IDLE: usize = 1;
/// The most time that a layout gets to use the capacity again after a process was killed.
const RECOVERY: Duration = Duration::from_secs(20);
/// The time over which answers are counted to see whether the capacity is used.
const WINDOW: Duration = Duration::from_secs(1);

/// How processes call the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// One process.
    One,
    /// This number of processes that share a limit.
    Shared(usize),
    /// Four processes that call through one proxy.
    Proxy,
    /// Four processes, each with a limit of its own.
    Alone,
}

impl Layout {
    const ALL: [Self; 5] = [Self::One, Self::Shared(2), Self::Shared(4), Self::Proxy, Self::Alone];

    fn processes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Shared(processes) => processes,
            Self::Proxy | Self::Alone => 4,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::One => "one process",
            Self::Shared(2) => "2 share",
            Self::Shared(_) => "4 share",
            Self::Proxy => "4, one proxy",
            Self::Alone => "4, each alone",
        }
    }
}

fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (mut seconds, mut turns) = (10, 1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("expected a value after {arg}"))?;
        match arg.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--turns" => turns = value.parse::<NonZeroU32>()?.get(),
            "--worker" => return worker::run(&value),
            _ => return Err(format!("expected --seconds N or --turns N, found {arg}").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut columns = Layout::ALL.map(Column::new);
        for _ in 0..turns {
            let mut one = None;
            for column in &mut columns {
                let mut figures = measure(column.layout, Duration::from_secs(seconds)).await?;
                let measured = figures.clone();
                add_parts(&mut figures, one.as_ref());
                one.get_or_insert(measured);
                column.turns.push(figures);
            }
        }
        print_table(&columns);
        print_picture(&columns);
        Ok(())
    })
}

/// The providers of the models.
fn models() -> Vec<(String, ProviderSpec)> {
    let [low, high] = [20, 300].map(CoreDuration::from_millis);
    let slots = ProviderSpec {
        capacity: Capacity::Constant { slots: 12 },
        latency: Latency::Uniform { low, high },
        ..ProviderSpec::default()
    };
    let light = ProviderSpec { latency: Latency::Constant { latency: LIGHT_CALL.into() }, ..slots.clone() };
    let requests = Rate { per_minute: 3_000, burst: Some(10), window: None, retry_after: RetryAfter::Exact };
    let rate = ProviderSpec { capacity: Capacity::Constant { slots: 64 }, requests: Some(requests), ..slots.clone() };
    [(SLOTS, slots), (RATE, rate), (LIGHT, light)].map(|(name, spec)| (name.to_string(), spec)).into()
}

/// The figures of a layout.
struct Column {
    layout: Layout,
    turns: Vec<Figures>,
}

/// The name of each row with its figure. `None` if the layout has none.
type Figures = Vec<(&'static str, Option<f64>)>;

impl Column {
    fn new(layout: Layout) -> Self {
        Self { layout, turns: Vec::new() }
    }

    /// Returns the figures of a row in all turns, in their order.
    fn figures(&self, row: &str) -> Vec<f64> {
        let of_row = self.turns.iter().flatten().filter(|(name, _)| *name == row);
        let mut figures: Vec<f64> = of_row.filter_map(|(_, figure)| *figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    }

    /// Returns the least and the most of a row.
    fn cell(&self, row: &str) -> String {
        let format = |figure: f64| match figure {
            late if late.is_infinite() => "not in time".to_string(),
            count if row.contains("first 3 s") => format!("{count:.0}"),
            exact if row.contains("Jain") || row.ends_with("what one process has") => format!("{exact:.2}"),
            many if many >= 20.0 => format!("{many:.0}"),
            few => format!("{few:.1}"),
        };
        let figures = self.figures(row);
        match (figures.first().map(|least| format(*least)), figures.last().map(|most| format(*most))) {
            (Some(least), Some(most)) if least == most => least,
            (Some(least), Some(most)) => format!("{least} to {most}"),
            _ => "–".to_string(),
        }
    }
}

/// Adds the rows of [`BESIDE_ONE`]. `one` has the figures of one process; it is `None` for those themselves.
fn add_parts(figures: &mut Figures, one: Option<&Figures>) {
    let figure = |of: &Figures, row| of.iter().find(|(name, _)| *name == row).and_then(|(_, figure)| *figure);
    for (row, part) in BESIDE_ONE {
        let divided = one.and_then(|one| Some(figure(figures, row)? / figure(one, row)?));
        // One process may have had no refusal.
        figures.push((part, divided.filter(|part| part.is_finite())));
    }
}

async fn measure(layout: Layout, span: Duration) -> Result<Figures, BoxError> {
    let name = layout.name();
    let mut fleet = Fleet::start(layout).await?;
    let is_several = layout != Layout::One;
    let mut figures = Figures::new();
    let mut add = |row, figure: Option<f64>| figures.push((row, figure));

    eprintln!("{name}: even load");
    let (start, early, even) = busy(&mut fleet, SLOTS, SLOTS_PER_SECOND, span).await?;
    add("even: seconds until 90 % of the capacity", Some(start));
    add("even: refused in the first 3 s", Some(early.refused as f64));
    add(EVEN_ANSWERED, Some(100.0 * even.per_second() / SLOTS_PER_SECOND));
    add(EVEN_REFUSED, Some(even.refused_per_1000()));
    add("even: Jain's index of the processes", is_several.then(|| even.jain()));
    let commands = even.commands as f64 / even.seconds / layout.processes() as f64;
    add("even: commands a second to Redis, of a process", matches!(layout, Layout::Shared(_)).then_some(commands));

    eprintln!("{name}: demand that moves");
    let moving = moving(&mut fleet).await?;
    add(MOVING_ANSWERED, Some(100.0 * moving.per_second() / SLOTS_PER_SECOND));
    add(MOVING_REFUSED, Some(moving.refused_per_1000()));

    eprintln!("{name}: a rate");
    let (start, early, rate) = busy(&mut fleet, RATE, RATE_PER_SECOND, span).await?;
    add("rate: seconds until 90 % of the capacity", Some(start));
    add("rate: refused in the first 3 s", Some(early.refused as f64));
    add("rate: answered, % of the capacity", Some(100.0 * rate.per_second() / RATE_PER_SECOND));
    add("rate: refused of 1000", Some(rate.refused_per_1000()));
    add("rate: Jain's index of the processes", is_several.then(|| rate.jain()));

    eprintln!("{name}: light load");
    fleet.order_all(LIGHT, LIGHT_CLIENTS / layout.processes(), LIGHT_PAUSE)?;
    sleep(SETTLE).await;
    let light = fleet.watch(span).await?;
    for (row, percentile) in
        [("light: added latency, median, ms", 50), ("light: added latency, 99th percentile, ms", 99)]
    {
        let latency = light.latency(percentile).ok_or("no call was answered under light load")?;
        add(row, Some(1e3 * (latency.as_secs_f64() - LIGHT_CALL.as_secs_f64())));
    }

    let [killed, led, used] = kill(&mut fleet).await?;
    add("killed, one that does not lead: seconds until 90 %", killed);
    add("killed, the leader: seconds until another one leads", led);
    add("killed, the leader: seconds until 90 %", used);
    let idle = if layout == Layout::Shared(4) { Some(kill_idle().await?) } else { None };
    add("killed, one without calls: seconds until the others have its slots", idle);
    Ok(figures)
}

/// Puts the even load on a model. Returns the seconds until nine tenths of the capacity were used, what
/// happened in the start, and what happened after it.
async fn busy(fleet: &mut Fleet, model: &str, capacity: f64, span: Duration) -> Result<(f64, Span, Span), BoxError> {
    let began = Instant::now();
    fleet.order_all(model, WANTED / fleet.processes(), Duration::ZERO)?;
    let (early, figures) = (fleet.watch(START).await?, fleet.watch(span).await?);
    let start = fleet.seconds_until(began, 0.9 * capacity);
    pause(fleet).await?;
    Ok((start.unwrap_or(f64::INFINITY), early, figures))
}

/// Moves the demand between the processes. One process has all of it for the same time.
async fn moving(fleet: &mut Fleet) -> Result<Span, BoxError> {
    let mut all = Span::default();
    for turn in 0..8 {
        let here = turn % fleet.processes();
        for process in 0..fleet.processes() {
            let wanted = match process == here {
                true if fleet.processes() == 1 => WANTED_HERE + 3 * WANTED_ELSEWHERE,
                true => WANTED_HERE,
                false => WANTED_ELSEWHERE,
            };
            fleet.order(process, SLOTS, wanted, Duration::ZERO)?;
        }
        all.add(fleet.watch(MOVES_EVERY).await?);
    }
    pause(fleet).await?;
    Ok(all)
}

/// Ends a load, and waits until the requests that wait are answered.
async fn pause(fleet: &mut Fleet) -> Result<(), BoxError> {
    fleet.order_all(SLOTS, 0, Duration::ZERO)?;
    sleep(SETTLE).await;
    Ok(())
}

/// Kills processes under the even load. Returns the seconds until nine tenths of the capacity were used again
/// after the death of a process that does not lead; until another process led after the death of the leader;
/// and until nine tenths of the capacity were used after it. What a layout does not have is `None`.
async fn kill(fleet: &mut Fleet) -> Result<[Option<f64>; 3], BoxError> {
    let layout = fleet.layout();
    if matches!(layout, Layout::One | Layout::Proxy) {
        return Ok([None; 3]);
    }
    fleet.order_all(SLOTS, WANTED / layout.processes(), Duration::ZERO)?;
    sleep(START).await;
    let mut killed = None;
    if layout != Layout::Shared(2) {
        eprintln!("{}: a process is killed", layout.name());
        let leader = fleet.leader();
        let victim = fleet.living().find(|process| Some(*process) != leader).ok_or("all processes lead")?;
        killed = Some(recovery(fleet, victim).await?.1);
    }
    if layout == Layout::Alone {
        return Ok([killed, None, None]);
    }
    eprintln!("{}: the leader is killed", layout.name());
    let leader = fleet.leader().ok_or("no process leads")?;
    let (led, used) = recovery(fleet, leader).await?;
    Ok([killed, Some(led), Some(used)])
}

/// Of four processes that share a limit, kills one that has slots and no calls, while the others begin to
/// want all slots. Returns the seconds until they have as many as all had, but for one: the limit is probed
/// meanwhile.
async fn kill_idle() -> Result<f64, BoxError> {
    eprintln!("{}: a process without calls is killed", Layout::Shared(4).name());
    let fleet = &mut Fleet::start(Layout::Shared(4)).await?;
    fleet.order_all(SLOTS, WANTED / fleet.processes(), Duration::ZERO)?;
    sleep(START).await;
    let leader = fleet.leader();
    let victim = fleet.living().find(|process| Some(*process) != leader).ok_or("all processes lead")?;
    for process in fleet.living().collect::<Vec<_>>() {
        fleet.order(process, SLOTS, WANTED_BEFORE_IDLE, Duration::ZERO)?;
    }
    sleep(START).await;
    let before = fleet.slots();
    fleet.order(victim, SLOTS, 0, Duration::ZERO)?;
    // Its last call has ended, and a report says so.
    sleep(2 * SETTLE).await;
    let killed = Instant::now();
    fleet.kill(victim).await?;
    if fleet.slots() + 1 >= before {
        return Err(format!("the idle process had no slots: the others have {} of {before}", fleet.slots()).into());
    }
    for process in fleet.living().collect::<Vec<_>>() {
        fleet.order(process, SLOTS, WANTED / fleet.processes(), Duration::ZERO)?;
    }
    while killed.elapsed() < RECOVERY {
        sleep(Duration::from_millis(20)).await;
        fleet.check_processes()?;
        if fleet.slots() + 1 >= before {
            return Ok(killed.elapsed().as_secs_f64());
        }
    }
    Ok(f64::INFINITY)
}

/// Kills a process. Returns the seconds until another one leads, and those until nine tenths of the capacity
/// are used.
async fn recovery(fleet: &mut Fleet, victim: usize) -> Result<(f64, f64), BoxError> {
    let killed = Instant::now();
    fleet.kill(victim).await?;
    let (mut led, mut used) = (None, None);
    while used.is_none() && killed.elapsed() < RECOVERY + WINDOW {
        sleep(Duration::from_millis(20)).await;
        fleet.check_processes()?;
        if led.is_none() && fleet.leader().is_some() {
            led = Some(killed.elapsed().as_secs_f64());
        }
        used = fleet.seconds_until(killed, 0.9 * SLOTS_PER_SECOND);
    }
    Ok((led.unwrap_or(f64::INFINITY), used.unwrap_or(f64::INFINITY)))
}

fn print_table(columns: &[Column]) {
    let line = |cells: &mut dyn Iterator<Item = &str>| println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
    line(&mut [""].into_iter().chain(columns.iter().map(|column| column.layout.name())));
    line(&mut ["---"].into_iter().chain(columns.iter().map(|_| "---:")));
    for (row, _) in &columns[0].turns[0] {
        let cells: Vec<String> = columns.iter().map(|column| column.cell(row)).collect();
        line(&mut [*row].into_iter().chain(cells.iter().map(String::as_str)));
    }
}

/// Prints a picture of the medians of the refused calls.
fn print_picture(columns: &[Column]) {
    let names: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.layout.name())).collect();
    let median = |refused: Vec<f64>| format!("{:.1}", refused[refused.len() / 2]);
    let values: Vec<String> = columns.iter().map(|column| median(column.figures(EVEN_REFUSED))).collect();
    println!("\n```mermaid\nxychart-beta\n  title \"Refused of 1000 answered, even load\"");
    println!("  x-axis [{}]\n  y-axis \"refused\"\n  bar [{}]\n```", names.join(", "), values.join(", "));
}
