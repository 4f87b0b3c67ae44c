//! Metrics that a request touches: registered once, so that no request makes a label or looks a key up.
//!
//! No label is a tenant or an id of one.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Histogram, Unit};

use super::phase::Phase;
use super::probe::{StoreCosts, Timing};
use crate::domain::state::{Directive, State};

struct Meters {
    phases: [Histogram; Phase::COUNT],
    transactions: Counter,
    bytes_bound: Counter,
    lock_wait: Histogram,
    timing_dropped: Counter,
    directives: Vec<(Directive, Counter)>,
    entered: Vec<(State, Counter)>,
    created: Counter,
    batch_size: Histogram,
    commit: Histogram,
    records: Histogram,
    revisions: Histogram,
    authentication_failures: Counter,
}

static METERS: OnceLock<Meters> = OnceLock::new();

/// The name, the unit and the meaning of every metric that is not made on the spot.
const DESCRIBED: &[(&str, Kind, &str)] = &[
    ("actonce_http_request_seconds", Kind::Seconds, "Time to answer a request, by route and class of status"),
    ("actonce_request_phase_seconds", Kind::Seconds, "Time of requests in each phase"),
    ("actonce_store_lock_wait_seconds", Kind::Seconds, "Waits of requests for the connection that writes"),
    ("actonce_store_transactions_total", Kind::Counter, "Transactions that requests waited for"),
    ("actonce_store_bytes_bound_total", Kind::Counter, "Bytes of documents that requests wrote"),
    ("actonce_store_read_seconds", Kind::Seconds, "Time of a batch of reads"),
    ("actonce_store_up", Kind::Gauge, "Whether the store answered the last time it was asked for these metrics"),
    ("actonce_store_takes_writes", Kind::Gauge, "Whether the last change was written, or a write that was tried since"),
    ("actonce_commit_seconds", Kind::Seconds, "Time of a commit of a batch, flush included"),
    ("actonce_commit_batch_size", Kind::Plain, "Changes in one commit"),
    ("actonce_directives_total", Kind::Counter, "Answers by directive"),
    ("actonce_effects_created_total", Kind::Counter, "New effects"),
    ("actonce_effects_entered_total", Kind::Counter, "Effects that came into a state"),
    ("actonce_effects_open", Kind::Gauge, "Effects that are not settled, by state"),
    ("effects_unresolved_age_seconds", Kind::Gauge, "Age of the oldest unsettled effect, by state"),
    ("actonce_expired_total", Kind::Counter, "Deadlines that passed, by the state after it"),
    ("actonce_sweeps_total", Kind::Counter, "Sweeps begun"),
    ("actonce_sweep_age_seconds", Kind::Gauge, "Time since the last sweep that succeeded"),
    ("actonce_background_restarts_total", Kind::Counter, "Background loops that panicked and were begun again"),
    ("actonce_commits_waiting", Kind::Gauge, "Changes that wait for a commit or are in one"),
    ("actonce_waiters", Kind::Gauge, "Requests that wait on purpose"),
    ("actonce_event_listeners", Kind::Gauge, "Streams of events, and requests that wait for some"),
    ("actonce_event_streams_ended_total", Kind::Counter, "Streams of events that ended, by reason"),
    ("actonce_outbox_age_seconds", Kind::Gauge, "How long the oldest message that is due has waited"),
    ("actonce_messages_made_total", Kind::Counter, "Messages to subscribers that were made"),
    ("actonce_deliveries_total", Kind::Counter, "Attempts to deliver a message, by result"),
    ("actonce_pool_connections", Kind::Gauge, "Connections to the database by pool and use"),
    ("actonce_pool_limit", Kind::Gauge, "Most connections of a pool"),
    ("actonce_adapter_calls_total", Kind::Counter, "Questions to adapters, by question and result"),
    ("actonce_adapter_call_seconds", Kind::Seconds, "Time of a call of an adapter"),
    ("actonce_questions_crowded_total", Kind::Counter, "Questions put off because too many were under way"),
    (
        "actonce_reconciliations_overtaken_total",
        Kind::Counter,
        "Answers of adapters that came after the doubt was gone",
    ),
    ("actonce_authentication_failures_total", Kind::Counter, "Requests with a token that is not valid"),
    ("jwks_refresh_failures_total", Kind::Counter, "Fetches of the issuer's keys that failed"),
    ("actonce_recovery_items_total", Kind::Counter, "Items of recovery plans that were executed, by action"),
    ("actonce_checkpoints_total", Kind::Counter, "Checkpoints that were signed"),
    ("actonce_checkpoint_failures_total", Kind::Counter, "Checkpoints that could not be made"),
    ("actonce_inbound_receipts_total", Kind::Counter, "Deliveries of vendors, by what became of them"),
    ("actonce_inbound_refused_total", Kind::Counter, "Deliveries of vendors that were refused, by reason"),
    ("actonce_quarantined_total", Kind::Counter, "Deliveries that wait in quarantine, by reason"),
    ("actonce_quarantine_applied_total", Kind::Counter, "Deliveries that left the quarantine applied"),
    ("actonce_quarantine_full_total", Kind::Counter, "Deliveries refused because the quarantine is full"),
    ("actonce_quarantine_expired_total", Kind::Counter, "Deliveries that left the quarantine unapplied"),
    ("actonce_panics_total", Kind::Counter, "Panics of any part"),
    ("actonce_tls_handshakes_failed_total", Kind::Counter, "Connections that came to no TLS, by reason"),
    ("actonce_tls_reloads_total", Kind::Counter, "New certificates that were taken or refused"),
    ("actonce_tls_files_refused", Kind::Gauge, "Whether the files have a certificate that can't be used"),
    ("actonce_tls_certificate_expires_seconds", Kind::Gauge, "When the certificate ends, in seconds since 1970"),
    ("actonce_acts_refused_total", Kind::Counter, "New acts that were refused because much waits for its commit"),
    ("actonce_connections_refused_total", Kind::Counter, "Connections beyond the bound, answered or closed"),
    ("actonce_rate_limited_total", Kind::Counter, "Requests over the rate of a tenant or a principal"),
    ("actonce_quota_refused_total", Kind::Counter, "New effects that a quota refused, by quota"),
    ("actonce_log_lines_dropped_total", Kind::Counter, "Log lines that standard error did not take, by reason"),
    ("actonce_timing_dropped_total", Kind::Counter, "Timings that were not kept because the ring was in use"),
    ("actonce_spans_exported_total", Kind::Counter, "Spans that the collector took"),
    ("actonce_spans_dropped_total", Kind::Counter, "Spans that no collector got, by reason"),
];

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Seconds,
    Plain,
}

