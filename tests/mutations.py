#!/usr/bin/env python3
"""Checks that the tests notice faults: puts one fault at a time into a scratch copy and expects the tests to fail.

    python3 tests/mutations.py               all faults
    python3 tests/mutations.py borrow        those whose file or name has "borrow" in it

Exits with 1 if a fault survives, does not compile, or if its text is not in the file exactly once: then the list below
is to be brought up to date with the code.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["cargo", "test", "-q", "-p", "tidegate-core", "--features", "std,sim", "--lib"]
# A fault may make a test run for ever, which is noticing it too.
TEST_SECONDS = 600


class Fault(NamedTuple):
    name: str
    file: str
    old: str
    new: str


FAULTS = [
    Fault("goodput is compared however few answers the oracle has", "sim/suite/control/figures.rs",
          "const ENOUGH: u64 = 10;", "const ENOUGH: u64 = 1;"),
    Fault("a start is in time after two durations of a call only", "sim/suite/control/figures.rs",
          "(Duration::from_secs(2), 3)", "(Duration::from_secs(2), 2)"),
    Fault("one step in time is enough", "sim/suite/control/figures.rs",
          "reduce(|all, one| all && one)", "reduce(|all, one| all || one)"),
    Fault("a step counts that is over before the goal is due", "sim/suite/control/figures.rs",
          "Series::ticks(**at) + goal <= Series::ticks(*end)", "Series::ticks(**at) <= Series::ticks(*end)"),
    Fault("a last window that is cut short is shown", "sim/suite/control/series.rs",
          "let windows = (span.as_nanos() / Self::TICK.as_nanos()) as usize / ticks;",
          "let windows = Self::ticks(span).div_ceil(ticks);"),
    Fault("a pace is slowed down for ever", "limit/tide/pace.rs",
          "if self.is_endless(learned) || self.is_in_vain(learned) {", "if false {"),
    Fault("a Retry-After stops the refused call only, whatever follows", "limit/tide/scope.rs",
          "if self.belief < CALL_ONLY {", "if true {"),
    Fault("nobody tries what a Retry-After stops", "limit/tide/scope.rs",
          "} else if may_try && self.obeyed == 0 {", "} else if false {"),
    Fault("what a Retry-After stops is tried at every refusal", "limit/tide/scope.rs",
          "self.obeyed = self.most_obeyed;", ""),
    Fault("a trial at the same load teaches no pace", "limit/tide/mod.rs",
          "if self.same_load.passes() >= PASSES {", "if false {"),
    Fault("every refusal is tried at the same load", "limit/tide/same_load.rs",
          "self.believed = self.most_believed;", ""),
    Fault("each refusal is news, however usual", "limit/tide/mod.rs",
          "!self.pace.is_known() && self.share.is_usual()", "false"),
    Fault("a provider that refuses nearly everybody is pressed", "limit/tide/share.rs",
          "(LEAST..=MOST).contains(&self.base)", "self.base >= LEAST"),
    Fault("refusals in runs are a share", "limit/tide/share.rs",
          " && self.runs <= most(RUNNING)", ""),
    Fault("a provider that was closed is begun with anew", "limit/tide/mod.rs",
          "self.limit = self.limit.max(self.unrefused_limit).min(self.max);", ""),
    Fault("a provider that is closed is cut for it", "limit/tide/mod.rs",
          "if self.streak < CLOSED {", "if true {"),
    Fault("a call has to be answered to count as let through", "limit/tide/watch.rs",
          "const WAYS: f64 = 3.0;", "const WAYS: f64 = 1e9;"),
    Fault("a turn may move virtual time back", "fair_queue/records.rs",
          "let virtual_time = virtual_time.max(start);", "let virtual_time = start;"),
    Fault("a refunded turn counts only until virtual time is past it", "fair_queue/refund.rs",
          "group.lag = (virtual_time - group.tag).max(0.0);", ""),
    Fault("a group that comes back claims the time it was away", "fair_queue/records.rs",
          "let start = tag.max(virtual_time - self.lag);", "let start = tag;"),
    Fault("a group that is always refused is refunded for ever", "fair_queue/refund.rs",
          "if lead > charge * most {", "if false {"),
    Fault("answers let nobody be refunded", "fair_queue/refund.rs",
          "const PER_ANSWER: f64 = 2.0;", "const PER_ANSWER: f64 = 0.0;"),
    Fault("a refund leaves its group where it stood", "fair_queue/refund.rs",
          "self.move_fifos(GroupId(turn.group), None);", ""),
    Fault("a refused call has had its turn", "request/provider/mod.rs",
          "Outcome::RateLimited => self.refund(slot, held),", "Outcome::RateLimited => {}"),
    Fault("a paced call is said to wait for a limit", "request/provider/controller.rs",
          "if self.in_flight < self.limit(now) { self.opens_at(now) } else { None }", "None"),
    Fault("a group forgets its tag while idle", "fair_queue/items.rs",
          "group.tag = group.finish.unwrap_or(self.virtual_time);", "group.tag = self.virtual_time;"),
    Fault("the policy is overridden while leases are out", "task/dispatch.rs",
          "if self.compatibility || self.ledger.active() > self.suspended {", "if self.compatibility {"),
    Fault("a suspended worker gives back twice what it held", "task/dispatch.rs",
          "Ok(held) if held.is_suspended => self.suspended -= 1,",
          "Ok(held) if held.is_suspended => { self.suspended -= 1; self.take_back(&held) }"),
    Fault("a worker resumes without what it gave back", "task/suspension.rs",
          "if self.accounts.resources.shortage(held.demand).is_some() {", "if false {"),
    Fault("new workers start before suspended ones resume", "pipeline/dispatch/workers.rs",
          "self.is_dispatch_pending || (0..)", "self.is_dispatch_pending || false && (0..)"),
    Fault("a lot stays shut when just enough comes back", "task/dispatch.rs",
          "take_while(|set| set.amount <= available)", "take_while(|set| set.amount < available)"),
    Fault("a release does not offer its group again", "task/dispatch.rs",
          "        self.offer_again(group.0);\n", ""),
    Fault("strict fairness lets a group one above its limit", "task/policy/strict_fair.rs",
          "running >= *limit", "running > *limit"),
    Fault("submission presses on everybody", "task/policy/mod.rs",
          "resource.0 != 0 || self.accounts.resources.amounts(self.demand).len() == 1", "true"),
    Fault("new debt is more than the task takes", "task/policy/bounded_borrow.rs",
          "wanted.saturating_sub(share).min(amount)", "wanted.saturating_sub(share)"),
    Fault("under pressure a group stays one below its share", "task/policy/bounded_borrow.rs",
          "if wanted > share {", "if wanted >= share {"),
    Fault("debt stays one below its ceiling", "task/policy/bounded_borrow.rs",
          "if debt.saturating_add(new_debt) > most {", "if debt.saturating_add(new_debt) >= most {"),
    Fault("debt is never repaid", "task/accounts.rs",
          "holding.debt = holding.debt.saturating_sub(amount);", "let _ = (holding, amount);"),
    Fault("two competing groups wake nobody", "task/parking.rs",
          "pressing.count > 1", "pressing.count > 2"),
    Fault("a dropped row holds its columns up", "pipeline/row_group/frontier.rs",
          "                self.row_settled(plan, *column, ready);\n", ""),
    Fault("one retry too many", "pipeline/retry/backoff.rs",
          "u32::from(retries) < self.retries", "u32::from(retries) <= self.retries"),
    Fault("a rate-limited task is tried again at once", "pipeline/retry/backoff.rs",
          "until: now + pause.max(self.floor)", "until: now + pause"),
    Fault("early shutdown does not wait for a full window", "pipeline/retry/health.rs",
          "let full = self.failed.len() == self.window;", "let full = true;"),
    Fault("saved rows still count as in work", "pipeline/row_group/set.rs",
          "self.rows_in_work -= u64::from(group.span().rows);", "let _ = group.span();"),
    Fault("discarded tasks still count as queued", "pipeline/row_group/group.rs",
          "*queued -= usize::from(entry.state == TaskState::Queued);", "let _ = (&queued, entry.state);"),
    Fault("a row group that a stop discards has no event", "pipeline/machine/settle.rs",
          "self.emit_discarded(row_group, reason, rows);", "let _ = rows;"),
    Fault("a stop throws complete rows of partial row groups away", "pipeline/machine/settle.rs",
          "if is_kept && has_anything {", "if false && is_kept && has_anything {"),
    Fault("a row group saved in part counts as done", "pipeline/report.rs",
          "self.row_groups_saved += u32::from(is_done);", "self.row_groups_saved += 1;"),
    Fault("rows that an earlier run has made are made again", "pipeline/row_group/frontier.rs",
          "(next..part.start).for_each(|row| frontier.leave_out(plan, row));", ""),
    Fault("a finished task does not settle its row group", "pipeline/machine/absorb.rs",
          "self.absorb(now, ended.key, outcome);\n        self.settle(now, ended.key.row_group);\n",
          "self.absorb(now, ended.key, outcome);\n"),
    Fault("a spawn that failed counts as a try", "pipeline/row_group/set.rs",
          "entry.attempts = entry.attempts.saturating_sub(1);", "let _ = entry;"),
    Fault("a queue that stays blocked has an event in every round", "pipeline/machine/events.rs",
          "            && self.emitter.queue_changed(QueueState::Blocked { reason, resource })\n", ""),
    Fault("a degraded provider is judged before its window is full", "pipeline/retry/retryable.rs",
          "let is_full = target.answers.len() == self.window;", "let is_full = true;"),
    Fault("an old answer stays in the window", "pipeline/retry/retryable.rs",
          "self.answers.pop_front().flatten().is_some()", "false"),
    Fault("the domains of a model are judged together", "pipeline/retry/targets.rs",
          "requests.dedup();", "requests.clear();"),
    Fault("a waiter's grant forgets its task", "request/provider/emit.rs",
          "self.emit_granted(now, left.slot(), about, lease, shared);",
          "self.emit_granted(now, left.slot(), None, lease, shared);"),
    Fault("a call is taken for one of the last worker that asked", "request/admission/yielding.rs",
          "        self.shared.correlations.set_asking(None);\n", ""),
    Fault("a group is told twice in a round that it is denied", "task/denials.rs",
          "self.round + 1) <= self.round {", "self.round + 1) <= self.round + 1 {"),
    Fault("a short cooldown replaces a long one", "request/provider/cooldown.rs",
          "promised.max(end)", "{ let _ = promised; end }"),
    Fault("a refusal leaves a ramp as it is", "request/provider/controller.rs",
          "if outcome == Outcome::RateLimited\n            && let Some(reached)",
          "if outcome == Outcome::ProviderFailure\n            && let Some(reached)"),
    Fault("only AIMD has a ramp", "request/provider/controller.rs",
          "self.start_up = StartUp::new(&self.config, self.ramp_target());", "self.start_up = None;"),
    Fault("an algorithm pauses as long as it likes", "request/provider/controller.rs",
          "{ pause } else { pause.min(self.config.cooldown) }", "{ pause } else { pause }"),
    Fault("one success more before the limit rises", "limit/aimd.rs",
          "self.success_streak < self.config.successes_until_increase",
          "self.success_streak <= self.config.successes_until_increase"),
    Fault("any number of workers yields", "request/admission/yielding.rs",
          "let may_yield = self.shared.yielding.yielded(request.resource) < most", "let may_yield = true"),
    Fault("nothing gives up what a yielded worker lacks", "request/yielding.rs",
          "let Some(key) = self.victim(resource, token, tasks) else",
          "let Some(key) = self.victim(resource, token, tasks).filter(|_| false) else"),
    Fault("a yielded waiter is granted its request alone", "request/provider/serve.rs",
          "                shared.yielding.needs_resume = true;\n                break;",
          "                shared.yielding.needs_resume = true;"),
    Fault("waiters of one resource delay those of another of their group", "request/provider/wait_queue.rs",
          "|(of, _)| *of == line", "|(of, _)| of.run == line.run"),
    Fault("a newcomer overtakes a waiter that could go", "request/provider/serve.rs",
          "self.has_waiters() && self.select(now, None, shared) != Next::Nothing", "false"),
    Fault("the FIFOs of a group keep the tags they had", "fair_queue/mod.rs",
          "if group.len > self.fifos[fifo as usize].len {", "if false {"),
    Fault("every rate limit of a burst cuts", "limit/mod.rs", "call.grant >= self.known", "true"),
    Fault("a statement is as if no call was on its way", "budget/stated.rs",
          "let low = this.lowest(now, statement, heard, heard.others(), typical);",
          "let low = this.lowest(now, statement, heard, 0, typical);"),
    Fault("calls that have ended were counted by whoever states less", "budget/stated.rs",
          "let low = self.lowest(now, statement, heard, heard.beside(), typical);",
          "let low = self.lowest(now, statement, heard, 0, typical);"),
    Fault("a stated rate may stop a resource for ever", "budget/stated.rs",
          "at.min(self.latest + LONGEST_HOLD).max(now)", "at.max(now)"),
    Fault("what is stated is believed against the answers", "budget/stated.rs",
          "Shape::Bucket => self.is_disbelieved = true,", "Shape::Bucket => {}"),
    Fault("a window refills bit by bit", "budget/stated.rs",
          "Shape::Bucket if !is_far[0] =>", "Shape::Bucket if !is_far[0] && false =>"),
    Fault("a rate that is stated no more is kept to", "budget/stated.rs",
          "self.silence > SILENCE", "false"),
    Fault("a configured budget and a stated one hold beside each other", "budget/mod.rs",
          "if is_configured {\n                feedback.corrected", "if false {\n                feedback.corrected"),
    Fault("rates are learned in compatibility mode", "request/admission/register.rs",
          "self.shared.config.rate_limit_headers && !self.shared.config.compatibility",
          "self.shared.config.rate_limit_headers"),
    Fault("a connection that failed keeps its estimate spent", "budget/mod.rs",
          "(Outcome::RateLimited | Outcome::ConnectionFailed, _)", "(Outcome::RateLimited, _)"),
    Fault("every 403 is a refused key", "request/response/mod.rs",
          "        401 => Outcome::KeyRefused.into(),", "        401 | 403 => Outcome::KeyRefused.into(),"),
    Fault("an empty account is waited for", "request/response/error.rs",
          "self.has_code(QUOTA_CODES) || may_be_account", "may_be_account"),
    Fault("one failure more takes a provider down", "request/provider/health.rs",
          "if self.streak < self.config.failures {", "if self.streak <= self.config.failures {"),
    Fault("a provider that has just succeeded is taken down", "request/provider/health.rs",
          "now - since < self.config.quiet", "false && now - since < self.config.quiet"),
    Fault("a suspected provider is called as ever", "request/provider/health.rs",
          "Phase::Suspected { next_at: at } | Phase::Down { probe_at: at } => now < at,",
          "Phase::Suspected { .. } => false, Phase::Down { probe_at: at } => now < at,"),
    Fault("two probes are out", "request/provider/health.rs",
          "Phase::Probing => true,", "Phase::Probing => false,"),
    Fault("pauses do not grow", "request/provider/health.rs",
          "self.pauses = self.pauses.saturating_add(1);", "self.pauses = 1;"),
    Fault("one success makes the pauses short again", "request/provider/health.rs",
          "if self.successes >= self.config.calm {", "if self.successes >= 1 {"),
    Fault("all processes come back at once", "request/provider/health.rs",
          "hash.write_u64(self.config.seed);", ""),
    Fault("what failed before an outage keeps the provider down", "request/provider/health.rs",
          "_ if mark.epoch != self.epoch => Granted::Before,", "_ if mark.epoch > self.epoch => Granted::Before,"),
    Fault("a success from before the outage is no news", "request/provider/health.rs",
          "Granted::Before if outcome == Outcome::Success &&", "Granted::Before if outcome != Outcome::Success &&"),
    Fault("a probe that is given up is never followed", "request/provider/health.rs",
          "Granted::AsProbe if outcome.is_local() => self.make_due(now),", "Granted::AsProbe if outcome.is_local() => Change::None,"),
    Fault("a limit algorithm sees the outage", "request/provider/health.rs",
          "let is_hidden = is_failure && (granted != Granted::InEpoch || self.streak > 0);", "let is_hidden = false;"),
    Fault("a storm meets the provider that is back", "request/provider/mod.rs",
          "resource.controller.begin_recovery(now, span);", "let _ = (now, span, &resource);"),
    Fault("a failure of the call's own is made again for ever", "request/admission/health.rs",
          "for key in self.providers[at].take_undecided(&mut self.shared) {\n                    self.reject(now, key, DenialReason::FailureStands);\n                }",
          "drop(self.providers[at].take_undecided(&mut self.shared));"),
    Fault("the calls that met an outage fail", "request/provider/health.rs",
          "return if is_charged { RetryStanding::FailureStands } else { RetryStanding::Preserved };",
          "return if is_charged || true { RetryStanding::FailureStands } else { RetryStanding::Preserved };"),
    Fault("a short outage costs retries", "request/provider/health.rs",
          "            self.epoch += 1;\n            self.is_proven = outcome", "            self.is_proven = outcome"),
    Fault("a poison request is never charged", "request/provider/health.rs",
          "self.is_proven && failed_probes.are_many()", "false && self.is_proven && failed_probes.are_many()"),
    Fault("tasks are probes as long as the outage lasts", "request/provider/serve.rs",
          "let spares_all = made.is_some_and(", "let spares_all = false && made.is_some_and("),
    Fault("the last call that may be poison is made again and again", "request/provider/serve.rs",
          "let spares_undecided = made.is_some()", "let spares_undecided = false && made.is_some()"),
    Fault("an outage that was none makes the next one longer", "request/provider/health.rs",
          "if self.is_proven && is_health_call {", "if false {"),
    Fault("poison requests are a short outage for ever", "request/admission/health.rs",
          "waiter.failed_probes = waiter.failed_probes.and_one(at as u32);", "let _ = (&waiter, at);"),
    Fault("an answer decides nothing about a call that is out again", "request/provider/health.rs",
          "} else if is_failure && had_failed {", "} else if false && is_failure && had_failed {"),
    Fault("failed probes are forgotten at the next provider", "request/admission/health.rs",
          "attempt: Attempt { failed_probes: retry.failed_probes, is_undecided,", "attempt: Attempt { failed_probes: <_>::default(), is_undecided,"),
    Fault("an unavailable provider is never tried again", "request/provider/health.rs",
          "pause.or(self.config.recheck).map", "pause.map"),
    Fault("a recheck comes before the pause that was asked for", "request/provider/health.rs",
          "pause.or(self.config.recheck).map", "self.config.recheck.map"),
    Fault("a new model ignores that its account is closed", "request/admission/register.rs",
          "            self.join_account(now, at);\n", ""),
    Fault("a poison request is charged at its first probe", "request/answer.rs",
          "const MANY: u8 = 3;", "const MANY: u8 = 1;"),
    Fault("a refused key closes one model alone", "request/admission/health.rs",
          "if cause.is_of_account() {\n                    self.close_account", "if false {\n                    self.close_account"),
    Fault("a missing model closes the whole account", "request/snapshot.rs",
          "matches!(self, Self::KeyRefused | Self::QuotaExhausted)", "!matches!(self, Self::Outage)"),
    Fault("no patience has an end", "request/provider/health.rs",
          "if self.patience_ends(in_flight).is_none_or(|end| now < end) {", "if true {"),
    Fault("a refusal that is no rate limit keeps the patience running", "request/provider/health.rs",
          "_ => self.limited_since = None,", "_ => {}"),
    Fault("a pause of any length is waited for", "request/provider/health.rs",
          "retry_after.is_some_and(is_too_long)", "retry_after.is_some_and(is_too_long) && false"),
    Fault("the patience with rate limits wakes nobody", "request/provider/mod.rs",
          "            .chain(patience)\n            .min()", "            .min()"),
    Fault("calls that wait outlive a drain", "request/admission/yielding.rs",
          "waiter.run.is_some_and(|run| tasks.is_stopping(run))", "false && waiter.run.is_some_and(|run| tasks.is_stopping(run))"),
    Fault("a task of a run that stops begins another call", "request/admission/yielding.rs",
          "if tasks.is_stopping(token.run) {", "if false {"),
    Fault("an outage of yesterday makes the next one longer", "request/provider/health.rs",
          "if now - self.last_failure >= self.calm_span() {", "if false {"),
    Fault("an undecided call holds up those behind it", "request/provider/serve.rs",
          "run: yields_in, is_undecided });", "run: yields_in, is_undecided: false });"),
    Fault("a task whose provider cannot be used is dropped", "pipeline/machine/absorb.rs",
          "        self.row_groups.park(&self.plan, key);\n",
          "        self.drop_rows(key, DropReason::WorkerLost);\n"),
    Fault("a refused key from before the outage closes the provider", "request/provider/health.rs",
          "_ if granted == Granted::Before => {}", "_ if false => {}"),
    Fault("an undecided call waits for a stream of any length", "request/provider/health.rs",
          "self.last_failure + backoff::LONGEST_RETRY", "Instant::MAX"),
    Fault("a run without its provider is complete though rows are not started", "pipeline/machine/stop.rs",
          "Some(group) if self.rows_not_started() > 0 => {", "Some(group) if false => {"),
    Fault("rows dropped after their last retry stop no run", "pipeline/machine/absorb.rs",
          "if failure.is_some() {\n                self.record_final(true);", "if false {\n                self.record_final(true);"),
    Fault("a fallback is never used", "request/provider/mod.rs",
          "health.serves(now) || may_try && !is_blocked()", "true || may_try && !is_blocked()"),
    Fault("a provider that refuses has more than one call with fallbacks", "request/provider/mod.rs",
          "is_alone && (health.is_probed() || self.in_flight == 0)", "is_alone"),
    Fault("what waits for a provider that goes down has no fallback", "request/admission/health.rs",
          "        self.reconsider_fallbacks(now);\n        match change {", "        match change {"),
    Fault("everybody leaves the fallback for one probe", "request/admission/fallback.rs",
          "waiters.truncate(usize::from(is_first));", "let _ = is_first;"),
    Fault("what went to a fallback stays there", "request/admission/fallback.rs",
          "let moves_all = there.serves(now) || here", "let moves_all = here"),
    Fault("refusals of any length are waited for though there is a fallback", "request/provider/health.rs",
          "self.limited_since.map(|since| since + self.config.fallback_after)", "None"),
    Fault("who waits for a provider that goes down keeps what it holds", "request/admission/health.rs",
          "                self.shared.yielding.went_down();\n", ""),
    Fault("who comes to a provider that is down keeps what it holds", "request/admission/yielding.rs",
          "|| !self.providers[at.provider].is_healthy();", "|| false && !self.providers[at.provider].is_healthy();"),
    Fault("a refused request takes a provider down", "call.rs",
          "Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout)",
          "Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout | Self::RequestRefused)"),
    Fault("a call that timed out at its provider is no failure", "call.rs",
          "Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout)",
          "Self::ConnectionFailed | Self::ProviderFailure)"),
    Fault("a 408 is the request's own fault", "request/response/mod.rs",
          "408 | 504 => Outcome::ProviderTimeout.into(),", "504 => Outcome::ProviderTimeout.into(),"),
    Fault("a 529 is a failure", "request/response/mod.rs", "429 | OVERLOADED => ", "429 => "),
    Fault("pauses grow without end", "request/provider/health.rs",
          "backoff::doubled(config.first_pause, self.pauses, config.longest_pause)",
          "backoff::doubled(config.first_pause, self.pauses, Duration::from_secs(1 << 20))"),
    Fault("all models come back at once", "request/provider/health.rs", "        hash.write_u64(self.place);\n", ""),
    Fault("every pause of an outage has the same jitter", "request/provider/health.rs",
          "        hash.write_u32(self.epoch);\n        hash.write_u32(self.streak);\n", ""),
    Fault("a failure does not stop the climb of a limit", "request/provider/controller.rs",
          "if outcome == Outcome::RateLimited || outcome.is_counted_failure() {", "if false {"),
    Fault("a provider that flaps has a patience of its own for each outage", "request/provider/health.rs",
          "if self.streak == 1 && self.pauses == 0 {", "if self.streak == 1 {"),
    Fault("a retry waits a second however often it failed", "backoff.rs",
          "jittered(doubled(FIRST_RETRY, failures, LONGEST_RETRY), hash)", "jittered(FIRST_RETRY, hash)"),
    Fault("a retry may wait for hours", "backoff.rs",
          "doubled(FIRST_RETRY, failures, LONGEST_RETRY)", "doubled(FIRST_RETRY, failures, Duration::from_secs(1 << 20))"),
    Fault("a stop waits for every backoff", "pipeline/machine/stop.rs", "        self.retries.clear();\n", ""),
    Fault("row groups are admitted though a model of theirs is given up", "pipeline/machine/absorb.rs",
          "        self.row_groups.close();\n", ""),
    Fault("an account is reopened for one model alone", "request/admission/health.rs",
          "at == model.index() || whole &&", "at == model.index() || false && whole &&"),
    Fault("one model that fails holds the row groups of another back", "pipeline/retry/deferral.rs",
          "self.first.iter().all(", "self.first.iter().any("),
    Fault("why says nothing of an outage", "request/admission/explain.rs",
          "Block::Outage => outage(owner.health_state(), owner.opens_at()),",
          "Block::Outage => CallWait::Cooldown { until: now },"),
    Fault("a reset is told by the wrong clock", "request/response/mod.rs",
          "sent.unwrap_or_else(|| headers.now())", "headers.now()"),
    Fault("how a call failed elsewhere counts at its fallback", "request/provider/health.rs",
          "if retry.provider != self.provider || retry.epoch", "if retry.epoch"),
]


def run(command: list[str], where: Path) -> str:
    """What became of it: "passed", "failed" or "no end"."""
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, timeout=TEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    return "passed" if done.returncode == 0 else "failed"


def judge(fault: Fault, copy: Path) -> tuple[bool, str]:
    file = copy / "core/src" / fault.file
    text = file.read_text()
    if text.count(fault.old) != 1:
        return False, f"its text is there {text.count(fault.old)} times"
    file.write_text(text.replace(fault.old, fault.new))
    try:
        # No test has run yet, so a failure here is the compiler's.
        if subprocess.run([*TESTS, "--no-run"], cwd=copy, capture_output=True, check=False).returncode != 0:
            return False, "does not compile"
        outcome = run(TESTS, copy)
        return (False, "SURVIVES") if outcome == "passed" else (True, f"noticed: {outcome}")
    finally:
        file.write_text(text)


def main() -> int:
    word = " ".join(sys.argv[1:])
    faults = [fault for fault in FAULTS if word in fault.file or word in fault.name]
    if not faults:
        sys.exit(f"no fault has {word!r} in its file or name")
    with tempfile.TemporaryDirectory(prefix="tidegate-mutations-") as scratch:
        copy = Path(scratch) / "copy"
        # Only what is under version control or about to be: build output stays behind.
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)
        # A target folder of its own: the faults stay out of everybody's cache.
        TESTS.extend(["--target-dir", f"{scratch}/target"])
        if subprocess.run([*TESTS, "--no-run"], cwd=copy, check=False).returncode or run(TESTS, copy) != "passed":
            sys.exit("the tests fail without any fault")
        wrong = 0
        for fault in faults:
            start = time.monotonic()
            noticed, verdict = judge(fault, copy)
            wrong += not noticed
            seconds = time.monotonic() - start
            print(f"{fault.name:<56} {fault.file:<34} {verdict:<20} {seconds:>5.1f}s", flush=True)
    print(f"{len(faults) - wrong} of {len(faults)} faults noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
