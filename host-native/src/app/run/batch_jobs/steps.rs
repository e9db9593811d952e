//! The steps of a job: upload, creation, waiting, results.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::{Either, select};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::FailureKind;
use tidegate_core::request::response::RejectionReason;

use super::{BatchJobs, Job, JobEnd, Step};
use crate::app::output::BatchLine;
use crate::app::provider::batch::{BatchClient, BatchResults, BatchState, BatchStatus, UploadedFile};
use crate::app::provider::{CallError, CallOutput};
use crate::app::run::columns::error::FillError;
use crate::app::run::provider::Provider;

/// The time before the second look at a batch. A file with a mistake is rejected within seconds.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest time between two looks at a batch, which takes minutes to hours. Each is half as long again as
/// the one before.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The failures in a row after which a look at a batch counts as a failed call, so that the gate decides.
/// Single failures are common within a day.
const MAX_FAILURES: u32 = 5;

/// The time before a file is submitted again whose requests find the queue of the provider full. Batches
/// leave it, which take minutes to hours.
const FULL_QUEUE_PAUSE: tidegate_core::time::Duration = tidegate_core::time::Duration::from_secs(60);

/// The most looks at a batch that has ended, and does not name the file of its answers.
const MAX_UNFINISHED: u32 = 10;

/// The time between two looks at a file of requests that the provider processes.
const FILE_PAUSE: Duration = Duration::from_secs(2);

/// The most looks at such a file: 10 minutes.
const MAX_FILE_LOOKS: u32 = 300;

/// How long a provider may take to list a batch, after the request to create it has ended.
const LISTING_DELAY: Duration = Duration::from_secs(30);

/// The time between two looks at the list.
const LISTING_PAUSE: Duration = Duration::from_secs(2);

impl BatchJobs {
    /// Brings a job to its end, from wherever it is.
    pub(super) async fn advance(
        &self,
        client: &BatchClient,
        provider: &Provider,
        job: &Arc<Job>,
    ) -> Result<CallOutput<JobEnd>, CallError> {
        let mut step = job.step.lock().await;
        let ended = |value, usage| Ok(CallOutput { value, usage: Some(usage) });
        if let Some(end) = &step.end {
            return ended(end.clone(), Usage::default());
        }
        let batch = match &step.batch {
            Some(batch) => batch.clone(),
            None => match self.create(client, provider, job, &mut step).await? {
                Ok(batch) => batch,
                Err(end) => return ended(end, Usage::default()),
            },
        };
        let file = step.file.clone().unwrap_or_default();
        let Some(state) = self.wait(client, job, &file, &batch).await? else {
            return ended(JobEnd::Stopped, Usage::default());
        };
        if let BatchStatus::Failed { is_limit, why } = &state.status {
            self.void(job, &mut step, file).await?;
            if *is_limit {
                return Err(CallError::RateLimited { status: 429, retry_after: Some(FULL_QUEUE_PAUSE) });
            }
            self.forget_all(job);
            let why = format!("the provider rejected the batch {batch}: {why}");
            let end = JobEnd::Rejected(FillError::failed(FailureKind::Request, why));
            step.end = Some(end.clone());
            return ended(end, Usage::default());
        }
        let results = client.results(&state.files, &job.requests).await;
        let BatchResults { by_request, mut used, unreported } =
            results.map_err(|error| self.blocked(&file, &batch, error))?;
        if step.is_counted {
            used = Usage::default();
        } else {
            self.write(BatchLine::Collected { file }).await?;
            step.is_counted = true;
            step.unreported = job.estimate_of(unreported);
            provider.count_unreported(unreported);
        }
        job.progress.lock().is_open = false;
        let end = JobEnd::Answered(match state.status {
            BatchStatus::Cancelled => {
                FillError::failed(FailureKind::Other, format!("the batch {batch} was cancelled at the provider"))
            }
            BatchStatus::Expired => missing(format!("the batch {batch} expired before this request was made")),
            _ => missing(format!("the results of the batch {batch} do not have this request")),
        });
        (step.results, step.end) = (by_request, Some(end.clone()));
        ended(end, used)
    }

