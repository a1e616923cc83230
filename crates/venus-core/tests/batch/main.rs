//! The batch machine and residency under random histories and in the cases the field reported.

mod behaviour;
mod fake;
mod histories;
mod pages;
mod plain;
mod pressure;
mod tiers;
