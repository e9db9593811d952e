//! The batches of chat requests at providers: submits them, waits for them, and finds them again in a later
//! run.
//!
//! A *job* is one batch at the provider. A request never is in a second job while the first one may still
//! answer it: its name depends on the column, the row and the body alone, and each request is looked up among
//! the known jobs before it is submitted. The [journal](BatchJournal) holds the jobs of all runs.
//!
//! ```text
//! new --upload--> uploaded --journal--> submitted --journal--> created --journal--> collected
//!                    ^                      |                     |
//!                    |---- journal: void ---+---------------------+
//!                    the provider rejects it, or its list of batches does not have it
//! ```
//!
//! If the creation of a batch gets no clear answer, or the process dies before the journal has it, the job
//! stays `submitted`. The list of batches of the provider then decides: it names the file of requests of each
//! batch.
//!
//! The gate admits a job as one call, which lasts until its results are there. If a step fails, the call
//! fails, and the gate decides when it is made again. The next attempt goes on with the job where it is.
//!
//! The estimated cost of a job is charged from `submitted` on. It is replaced when the results are counted.
//! Answers that report no tokens keep their share of it.
//!
//! Several tasks may have requests in one job. The first of them brings it to its end, which the others find.

mod steps;

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::TaskOutcome;
use tokio::sync::watch;

use crate::app::output::{BatchJournal, BatchLine};
use crate::app::provider::batch::{
    BatchClient, BatchRequest, BatchState, BatchStatus, ChatResult, MAX_FILE_BYTES, MAX_REQUESTS,
};
use crate::app::provider::cost::Money;
use crate::app::run::columns::batch::{BatchReply, ReplySender};
use crate::app::run::columns::error::{FillError, fill_error};
use crate::app::run::provider::{CallAdmission, Provider};