    /// Creates the batch of a job and returns its id, or why there is none.
    async fn create(
        &self,
        client: &BatchClient,
        provider: &Provider,
        job: &Arc<Job>,
        step: &mut Step,
    ) -> Result<Result<String, JobEnd>, CallError> {
        let file = match (&step.file, step.content.clone()) {
            (Some(file), _) => file.clone(),
            (None, content) => {
                let Some(file) = self.upload(client, content.unwrap_or_default()).await? else {
                    return Ok(Err(JobEnd::Stopped));
                };
                step.file = Some(file.clone());
                file
            }
        };
        if let Some(at) = step.submitted_at {
            // The request of an earlier run may have ended as late as this.
            let open = if job.is_earlier { client.timeout() } else { Duration::ZERO };
            match self.find(client, &file, at, open + LISTING_DELAY).await? {
                Listed::Found(state) => return self.created(job, step, file, state).await.map(Ok),
                Listed::Stopped => return Ok(Err(JobEnd::Stopped)),
                Listed::Missing if job.is_earlier => {
                    self.void(job, step, file).await?;
                    self.forget_all(job);
                    step.end = Some(JobEnd::Void);
                    return Ok(Err(JobEnd::Void));
                }
                Listed::Missing => {}
            }
        }
        if !self.submit(provider, job, step, file.clone()).await? {
            return Ok(Err(JobEnd::TooExpensive));
        }
        match client.create(&file).await {
            Ok(state) => self.created(job, step, file, state).await.map(Ok),
            Err(error) => {
                if is_rejection(&error) {
                    self.void(job, step, file).await?;
                } else {
                    // The provider may create it until now.
                    step.submitted_at = Some(seconds_now());
                }
                Err(error)
            }
        }
    }

    /// Sends a file of requests, and waits until a batch can be created of it. Returns its id, or `None` if
    /// the run stops before.
    async fn upload(&self, client: &BatchClient, content: Vec<u8>) -> Result<Option<String>, CallError> {
        let UploadedFile { id, mut is_ready } = client.upload(content).await?;
        for _ in 0..MAX_FILE_LOOKS {
            if is_ready {
                return Ok(Some(id));
            }
            if self.pause(FILE_PAUSE).await {
                return Ok(None);
            }
            is_ready = client.file(&id).await?.is_ready;
        }
        Err(CallError::Timeout)
    }

    /// Records that the creation of the batch of `file` is about to be requested, and reserves its cost.
    /// Returns whether the cost limit allows it.
    async fn submit(
        &self,
        provider: &Provider,
        job: &Arc<Job>,
        step: &mut Step,
        file: String,
    ) -> Result<bool, CallError> {
        if !step.is_charged && !provider.reserve(job.estimate) {
            return Ok(false);
        }
        step.is_charged = true;
        let at = seconds_now();
        self.write(BatchLine::Submitted {
            file,
            model: job.model.clone(),
            at,
            input_tokens: job.estimate.input_tokens,
            output_tokens: job.estimate.output_tokens,
            requests: if step.is_listed { Vec::new() } else { job.requests.clone() },
        })
        .await?;
        (step.submitted_at, step.is_listed) = (Some(at), true);
        job.progress.lock().is_open = true;
        let mut known = self.known.lock();
        if !known.jobs.iter().any(|other| Arc::ptr_eq(other, job)) {
            known.jobs.push(Arc::clone(job));
        }
        for id in &job.requests {
            known.by_request.insert(id.clone(), Arc::clone(job));
        }
        Ok(true)
    }

    /// Records that a batch was created, and returns its id.
    async fn created(&self, job: &Job, step: &mut Step, file: String, state: BatchState) -> Result<String, CallError> {
        job.publish(&state);
        step.batch = Some(state.id.clone());
        self.write(BatchLine::Created { file, batch: state.id.clone() }).await?;
        // The file is at the provider.
        step.content = None;
        Ok(state.id)
    }

    /// Records that there is no batch of this file of requests, so that they may be submitted again.
    async fn void(&self, job: &Arc<Job>, step: &mut Step, file: String) -> Result<(), CallError> {
        self.write(BatchLine::Void { file }).await?;
        (step.submitted_at, step.batch) = (None, None);
        job.progress.lock().is_open = false;
        Ok(())
    }

    /// Looks for the batch of a file in the list of the provider, as long as it may still appear there: until
    /// `delay` after `at`.
    async fn find(&self, client: &BatchClient, file: &str, at: u64, delay: Duration) -> Result<Listed, CallError> {
        loop {
            // Read before the list: what is created later is not missing in it.
            let is_late = seconds_now().saturating_sub(at) >= delay.as_secs();
            // The request may have begun a timeout earlier, and the clock may be an hour wrong.
            match client.find(file, at.saturating_sub(3_600 + client.timeout().as_secs())).await {
                Ok(Some(state)) => return Ok(Listed::Found(state)),
                Ok(None) if is_late => return Ok(Listed::Missing),
                Ok(None) => {}
                Err(CallError::Rejected { .. } | CallError::ModelNotFound { .. }) => {
                    return Err(CallError::BatchBlocked {
                        detail: format!(
                            "it is not known whether a batch of the file {file} was created, and the provider does \
                             not list its batches: if there is one, add {{\"kind\":\"created\",\"file\":\"{file}\",\
                             \"batch\":\"its id\"}} to {path}, else {{\"kind\":\"void\",\"file\":\"{file}\"}}",
                            path = self.journal.path().display()
                        ),
                    });
                }
                Err(error) => return Err(error),
            }
            if self.pause(LISTING_PAUSE).await {
                return Ok(Listed::Stopped);
            }
        }
    }

