//! `actonce journal`: re-checks every journal from the database alone, and makes checkpoints.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::migrate::Database;
use super::{fail, print};
use crate::config::{self, Environment};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::limits;
use crate::service::journal::{Scope, verify_scope};
use crate::service::proof::{PublicKeys, Signed, Signer, checkpoint};

/// What to do with journals.
#[derive(Debug, Subcommand)]
pub(super) enum JournalCommand {
    /// Re-check every journal: exit 0 when all holds, 1 with a report when not, 2 when it can't be checked.
    Verify(VerifyArgs),
    /// Make signed checkpoints of what has moved since the last ones, as the service does by itself.
    Checkpoint(CheckpointArgs),
}

/// `actonce journal verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    database: Database,
    /// One tenant alone.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// One effect of that tenant alone: its operation id.
    #[arg(long, value_name = "OPERATION_ID", requires = "tenant", conflicts_with = "effect_id")]
    effect: Option<String>,
    /// The same by its id in a report.
    #[arg(long, value_name = "UUID", requires = "tenant")]
    effect_id: Option<Uuid>,
    /// The key that checkpoints are checked with: a file with a JWKS or PEM, or the key in base64url.
    #[arg(long, env = "ACTONCE_EVIDENCE_PUBLIC_KEY", value_name = "FILE_OR_KEY")]
    public_key: Option<String>,
    /// A file with checkpoints that were printed and kept, one a line.
    #[arg(long, value_name = "FILE")]
    checkpoints: Option<PathBuf>,
}

/// `actonce journal checkpoint`.
#[derive(Debug, Args)]
pub(super) struct CheckpointArgs {
    #[command(flatten)]
    database: Database,
    /// File with the key; `ACTONCE_EVIDENCE_KEY` holds the key itself [default: the one of --dev].
    #[arg(long, env = "ACTONCE_EVIDENCE_KEY_FILE", value_name = "FILE")]
    evidence_key_file: Option<String>,
    /// Print the newest checkpoint of each tenant, one a line, to be kept elsewhere. Needs no key: without one nothing
    /// is made.
    #[arg(long)]
    print: bool,
    /// Print the one of this tenant alone.
    #[arg(long, value_name = "NAME", requires = "print")]
    tenant: Option<String>,
}

pub(super) async fn run(command: &JournalCommand) -> ExitCode {
    let result = match command {
        JournalCommand::Verify(args) => verify(args).await,
        JournalCommand::Checkpoint(args) => make(args).await,
    };
    result.unwrap_or_else(|error| fail(&error))
}

/// The key that `--public-key` names.
pub(super) fn public_keys(given: &str) -> Result<PublicKeys, String> {
    let path = Path::new(given);
    let text = if path.is_file() { read(path, limits::KEY_FILE_BYTES)? } else { given.to_owned() };
    PublicKeys::parse(&text).map_err(|fault| format!("the public key {fault}"))
}

/// A text file within a bound.
pub(super) fn read(path: &Path, limit: usize) -> Result<String, String> {
    let bytes = config::read_file(path, limit)?;
    String::from_utf8(bytes).map_err(|_| format!("{} must be UTF-8", path.display()))
}

fn tenant(name: Option<&String>) -> Result<Option<Tenant>, String> {
    name.map(|name| Tenant::new(name).map_err(|fault| format!("--tenant {fault}"))).transpose()
}

fn scope(args: &VerifyArgs) -> Result<Scope, String> {
    let tenant = tenant(args.tenant.as_ref())?;
    let effect = match (&tenant, &args.effect) {
        (Some(tenant), Some(operation_id)) => {
            let name = Name::new(operation_id).map_err(|fault| format!("--effect {fault}"))?;
            Some(EffectKey::of(tenant, &name).effect)
        }
        _ => args.effect_id,
    };
    let keys = args.public_key.as_deref().filter(|key| !key.is_empty()).map(public_keys).transpose()?;
    let mut copies = Vec::new();
    if let Some(path) = &args.checkpoints {
        for (number, line) in read(path, limits::CHECKPOINT_COPY_BYTES)?.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let line_number = number.saturating_add(1);
            copies.push(
                Signed::parse(line)
                    .ok_or_else(|| format!("{}: line {line_number} is no checkpoint", path.display()))?,
            );
        }
    }
    Ok(Scope { tenant, effect, keys, copies })
}

async fn verify(args: &VerifyArgs) -> Result<ExitCode, String> {
    let scope = scope(args)?;
    let store = args.database.open().await?;
    let result = verify_scope(store.as_ref(), &scope).await;
    store.close().await;
    let report = result.map_err(|error| error.to_string())?;
    if scope.effect.is_some() && report.effects == 0 && report.damaged == 0 {
        return Err("there is no such effect, and no checkpoint that names it".to_owned());
    }
    let printed = print(&serde_json::to_string_pretty(&report).unwrap_or_default());
    Ok(if report.damaged > 0 { ExitCode::FAILURE } else { printed })
}

async fn make(args: &CheckpointArgs) -> Result<ExitCode, String> {
    let tenant = tenant(args.tenant.as_ref())?;
    let path = args.evidence_key_file.as_deref().filter(|path| !path.is_empty());
    let key = config::evidence_key(path, args.database.data_dir(), &Environment::from_process())?;
    let signer = match key {
        Some(key) => Some(Signer::from_seed(key.expose()).ok_or("the evidence key is refused")?),
        None if args.print => None,
        None => return Err("no evidence key: give --evidence-key-file or ACTONCE_EVIDENCE_KEY".to_owned()),
    };
    let store = args.database.open().await?;
    let result = async {
        let made = match &signer {
            Some(signer) => checkpoint::make(store.as_ref(), signer).await?,
            None => checkpoint::Made::default(),
        };
        let newest = if args.print { checkpoint::newest(store.as_ref(), tenant.as_ref()).await? } else { Vec::new() };
        Ok::<_, crate::store::StoreError>((made, newest))
    }
    .await;
    store.close().await;
    let (made, newest) = result.map_err(|error| error.to_string())?;
    if !args.print {
        return Ok(print(&serde_json::to_string(&made).unwrap_or_default()));
    }
    for jws in newest {
        if print(&jws) != ExitCode::SUCCESS {
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
