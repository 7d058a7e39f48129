//! On whose behalf a turn runs, as far as its stages need to know.

use crate::engram::Asker;
use crate::holder::{Holder, ToolRights};
use crate::web::WebVisitor;
use chimere_engine::ids::KeyId;
use chimere_engine::scheduler::Terms;
use std::sync::Arc;

/// The caller of a turn, found by whoever let the request in.
#[derive(Clone, Debug)]
pub struct TurnCaller {
    /// Name of the request in the log.
    pub name: Arc<str>,
    /// The one on whose account the request takes of what is shared.
    pub holder: Holder,
    /// The account that owns the caller's collections.
    pub account: KeyId,
    /// The key that tables are asked for with.
    pub asker: Asker,
    /// What it may have the service run.
    pub tools: ToolRights,
    /// Terms of the request, which its trial and its vectors run under too.
    pub terms: Terms,
}

impl TurnCaller {
    /// On whose behalf the web is read.
    pub(super) fn visitor(&self) -> WebVisitor {
        WebVisitor { holder: self.holder, account: self.account, request: self.name.clone() }
    }

    /// The turn's first generation was taken: what comes after it is a part of a call that is there.
    pub(super) fn taken(&mut self) {
        self.terms.exempt = true;
    }
}