    /// Waits until a batch has ended. Returns `None` if the run stops before.
    async fn wait(
        &self,
        client: &BatchClient,
        job: &Job,
        file: &str,
        batch: &str,
    ) -> Result<Option<BatchState>, CallError> {
        let (mut pause, mut failures, mut unfinished) = (FIRST_PAUSE, 0, 0);
        loop {
            match client.state(batch).await {
                Ok(state) => {
                    failures = 0;
                    job.publish(&state);
                    match state.status {
                        BatchStatus::Pending(_) => {}
                        BatchStatus::Unfinished if unfinished < MAX_UNFINISHED => unfinished += 1,
                        BatchStatus::Unfinished => {
                            let why = "it has answers, but names no file of them";
                            return Err(self.blocked_because(file, batch, why));
                        }
                        _ => return Ok(Some(state)),
                    }
                }
                Err(
                    CallError::ModelNotFound { .. } | CallError::Rejected { rejection: RejectionReason::NotFound, .. },
                ) => {
                    return Err(CallError::BatchBlocked {
                        detail: format!(
                            "the provider does not know the batch {batch}, which was submitted with another key or \
                             address, or is lost; to submit its requests again, remove the line with {batch} from {}",
                            self.journal.path().display()
                        ),
                    });
                }
                Err(error) => {
                    failures += 1;
                    if failures >= MAX_FAILURES || !is_temporary(&error) {
                        return Err(self.blocked(file, batch, error));
                    }
                }
            }
            if self.pause(pause).await {
                return Ok(None);
            }
            pause = LONGEST_PAUSE.min(pause * 3 / 2);
        }
    }

    /// Returns the error of a request about a batch that exists. If the provider rejects it, that is not
    /// about the requests of the batch, so no row is dropped.
    fn blocked(&self, file: &str, batch: &str, error: CallError) -> CallError {
        match error {
            CallError::ModelNotFound { .. } | CallError::Rejected { .. } => {
                self.blocked_because(file, batch, &error.to_string())
            }
            error => error,
        }
    }

    fn blocked_because(&self, file: &str, batch: &str, why: &str) -> CallError {
        CallError::BatchBlocked {
            detail: format!(
                "the batch {batch} cannot be collected: {why}; to submit its requests again, add \
                 {{\"kind\":\"void\",\"file\":\"{file}\"}} to {}",
                self.journal.path().display()
            ),
        }
    }

    /// Waits for this long. Returns whether waiting for batches has ended.
    async fn pause(&self, pause: Duration) -> bool {
        let mut stop = self.stop.subscribe();
        let stopped = pin!(stop.wait_for(|stop| *stop));
        matches!(select(stopped, pin!(tokio::time::sleep(pause))).await, Either::Left(_))
    }

    /// Appends a line to the journal.
    pub(super) async fn write(&self, line: BatchLine) -> Result<(), CallError> {
        let journal = Arc::clone(&self.journal);
        let written = tokio::task::spawn_blocking(move || journal.append(&line)).await;
        let blocked = |detail| CallError::BatchBlocked { detail };
        written.map_err(|error| blocked(error.to_string()))?.map_err(|error| blocked(error.to_string()))
    }
}

/// What the list of a provider says about a batch.
enum Listed {
    Found(BatchState),
    /// It was never created.
    Missing,
    /// The run stops before that is known.
    Stopped,
}

/// Returns the error of a request that was not made, and may be in another batch.
fn missing(detail: String) -> FillError {
    FillError::of(CallError::NotAnswered { detail })
}

/// Returns whether an error is certain to mean that no batch was created. A 503 with Retry-After is not: a
/// gateway may send it after the provider has the request.
fn is_rejection(error: &CallError) -> bool {
    matches!(
        error,
        CallError::RateLimited { status: 429, .. }
            | CallError::KeyRejected { .. }
            | CallError::Tls { .. }
            | CallError::QuotaExhausted { .. }
            | CallError::ModelNotFound { .. }
            | CallError::Rejected { .. }
    )
}

/// Returns whether an error may pass by itself.
fn is_temporary(error: &CallError) -> bool {
    matches!(error, CallError::RateLimited { .. }) || !is_rejection(error)
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
