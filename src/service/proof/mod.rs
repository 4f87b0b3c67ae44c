//! What can be shown to others: signed checkpoints of the journals, and signed evidence of one effect.
//!
//! One Ed25519 key signs both, as JSON Web Signatures whose `typ` tells them apart. Who has the public key
//! can check them without this service and without its database.

pub mod bundle;
pub mod check;
pub mod checkpoint;
pub mod merkle;
pub mod offline;
pub mod signer;

pub use signer::{PublicKeys, Signed, Signer};
