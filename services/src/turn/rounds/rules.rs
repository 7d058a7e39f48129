//! The rules for the calls of a turn's later rounds: one grammar for all of them, which is made while the first round
//! is on its way, so that none of them waits for the threads of grammars.

use crate::holder::Holder;
use crate::text::grammar::{Calls, GrammarStart};
use crate::turn::error::TurnError;
use crate::turn::services::TurnServices;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::sync::Arc;

type MadeRules = Result<Option<GrammarStart>, TurnError>;

/// See the file's head.
pub(super) struct LaterRules {
    services: Arc<TurnServices>,
    holder: Holder,
    /// What calls keep to, until the rules are there.
    calls: Option<Calls>,
    /// The rules as they are being made.
    begun: Option<LocalBoxFuture<'static, MadeRules>>,
    made: Option<GrammarStart>,
}

impl LaterRules {
    /// Those that these calls keep to, of a turn on this holder's account.
    pub(super) fn of(services: &Arc<TurnServices>, holder: Holder, calls: Option<Calls>) -> Self {
        Self { services: services.clone(), holder, calls, begun: None, made: None }
    }

    /// Has them made. Where there is no room for that now it is done when they are needed.
    pub(super) fn begin(&mut self) {
        let mut begun = self.making();
        match (&mut begun).now_or_never() {
            None => self.begun = Some(begun),
            Some(Ok(made)) => (self.made, self.calls) = (made, None),
            Some(Err(_)) => {}
        }
    }

    /// The rules as soon as they are there; none if calls keep to nothing.
    pub(super) async fn made(&mut self) -> MadeRules {
        if self.calls.is_some() {
            let begun = self.begun.take().unwrap_or_else(|| self.making());
            (self.made, self.calls) = (begun.await?, None);
        }
        Ok(self.made.clone())
    }

    fn making(&self) -> LocalBoxFuture<'static, MadeRules> {
        let (services, holder, calls) = (self.services.clone(), self.holder, self.calls.clone());
        async move { services.grammars.grammar_of(holder, None, calls, None).await }.boxed_local()
    }
}
