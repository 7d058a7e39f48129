//! The one on whose behalf texts are read for their vectors.

use crate::holder::Holder;
use crate::turn::caller::TurnCaller;
use chimere_engine::ids::Micros;

/// On whose behalf texts are read.
#[derive(Clone, Copy, Debug)]
pub enum VectorCaller<'a> {
    /// A request, in the turn of its holder and under its terms.
    Request {
        /// Key, terms and name of the request.
        caller: &'a TurnCaller,
        /// The field that the texts came in, for errors.
        field: &'static str,
    },
    /// The service itself, behind all requests. It reads one text after the other.
    Service {
        /// Name of the work in the log and in errors.
        name: &'static str,
        /// What the model reads is idle work of the scheduler, beside which nobody else need be absent.
        idle: bool,
    },
}

impl VectorCaller<'_> {
    pub(super) fn holder(&self) -> Holder {
        match self {
            Self::Request { caller, .. } => caller.holder,
            Self::Service { .. } => Holder::Many,
        }
    }

    pub(super) fn caller(&self) -> Option<&TurnCaller> {
        match self {
            Self::Request { caller, .. } => Some(caller),
            Self::Service { .. } => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Micros> {
        self.caller().and_then(|caller| caller.terms.deadline)
    }

    pub(super) fn field(&self) -> &'static str {
        match self {
            Self::Request { field, .. } => field,
            Self::Service { name, .. } => name,
        }
    }
}