/// The batches of a run, and those that earlier runs of its job have left.
#[derive(Debug)]
pub struct BatchJobs {
    journal: Arc<BatchJournal>,
    known: Mutex<KnownJobs>,
    /// Whether waiting for batches has ended.
    stop: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct KnownJobs {
    /// The latest job of each request by its name, until its result is taken.
    by_request: HashMap<String, Arc<Job>>,
    jobs: Vec<Arc<Job>>,
}

/// One batch.
#[derive(Debug)]
struct Job {
    /// The model, as `provider/model`.
    model: String,
    estimate: Usage,
    /// The names of its requests.
    requests: Vec<String>,
    /// Whether an earlier run has submitted it.
    is_earlier: bool,
    /// Held by the task that advances the job.
    step: tokio::sync::Mutex<Step>,
    progress: Mutex<JobProgress>,
}

/// How far a job is.
#[derive(Debug, Default)]
struct Step {
    /// The requests, unless an earlier run has sent them.
    content: Option<Vec<u8>>,
    /// The id of the uploaded file.
    file: Option<String>,
    /// Whether a line of the journal has the names of its requests.
    is_listed: bool,
    /// When the creation was requested, in seconds since the Unix epoch. `None` if there is no batch.
    submitted_at: Option<u64>,
    /// The id of the batch.
    batch: Option<String>,
    /// Whether its estimated cost is charged, and not that of its results.
    is_charged: bool,
    /// Whether the cost of the results was charged.
    is_counted: bool,
    /// The results that were not taken yet.
    results: HashMap<String, ChatResult>,
    /// The estimate of the answers without a token count.
    unreported: Usage,
    /// The end of the job, for all tasks that have requests in it.
    end: Option<JobEnd>,
}

#[derive(Debug, Default)]
struct JobProgress {
    /// Whether the batch is at the provider, and has not ended.
    is_open: bool,
    status: String,
    done: u64,
    total: u64,
}

/// How an attempt to advance a job ended.
#[derive(Clone, Debug)]
enum JobEnd {
    /// The results are there. Holds the error of a request without one.
    Answered(FillError),
    /// No request was made. Holds the error of all of them.
    Rejected(FillError),
    /// The provider has no such batch, and the requests of an earlier run are not here.
    Void,
    /// The cost limit is reached.
    TooExpensive,
    /// The run stops. The batch goes on.
    Stopped,
}

/// A request with the place where its result is sent.
type WaitingRequest = (BatchRequest, ReplySender);

impl BatchJobs {
    /// Creates the jobs of a run from the journal and its lines.
    #[must_use]
    pub fn new(journal: BatchJournal, lines: Vec<BatchLine>) -> Self {
        let mut by_file: HashMap<String, Job> = HashMap::new();
        let mut order = Vec::new();
        // The file of the latest job that may answer each request. A later job replaces an earlier one: it
        // has the requests that had failed there.
        let mut latest: HashMap<String, String> = HashMap::new();
        for line in lines {
            match line {
                BatchLine::Submitted { file, model, at, input_tokens, output_tokens, requests } => {
                    let job = by_file.entry(file.clone()).or_insert_with(|| {
                        let step = Step { file: Some(file.clone()), is_listed: true, ..Step::default() };
                        order.push(file.clone());
                        let estimate = Usage::tokens(input_tokens, output_tokens);
                        Job { is_earlier: true, ..Job::new(model, estimate, requests, step) }
                    });
                    let step = job.step.get_mut();
                    (step.submitted_at, step.batch, step.is_charged) = (Some(at), None, true);
                    job.progress.get_mut().is_open = true;
                    latest.extend(job.requests.iter().map(|id| (id.clone(), file.clone())));
                }
                BatchLine::Created { file, batch } => {
                    if let Some(job) = by_file.get_mut(&file) {
                        job.step.get_mut().batch = Some(batch);
                    }
                }
                BatchLine::Collected { file } => {
                    if let Some(job) = by_file.get_mut(&file) {
                        let step = job.step.get_mut();
                        (step.is_charged, step.is_counted) = (false, true);
                        job.progress.get_mut().is_open = false;
                    }
                }
                BatchLine::Void { file } => {
                    if let Some(job) = by_file.get_mut(&file) {
                        let step = job.step.get_mut();
                        (step.submitted_at, step.batch, step.is_charged) = (None, None, false);
                        job.progress.get_mut().is_open = false;
                        // No earlier job may answer them: else they would not be in this one.
                        latest.retain(|_, latest| *latest != file);
                    }
                }
                BatchLine::Discarded { requests } => requests.iter().for_each(|id| drop(latest.remove(id))),
            }
        }
        let submitted = order.iter().filter_map(|file| {
            let mut job = by_file.remove(file)?;
            job.step.get_mut().submitted_at.is_some().then(|| (file, Arc::new(job)))
        });
        let jobs: Vec<(&String, Arc<Job>)> = submitted.collect();
        let mut by_request = HashMap::new();
        for (file, job) in &jobs {
            let requests = job.requests.iter().filter(|id| latest.get(*id) == Some(*file));
            by_request.extend(requests.map(|id| (id.clone(), Arc::clone(job))));
        }
        let jobs = jobs.into_iter().map(|(_, job)| job).collect();
        let known = Mutex::new(KnownJobs { by_request, jobs });
        Self { journal: Arc::new(journal), known, stop: watch::Sender::new(false) }
    }

    /// Returns the cost that earlier runs have charged for batches of `providers` that were not collected.
    #[must_use]
    pub fn reserved(&self, providers: &[Arc<Provider>]) -> Money {
        let cost = |job: &Arc<Job>| {
            let is_charged = job.step.try_lock().is_ok_and(|step| step.is_charged);
            let provider = providers.iter().find(|provider| is_charged && provider.label == job.model);
            provider.map_or_else(Money::default, |provider| provider.cost(job.estimate))
        };
        self.known.lock().jobs.iter().map(cost).fold(Money::default(), Money::saturating_add)
    }