/// Registers the metrics. To be called once the recorder is installed; until then nothing is counted.
pub fn install() {
    METERS.get_or_init(|| {
        describe();
        begin_at_zero();
        Meters {
            phases: Phase::ALL
                .map(|phase| metrics::histogram!("actonce_request_phase_seconds", "phase" => phase.as_str())),
            transactions: metrics::counter!("actonce_store_transactions_total"),
            bytes_bound: metrics::counter!("actonce_store_bytes_bound_total"),
            lock_wait: metrics::histogram!("actonce_store_lock_wait_seconds"),
            timing_dropped: metrics::counter!("actonce_timing_dropped_total"),
            directives: Directive::ALL
                .into_iter()
                .map(|directive| {
                    (directive, metrics::counter!("actonce_directives_total", "directive" => directive.as_str()))
                })
                .collect(),
            entered: State::ALL
                .into_iter()
                .map(|state| (state, metrics::counter!("actonce_effects_entered_total", "state" => state.as_str())))
                .collect(),
            created: metrics::counter!("actonce_effects_created_total"),
            batch_size: metrics::histogram!("actonce_commit_batch_size"),
            commit: metrics::histogram!("actonce_commit_seconds"),
            records: metrics::histogram!("actonce_store_read_seconds", "read" => "records"),
            revisions: metrics::histogram!("actonce_store_read_seconds", "read" => "revisions"),
            authentication_failures: metrics::counter!("actonce_authentication_failures_total"),
        }
    });
}

