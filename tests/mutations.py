#!/usr/bin/env python3
"""Checks that the tests notice faults: puts one fault at a time into a scratch copy and expects the tests to fail.

    python3 tests/mutations.py               all faults
    python3 tests/mutations.py borrow        the faults whose file or name contains "borrow"
    python3 tests/mutations.py --check       builds nothing: only checks that the list fits the code

The list fits the code if the old text of each fault occurs exactly once in its file and differs from the new text.
Exits with 1 if a fault does not fit, does not compile or survives. A fault that does not fit or does not compile must
be updated in the list below.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["cargo", "test", "-q", "-p", "tidegate-core", "--features", "std,sim", "--lib"]
# A fault can make a test run for ever. It counts as noticed then.
TEST_SECONDS = 600


class Fault(NamedTuple):
    name: str
    file: str
    old: str
    new: str


FAULTS = [
    Fault("goodput is compared even if the oracle has very few answers", "sim/suite/control/figures.rs",
          "const MIN_ANSWERS: u64 = 10;", "const MIN_ANSWERS: u64 = 1;"),
    Fault("the start goal is two median latencies instead of three", "sim/suite/control/figures.rs",
          "(Duration::from_secs(2), 3)", "(Duration::from_secs(2), 2)"),
    Fault("one step that meets its goal is enough", "sim/suite/control/figures.rs",
          "reduce(|all, one| all && one)", "reduce(|all, one| all || one)"),
    Fault("a step counts even if it ends before its goal is due", "sim/suite/control/figures.rs",
          "Series::ticks(**at) + goal <= Series::ticks(*end)", "Series::ticks(**at) <= Series::ticks(*end)"),
    Fault("a last partial window is shown", "sim/suite/control/series.rs",
          "let windows = (span.as_nanos() / Self::TICK.as_nanos()) as usize / ticks;",
          "let windows = Self::ticks(span).div_ceil(ticks);"),
    Fault("a pace that fails its test is kept", "limit/tide/pace.rs",
          "if let Some(share) = self.check.conclude() {",
          "if let Some(share) = self.check.conclude().filter(|_| false) {"),
    Fault("a Retry-After always stops the refused call only", "limit/tide/scope.rs",
          "if self.belief < CALL_ONLY {", "if true {"),
    Fault("no call tests what a Retry-After stops", "limit/tide/scope.rs",
          "} else if may_try && self.obeyed == 0 {", "} else if false {"),
    Fault("what a Retry-After stops is tested at every refusal", "limit/tide/scope.rs",
          "self.obeyed = self.most_obeyed;", ""),
    Fault("trials at the same load never give a pace", "limit/tide/refusal.rs",
          "if self.same_load.passes() >= PASSES {", "if false {"),
    Fault("every refusal starts a trial at the same load", "limit/tide/same_load.rs",
          "self.skipped = self.most_skipped;", ""),
    Fault("refusals at the usual share still cut the limit", "limit/tide/refusal.rs",
          "!self.pace.is_known() && self.share.is_within_share()", "false"),
    Fault("a provider that refuses nearly every call counts as one that refuses a share", "limit/tide/share.rs",
          "(LEAST..=MOST).contains(&self.base)", "self.base >= LEAST"),
    Fault("refusals in runs count as a constant share", "limit/tide/share.rs",
          " && self.runs <= most(RUNNING)", ""),
    Fault("the limit is cut while a provider is closed", "limit/tide/refusal.rs",
          "if self.refusal_streak < CLOSED {", "if true {"),
    Fault("the limit does not climb after a provider was closed", "limit/tide/success.rs",
          "if core::mem::take(&mut self.refusal_streak) >= CLOSED {",
          "if core::mem::take(&mut self.refusal_streak) == u32::MAX {"),
    Fault("a pace that is far slower than what was let through before is kept", "limit/tide/reached.rs",
          "let gives_up = is_far(self.interval);", "let gives_up = false;"),
    Fault("a pace that is hardly slower than what was let through before is given up", "limit/tide/reached.rs",
          "const FAR: u64 = 3;", "const FAR: u64 = 1;"),
    Fault("only an answered call counts as let through", "limit/tide/watch.rs",
          "const WAYS: f64 = 3.0;", "const WAYS: f64 = 1e9;"),
    Fault("a turn can move virtual time back", "fair_queue/records.rs",
          "let virtual_time = virtual_time.max(start);", "let virtual_time = start;"),
    Fault("a refund is lost once virtual time has passed it", "fair_queue/refund.rs",
          "group.lag = (virtual_time - group.tag).max(0.0);", ""),
    Fault("a group that returns claims the time of its absence", "fair_queue/records.rs",
          "let start = tag.max(virtual_time - self.lag);", "let start = tag;"),
    Fault("refunds of a group that is always rate limited are unbounded", "fair_queue/refund.rs",
          "if lead > charge * most {", "if false {"),
    Fault("answered turns allow no further refunds", "fair_queue/refund.rs",
          "const PER_ANSWER: f64 = 2.0;", "const PER_ANSWER: f64 = 0.0;"),
    Fault("a refund does not move the waiting FIFOs of its group", "fair_queue/refund.rs",
          "self.move_fifos(GroupId(service.group), None);", ""),
    Fault("the turn of a rate-limited call is not refunded", "request/provider/mod.rs",
          "Outcome::RateLimited => self.refund(slot, held),", "Outcome::RateLimited => {}"),
    Fault("a paced call is reported as waiting for the limit", "request/provider/controller.rs",
          "if self.in_flight < self.limit(now) { self.opens_at(now) } else { None }", "None"),
    Fault("a group loses its tag while it is idle", "fair_queue/items.rs",
          "group.tag = group.finish.unwrap_or(self.virtual_time);", "group.tag = self.virtual_time;"),
    Fault("the policy is overridden while leases are active", "task/dispatch.rs",
          "if self.compatibility || self.ledger.active() > self.suspended {", "if self.compatibility {"),
    Fault("the release of a suspended lease returns its resources a second time", "task/dispatch.rs",
          "Ok(held) if held.is_suspended => self.suspended -= 1,",
          "Ok(held) if held.is_suspended => { self.suspended -= 1; self.take_back(&held) }"),
    Fault("a worker resumes although its resources are not available", "task/suspension.rs",
          "if self.accounts.resources.shortage(held.demand).is_some() {", "if false {"),
    Fault("new workers start before suspended ones resume", "pipeline/dispatch/workers.rs",
          "self.is_dispatch_pending || (0..)", "self.is_dispatch_pending || false && (0..)"),
    Fault("a blocked set stays blocked when exactly enough is released", "task/dispatch.rs",
          "take_while(|set| set.amount <= available)", "take_while(|set| set.amount < available)"),
    Fault("a release does not offer its group again", "task/dispatch.rs",
          "        self.offer_again(group.0);\n", ""),
    Fault("strict fairness admits one task above the limit of a group", "task/policy/strict_fair.rs",
          "running >= *limit", "running > *limit"),
    Fault("a task that needs other resources too competes for submission slots", "task/policy/mod.rs",
          "resource.0 != 0 || self.accounts.resources.amounts(self.demand).len() == 1", "true"),
    Fault("new debt can be more than the task takes", "task/policy/bounded_borrow.rs",
          "wanted.saturating_sub(share).min(amount)", "wanted.saturating_sub(share)"),
    Fault("under competition a group stays one below its share", "task/policy/bounded_borrow.rs",
          "if wanted > share {", "if wanted >= share {"),
    Fault("debt stays one below its ceiling", "task/policy/bounded_borrow.rs",
          "if debt.saturating_add(new_debt) > most {", "if debt.saturating_add(new_debt) >= most {"),
    Fault("debt is never repaid", "task/accounts.rs",
          "holding.debt = holding.debt.saturating_sub(amount);", "let _ = (holding, amount);"),
    Fault("two competing groups wake no parked group", "task/parking.rs",
          "pressing.count > 1", "pressing.count > 2"),
    Fault("a dropped row still blocks its columns", "pipeline/row_group/frontier.rs",
          "                self.row_settled(plan, *column, ready);\n", ""),
    Fault("a task is retried once too often", "pipeline/retry/backoff.rs",
          "u32::from(retries) < self.retries", "u32::from(retries) <= self.retries"),
    Fault("a rate-limited task is retried at once", "pipeline/retry/backoff.rs",
          "until: now + pause.max(self.floor)", "until: now + pause"),
    Fault("early shutdown does not wait for a full window", "pipeline/retry/health.rs",
          "let full = self.failed.len() == self.window;", "let full = true;"),
    Fault("rows of saved row groups still count as in progress", "pipeline/row_group/set.rs",
          "self.rows_in_work -= u64::from(group.span().rows);", "let _ = group.span();"),
    Fault("discarded tasks still count as queued", "pipeline/row_group/group.rs",
          "*queued -= usize::from(entry.state == TaskState::Queued);", "let _ = (&queued, entry.state);"),
    Fault("no event is emitted for a row group that a stop discards", "pipeline/machine/settle.rs",
          "self.emit_discarded(row_group, reason, rows);", "let _ = rows;"),
    Fault("a stop discards the complete rows of partial row groups", "pipeline/machine/settle.rs",
          "if is_kept && has_rows_to_save {", "if false && is_kept && has_rows_to_save {"),
    Fault("a partly saved row group counts as done", "pipeline/report.rs",
          "self.row_groups_saved += u32::from(is_done);", "self.row_groups_saved += 1;"),
    Fault("rows that an earlier run completed are made again", "pipeline/row_group/frontier.rs",
          "(next..part.start).for_each(|row| frontier.leave_out(plan, row));", ""),
    Fault("a finished task does not settle its row group", "pipeline/machine/absorb.rs",
          "self.absorb(now, ended.key, outcome);\n        self.settle(now, ended.key.row_group);\n",
          "self.absorb(now, ended.key, outcome);\n"),
    Fault("a failed spawn counts as an attempt", "pipeline/row_group/set.rs",
          "entry.attempts = entry.attempts.saturating_sub(1);", "let _ = entry;"),
    Fault("an event is emitted in every round while a queue stays blocked", "pipeline/machine/events.rs",
          "            && self.emitter.queue_changed(QueueState::Blocked { reason, resource })\n", ""),
    Fault("a provider counts as degraded before its window is full", "pipeline/retry/retryable.rs",
          "let is_full = target.responses.len() == self.window;", "let is_full = true;"),
    Fault("an old response stays in the window", "pipeline/retry/retryable.rs",
          "self.responses.pop_front().flatten().is_some()", "false"),
    Fault("the domains of a model share one call target", "pipeline/retry/targets.rs",
          "requests.dedup();", "requests.clear();"),
    Fault("the grant event of a waiter has no correlation", "request/provider/emit.rs",
          "self.emit_granted(now, left.slot(), correlation, lease, shared);",
          "self.emit_granted(now, left.slot(), None, lease, shared);"),
    Fault("a call gets the correlation of the previous worker", "request/admission/yielding.rs",
          "        self.shared.correlations.set_current(None);\n", ""),
    Fault("the denial of a group is recorded twice in a round", "task/denials.rs",
          "self.round + 1) <= self.round {", "self.round + 1) <= self.round + 1 {"),
    Fault("a short cooldown replaces a longer one", "request/provider/cooldown.rs",
          "current.max(end)", "{ let _ = current; end }"),
    Fault("a rate limit does not end a ramp", "request/provider/controller.rs",
          "if outcome == Outcome::RateLimited\n            && let Some(reached)",
          "if outcome == Outcome::ProviderFailure\n            && let Some(reached)"),
    Fault("only AIMD has a ramp", "request/provider/controller.rs",
          "self.start_up = StartUp::new(&self.config, self.ramp_target());", "self.start_up = None;"),
    Fault("an algorithm can pause longer than the configured cooldown", "request/provider/controller.rs",
          "{ pause } else { pause.min(self.config.cooldown) }", "{ pause } else { pause }"),
    Fault("the limit rises one success too late", "limit/aimd.rs",
          "self.success_streak < self.config.successes_until_increase",
          "self.success_streak <= self.config.successes_until_increase"),
    Fault("any number of workers can yield", "request/admission/yielding.rs",
          "let may_yield = self.shared.yielding.yielded(request.resource) < max_yielded", "let may_yield = true"),
    Fault("no waiter returns the task resources that a yielded worker needs", "request/yielding.rs",
          "let Some(key) = self.victim(resource, token, tasks) else",
          "let Some(key) = self.victim(resource, token, tasks).filter(|_| false) else"),
    Fault("a yielded waiter is granted without its task resources", "request/provider/serve.rs",
          "                shared.yielding.needs_resume = true;\n                break;",
          "                shared.yielding.needs_resume = true;"),
    Fault("waiters of one resource block those of another in their group", "request/provider/wait_queue.rs",
          "|(of, _)| *of == position", "|(of, _)| of.run == position.run"),
    Fault("a new request overtakes a waiter that could be granted", "request/provider/serve.rs",
          "self.has_waiters() && self.select(now, None, shared) != NextCall::Nothing", "false"),
    Fault("the waiting FIFOs of a served group keep their old tags", "fair_queue/mod.rs",
          "if group.len > self.fifos[fifo as usize].len {", "if false {"),
    Fault("every rate limit of a cascade cuts the limit", "limit/mod.rs",
          "call.grant >= self.granted_at_last_cut", "true"),
    Fault("the first statement of a budget ignores the calls in flight", "budget/stated.rs",
          "let low = this.lowest(now, statement, call, call.others(), typical);",
          "let low = this.lowest(now, statement, call, 0, typical);"),
    Fault("the lower bound of a statement ignores overlapping calls", "budget/stated.rs",
          "let low = self.lowest(now, statement, call, call.overlapping(), typical);",
          "let low = self.lowest(now, statement, call, 0, typical);"),
    Fault("a stated rate can stop a resource for ever", "budget/stated.rs",
          "at.min(self.latest_start + LONGEST_HOLD).max(now)", "at.max(now)"),
    Fault("a stated rate is trusted although its probe succeeded", "budget/stated.rs",
          "Shape::Bucket => self.is_distrusted = true,", "Shape::Bucket => {}"),
    Fault("a window is taken for a bucket", "budget/stated.rs",
          "Shape::Bucket if !is_far[0] =>", "Shape::Bucket if !is_far[0] && false =>"),
    Fault("a stated budget never expires", "budget/stated.rs",
          "self.successes_without_statement > STATEMENT_LIFETIME", "false"),
    Fault("a configured budget and a stated one both apply", "budget/mod.rs",
          "if is_configured {\n                feedback.corrected", "if false {\n                feedback.corrected"),
    Fault("rates are learned in compatibility mode", "request/admission/register.rs",
          "self.shared.config.rate_limit_headers && !self.shared.config.compatibility",
          "self.shared.config.rate_limit_headers"),
    Fault("a failed connection leaves its estimate spent", "budget/mod.rs",
          "(Outcome::RateLimited | Outcome::ConnectionFailed, _)", "(Outcome::RateLimited, _)"),
    Fault("every 403 counts as a rejected key", "request/response/mod.rs",
          "        401 => Outcome::KeyRejected.into(),", "        401 | 403 => Outcome::KeyRejected.into(),"),
    Fault("error codes for an exhausted quota are ignored", "request/response/error.rs",
          "self.has_code(QUOTA_CODES) || may_be_account", "may_be_account"),
    Fault("a provider goes down one failure too late", "request/provider/health.rs",
          "if self.streak < self.config.failures {", "if self.streak <= self.config.failures {"),
    Fault("a provider goes down shortly after a success", "request/provider/health.rs",
          "now - since < self.config.quiet", "false && now - since < self.config.quiet"),
    Fault("calls to a suspected provider are not spaced", "request/provider/health.rs",
          "HealthPhase::Suspected { next_at: at } | HealthPhase::Down { probe_at: at } => now < at,",
          "HealthPhase::Suspected { .. } => false, HealthPhase::Down { probe_at: at } => now < at,"),
    Fault("a second probe starts while one is in flight", "request/provider/health.rs",
          "HealthPhase::Probing => true,", "HealthPhase::Probing => false,"),
    Fault("pauses do not grow", "request/provider/health.rs",
          "self.pauses = self.pauses.saturating_add(1);", "self.pauses = 1;"),
    Fault("one success resets the pauses", "request/provider/health.rs",
          "if self.successes >= self.config.calm {", "if self.successes >= 1 {"),
    Fault("the jitter of a pause ignores the seed", "request/provider/health.rs",
          "hash.write_u64(self.config.seed);", ""),
    Fault("a failure from before the outage keeps the provider down", "request/provider/health.rs",
          "_ if health_at_grant.epoch != self.epoch => GrantKind::OlderEpoch,",
          "_ if health_at_grant.epoch > self.epoch => GrantKind::OlderEpoch,"),
    Fault("a success from before the outage does not make the probe due", "request/provider/health.rs",
          "GrantKind::OlderEpoch if outcome == Outcome::Success &&",
          "GrantKind::OlderEpoch if outcome != Outcome::Success &&"),
    Fault("no probe follows a cancelled one", "request/provider/health.rs",
          "GrantKind::Probe if outcome.is_local() => self.make_due(now),",
          "GrantKind::Probe if outcome.is_local() => HealthChange::None,"),
    Fault("the limit algorithm receives the failures of an outage", "request/provider/health.rs",
          "let is_hidden = is_failure && (grant_kind != GrantKind::CurrentEpoch || self.streak > 0);",
          "let is_hidden = false;"),
    Fault("limits do not climb step by step after an outage", "request/provider/mod.rs",
          "resource.controller.begin_recovery(now, span);", "let _ = (now, span, &resource);"),
    Fault("a failure that the call itself caused is retried for ever", "request/admission/health.rs",
          "for key in self.providers[at].take_undecided(&mut self.shared) {\n                    self.deny_waiter(now, key, DenialReason::RequestAtFault);\n                }",
          "drop(self.providers[at].take_undecided(&mut self.shared));"),
    Fault("failures of an outage stand", "request/provider/health.rs",
          "return if is_poison { RetryStatus::RequestAtFault } else { RetryStatus::Preserved };",
          "return if is_poison || true { RetryStatus::RequestAtFault } else { RetryStatus::Preserved };"),
    Fault("failures of a short outage stand", "request/provider/health.rs",
          "            self.epoch += 1;\n            self.recovered_by_success = outcome",
          "            self.recovered_by_success = outcome"),
    Fault("the failure of a poison request never stands", "request/provider/health.rs",
          "self.recovered_by_success && failed_probes.reach_poison_count()",
          "false && self.recovered_by_success && failed_probes.reach_poison_count()"),
    Fault("no health call replaces waiting calls as the probe", "request/provider/serve.rs",
          "let prefers_health_call = health_with_calls.is_some_and(",
          "let prefers_health_call = false && health_with_calls.is_some_and("),
    Fault("no health call decides undecided calls", "request/provider/serve.rs",
          "let decides_by_health_call = health_with_calls.is_some()",
          "let decides_by_health_call = false && health_with_calls.is_some()"),
    Fault("a successful health call as the probe does not reset the pauses", "request/provider/health.rs",
          "if self.recovered_by_success && is_health_call {", "if false {"),
    Fault("failures in short outages never make a poison request", "request/admission/health.rs",
          "waiter.failed_probes = waiter.failed_probes.plus_one(at as u32);", "let _ = (&waiter, at);"),
    Fault("a second failure of an undecided call is not final", "request/provider/health.rs",
          "} else if is_failure && is_settled_retry {", "} else if false && is_failure && is_settled_retry {"),
    Fault("failed probes are lost when a call moves to another provider", "request/admission/health.rs",
          "attempt: Attempt { failed_probes: retry.failed_probes, is_undecided,",
          "attempt: Attempt { failed_probes: <_>::default(), is_undecided,"),
    Fault("an unavailable provider is never probed again", "request/provider/health.rs",
          "pause.or(self.config.recheck).map", "pause.map"),
    Fault("a provider is rechecked before the pause that it asked for ends", "request/provider/health.rs",
          "pause.or(self.config.recheck).map", "self.config.recheck.map"),
    Fault("a new model ignores that its account is unavailable", "request/admission/register.rs",
          "            self.inherit_account_closure(now, at);\n", ""),
    Fault("the failure of a poison request stands after its first probe", "request/answer.rs",
          "const POISON_COUNT: u8 = 3;", "const POISON_COUNT: u8 = 1;"),
    Fault("a rejected key makes only one model unavailable", "request/admission/health.rs",
          "if cause.is_of_account() {\n                    self.close_account",
          "if false {\n                    self.close_account"),
    Fault("a missing model makes the whole account unavailable", "request/snapshot.rs",
          "matches!(self, Self::KeyRejected | Self::QuotaExhausted)", "!matches!(self, Self::Outage)"),
    Fault("the patience never ends", "request/provider/health.rs",
          "if self.patience_ends(in_flight).is_none_or(|end| now < end) {", "if true {"),
    Fault("an answer that is no rate limit does not reset the patience", "request/provider/health.rs",
          "_ => self.limited_since = None,", "_ => {}"),
    Fault("a provider that asks for too long a pause stays available", "request/provider/health.rs",
          "retry_after.is_some_and(is_too_long)", "retry_after.is_some_and(is_too_long) && false"),
    Fault("no timer ends the patience with rate limits", "request/provider/mod.rs",
          "            .chain(patience)\n            .min()", "            .min()"),
    Fault("waiters of a stopping run are not rejected", "request/admission/yielding.rs",
          "waiter.run.is_some_and(|run| tasks.is_stopping(run))",
          "false && waiter.run.is_some_and(|run| tasks.is_stopping(run))"),
    Fault("a task of a stopping run can start another call", "request/admission/yielding.rs",
          "if tasks.is_stopping(token.run) {", "if false {"),
    Fault("an old outage makes the next one longer", "request/provider/health.rs",
          "if now - self.last_failure >= self.calm_span() {", "if false {"),
    Fault("an undecided call blocks those behind it", "request/provider/serve.rs",
          "run: yields_in, is_undecided });", "run: yields_in, is_undecided: false });"),
    Fault("a task is dropped when its provider is unavailable", "pipeline/machine/absorb.rs",
          "        self.row_groups.park(&self.plan, key);\n", "        self.drop_rows(key, DropReason::WorkerLost);\n"),
    Fault("a rejected key from before the outage makes the provider unavailable", "request/provider/health.rs",
          "_ if grant_kind == GrantKind::OlderEpoch => {}", "_ if false => {}"),
    Fault("an undecided call waits for a response of any length", "request/provider/health.rs",
          "self.last_failure + backoff::LONGEST_RETRY", "Instant::MAX"),
    Fault("a run with an unavailable provider completes with rows not started", "pipeline/machine/stop.rs",
          "Some(group) if self.rows_not_started() > 0 => {", "Some(group) if false => {"),
    Fault("rows dropped after their last retry do not count for early shutdown", "pipeline/machine/absorb.rs",
          "if failure.is_some() {\n                self.record_final(true);",
          "if false {\n                self.record_final(true);"),
    Fault("a fallback is never used", "request/provider/mod.rs",
          "health.serves(now) || may_be_trial && !is_blocked()", "true || may_be_trial && !is_blocked()"),
    Fault("a provider that is not usable gets more than one trial call", "request/provider/mod.rs",
          "has_priority && (health.is_probed() || self.in_flight == 0)", "has_priority"),
    Fault("waiters do not move to a fallback when their provider goes down", "request/admission/health.rs",
          "        self.move_fallback_waiters(now);\n        match change {", "        match change {"),
    Fault("all waiters leave the fallback for one trial call", "request/admission/fallback.rs",
          "waiters.truncate(usize::from(makes_offer));", "let _ = makes_offer;"),
    Fault("waiters at a fallback never move back", "request/admission/fallback.rs",
          "let moves_all = better.serves(now) || current", "let moves_all = current"),
    Fault("rate limits never lead to a fallback", "request/provider/health.rs",
          "self.limited_since.map(|since| since + self.config.fallback_after)", "None"),
    Fault("waiters of a provider that goes down keep their task resources", "request/admission/health.rs",
          "                self.shared.yielding.mark_down();\n", ""),
    Fault("a request to a provider that is down keeps its task resources", "request/admission/yielding.rs",
          "|| !self.providers[at.provider].is_healthy();", "|| false && !self.providers[at.provider].is_healthy();"),
    Fault("a rejected request counts as a failure of the provider", "call.rs",
          "Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout)",
          "Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout | Self::RequestRejected)"),
    Fault("a timeout at the provider is not a counted failure", "call.rs",
          "Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout)",
          "Self::ConnectionFailed | Self::ProviderFailure)"),
    Fault("a 408 counts as a rejected request", "request/response/mod.rs",
          "408 | 504 => Outcome::ProviderTimeout.into(),", "504 => Outcome::ProviderTimeout.into(),"),
    Fault("a 529 counts as a failure and not as a rate limit", "request/response/mod.rs",
          "429 | OVERLOADED => ", "429 => "),
    Fault("pauses grow without bound", "request/provider/health.rs",
          "backoff::doubled(config.first_pause, self.pauses, config.longest_pause)",
          "backoff::doubled(config.first_pause, self.pauses, Duration::from_secs(1 << 20))"),
    Fault("the jitter of a pause ignores the provider and model", "request/provider/health.rs",
          "        hash.write_u64(self.name_hash);\n", ""),
    Fault("every pause of an outage has the same jitter", "request/provider/health.rs",
          "        hash.write_u32(self.epoch);\n        hash.write_u32(self.streak);\n", ""),
    Fault("a failure does not stop the recovery of a limit", "request/provider/controller.rs",
          "if outcome == Outcome::RateLimited || outcome.is_counted_failure() {", "if false {"),
    Fault("each outage of an unstable provider has its own patience", "request/provider/health.rs",
          "if self.streak == 1 && self.pauses == 0 {", "if self.streak == 1 {"),
    Fault("the delay before a retry does not grow", "backoff.rs",
          "jittered(doubled(FIRST_RETRY, failures, LONGEST_RETRY), hash)", "jittered(FIRST_RETRY, hash)"),
    Fault("the delay before a retry is unbounded", "backoff.rs",
          "doubled(FIRST_RETRY, failures, LONGEST_RETRY)",
          "doubled(FIRST_RETRY, failures, Duration::from_secs(1 << 20))"),
    Fault("a stop waits for tasks in backoff", "pipeline/machine/stop.rs",
          "        self.retries.clear();\n", ""),
    Fault("row groups are admitted although a model is unavailable", "pipeline/machine/absorb.rs",
          "        self.row_groups.close();\n", ""),
    Fault("only one model of a closed account is reopened", "request/admission/health.rs",
          "at == model.index() || reopens_account &&", "at == model.index() || false && reopens_account &&"),
    Fault("one failing model holds back row groups that can start with another", "pipeline/retry/deferral.rs",
          "self.first.iter().all(", "self.first.iter().any("),
    Fault("a waiter in an outage is explained by a cooldown", "request/admission/explain.rs",
          "Block::Outage => outage(owner.health_state(), owner.opens_at()),",
          "Block::Outage => CallWait::Cooldown { until: now },"),
    Fault("a reset is measured by the host's clock despite a Date header", "request/response/mod.rs",
          "sent.unwrap_or_else(|| headers.now())", "headers.now()"),
    Fault("a failure at another provider counts at the fallback", "request/provider/health.rs",
          "if retry.provider != self.provider || retry.epoch", "if retry.epoch"),
]


def run(command: list[str], where: Path) -> str:
    """Returns "passed", "failed" or, after the time limit, "no end"."""
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, timeout=TEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    return "passed" if done.returncode == 0 else "failed"


def misfit(fault: Fault, root: Path) -> str | None:
    """Returns why a fault does not fit the code below `root`, or `None` if it fits."""
    file = root / "core/src" / fault.file
    if not file.is_file():
        return "its file does not exist"
    count = file.read_text().count(fault.old)
    if count != 1:
        return f"its old text occurs {count} times"
    return "its texts are equal" if fault.old == fault.new else None


def judge(fault: Fault, copy: Path) -> tuple[bool, str]:
    if why := misfit(fault, copy):
        return False, why
    file = copy / "core/src" / fault.file
    text = file.read_text()
    file.write_text(text.replace(fault.old, fault.new))
    try:
        # No test has run yet, so a failure here is the compiler's.
        if subprocess.run([*TESTS, "--no-run"], cwd=copy, capture_output=True, check=False).returncode != 0:
            return False, "does not compile"
        outcome = run(TESTS, copy)
        return (False, "SURVIVES") if outcome == "passed" else (True, f"noticed: {outcome}")
    finally:
        file.write_text(text)


def check(faults: list[Fault]) -> int:
    """Lists the faults that do not fit the code."""
    misfits = [(fault, why) for fault in faults if (why := misfit(fault, ROOT))]
    for fault, why in misfits:
        print(f"{fault.name} (core/src/{fault.file}): {why}")
    print(f"{len(faults) - len(misfits)} of {len(faults)} faults fit the code")
    return 1 if misfits else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Puts one fault at a time into a copy and expects the tests to fail.")
    parser.add_argument("words", nargs="*", help="use only the faults whose file or name contains these words")
    parser.add_argument("--check", action="store_true", help="only check that the list of faults fits the code")
    arguments = parser.parse_args()
    word = " ".join(arguments.words)
    faults = [fault for fault in FAULTS if word in fault.file or word in fault.name]
    if not faults:
        sys.exit(f"no fault has {word!r} in its file or name")
    if arguments.check:
        return check(faults)
    with tempfile.TemporaryDirectory(prefix="tidegate-mutations-") as scratch:
        copy = Path(scratch) / "copy"
        # Only files that are tracked or could be: build output is not copied.
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)
        # A separate target folder, so that no build with a fault is in the cache of another.
        TESTS.extend(["--target-dir", f"{scratch}/target"])
        if subprocess.run([*TESTS, "--no-run"], cwd=copy, check=False).returncode or run(TESTS, copy) != "passed":
            sys.exit("the tests fail without any fault")
        wrong = 0
        for fault in faults:
            start = time.monotonic()
            noticed, verdict = judge(fault, copy)
            wrong += not noticed
            seconds = time.monotonic() - start
            print(f"{fault.name:<76} {fault.file:<34} {verdict:<20} {seconds:>5.1f}s", flush=True)
    print(f"{len(faults) - wrong} of {len(faults)} faults noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