    /// Ends all waiting for batches, which go on at their providers.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns the number of batches that may go on at their providers.
    #[must_use]
    pub fn open(&self) -> usize {
        self.known.lock().jobs.iter().filter(|job| job.progress.lock().is_open).count()
    }

    /// Describes the batches of a model that are in progress, such as `batch in progress 120 of 1000`.
    #[must_use]
    pub fn progress(&self, model: &str) -> Option<String> {
        let known = self.known.lock();
        let (mut count, mut done, mut total, mut status) = (0, 0, 0, String::new());
        for job in known.jobs.iter().filter(|job| job.model == model) {
            let progress = job.progress.lock();
            if !progress.is_open || progress.status.is_empty() {
                continue;
            }
            (count, done, total) = (count + 1, done + progress.done, total + progress.total);
            status = if count == 1 || status == progress.status {
                progress.status.clone()
            } else {
                "in progress".to_string()
            };
        }
        match count {
            0 => None,
            1 => Some(format!("batch {status} {done} of {total}")),
            _ => Some(format!("{count} batches {status} {done} of {total}")),
        }
    }

    /// Discards the results of these requests, which are errors or have made a cell fail. A later run asks
    /// again.
    pub async fn discard(&self, requests: Vec<String>) {
        // If the line cannot be written, a later run fails the cell again.
        let _ = self.write(BatchLine::Discarded { requests }).await;
    }

    /// Gets the results of `asked`, and sends each where it is wanted: from the known jobs that have the
    /// requests, and from new jobs for all others.
    pub async fn run(
        &self,
        admission: CallAdmission<'_>,
        client: &BatchClient,
        provider: &Provider,
        asked: Vec<WaitingRequest>,
    ) {
        let mut new: Vec<WaitingRequest> = Vec::new();
        let mut known: Vec<(Arc<Job>, Vec<WaitingRequest>)> = Vec::new();
        for one in asked {
            let job = self.known.lock().by_request.get(&one.0.id).map(Arc::clone);
            match job {
                None => new.push(one),
                Some(job) => match known.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &job)) {
                    Some((_, list)) => list.push(one),
                    None => known.push((job, vec![one])),
                },
            }
        }
        let runs = known.into_iter().enumerate();
        let runs = runs.map(|(index, (job, asked))| self.run_job(admission.nth(index), client, provider, job, asked));
        // Of a job that was never created.
        new.extend(join_all(runs).await.into_iter().flatten());
        let runs = pack(new).into_iter().enumerate();
        let runs = runs.map(|(index, mut asked)| {
            let job = Arc::new(new_job(&provider.label, &mut asked));
            self.run_job(admission.nth(index), client, provider, job, asked)
        });
        join_all(runs).await;
    }

    /// Gets the results of `asked` from `job`. Returns the requests again if there is no such batch.
    async fn run_job(
        &self,
        admission: CallAdmission<'_>,
        client: &BatchClient,
        provider: &Provider,
        job: Arc<Job>,
        asked: Vec<WaitingRequest>,
    ) -> Vec<WaitingRequest> {
        let end = Provider::call_usable(&[provider], 0, admission, |_| self.advance(client, provider, &job)).await;
        let end = end.map(|(_, end)| end).map_err(|(_, failure)| fill_error(failure));
        let is_ended = !matches!(end, Ok(JobEnd::TooExpensive | JobEnd::Stopped) | Err(_));
        let mut step = job.step.lock().await;
        // A job that has ended, or that is not submitted.
        if (is_ended || step.submitted_at.is_none()) && mem::take(&mut step.is_charged) {
            provider.release(job.estimate, step.unreported);
        }
        let is_answered = matches!(end, Ok(JobEnd::Answered(_)));
        let missing = match end {
            Ok(JobEnd::Void) => return asked,
            Ok(JobEnd::Answered(missing) | JobEnd::Rejected(missing)) => missing,
            Ok(JobEnd::TooExpensive) => {
                FillError::Outcome(TaskOutcome::Unavailable, "the cost limit is reached".to_string())
            }
            Ok(JobEnd::Stopped) => {
                FillError::Outcome(TaskOutcome::Cancelled, "the run has stopped; its batch goes on".to_string())
            }
            Err(error) => error,
        };
        let (mut replies, mut unanswered) = (Vec::new(), Vec::new());
        for (request, reply) in asked {
            let result = step.results.remove(&request.id);
            if is_ended {
                // A further try of the cell is a new request.
                self.forget(&job, &request.id);
            }
            if is_answered && !matches!(result, Some(Ok(_))) {
                unanswered.push(request.id);
            }
            replies.push((reply, result.map(BatchReply::Chat).ok_or_else(|| missing.clone())));
        }
        if !unanswered.is_empty() {
            // Before the replies: the line must not follow that of a job with a further try.
            self.discard(unanswered).await;
        }
        for (reply, result) in replies {
            // A member that has gone needs no reply.
            let _ = reply.send(result);
        }
        Vec::new()
    }

    /// Forgets that `job` has its requests, so that they may be in another one.
    fn forget_all(&self, job: &Arc<Job>) {
        job.requests.iter().for_each(|id| self.forget(job, id));
    }

    /// Forgets that `job` has a request, unless another one has it by now.
    fn forget(&self, job: &Arc<Job>, id: &str) {
        let mut known = self.known.lock();
        if known.by_request.get(id).is_some_and(|other| Arc::ptr_eq(other, job)) {
            known.by_request.remove(id);
        }
    }
}

