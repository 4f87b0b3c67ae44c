//! Why a demonstration could not be played to its end.

use std::error::Error;

use super::call::Call;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The file of calls has a fault.
    #[error("{0}")]
    Calls(String),
    /// The server does not start.
    #[error("the server does not start: {0}")]
    Start(String),
    /// The fake downstream does not start.
    #[error("the fake downstream does not start: {0}")]
    Downstream(std::io::Error),
    /// A request got no answer, or none that can be understood.
    #[error("{what} got no answer: {why}")]
    NoAnswer {
        /// The request.
        what: &'static str,
        /// What happened instead.
        why: String,
    },
    /// The server refused a request that it should have accepted.
    #[error("{what} was refused: {problem}")]
    Refused {
        /// The request.
        what: &'static str,
        /// What the problem document says.
        problem: String,
    },
    /// The contract did not hold.
    #[error("{0}")]
    Broken(String),
    /// Something went wrong while a call was played.
    #[error("{call}: {failure}")]
    At {
        /// The call.
        call: String,
        /// What went wrong.
        failure: Box<Self>,
    },
    /// What the server's log says about it.
    #[error("{failure}\nThe server's log ends with: {log}")]
    Logged {
        /// What went wrong.
        failure: Box<Self>,
        /// The last lines.
        log: String,
    },
    /// Standard output is closed.
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    pub(super) fn no_answer(what: &'static str, error: &(dyn Error + 'static)) -> Self {
        Self::NoAnswer { what, why: innermost(error) }
    }

    /// Names the call.
    pub(super) fn at(self, call: &Call) -> Self {
        let call = format!("run {}, tool {}, target {}", call.run_id, call.tool, call.target);
        Self::At { call, failure: Box::new(self) }
    }

    /// Adds what the server's log says, where it may explain something.
    pub(super) fn with_log(self, log: &str) -> Self {
        if log.is_empty() || matches!(self, Self::Interrupted | Self::Output(_)) {
            return self;
        }
        Self::Logged { failure: Box::new(self), log: log.to_owned() }
    }

    /// Whether this says that the contract does not hold, and not only that nothing is known.
    pub(super) fn is_breach(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Broken(_) => true,
            Self::At { failure, .. } | Self::Logged { failure, .. } => failure.is_breach(),
            _ => false,
        }
    }
}

/// The first cause of an error: `connection closed before message completed` says more than
/// `error sending request`.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
