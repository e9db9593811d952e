//! Fills one dataset together with other processes: `--together`.
//!
//! The process claims each row group before it makes it, from the [`RowGroupQueue`], and commits its files in
//! the [`SharedDirectory`]. The calls for a row group may be made twice, for example by a process that was
//! killed and by the one that gets its row group. Its rows are written once.
//!
//! The row groups of a process go to others if it makes no progress: it refreshes its claims only while calls
//! end, or none is in flight because all wait for a limit or an outage. A claim lapses [`CLAIM`] after its
//! last refresh. A process that stops hands back its row groups, with the rows of them that are complete.
//!
//! Processes that share the directory and not the server would make all rows twice. Therefore a process
//! announces itself at its server every [`BEAT`], and one that joins looks for those that hold a lock in the
//! directory and are not known there. That a process is known proves that it uses the server. One that is not
//! may have announced itself before the server lost its data, and does it again within [`ANNOUNCED`] unless
//! it is suspended or cut off.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_core::pipeline::{ClaimedRowGroup, HookError};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::app::config::pipeline::{ColumnKind, PipelineFile};
use crate::app::error::Error;
use crate::app::output::{OutputDirectory, OutputError, OutputSpec, SharedDirectory};
use crate::app::provider::cost::{Money, SharedLedger};
use crate::app::run::blocking::with_directory;
use crate::app::run::leased_cost::{LeasedCost, StepError};
use crate::app::run::models::Models;
use crate::app::run::request::RunRequest;
use crate::gate::random_seed;
use crate::host::TokioHost;
use crate::share::{CLAIM, Claimed, RowGroupQueue, Share, ShareError};

/// How long a process waits before it asks again for a row group, if others hold all that are left.
const PAUSE: Duration = Duration::from_millis(500);

/// The time between two announcements of a process at the server.
const BEAT: Duration = Duration::from_secs(1);

/// How long a process that joins waits until the others have announced themselves, and tries again at a
/// server that fails.
const ANNOUNCED: Duration = Duration::from_secs(5);

type ClaimFuture = Pin<Box<dyn Future<Output = Result<Option<ClaimedRowGroup>, OutputError>> + Send>>;

/// The part of this process in a dataset that several processes fill.
pub(super) struct DatasetMember {
    directory: Arc<SharedDirectory>,
    queue: RowGroupQueue,
    /// The lease of a part of the cost limit, if there is one.
    cost: tokio::sync::Mutex<Option<LeasedCost>>,
    /// The text of the cost limit, or nothing.
    max_cost: String,
    /// How long a call may take, at least [`CLAIM`]. A process makes no progress if calls are in flight and
    /// none has ended for longer.
    patience: Duration,
    /// The row groups that this process makes.
    held: Mutex<BTreeSet<u32>>,
    progress: Mutex<Progress>,
    claim: Mutex<Option<ClaimFuture>>,
    /// Whether the claim waits because other processes hold all row groups that are left.
    others_hold_all: AtomicBool,
    /// Becomes true when the run takes no further row group.
    is_closed: watch::Sender<bool>,
    /// Becomes true when the run ends.
    is_leaving: watch::Sender<bool>,
    warnings: Mutex<Vec<String>>,
}

/// Whether a process makes progress.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// When it was last seen to make progress, or a row group was last claimed.
    at: Instant,
    /// The calls that had ended when it was last looked at.
    ended: u64,
}

impl Progress {
    /// Returns whether a process makes progress at `now`, in which `ended` calls have ended and `in_flight`
    /// are in flight: one has ended since the last look, or none is in flight, or that was so within
    /// `patience`.
    fn is_made(&mut self, now: Instant, ended: u64, in_flight: u32, patience: Duration) -> bool {
        if in_flight == 0 || ended != self.ended {
            *self = Self { at: now, ended };
        }
        now.saturating_duration_since(self.at) <= patience
    }
}

impl fmt::Debug for DatasetMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetMember")
            .field("directory", &self.directory)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