impl Job {
    fn new(model: String, estimate: Usage, requests: Vec<String>, step: Step) -> Self {
        let (step, progress) = (tokio::sync::Mutex::new(step), Mutex::default());
        Self { model, estimate, requests, is_earlier: false, step, progress }
    }

    /// Returns the estimate of `count` of its requests.
    fn estimate_of(&self, count: u32) -> Usage {
        let requests = (self.requests.len() as u64).max(1);
        let part = |tokens: u32| u32::try_from(u64::from(tokens) * u64::from(count) / requests).unwrap_or(u32::MAX);
        Usage::tokens(part(self.estimate.input_tokens), part(self.estimate.output_tokens))
    }

    fn publish(&self, state: &BatchState) {
        let mut progress = self.progress.lock();
        if let BatchStatus::Pending(status) = &state.status {
            progress.status.clone_from(status);
        }
        // Before it has counted them, a provider says 0.
        (progress.done, progress.total) = (state.done, state.total.max(self.requests.len() as u64));
    }
}

/// Returns a job for these requests, whose lines are moved to it.
fn new_job(model: &str, asked: &mut [WaitingRequest]) -> Job {
    let mut content = Vec::new();
    let mut estimate = Usage::default();
    for (request, _) in &mut *asked {
        content.append(&mut mem::take(&mut request.line).into_bytes());
        content.push(b'\n');
        estimate = Usage::tokens(
            estimate.input_tokens.saturating_add(request.estimate.input_tokens),
            estimate.output_tokens.saturating_add(request.estimate.output_tokens),
        );
    }
    let requests = asked.iter().map(|(request, _)| request.id.clone()).collect();
    Job::new(model.to_string(), estimate, requests, Step { content: Some(content), ..Step::default() })
}

/// Divides requests into the files that a provider accepts, in order.
fn pack(asked: Vec<WaitingRequest>) -> Vec<Vec<WaitingRequest>> {
    let mut files: Vec<Vec<WaitingRequest>> = Vec::new();
    let mut bytes = 0;
    for one in asked {
        let more = one.0.line.len() + 1;
        match files.last_mut() {
            Some(file) if bytes + more <= MAX_FILE_BYTES && file.len() < MAX_REQUESTS as usize => {
                bytes += more;
                file.push(one);
            }
            _ => {
                bytes = more;
                files.push(vec![one]);
            }
        }
    }
    files
}
