//! Why a turn that runs ends before its answer does.

use super::error::TurnError;
use crate::actors::request::output::Output;

/// See the file's head.
pub(super) enum EarlyEnd {
    /// Nobody hears its outputs any more.
    Unheard,
    /// The client is told this in the place of more.
    Told(Output),
}

impl EarlyEnd {
    /// The engine failed, for this reason.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::Told(Output::Failed(why.into()))
    }
}

impl From<TurnError> for EarlyEnd {
    fn from(error: TurnError) -> Self {
        Self::failed(error.to_string())
    }
}
