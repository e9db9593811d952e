//! The part of a cost limit that this process leases, if several processes fill one dataset: `--together`
//! with `--max-cost`.
//!
//! [`CostSession`] decides on the steps and on their order, and the store what to grant. The ledger rejects
//! what is not leased. The files of the directory are the truth if the store loses its data.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::runtime::Timer as _;
use tidegate_core::share::{CostChange, CostError, CostReply, CostSession, CostStep, MAX_COST};
use tidegate_core::time::{Clock as _, Instant};
use tokio::sync::watch;

use crate::app::output::{OutputError, SharedDirectory};
use crate::app::provider::cost::{LeasedPart, Ledger, Money, SharedLedger};
use crate::app::run::blocking::with_directory;
use crate::host::TokioHost;
use crate::share::{CostLeases, StoreError};

/// The name under which the store has what earlier runs have spent. It is none of a process.
const EARLIER: &str = "earlier";

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Files(OutputError),
    #[error(transparent)]
    OwnFile(OutputError),
}

impl From<StepError> for CostError {
    fn from(error: StepError) -> Self {
        let why = error.to_string();
        match error {
            StepError::Store(_) => Self::Store(why),
            StepError::Files(_) => Self::Files(why),
            StepError::OwnFile(_) => Self::OwnFile(why),
        }
    }
}

/// The lease of this process, with the store and the files behind it.
pub(super) struct LeasedCost {
    store: CostLeases,
    directory: Arc<SharedDirectory>,
    session: CostSession<String, String>,
    host: TokioHost,
}

impl LeasedCost {
    /// Joins the processes that lease parts of `limit`, and leases nothing yet. A store that fails is tried
    /// again for `patience`.
    pub(super) async fn join(
        store: CostLeases,
        directory: Arc<SharedDirectory>,
        limit: Money,
        host: TokioHost,
        patience: Duration,
    ) -> Result<Self, StepError> {
        // Others that join read it at any time.
        with_directory(&directory, SharedDirectory::create_leased).await.map_err(StepError::OwnFile)?;
        let mut joined = Self { store, directory, session: CostSession::new(limit.micros()), host };
        let last = joined.host.now() + patience.into();
        while !joined.session.has_joined() {
            let now = joined.host.now();
            joined.session.handle_timeout(now, 0, 0);
            if let Some(step) = joined.session.poll_step() {
                match joined.run(step).await {
                    Err(error) if now >= last || !matches!(error, StepError::Store(_)) => return Err(error),
                    reply => _ = joined.session.on_reply(joined.host.now(), reply.map_err(CostError::from)),
                }
            } else {
                joined.until_timeout().await;
            }
        }
        Ok(joined)
    }

    /// Leases what the calls of `ledger` need, in advance if possible, until `is_leaving` becomes true. Then
    /// gives back what is left. `warn` is called once for each time in which nothing can be leased.
    ///
    /// No step is cancelled: the file would be written twice at the same time.
    pub(super) async fn keep(
        &mut self,
        ledger: &SharedLedger,
        mut is_leaving: watch::Receiver<bool>,
        warn: impl Fn(String),
    ) {
        let mut has_left = false;
        while !self.session.has_ended() {
            if *is_leaving.borrow() && !has_left {
                has_left = true;
                self.session.leave();
                // A health call may still be due.
                ledger.update(Ledger::close);
            }
            self.update(self.host.now(), ledger);
            if self.step(ledger, &warn).await || self.session.has_ended() {
                continue;
            }
            tokio::select! {
                _ = is_leaving.wait_for(|is_leaving| *is_leaving), if !has_left => {}
                () = ledger.until_refill() => {}
                () = self.until_timeout() => {}
            }
        }
    }

    async fn until_timeout(&self) {
        self.host.sleep_until(self.session.poll_timeout().unwrap_or(Instant::MAX)).await;
    }

    /// Makes the next step if one is due at `now`, or if the calls of `ledger` need one.
    fn update(&mut self, now: Instant, ledger: &SharedLedger) {
        let change = {
            let mut locked = ledger.lock();
            let (total, used) = (locked.total(), locked.total().micros_rounded_up());
            let needed = ledger.lacking().map_or(0, |estimate| total.saturating_add(estimate).micros_rounded_up());
            let change = self.session.handle_timeout(now, used, needed);
            // From here on, no more than this may be spent.
            locked.set_lease(self.part());
            change
        };
        // What a call has lacked was left by another one.
        if change.is_some() {
            ledger.update(|_| {});
        }
    }

    /// Carries out the next step, and changes `ledger` by the reply. Returns whether there was one.
    async fn step(&mut self, ledger: &SharedLedger, warn: &impl Fn(String)) -> bool {
        let Some(step) = self.session.poll_step() else { return false };
        let reply = self.run(step).await;
        let change = self.session.on_reply(self.host.now(), reply.map_err(CostError::from));
        let part = self.part();
        match change {
            None => {}
            Some(CostChange::Leased) => ledger.update(|ledger| ledger.set_lease(part)),
            Some(CostChange::Lacking) => ledger.lock().set_lease(part),
            Some(CostChange::LimitReached) => ledger.update(|ledger| {
                ledger.set_lease(part);
                ledger.stop_at_limit();
            }),
            Some(CostChange::Failing(why)) => {
                warn(format!("warning: no part of --max-cost can be leased, and it is tried again: {why}"));
            }
            Some(CostChange::Stopped(why)) => ledger.update(|ledger| ledger.stop_unwritable(why)),
        }
        true
    }

    /// Returns the lease, as the ledger has it.
    fn part(&self) -> LeasedPart {
        let [amount, refill_at, others] =
            [self.session.amount(), self.session.refill_at(), self.session.others()].map(Money::from_micros);
        LeasedPart { amount, refill_at, others }
    }

