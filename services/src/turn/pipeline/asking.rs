//! On whose behalf a step is carried out.

use crate::turn::caller::TurnCaller;
use crate::turn::services::TurnServices;
use chimere_engine::ids::CacheScope;

/// The caller of a turn, and where its prompts are looked up.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) services: &'a TurnServices,
    pub(super) caller: &'a TurnCaller,
    pub(super) cache: Option<CacheScope>,
}
