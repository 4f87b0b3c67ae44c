//! Every bound of the protocol (§12), in one place. Units stand last in each name.
//!
//! A limit is part of the contract: the refusal names it, the documentation lists it, and a test
//! reads it from here.

/// Longest operation id, tool, target, run, session, call, profile or worker name.
pub const NAME_BYTES: usize = 256;
/// Longest tenant name.
pub const TENANT_BYTES: usize = 128;
/// Largest request body.
pub const BODY_BYTES: usize = 1024 * 1024;
/// Largest body of a batch route.
pub const BATCH_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Most items of a batch route.
pub const BATCH_ITEMS: usize = 200;
/// Largest `arguments` value, as sent.
pub const ARGUMENTS_BYTES: usize = 256 * 1024;
/// Largest receipt, as stored.
pub const RECEIPT_BYTES: usize = 512 * 1024;
/// Largest `artifacts` list of a receipt.
pub const ARTIFACTS_BYTES: usize = 64 * 1024;
/// Longest `message` of a receipt.
pub const MESSAGE_BYTES: usize = 4 * 1024;
/// Most entries of a receipt's `resource_versions`.
pub const RESOURCE_VERSIONS: usize = 32;
/// Most entries of a receipt's `integrity`.
pub const INTEGRITY_ENTRIES: usize = 16;
/// Largest stored result; over it only digest and size are kept.
pub const RESULT_BYTES: usize = 256 * 1024;
/// Longest `failure_evidence.detail`.
pub const FAILURE_DETAIL_BYTES: usize = 2 * 1024;
/// Longest reason or description typed by a person.
pub const REASON_BYTES: usize = 2 * 1024;
/// Deepest nesting of any JSON value in a request.
pub const JSON_DEPTH: usize = 64;
/// Shortest lease.
pub const LEASE_MIN_SECONDS: u32 = 1;
/// Longest lease.
pub const LEASE_MAX_SECONDS: u32 = 3600;
/// Lease where neither the claim nor the tool names one.
pub const LEASE_DEFAULT_SECONDS: u32 = 60;
/// Longest `Prefer: wait`.
pub const WAIT_MAX_SECONDS: u32 = 60;
/// Most requests that may wait in one process at once.
pub const WAITERS: usize = 20_000;
/// Largest page of a list.
pub const PAGE_MAX: u32 = 200;
/// Page where the request names none.
pub const PAGE_DEFAULT: u32 = 50;
/// Most rows one list request may look at while it filters.
pub const LIST_SCAN_ROWS: usize = 2_000;
/// Most late reports kept as evidence for one effect.
pub const LATE_REPORTS: usize = 32;
/// Largest `evidence` of a resolution, as sent.
pub const RESOLUTION_EVIDENCE_BYTES: usize = 16 * 1024;
/// Resolutions of one effect after which only `completed` and `failed` are taken.
pub const RESOLUTIONS: usize = 32;
/// Most approvers of replaced approvals that are kept for four eyes.
pub const PAST_APPROVERS: usize = 64;
/// Most items of a bulk resolution.
pub const BULK_ITEMS: usize = 1_000;
/// Most rows that one preview of a bulk resolution may look at.
pub const BULK_SCAN_ROWS: usize = 10_000;
/// Items of a bulk resolution that are decided at once.
pub const BULK_WIDTH: usize = 128;
/// Up to this number the items of a queue are counted exactly.
pub const QUEUE_COUNT: u32 = 10_000;
/// Most rows that one request for a page of the queue may look at.
pub const QUEUE_SCAN_ROWS: usize = 2_000;
/// Most tools of doubtful effects that the queue of a tenant tells apart.
pub const QUEUE_TOOLS: u32 = 200;
/// How long an effect may wait for a claim before it stands in the queue.
pub const UNCLAIMED_SECONDS: u32 = 3600;
/// How long after its deadline an effect that nothing has moved stands in the queue as blocked.
pub const OVERDUE_SECONDS: u32 = 60;
/// Rows past their deadline, over all tenants, that are looked at for blocked effects.
pub const OVERDUE_SCAN_ROWS: u32 = 10_000;
/// Largest page of late reports or resolutions, in bytes of what was recorded.
pub const EVIDENCE_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Most dispatches of one effect.
pub const ATTEMPTS: u32 = 1_000;
/// Most approvals a tool may ask for.
pub const APPROVALS_MAX: u32 = 16;
/// Largest tool registration, as stored.
pub const TOOL_BYTES: usize = 128 * 1024;
/// Most changes in one commit.
pub const COMMIT_CHANGES: usize = 256;
/// Changes that must wait before a commit starts beside one that is under way.
pub const COMMIT_BESIDE: usize = 32;
/// Most changes that may queue for a commit; more are refused with `capacity`.
pub const COMMIT_QUEUE: usize = 8_192;
/// Milliseconds that a new act may have to wait for its commit, by how fast the store commits; beyond it is refused with `capacity`.
pub const BACKLOG_WAIT_MILLIS: u64 = 100;
/// Times a command is decided again after a lost compare-and-set.
pub const COMMIT_RETRIES: u32 = 12;
/// Longest deadline any tool may register.
pub const DEADLINE_MAX_SECONDS: u32 = 365 * 24 * 3600;
/// Most JSON bytes that one token may have.
pub const TOKEN_BYTES: usize = 8 * 1024;
/// Verified tokens remembered by one process.
pub const TOKEN_CACHE: usize = 10_000;
/// Tools remembered by one process, and revisions of tools.
pub const TOOLS_REMEMBERED: usize = 10_000;
/// Largest key set (JWKS) read from a URL or a file.
pub const KEY_SET_BYTES: usize = 256 * 1024;
/// Most keys taken from one key set.
pub const KEY_SET_KEYS: usize = 128;
/// Longest fetch of a key set.
pub const KEY_SET_FETCH_SECONDS: u64 = 10;
/// Longest time that a request waits for a fresh key set because its token names an unknown key.
pub const KEY_SET_WAIT_SECONDS: u64 = 3;
/// Largest leeway for the times in a token.
pub const TOKEN_LEEWAY_MAX_SECONDS: u64 = 300;
/// Longest life of a token that `actonce token` makes.
pub const TOKEN_LIFETIME_MAX_SECONDS: u64 = 366 * 24 * 3600;
/// Largest file with one key or one secret.
pub const KEY_FILE_BYTES: usize = 64 * 1024;
/// Largest configuration file.
pub const CONFIG_FILE_BYTES: usize = 1024 * 1024;
/// Most alias keys (protocol §6).
pub const ALIAS_KEYS: usize = 4;
/// Data keys at once: the active one, the next or former ones.
pub const DATA_KEYS: usize = 4;
/// How long one call of an adapter may take where the tool does not say.
pub const ADAPTER_TIMEOUT_DEFAULT_SECONDS: u32 = 30;
/// Longest call of an adapter.
pub const ADAPTER_TIMEOUT_MAX_SECONDS: u32 = 300;
/// Most hosts that a named secret may be sent to.
pub const SECRET_HOSTS: usize = 16;
/// Largest answer of an adapter.
pub const ADAPTER_ANSWER_BYTES: usize = 256 * 1024;
/// Adapter calls under way in one process at once.
pub const ADAPTER_CALLS: usize = 32;
/// Adapter calls under way for all tools of one tenant in one process at once.
pub const ADAPTER_CALLS_PER_TENANT: usize = 16;
/// Adapter calls under way for one tool in one process at once.
pub const ADAPTER_CALLS_PER_TOOL: usize = 8;
/// Failures of an adapter in a row until it is left alone for a while.
pub const ADAPTER_FAILURES: u32 = 5;
/// How long it is left alone at first; each failed probe doubles it.
pub const ADAPTER_PAUSE_SECONDS: u64 = 5;
/// How long it is left alone at most.
pub const ADAPTER_PAUSE_MAX_SECONDS: u64 = 300;
/// Adapters whose failures one process remembers.
pub const ADAPTERS_REMEMBERED: u64 = 10_000;
/// Lookups of names of outgoing requests that one process has running at once.
pub const NAME_LOOKUPS: usize = 64;
/// How long a tool's former secret goes on signing beside the new one.
pub const SECRET_OVERLAP_SECONDS: u32 = 24 * 3600;
/// Secrets of at least this length are masked in receipts wherever they stand.
pub const REDACT_ANYWHERE_BYTES: usize = 16;
/// Shorter ones of at least this length are masked as words of their own; still shorter ones only as a
/// whole text.
pub const REDACT_WORD_BYTES: usize = 8;
/// Secrets of one tool that sign at once.
pub const TOOL_SECRETS: usize = 2;
/// Most secrets that the configuration names.
pub const NAMED_SECRETS: usize = 1_000;
/// Longest URL of an adapter or a subscription.
pub const URL_BYTES: usize = 2 * 1024;
/// Contract breaks of an adapter about one effect before a person looks.
pub const ADAPTER_BREAKS: u32 = 5;
/// Doubts that are woken in one transaction when their tool becomes automatic.
pub const DOUBTS_PER_WAKE: u32 = 500;
/// Most items of a recovery plan.
pub const RECOVERY_PLAN_ITEMS: u32 = 1_000;
/// Items of a recovery plan where the request names no limit.
pub const RECOVERY_PLAN_DEFAULT: u32 = 200;
/// Most sessions that one request for a plan may name.
pub const RECOVERY_PLAN_SESSIONS: usize = 200;
/// Largest body with a plan to execute.
pub const RECOVERY_EXECUTION_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Items of a recovery execution that are worked on at once.
pub const RECOVERY_EXECUTION_WIDTH: usize = 16;
/// How long an executor may stay silent about an item that it has in hand.
pub const RECOVERY_CLAIM_SECONDS: u32 = 30;
/// Most roots that the report of the start lists by name; its counts are exact.
pub const RECOVERY_BLOCKED_LISTED: usize = 100;
/// Longest time that a start waits for its recovery sweep; what is left goes on in the background.
pub const RECOVERY_START_SECONDS: u64 = 10;
/// After an attempt's deadline, the time until it is closed as observed.
pub const RECONCILIATION_GRACE_SECONDS: u32 = 10;
/// Most rules of one question of a declarative adapter.
pub const RULES: usize = 32;
/// Longest expression of a rule.
pub const EXPRESSION_BYTES: usize = 1024;
/// Deepest nesting of an expression.
pub const EXPRESSION_DEPTH: usize = 40;
/// Most turns of all loops (`all`, `exists`, `filter`, …) while one answer is judged.
pub const EXPRESSION_TURNS: u32 = 20_000;
/// Longest judging of one answer in a dry run.
pub const DRY_RUN_SECONDS: u64 = 2;
/// Most headers of a request template, and of an answer that rules see.
pub const TEMPLATE_HEADERS: usize = 32;
/// Longest value of one header, as a template and filled in.
pub const HEADER_BYTES: usize = 4 * 1024;
/// Largest body of a request, as a template and filled in.
pub const TEMPLATE_BODY_BYTES: usize = 64 * 1024;
/// Longest URL after its template was filled in.
pub const FILLED_URL_BYTES: usize = 8 * 1024;
/// Most fields that a rule puts into `structured`.
pub const STRUCTURED_FIELDS: usize = 32;
/// Most receipt sources of a tenant.
pub const RECEIPT_SOURCES: usize = 100;
/// Longest name of a receipt source: `source:NAME` is the principal that it acts under.
pub const RECEIPT_SOURCE_NAME_BYTES: usize = 128;
/// Largest registration of a receipt source, as stored.
pub const RECEIPT_SOURCE_BYTES: usize = 16 * 1024;
/// Most secrets of a receipt source: the one in use and the one that it replaces.
pub const RECEIPT_SECRETS: usize = 2;
/// Shortest secret of a receipt source.
pub const RECEIPT_SECRET_MIN_BYTES: usize = 16;
/// Longest secret of a receipt source.
pub const RECEIPT_SECRET_MAX_BYTES: usize = 256;
/// Most tools whose effects one receipt source may settle.
pub const RECEIPT_SOURCE_TOOLS: usize = 32;
/// Most values that a filter or a mapping of a receipt source lists.
pub const RECEIPT_SOURCE_VALUES: usize = 64;
/// Longest JSON pointer, template, prefix or header name of a receipt source.
pub const RECEIPT_SOURCE_TEXT_BYTES: usize = 256;
/// Most steps of a JSON pointer of a receipt source.
pub const RECEIPT_POINTER_STEPS: usize = 16;
/// Largest body of an inbound receipt.
pub const INBOUND_BODY_BYTES: usize = 256 * 1024;
/// Most signatures of one delivery that are looked at.
pub const INBOUND_SIGNATURES: usize = 16;
/// How far a delivery's timestamp may be from the database's time, where the source does not say.
pub const INBOUND_TOLERANCE_DEFAULT_SECONDS: u32 = 300;
/// The farthest that a source may allow.
pub const INBOUND_TOLERANCE_MAX_SECONDS: u32 = 3600;
/// Most deliveries of a tenant that wait in quarantine; more are refused with `capacity`.
pub const QUARANTINE_ROWS: u32 = 1_000;
/// Most decided deliveries of a tenant that are remembered, so that a repeat is known.
pub const QUARANTINE_DECIDED: u32 = 1_000;
/// Largest body that waits in quarantine; a larger one that can't be applied at once is refused.
pub const QUARANTINE_BODY_BYTES: usize = 64 * 1024;
/// How long a delivery stays in quarantine.
pub const QUARANTINE_DAYS: u32 = 30;
/// Times that a delivery in quarantine is tried again by itself.
pub const QUARANTINE_TRIES: u32 = 200;
/// Most who may listen to the events of one tenant in one process at once.
pub const EVENT_LISTENERS_PER_TENANT: usize = 1_000;
/// Most who may listen to events in one process at once.
pub const EVENT_LISTENERS: usize = 5_000;
/// Journal entries of anybody that one look of a reader passes by on SQLite, which has no index of a tenant's feed.
pub const FEED_PASSED_ROWS: u32 = 5_000;
/// Journal entries that a reader of events takes at once.
pub const EVENT_ROWS: u32 = 200;
/// Pieces of a feed that are kept for listeners that are behind; who is farther behind is cut.
pub const EVENT_BATCHES: usize = 16;
/// How long a stream of events lasts; its client comes back with `Last-Event-ID` and a token that is good then.
pub const EVENT_STREAM_SECONDS: u64 = 900;
/// Most subscriptions of a tenant.
pub const SUBSCRIPTIONS: u32 = 50;
/// Most tools and most event names that a subscription lists.
pub const SUBSCRIPTION_NAMES: usize = 64;
/// Tenants with subscriptions that one process listens for; others are found by its regular look.
pub const SUBSCRIBED_TENANTS: u32 = 10_000;
/// Subscriptions that are looked at for the age of the outbox.
pub const OUTSTANDING_SUBSCRIPTIONS: u32 = 200;
/// Subscriptions that one process works on at once.
pub const DELIVERY_SUBSCRIPTIONS: usize = 128;
/// Of these, subscriptions whose endpoints failed last: many that hang leave room for those that do not.
pub const DELIVERY_FAILING: usize = 64;
/// Messages under way to one endpoint at once.
pub const DELIVERIES_AT_ONCE: u32 = 8;
/// Messages of a subscription that wait; more are made when these are gone.
pub const DELIVERIES_WAITING: u32 = 200;
/// Journal entries of which messages are made at once.
pub const DELIVERY_ENTRIES: u32 = 100;
/// How long a replica may stay silent about a subscription that it has in hand.
pub const DELIVERY_LEASE_SECONDS: u32 = 30;
/// Longest delivery of a message.
pub const DELIVERY_TIMEOUT_SECONDS: u64 = 15;
/// Largest answer of an endpoint that is read.
pub const DELIVERY_ANSWER_BYTES: usize = 1024 * 1024;
/// Attempts after which a message is given up.
pub const DELIVERY_ATTEMPTS: u32 = 14;
/// Age at which a message that fails is given up.
pub const DELIVERY_AGE_SECONDS: u32 = 3 * 24 * 3600;
/// Longest time that an endpoint may ask for with `Retry-After`.
pub const DELIVERY_RETRY_AFTER_MAX_SECONDS: u32 = 3600;
/// Messages given up of one subscription at which it is disabled: none is ever dropped.
pub const DEAD_LETTERS: u64 = 1_000;
/// Most components of a profile.
pub const PROFILE_COMPONENTS: usize = 256;
/// Most waits for people that are taken off a run's elapsed time; what comes after them counts.
pub const RUN_WAITS: u32 = 10_000;
/// Most uses of one standing grant.
pub const GRANT_USES: u32 = 100_000;
/// Most live standing grants of one tool.
pub const GRANTS_PER_TOOL: u32 = 100;
/// Bytes of argument previews after which a page of approvals ends.
pub const PREVIEW_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Rows of journals that one step of a checkpoint looks at; a checkpoint has at most as many leaves.
pub const CHECKPOINT_ROWS: u32 = 1_000;
/// How often checkpoints are made where the configuration does not say.
pub const CHECKPOINT_DEFAULT_SECONDS: u64 = 3600;
/// The rarest that the configuration may say.
pub const CHECKPOINT_MAX_SECONDS: u64 = 30 * 24 * 3600;
/// Checkpoints that are looked at for one effect's head.
pub const CHECKPOINT_SCAN: u32 = 256;
/// Largest file with kept checkpoints, and most of them.
pub const CHECKPOINT_COPY_BYTES: usize = 64 * 1024 * 1024;
/// Largest evidence bundle of one effect, as the entries that it carries.
pub const EVIDENCE_BUNDLE_BYTES: usize = 8 * 1024 * 1024;
/// Largest file that is verified as evidence.
pub const EVIDENCE_FILE_BYTES: usize = 32 * 1024 * 1024;
/// Largest export of a vendor that one bypass report reads.
pub const BYPASS_BODY_BYTES: usize = 512 * 1024 * 1024;
/// Most lines of an export.
pub const BYPASS_LINES: u32 = 1_000_000;
/// Longest line of an export.
pub const BYPASS_LINE_BYTES: usize = 256 * 1024;
/// Most columns of an export.
pub const BYPASS_COLUMNS: usize = 1_024;
/// Effects that are looked up at once for a bypass report.
pub const BYPASS_LOOKUP: u32 = 256;
/// Bypass reports under way in one process at once.
pub const BYPASS_REPORTS: usize = 2;
/// How long one waits for another to end.
pub const BYPASS_WAIT_SECONDS: u64 = 20;
/// Longest time for an export to arrive.
pub const BYPASS_BODY_SECONDS: u64 = 600;
/// Longest silence of who sends an export or reads a report.
pub const BYPASS_SILENCE_SECONDS: u64 = 30;
/// Timings that one process keeps of each tenant.
pub const TIMING_RING: usize = 64;
/// Tenants of whom one process keeps timings; one more takes the place of the one that was silent for longest.
pub const TIMING_TENANTS: usize = 256;
/// Finished requests and calls that wait for the trace collector; more are dropped and counted.
pub const SPAN_QUEUE: usize = 4_096;
/// Finished requests and calls that go to the collector at once.
pub const SPAN_BATCH: usize = 512;
/// How long the collector may take for one batch, repeats included.
pub const SPAN_EXPORT_SECONDS: u64 = 5;
/// How long a stop waits for spans that are still to be sent.
pub const SPAN_FLUSH_SECONDS: u64 = 3;
/// Bytes of log lines that wait for the reader of standard error; more are dropped and counted.
pub const LOG_BUFFER_BYTES: usize = 1024 * 1024;
/// How long the end of the process waits for that reader.
pub const LOG_FLUSH_SECONDS: u64 = 1;
/// How long what metrics show of the database may be old.
pub const METRICS_FRESH_SECONDS: u64 = 3;
/// How long the database may take for it.
pub const METRICS_WAIT_SECONDS: u64 = 2;
/// Most connections where the configuration does not say.
pub const CONNECTIONS: usize = 20_000;
/// Connections that may keep the buffers of HTTP/1.1 for a moment after an answer. Where more have some, they go at once: what
/// thousands keep is cold when it is needed again, and what was just given back is not.
pub const CONNECTIONS_BUFFERED: usize = 512;
/// Connections beyond that bound that are answered at all: with 503, and with health.
pub const SPARE_CONNECTIONS: usize = 64;
/// File descriptors that are left to everything else.
pub const DESCRIPTORS_KEPT: usize = 128;
/// Longest time for the head of a request where the configuration does not say.
pub const HEADER_SECONDS: u64 = 10;
/// Longest silence between requests where the configuration does not say.
pub const IDLE_SECONDS: u64 = 75;
/// Largest head of a request.
pub const HEAD_BYTES: usize = 64 * 1024;
/// Most headers of a request of HTTP/1.1: the bound of the library, which needs no memory of its own for so many.
pub const HEADERS: usize = 100;
/// Requests under way at once on one connection of HTTP/2.
pub const STREAMS: u32 = 128;
/// Largest file with a certificate and those above it, or with its key.
pub const TLS_FILE_BYTES: usize = 256 * 1024;
/// How often these files are looked at.
pub const TLS_LOOK_SECONDS: u64 = 5;
/// A certificate that ends sooner is told by `actonce doctor`.
pub const TLS_SOON_DAYS: i64 = 14;
/// The highest rate, and burst, that the configuration may name.
pub const RATE_MAX_PER_SECOND: u64 = 1_000_000;
/// Tenants, and principals, whose rates one process remembers.
pub const RATES_REMEMBERED: u64 = 10_000;
/// The highest quota of open effects that the configuration may name: a count looks at as many rows of a tenant, and no more.
pub const QUOTA_MAX_OPEN: u64 = 1_000_000;
/// How often the open effects of a tenant that makes new ones are counted.
pub const QUOTA_COUNT_SECONDS: u64 = 5;
/// Tenants, and principals of them, whose counts one process remembers.
pub const QUOTAS_REMEMBERED: u64 = 100_000;
/// Principals of one tenant, those with the most open effects, that a count answers.
pub const QUOTA_PRINCIPALS: u32 = 10_000;
/// A tenant's principals are counted again after so many times what the last count took, at the earliest.
pub const QUOTA_REST: u32 = 10;
/// Most tools whose adapters `actonce doctor` looks at, and most places that it connects to.
pub const DOCTOR_TOOLS: u32 = 1_000;
/// Adapters that it connects to at once.
pub const DOCTOR_WIDTH: usize = 16;
/// Longest time for one connection, its name and its TLS included.
pub const DOCTOR_CONNECT_SECONDS: u64 = 3;
/// Longest time for the database, for the key set, and for all adapters together, each.
pub const DOCTOR_STAGE_SECONDS: u64 = 15;