fn describe() {
    for &(name, kind, meaning) in DESCRIBED {
        match kind {
            Kind::Counter => metrics::describe_counter!(name, meaning),
            Kind::Gauge => metrics::describe_gauge!(name, meaning),
            Kind::Seconds => metrics::describe_histogram!(name, Unit::Seconds, meaning),
            Kind::Plain => metrics::describe_histogram!(name, meaning),
        }
    }
}

/// A counter that is not there can't be compared with what it was: those that alerts look at begin at 0.
fn begin_at_zero() {
    for state in ["outcome_unknown", "manual_review", "refused"] {
        metrics::counter!("actonce_expired_total", "state" => state).increment(0);
    }
    for question in ["validate", "lookup", "verify"] {
        metrics::counter!("actonce_adapter_calls_total", "question" => question, "result" => "answered").increment(0);
    }
    for reason in ["full", "failed"] {
        metrics::counter!("actonce_spans_dropped_total", "reason" => reason).increment(0);
        metrics::counter!("actonce_log_lines_dropped_total", "reason" => reason).increment(0);
    }
    metrics::counter!("actonce_panics_total").increment(0);
    for how in ["answered", "closed"] {
        metrics::counter!("actonce_connections_refused_total", "how" => how).increment(0);
    }
    for by in ["tenant", "principal"] {
        metrics::counter!("actonce_rate_limited_total", "by" => by).increment(0);
    }
    metrics::counter!("actonce_acts_refused_total").increment(0);
    metrics::counter!("actonce_checkpoint_failures_total").increment(0);
    metrics::counter!("jwks_refresh_failures_total").increment(0);
    metrics::counter!("actonce_spans_exported_total").increment(0);
    metrics::counter!("actonce_sweeps_total").increment(0);
    metrics::counter!("actonce_questions_crowded_total").increment(0);
    metrics::counter!("actonce_reconciliations_overtaken_total").increment(0);
    metrics::counter!("actonce_quarantine_full_total").increment(0);
    metrics::counter!("actonce_quarantine_expired_total").increment(0);
}

/// The phases of a request.
pub(super) fn phases(timing: &Timing) {
    let Some(meters) = METERS.get() else { return };
    for (histogram, phase) in meters.phases.iter().zip(timing.phases) {
        if let Some(phase) = phase {
            histogram.record(phase.spent.as_secs_f64());
        }
    }
    let StoreCosts { transactions, lock_wait, bytes_bound, .. } = timing.store;
    if transactions > 0 {
        meters.transactions.increment(transactions.into());
    }
    if bytes_bound > 0 {
        meters.bytes_bound.increment(bytes_bound);
        meters.lock_wait.record(lock_wait.as_secs_f64());
    }
}

pub(super) fn timing_dropped() {
    if let Some(meters) = METERS.get() {
        meters.timing_dropped.increment(1);
    }
}

/// Spans that no collector will get.
pub fn spans_dropped(reason: &'static str, spans: u64) {
    metrics::counter!("actonce_spans_dropped_total", "reason" => reason).increment(spans);
}

/// Log lines that standard error did not take.
pub fn log_dropped(reason: &'static str, lines: u64) {
    metrics::counter!("actonce_log_lines_dropped_total", "reason" => reason).increment(lines);
}

/// Spans that the collector took.
pub fn spans_exported(spans: u64) {
    metrics::counter!("actonce_spans_exported_total").increment(spans);
}

/// An answer with a directive.
pub fn directed(directive: Directive) {
    let Some(meters) = METERS.get() else { return };
    if let Some((_, counter)) = meters.directives.iter().find(|(known, _)| *known == directive) {
        counter.increment(1);
    }
}