    async fn run(&self, step: CostStep<String, String>) -> Result<CostReply<String, String>, StepError> {
        Ok(match step {
            CostStep::Mark(mark) => {
                self.store.mark(mark).await?;
                CostReply::Marked
            }
            CostStep::ReadFiles => {
                let bounds = with_directory(&self.directory, SharedDirectory::cost_bounds).await;
                let (earlier, processes) = bounds.map_err(StepError::Files)?;
                let amount = |(of, amount): (String, Money)| (of, amount.micros_rounded_up().min(MAX_COST));
                let earlier = (EARLIER.to_string(), earlier);
                CostReply::Files([earlier].into_iter().chain(processes).map(amount).collect())
            }
            CostStep::Join { mark, files } => CostReply::Joined(self.store.join(mark, &files).await?),
            CostStep::WriteFile { amount, rises } => {
                let amount = Money::from_micros(amount);
                let write = move |directory: &SharedDirectory| directory.write_leased(amount, rises);
                with_directory(&self.directory, write).await.map_err(StepError::OwnFile)?;
                CostReply::Written
            }
            CostStep::Request { term, request } => CostReply::Granted(self.store.request(&term, &request).await?),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;

    use super::*;
    use crate::app::provider::cost::{LedgerStop, Reservation};
    use crate::redis_server::RedisServer;
    use crate::share::{Share, ShareSettings};

    fn money(amount: f64) -> Money {
        Money::new(amount).unwrap()
    }

    async fn connect(server: &RedisServer) -> Share {
        Share::connect(&ShareSettings::new(&server.url(), "test")).await.unwrap()
    }

    /// Lets a process with a limit of 10 join, without patience.
    async fn join(share: &Share, directory: &Arc<SharedDirectory>) -> Result<LeasedCost, StepError> {
        let store = share.cost_leases("job", &format!("{:016x}", 1));
        let host = TokioHost::current().unwrap();
        LeasedCost::join(store, Arc::clone(directory), money(10.0), host, Duration::ZERO).await
    }

    /// Carries out the steps of one beat, and those that follow at once.
    async fn beat(cost: &mut LeasedCost, ledger: &SharedLedger, warn: &impl Fn(String)) {
        cost.update(Instant::MAX, ledger);
        while cost.step(ledger, warn).await {
            cost.update(cost.host.now(), ledger);
        }
    }

    #[tokio::test]
    async fn what_may_be_granted_is_in_the_file_before_it_is_requested_and_the_rest_is_given_back() {
        let mut server = RedisServer::start();
        let share = connect(&server).await;
        let scratch = tempfile::tempdir().unwrap();
        let (directory, _output) = SharedDirectory::join_first(scratch.path());
        let directory = Arc::new(directory);
        let mut cost = join(&share, &directory).await.unwrap();
        let ledger = SharedLedger::new(Ledger::leasing(Some(money(10.0))));
        let warnings = RefCell::new(Vec::new());
        let warn = |warning| warnings.borrow_mut().push(warning);
        let amounts = || (directory.cost_bounds().unwrap().1[0].1, ledger.lock().lease().unwrap().amount);
        let waiting = ledger.until_leased(money(1.0));
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        server.stop();
        beat(&mut cost, &ledger, &warn).await;
        assert_eq!(amounts(), (money(1.0), money(0.0)), "it may be granted");
        let warned = warnings.take();
        assert!(warned.len() == 1 && warned[0].contains("no part of --max-cost can be leased"), "{warned:?}");
        // The server has lost its data.
        server.restart();
        beat(&mut cost, &ledger, &warn).await;
        waiting.await;
        assert_eq!((amounts(), warnings.take().len()), ((money(1.0), money(1.0)), 0));
        assert_eq!(ledger.try_reserve(money(1.0)), Reservation::Reserved);
        ledger.lock().settle(money(1.0), money(0.25));
        beat(&mut cost, &ledger, &warn).await;
        assert_eq!(amounts().0, amounts().1, "the rest beyond one step is given back");
        assert!(amounts().0 < money(1.0), "{:?}", amounts());
        cost.keep(&ledger, watch::Sender::new(true).subscribe(), |warning| panic!("{warning}")).await;
        assert_eq!(amounts(), (money(0.25), money(0.25)));
        assert_eq!(ledger.try_reserve(money(0.25)), Reservation::Rejected);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_an_error_at_the_start_and_one_that_cannot_be_written_ends_the_run() {
        let mut server = RedisServer::start();
        let share = connect(&server).await;
        let scratch = tempfile::tempdir().unwrap();
        let (directory, _output) = SharedDirectory::join_first(scratch.path());
        let directory = Arc::new(directory);
        // Another process, on a disk that is full.
        let other = directory.process_path(&format!("{:016x}", 2));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("leased.txt"), "").unwrap();
        let error = join(&share, &directory).await.err().unwrap();
        assert!(matches!(error, StepError::Files(_)), "{error}");
        fs::remove_dir_all(&other).unwrap();
        let mut cost = join(&share, &directory).await.unwrap();
        let ledger = SharedLedger::new(Ledger::leasing(Some(money(10.0))));
        let waiting = ledger.until_leased(money(1.0));
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let own = directory.process_path(&format!("{:016x}", 1)).join("leased.txt");
        fs::remove_file(&own).unwrap();
        beat(&mut cost, &ledger, &|warning| panic!("{warning}")).await;
        waiting.await;
        let stop = ledger.lock().stop_reason().cloned();
        assert!(matches!(&stop, Some(LedgerStop::Unwritable(why)) if why.contains("leased.txt")), "{stop:?}");
        server.stop();
        let error = join(&share, &directory).await.err();
        assert!(matches!(error, Some(StepError::Store(_))), "{error:?}");
    }
}
