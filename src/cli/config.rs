//! `actonce config`: looks at the configuration as `actonce serve` would read it, and writes nothing.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{fail, print};
use crate::config::{self, Environment, Flags, ServeArgs, Setting};

/// The configuration, with the flags, variables and file of `actonce serve`.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check it; exit 0 when the service could be started with it, 1 when not, with every problem, 2 for wrong use.
    Check(Box<ServeArgs>),
    /// Show every setting and where it comes from (flag, env, file, default); secrets are hidden. Exit codes as for check.
    Show(Box<ShowArgs>),
}

/// `actonce config show`.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// As one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(command: &ConfigCommand, flags: &Flags) -> ExitCode {
    let args = match command {
        ConfigCommand::Check(args) => args,
        ConfigCommand::Show(args) => &args.serve,
    };
    let inspected = match config::inspect(args, &Environment::from_process(), flags) {
        Ok(inspected) => inspected,
        Err(error) => {
            fail(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    match command {
        ConfigCommand::Check(_) => {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            let mut lines = vec!["the configuration is good".to_owned()];
            let unknown = config::unknown_variables(names).into_iter();
            lines.extend(unknown.map(|name| format!("note: {name} is no setting of this version and does nothing")));
            print(&lines.join("\n"))
        }
        ConfigCommand::Show(args) if args.json => match serde_json::to_string_pretty(&inspected.settings) {
            Ok(text) => print(&text),
            Err(_) => fail("the settings can't be shown"),
        },
        ConfigCommand::Show(_) => print(&table(&inspected.settings)),
    }
}

fn table(settings: &[Setting]) -> String {
    let lines = settings.iter().map(|setting| {
        let name = setting.key.or(setting.variable).unwrap_or_default();
        let value = setting.value.as_deref().unwrap_or("-");
        let origin = setting.origin.to_string();
        format!("{name:<31} {origin:<8} {value}")
    });
    lines.collect::<Vec<_>>().join("\n")
}
