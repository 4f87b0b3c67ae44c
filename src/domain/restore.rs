//! What a restore to an earlier point means: what was done after that point is not in the database any more.
//!
//! So nothing that was still open may be taken for what the database says. A proposal may have been approved and
//! dispatched, a prepared effect claimed, a retry used up, a dispatch settled and granted anew. Each of them becomes
//! doubt, which has ways out that do not guess; and fences begin again far above every one that can have been given
//! out, so that a worker from before is fenced off, here and downstream.

use super::ids::Name;

/// How far the fences of one epoch are from those of the one before: more than one effect can have dispatches.
pub const FENCES_PER_EPOCH: u32 = 1 << 20;
/// The last epoch; the fences after it would not fit into the stores.
pub const LAST_EPOCH: u32 = 2_046;

/// What the journal says about it.
pub const LOST_TIME: &str = "the database was restored to an earlier point";

/// One effect's part in an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    /// The number of the epoch: 1 for the first.
    pub epoch: u32,
    /// The operator's name for it.
    pub epoch_id: Name,
}

/// The fence before the first one of an epoch; 0 where nothing was ever restored.
#[must_use]
pub const fn fence_base(epoch: u32) -> u32 {
    epoch.saturating_mul(FENCES_PER_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    #[test]
    fn no_effect_reaches_the_fences_of_the_next_epoch_and_all_fit() {
        const { assert!(limits::ATTEMPTS < FENCES_PER_EPOCH) };
        assert_eq!(fence_base(0), 0);
        assert!(i32::try_from(fence_base(LAST_EPOCH) + limits::ATTEMPTS).is_ok());
    }
}