/// Checks that several processes can run the pipeline together.
pub(super) fn check_together(file: &PipelineFile, request: &RunRequest) -> Result<(), Error> {
    if !request.together {
        return Ok(());
    }
    let refuse = |what: &str, expected: &str| {
        Err(Error::Setting(format!("--together cannot be used with {what}; expected {expected}")))
    };
    if file.rows.wanted.is_some() {
        return refuse(
            "`accept_if` and `rows` in [run], since the first rows to be accepted are known at the end only",
            "one process",
        );
    }
    if file.has_batches() {
        return refuse("a model with `mode = \"batch\"`, since one process must know of all batches", "one process");
    }
    if let Some(column) = file.columns.iter().find(|column| matches!(column.kind, ColumnKind::Image(_))) {
        let what = format!("the column `{}` of the kind `image`", column.name.get_ref());
        return refuse(&what, "a part of the dataset for each process, with --partition");
    }
    if file.share.is_none() && request.share.is_none() {
        return Err(Error::Setting(
            "--together needs a server over which the processes agree; expected --share URL, or the table [share] in the \
             pipeline file"
                .to_string(),
        ));
    }
    Ok(())
}

/// Announces a process, and checks that all others that fill the directory use the server at `address` and
/// have the same cost limit.
async fn check_server(
    directory: &SharedDirectory,
    queue: &RowGroupQueue,
    address: &str,
    max_cost: &str,
) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        let is_last = start.elapsed() > ANNOUNCED;
        let others = directory.others()?;
        match queue.announce(max_cost, &others).await {
            Ok(known) => {
                if let Some(was) = known.iter().flatten().find(|was| *was != max_cost) {
                    let (path, was, is) = (directory.root().to_path_buf(), limit_text(was), limit_text(max_cost));
                    return Err(OutputError::OtherCostLimit { path, was, is }.into());
                }
                match others.iter().zip(&known).find(|(_, known)| known.is_none()) {
                    None => return Ok(()),
                    Some((process, _)) if is_last => {
                        let path = directory.process_path(process);
                        return Err(OutputError::OtherServer { path, address: address.to_string() }.into());
                    }
                    Some(_) => {}
                }
            }
            Err(why) if is_last => {
                let error = ShareError::Unreachable { address: address.to_string(), why: why.to_string() };
                return Err(Error::Setting(error.to_string()));
            }
            Err(_) => {}
        }
        sleep(BEAT).await;
    }
}

/// Returns how a user has set the cost limit with the text `max_cost`.
fn limit_text(max_cost: &str) -> String {
    if max_cost.is_empty() { "no --max-cost".to_string() } else { format!("--max-cost {max_cost}") }
}

impl DatasetMember {
    /// Joins the processes that fill the output directory of `request`. Returns also the directory of this
    /// process.
    pub(super) async fn join(
        request: &RunRequest,
        spec: &OutputSpec,
        file: &PipelineFile,
        share: &Share,
    ) -> Result<(Self, OutputDirectory), Error> {
        let name = || format!("{:08x}{:08x}", random_seed(), random_seed());
        let process = name();
        let (directory, output) = SharedDirectory::join(&request.out, spec.clone(), &process, &name(), share.name())?;
        let directory = Arc::new(directory);
        let queue = share.row_groups(directory.job(), &process);
        let max_cost = request.max_cost.map_or_else(String::new, Money::exact);
        let joined = async {
            check_server(&directory, &queue, share.address(), &max_cost).await?;
            let Some(limit) = request.max_cost else { return Ok(None) };
            let leases = share.cost_leases(directory.job(), &process);
            let host = TokioHost::current().map_err(|error| Error::Internal(error.to_string()))?;
            let joined = LeasedCost::join(leases, Arc::clone(&directory), limit, host, ANNOUNCED).await;
            joined.map(Some).map_err(|error| match error {
                StepError::Files(error) | StepError::OwnFile(error) => error.into(),
                StepError::Store(why) => {
                    let error = ShareError::Unreachable { address: share.address().to_string(), why: why.to_string() };
                    Error::Setting(error.to_string())
                }
            })
        };
        let cost = match joined.await {
            Ok(cost) => cost,
            Err(error) => {
                directory.discard(output);
                return Err(error);
            }
        };
        let together = Self {
            directory,
            queue,
            cost: tokio::sync::Mutex::new(cost),
            max_cost,
            patience: file.models.iter().map(|model| Duration::from(model.timeout)).fold(CLAIM, Duration::max),
            held: Mutex::default(),
            progress: Mutex::new(Progress { at: Instant::now(), ended: 0 }),
            claim: Mutex::default(),
            others_hold_all: AtomicBool::new(false),
            is_closed: watch::Sender::new(false),
            is_leaving: watch::Sender::new(false),
            warnings: Mutex::default(),
        };
        Ok((together, output))
    }

