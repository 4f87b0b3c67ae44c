//! The phases of a request (protocol §13).

/// What a request spends its time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Verifying the token.
    Authentication,
    /// From the arrival to the use case, without authentication: routing, and reading and checking the body.
    Admission,
    /// Deciding, and writing down what was decided.
    Decision,
    /// Waiting for the batch in flight, and for the connection that writes.
    StoreWait,
    /// Statements that look.
    StoreExecution,
    /// The statement that writes, with its flush.
    Commit,
    /// Calls of adapters.
    Adapter,
    /// Writing the answer.
    Response,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 8;
    /// All, in the order in which most requests go through them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Authentication,
        Self::Admission,
        Self::Decision,
        Self::StoreWait,
        Self::StoreExecution,
        Self::Commit,
        Self::Adapter,
        Self::Response,
    ];

    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Admission => "admission",
            Self::Decision => "decision",
            Self::StoreWait => "store_wait",
            Self::StoreExecution => "store_execution",
            Self::Commit => "commit",
            Self::Adapter => "adapter",
            Self::Response => "response",
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Authentication => 0,
            Self::Admission => 1,
            Self::Decision => 2,
            Self::StoreWait => 3,
            Self::StoreExecution => 4,
            Self::Commit => 5,
            Self::Adapter => 6,
            Self::Response => 7,
        }
    }
}
