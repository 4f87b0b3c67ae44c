//! One behaviour, two backends: what a store promises, on both (ARCHITECTURE.md, "Two backends").

mod commits;
mod corrupt;
mod documents;
mod duplicates;
mod engine;
mod guards;
mod lists;
mod migrations;
mod plans;
mod races;
mod statements;
mod tools;

pub(crate) mod bed;
pub(crate) mod effects;
