//! One behaviour, two backends: what a store promises, on both (ARCHITECTURE.md, "Two backends").

pub(crate) mod bed;
mod beside;
mod commits;
mod corrupt;
mod documents;
mod doubts;
mod duplicates;
mod durability;
pub(crate) mod effects;
pub(crate) mod engine;
mod guards;
mod lists;
mod migrations;
mod past_the_wall;
mod plans;
mod pooled;
mod quotas;
mod races;
mod receipts;
mod statements;
mod tenancy;
mod tools;
mod wall;