    /// Returns the output directory that all processes fill.
    pub(super) fn directory(&self) -> &SharedDirectory {
        &self.directory
    }

    /// Returns whether other processes hold all row groups that are left.
    pub(super) fn waits_for_others(&self) -> bool {
        self.held.lock().is_empty() && self.others_hold_all.load(Ordering::Relaxed)
    }

    /// Returns the warnings since the last call.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// Polls the claim of the next row group.
    pub(super) fn poll_claim(
        self: &Arc<Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<ClaimedRowGroup>, HookError>> {
        let mut claim = self.claim.lock();
        let future = claim.get_or_insert_with(|| {
            let (together, mut is_closed) = (Arc::clone(self), self.is_closed.subscribe());
            Box::pin(async move {
                tokio::select! {
                    biased;
                    _ = is_closed.wait_for(|is_closed| *is_closed) => Ok(None),
                    claimed = together.claim_next() => claimed,
                }
            })
        });
        let claimed = ready!(future.as_mut().poll(context));
        *claim = None;
        self.others_hold_all.store(false, Ordering::Relaxed);
        Poll::Ready(claimed.map_err(|error| HookError(error.to_string())))
    }

    /// Claims a row group. While other processes hold all that are left, waits: they may die. Returns `None`
    /// if all row groups are written.
    async fn claim_next(&self) -> Result<Option<ClaimedRowGroup>, OutputError> {
        let mut is_reachable = true;
        loop {
            let held = self.held.lock().clone();
            let error = match self.queue.claim(held).await {
                // The store has lost it, and hands it out again. This process goes on with it.
                Ok(Claimed::RowGroup(row_group)) if self.held.lock().contains(&row_group) => continue,
                Ok(Claimed::RowGroup(row_group)) => {
                    if with_directory(&self.directory, move |directory| directory.complete(row_group)).await? {
                        self.acknowledge(row_group).await;
                        continue;
                    }
                    self.held.lock().insert(row_group);
                    self.progress.lock().at = Instant::now();
                    let part = with_directory(&self.directory, move |directory| directory.adopt(row_group)).await?;
                    if part.as_ref().is_some_and(Vec::is_empty) {
                        with_directory(&self.directory, move |directory| directory.commit(row_group)).await?;
                        self.acknowledge(row_group).await;
                        continue;
                    }
                    return Ok(Some(ClaimedRowGroup { row_group, missing: part.unwrap_or_default() }));
                }
                Ok(Claimed::Empty) => {
                    let missing = with_directory(&self.directory, SharedDirectory::missing).await?;
                    if missing.is_empty() {
                        return Ok(None);
                    }
                    match self.queue.fill(&missing).await {
                        Ok(true) => continue,
                        Ok(false) => None,
                        Err(error) => Some(error),
                    }
                }
                Ok(Claimed::AllHeld) => None,
                Err(error) => Some(error),
            };
            // The files count, not the store.
            if error.is_some() && with_directory(&self.directory, SharedDirectory::missing).await?.is_empty() {
                return Ok(None);
            }
            self.others_hold_all.store(error.is_none(), Ordering::Relaxed);
            let was_reachable = std::mem::replace(&mut is_reachable, error.is_none());
            if let Some(error) = error.filter(|_| was_reachable) {
                let warning = format!("warning: no row group can be claimed, and it is tried again: {error}");
                self.warnings.lock().push(warning);
            }
            sleep(PAUSE).await;
        }
    }

    /// Acknowledges a row group that is written.
    pub(super) async fn acknowledge(&self, row_group: u32) {
        self.held.lock().remove(&row_group);
        // If it is handed out again, its files show that it is done.
        let _ = self.queue.acknowledge(row_group).await;
    }

    /// Lets other processes make row groups that this one has not finished.
    pub(super) async fn hand_back(&self, row_groups: impl IntoIterator<Item = u32>) {
        let row_groups: Vec<u32> = row_groups.into_iter().collect();
        self.held.lock().retain(|row_group| !row_groups.contains(row_group));
        if !row_groups.is_empty() {
            // If the store is unreachable, the claims lapse.
            let _ = self.queue.release(row_groups).await;
        }
    }

    /// Announces this process, and refreshes its claims while it makes progress, until the run ends.
    pub(super) async fn keep_claims(&self, models: &Models) {
        let mut is_leaving = self.is_leaving.subscribe();
        let refresh = async {
            loop {
                sleep(CLAIM / 3).await;
                let ended: u64 = models.providers().iter().map(|provider| provider.calls().made).sum();
                let in_flight: u32 = models.providers().iter().map(|provider| provider.snapshot().in_flight).sum();
                let makes_progress = self.progress.lock().is_made(Instant::now(), ended, in_flight, self.patience);
                let held = self.held.lock().clone();
                if makes_progress && !held.is_empty() {
                    // It is tried again in time.
                    let _ = self.queue.refresh(held).await;
                }
            }
        };
        let announce = async {
            loop {
                // It is tried again in time.
                let _ = self.queue.announce(&self.max_cost, &[]).await;
                sleep(BEAT).await;
            }
        };
        tokio::select! {
            () = refresh => {}
            () = announce => {}
            _ = is_leaving.wait_for(|is_leaving| *is_leaving) => {}
        }
    }

    /// Leases parts of the cost limit for the calls of `ledger` until the run ends, and gives back what is
    /// left.
    pub(super) async fn keep_cost(&self, ledger: &SharedLedger) {
        if let Some(cost) = &mut *self.cost.lock().await {
            cost.keep(ledger, self.is_leaving.subscribe(), |warning| self.warnings.lock().push(warning)).await;
        }
    }

    /// Claims no further row group. One that the server is about to hand out lapses after [`CLAIM`].
    pub(super) fn stop_claiming(&self) {
        self.is_closed.send_replace(true);
    }

    /// Claims no further row group, and hands back those that are not finished.
    pub(super) async fn leave(&self) {
        self.stop_claiming();
        self.is_leaving.send_replace(true);
        let held = self.held.lock().clone();
        self.hand_back(held).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_makes_progress_while_calls_end_or_none_is_in_flight_and_is_waited_for_as_long_as_a_call_may_take() {
        let (start, patience) = (Instant::now(), CLAIM);
        let after = |secs| start + Duration::from_secs(secs);
        let mut progress = Progress { at: start, ended: 0 };
        assert!(progress.is_made(after(30), 0, 1, patience), "a call may take this long");
        assert!(!progress.is_made(after(31), 0, 1, patience), "none has ended for longer");
        assert!(progress.is_made(after(41), 1, 1, patience), "one has");
        assert!(!progress.is_made(after(72), 1, 1, patience));
        assert!(progress.is_made(after(82), 1, 0, patience), "all calls wait, as in an outage");
        assert!(progress.is_made(after(112), 1, 1, patience), "they have just started");
        assert!(!progress.is_made(after(113), 1, 1, patience));
    }
}
