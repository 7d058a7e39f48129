//! Tables of n-grams as a service offers them: by name, to those who may use them, replaceable while requests use them.
//! What a table is and says is the engine's.

mod access;
mod calendar;
mod claim;
mod defaults;
mod keeper;
mod name;
mod opening;
mod parts;
mod question;
mod recollect;
mod store;
mod tables;
mod teacher;
mod wording;

pub use access::{Access, Asker};
pub use claim::DirectoryClaim;
pub use defaults::{Defaults, ModeName, Overrides, PhaseName};
pub use keeper::Keeper;
pub use name::TableName;
pub(crate) use opening::opening;
pub use parts::EngramParts;
pub use question::Question;
pub use recollect::recollections;
pub use store::{ReplayedLog, Store, StoreError, Texts, Write};
pub use tables::{NotThere, TableInfo, TableSet, Tables, TablesError};
pub use teacher::{Teacher, publish_table};
pub use wording::DocumentText;

/// Seconds since 1970, as tables count them.
pub fn unix_seconds() -> u32 {
    u32::try_from(crate::clock::unix_seconds()).unwrap_or(u32::MAX)
}
