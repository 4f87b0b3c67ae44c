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
/// Most dispatches of one effect.
pub const ATTEMPTS: u32 = 1_000;
/// Most approvals a tool may ask for.
pub const APPROVALS_MAX: u32 = 16;
/// Largest tool registration, as stored.
pub const TOOL_BYTES: usize = 128 * 1024;
/// Most changes in one commit.
pub const COMMIT_CHANGES: usize = 256;
/// Most changes that may queue for a commit; more are refused with `capacity`.
pub const COMMIT_QUEUE: usize = 8_192;
/// Times a command is decided again after a lost compare-and-set.
pub const COMMIT_RETRIES: u32 = 12;
/// Longest deadline any tool may register.
pub const DEADLINE_MAX_SECONDS: u32 = 365 * 24 * 3600;
/// Most JSON bytes that one token may have.
pub const TOKEN_BYTES: usize = 8 * 1024;
/// Verified tokens remembered by one process.
pub const TOKEN_CACHE: u64 = 10_000;
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
/// How long one call of an adapter may take where the tool does not say.
pub const ADAPTER_TIMEOUT_DEFAULT_SECONDS: u32 = 30;
/// Longest call of an adapter.
pub const ADAPTER_TIMEOUT_MAX_SECONDS: u32 = 300;
/// Largest answer of an adapter.
pub const ADAPTER_ANSWER_BYTES: usize = 256 * 1024;
/// Adapter calls under way in one process at once.
pub const ADAPTER_CALLS: usize = 32;
/// Adapter calls under way for one tool in one process at once.
pub const ADAPTER_CALLS_PER_TOOL: usize = 8;
/// Longest URL of an adapter or a subscription.
pub const URL_BYTES: usize = 2 * 1024;
/// Contract breaks of an adapter about one effect before a person looks.
pub const ADAPTER_BREAKS: u32 = 5;
/// After an attempt's deadline, the time until it is closed as observed.
pub const RECONCILIATION_GRACE_SECONDS: u32 = 10;
/// Most components of a profile.
pub const PROFILE_COMPONENTS: usize = 256;
/// Most uses of one standing grant.
pub const GRANT_USES: u32 = 100_000;
/// Most live standing grants of one tool.
pub const GRANTS_PER_TOOL: u32 = 100;
/// Bytes of argument previews after which a page of approvals ends.
pub const PREVIEW_PAGE_BYTES: usize = 2 * 1024 * 1024;