/// An effect came into a state.
pub fn entered(state: State) {
    let Some(meters) = METERS.get() else { return };
    if let Some((_, counter)) = meters.entered.iter().find(|(known, _)| *known == state) {
        counter.increment(1);
    }
}

/// A new effect.
pub fn created() {
    if let Some(meters) = METERS.get() {
        meters.created.increment(1);
    }
}

/// A commit of so many changes.
pub fn committed(changes: usize, took: Duration) {
    if let Some(meters) = METERS.get() {
        meters.batch_size.record(u32::try_from(changes).map_or(f64::MAX, f64::from));
        meters.commit.record(took.as_secs_f64());
    }
}

/// What a lane of reads reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Whole records.
    Records,
    /// Newest revisions.
    Revisions,
}

/// A batch of reads.
pub fn have_read(read: Read, took: Duration) {
    if let Some(meters) = METERS.get() {
        match read {
            Read::Records => meters.records.record(took.as_secs_f64()),
            Read::Revisions => meters.revisions.record(took.as_secs_f64()),
        }
    }
}

/// A token that is not valid.
pub fn not_authenticated() {
    if let Some(meters) = METERS.get() {
        meters.authentication_failures.increment(1);
    }
}

/// One histogram per route and class of status, made when it is first needed.
#[derive(Debug)]
pub struct Routes {
    known: HashMap<Box<str>, Route>,
    unmatched: Route,
}

/// One route.
#[derive(Debug)]
pub struct Route {
    label: Arc<str>,
    classes: [OnceLock<Histogram>; 4],
}

impl Routes {
    /// Routes as they are matched, each with the label that it has.
    #[must_use]
    pub fn new(known: impl Iterator<Item = (String, String)>) -> Self {
        let known = known.map(|(matched, label)| (matched.into(), Route::new(&label))).collect();
        Self { known, unmatched: Route::new("unmatched") }
    }

    /// The route that was matched.
    #[must_use]
    pub fn route(&self, matched: Option<&str>) -> &Route {
        matched.and_then(|matched| self.known.get(matched)).unwrap_or(&self.unmatched)
    }
}

impl Route {
    fn new(label: &str) -> Self {
        Self { label: label.into(), classes: Default::default() }
    }

    /// Its name in labels, log lines and spans.
    #[must_use]
    pub const fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Counts an answer.
    pub fn answered(&self, status: u16, took: Duration) {
        let (index, class) = match status {
            0..=299 => (0, "2xx"),
            300..=399 => (1, "3xx"),
            400..=499 => (2, "4xx"),
            _ => (3, "5xx"),
        };
        if let Some(slot) = self.classes.get(index) {
            let made = || {
                let path = self.label.to_string();
                metrics::histogram!("actonce_http_request_seconds", "path" => path, "status" => class)
            };
            slot.get_or_init(made).record(took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::DESCRIBED;

    /// Names in calls of the macros that make metrics.
    fn made(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                made(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                for kind in ["counter!(", "gauge!(", "histogram!("] {
                    for after in text.split(kind).skip(1) {
                        if let Some(name) = after.trim_start().strip_prefix('"') {
                            found.insert(name.split('"').next().unwrap().to_owned());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_metric_says_what_it_is_and_is_in_the_documents() {
        let mut found = BTreeSet::new();
        made(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        found.retain(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        assert!(found.len() > 30, "{found:?}");
        let described: BTreeSet<String> = DESCRIBED.iter().map(|(name, _, _)| (*name).to_owned()).collect();
        assert_eq!(described.len(), DESCRIBED.len(), "one is there twice");
        assert_eq!(found, described, "made, and described");
        let documents = include_str!("../../docs/telemetry.md");
        for name in &found {
            assert!(documents.contains(&format!("`{name}`")), "{name} is not in docs/telemetry.md");
        }
    }
}