/// Open effects that a restore reads at once.
pub const RESTORE_PAGE: u32 = 500;
/// Open effects that a restore moves at once: a batch of commits.
pub const RESTORE_AT_ONCE: usize = 128;
/// Effects that a restore lists because they can't be read back.
pub const RESTORE_LISTED: usize = 100;
/// Why a restore was made.
pub const RESTORE_REASON_BYTES: usize = 1_024;

/// Effects that one transaction of a pruning has where nobody says.
pub const PRUNE_BATCH: u32 = 100;
/// Most of them: who writes waits for it.
pub const PRUNE_BATCH_MAX: u32 = 500;
/// Effects that one run prunes where nobody says.
pub const PRUNE_RUN: u64 = 100_000;
/// Tenants that a run lists by name.
pub const PRUNE_TENANTS_LISTED: usize = 1_000;

/// Sealed rows that one transaction of a change of the data key has where nobody says.
pub const ROTATE_BATCH: u32 = 50;
/// Most of them: each may have the arguments of an intent.
pub const ROTATE_BATCH_MAX: u32 = 200;
/// Sealed rows, and open effects, that it looks at in one read where nothing is written.
pub const ROTATE_PAGE: u32 = 256;
/// How often it looks at everything: what changed under it, or came meanwhile, is found by the next look.
pub const ROTATE_LOOKS: u32 = 4;
/// Sealed rows of each table that `actonce doctor` looks at.
pub const DOCTOR_SEALED: u32 = 10_000;
