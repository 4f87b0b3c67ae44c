//! `actonce evidence`: checks signed evidence with the public key alone.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::journal::{public_keys, read};
use super::{fail, print};
use crate::limits;
use crate::service::proof::offline;

/// What to do with evidence.
#[derive(Debug, Subcommand)]
pub(super) enum EvidenceCommand {
    /// Check evidence of an effect, offline: exit 0 when it holds, 1 with what is wrong when not, 2 when it can't be
    /// checked.
    Verify(VerifyArgs),
}

/// `actonce evidence verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The evidence, as the service answered it.
    file: PathBuf,
    /// The key that it is checked with: a file with a JWKS or PEM, or the key in base64url.
    #[arg(long, env = "ACTONCE_EVIDENCE_PUBLIC_KEY", value_name = "FILE_OR_KEY")]
    public_key: String,
}

pub(super) fn run(command: &EvidenceCommand) -> ExitCode {
    let EvidenceCommand::Verify(args) = command;
    let given =
        public_keys(&args.public_key).and_then(|keys| Ok((keys, read(&args.file, limits::EVIDENCE_FILE_BYTES)?)));
    let (keys, text) = match given {
        Ok(given) => given,
        Err(error) => return fail(&error),
    };
    let checked = offline::check(&text, &keys);
    let holds = checked.faults.is_empty();
    let mut report = json!({ "holds": holds, "faults": checked.faults });
    if let (Some(bundle), Some(members)) = (checked.bundle.filter(|_| holds), report.as_object_mut()) {
        members.extend([
            ("tenant".to_owned(), json!(bundle.tenant)),
            ("operation_id".to_owned(), json!(bundle.operation_id)),
            ("state".to_owned(), json!(bundle.state)),
            ("revision".to_owned(), json!(bundle.revision)),
            ("made_at".to_owned(), json!(bundle.made_at)),
            ("in_checkpoint".to_owned(), json!(bundle.checkpoint.is_some())),
        ]);
    }
    let printed = print(&serde_json::to_string_pretty(&report).unwrap_or_default());
    if holds { printed } else { ExitCode::FAILURE }
}
