//! Opening a store.
