//! `actonce demo`.

use std::process::ExitCode;

use clap::Args;

/// `actonce demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {}

pub(super) async fn run(_: &DemoArgs) -> ExitCode {
    ExitCode::SUCCESS
}
