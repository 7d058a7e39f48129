//! Deferred sources of rules as actors: they tell the engine what may be said next in a step, while that step's forward
//! runs.
//!
//! The scheduler actor says which requests use a source and which steps wait ([`DeferredSources`]), the thread that
//! hears of an outcome says which tokens came ([`DeferredLink`]), and the rules go to the engine ([`RulesLink`]). Nobody
//! waits here: a step whose tokens have not come is answered when the last of them arrives. If the actor of a source
//! dies, its alarm tells the scheduler actor, which ends the requests that use the source and starts another actor.

mod actor;
mod awaits;
mod grammars;
mod link;
mod polled_queue;
mod rules_link;
mod source;
mod sources;
mod tables;
mod users;

pub(super) use actor::Reports;
pub use actor::{DeferredActor, Starter};
pub use grammars::{GrammarLink, GrammarSource};
pub use link::DeferredLink;
pub use rules_link::RulesLink;
pub use source::{DeferredAnswer, DeferredSource};
pub(super) use sources::DeferredSources;
pub use tables::{EngramLink, EngramSource};
pub use users::DeferredUsers;
