//! Requests to chat models that go in batches: one job of the [batch API](crate::app::run::batch_jobs) for
//! the rows of a [batch](super::batch).

use tidegate_core::budget::Usage;
use tokio::sync::oneshot;

use super::ModelCalls;
use super::batch::{BatchInput, BatchReply, Lead, Submission};
use super::error::FillError;
use crate::app::provider::Client;
use crate::app::provider::batch::{BatchClient, BatchRequest, ChatResult};
use crate::app::run::batch_jobs::BatchJobs;
use crate::app::run::provider::{CallAdmission, Provider};

/// The estimates of a call that submits or polls a job, which uses no tokens itself.
const JOB_ESTIMATES: &[Usage] = &[Usage::tokens(0, 0)];

/// Where requests that go in batches are sent.
struct Destination<'a> {
    client: &'a BatchClient,
    provider: &'a Provider,
    jobs: &'a BatchJobs,
    /// The admission of a job.
    admission: CallAdmission<'static>,
}

impl<'a> ModelCalls<'a> {
    fn destination(&self) -> Option<Destination<'a>> {
        let caller = self.caller?;
        let model = caller.models.first()?;
        match &model.client {
            Client::Batch(client) => Some(Destination {
                client,
                provider: &model.provider,
                jobs: caller.batches.as_deref()?,
                admission: self.admission(caller.group, model.fallbacks, JOB_ESTIMATES),
            }),
            _ => None,
        }
    }

    /// Returns the client of a column whose requests go in batches.
    pub(super) fn batch_client(&self) -> Option<&'a BatchClient> {
        self.destination().map(|to| to.client)
    }

    /// Discards the results of requests that went in batches.
    pub(super) async fn discard(&self, requests: Vec<String>) {
        if let Some(to) = self.destination().filter(|_| !requests.is_empty()) {
            to.jobs.discard(requests).await;
        }
    }

    /// Gets the result of a request that goes in a batch: that of the task, or one of its own.
    pub(super) async fn ask_in_batch(&self, column: &str, request: BatchRequest) -> Result<ChatResult, FillError> {
        let no_client = || FillError::no_client(column);
        let reply = if let Some(member) = self.batch {
            member.submit(BatchInput::Request(request)).await
        } else {
            let to = self.destination().ok_or_else(no_client)?;
            let (reply, result) = oneshot::channel();
            to.jobs.run(to.admission, to.client, to.provider, vec![(request, reply)]).await;
            result.await.unwrap_or_else(|_| Err(no_client()))
        };
        match reply? {
            BatchReply::Chat(result) => Ok(result),
            BatchReply::Vector(_) => Err(no_client()),
        }
    }
}

/// Gets the results for a batch of cells, and replies to its members: in as many rounds as they submit
/// requests.
pub(super) async fn fill_batch(lead: &Lead, calls: ModelCalls<'_>) {
    // Every member has checked it before it submitted.
    let Some(to) = calls.destination() else { return };
    loop {
        let submissions = lead.submissions().await;
        if submissions.is_empty() {
            return;
        }
        let asked = submissions.into_iter().filter_map(|Submission { input, reply, .. }| match input {
            BatchInput::Request(request) => Some((request, reply)),
            BatchInput::Text(_) => None,
        });
        to.jobs.run(to.admission, to.client, to.provider, asked.collect()).await;
    }
}
