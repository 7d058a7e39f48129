//! Calls that wait for somebody's approval, and what came of those that were approved. They are kept here, and not
//! signed and handed out: so an approval is of a call that was asked about, of the key that it was asked of, and of one
//! run. They end with the service, and then the model has to ask again.

use crate::limits::{APPROVAL_SECONDS, APPROVALS_MAX, APPROVALS_PER_KEY};
use chimere_engine::ids::KeyId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the id of such a call begins with.
const PREFIX: &str = "mcpr_";

/// Whether an id is that of a call which was asked about.
pub fn is_approval_id(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// A call as it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedCall {
    /// The name that the model calls the tool by.
    pub shown: String,
    /// The arguments in JSON.
    pub arguments: String,
    /// Hash of the tool as it was then.
    pub pin: String,
}

/// What is known of a call that an answer is given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownCall {
    /// It waits for an answer.
    Waiting(AskedCall),
    /// It was answered before, and this came of it.
    Over(Arc<str>),
    /// It was never asked of this key, or its time is over.
    Unknown,
}

/// See the file's head.
#[derive(Default)]
pub struct Approvals(Mutex<HashMap<String, KeptCall>>);

struct KeptCall {
    account: KeyId,
    call: AskedCall,
    asked: Instant,
    /// What came of it, once somebody took it.
    outcome: Option<Arc<str>>,
}

impl KeptCall {
    fn known(&self, account: KeyId) -> KnownCall {
        let young = self.asked.elapsed() < Duration::from_secs(APPROVAL_SECONDS);
        match &self.outcome {
            _ if self.account != account || !young => KnownCall::Unknown,
            Some(outcome) => KnownCall::Over(outcome.clone()),
            None => KnownCall::Waiting(self.call.clone()),
        }
    }
}

/// What the model reads of a call that was begun, and of whose end nobody knows.
const LOST: &str = "Error: the call was begun, and what came of it is not known.";

impl Approvals {
    /// Keeps a call of an account's and gives its id.
    pub fn ask(&self, account: KeyId, call: AskedCall) -> String {
        let id = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
        let mut all = self.0.lock();
        let asked = Instant::now();
        all.retain(|_, kept| asked.duration_since(kept.asked) < Duration::from_secs(APPROVAL_SECONDS));
        make_room(&mut all, Some(account), APPROVALS_PER_KEY);
        make_room(&mut all, None, APPROVALS_MAX);
        all.insert(id.clone(), KeptCall { account, call, asked, outcome: None });
        id
    }

    /// What is known of a call of an account's.
    pub fn find(&self, account: KeyId, id: &str) -> KnownCall {
        let kept = self.0.lock();
        kept.get(id).map_or(KnownCall::Unknown, |kept| kept.known(account))
    }

    /// Takes a call of an account's, which nobody can take twice: whoever is told that it waits runs it.
    pub fn take(&self, account: KeyId, id: &str) -> KnownCall {
        let mut all = self.0.lock();
        let Some(kept) = all.get_mut(id) else { return KnownCall::Unknown };
        let known = kept.known(account);
        if let KnownCall::Waiting(_) = known {
            kept.outcome = Some(LOST.into());
        }
        known
    }

    /// Keeps what came of a call that was taken, for the same conversation when it comes again.
    pub fn settle(&self, id: &str, outcome: &str) {
        if let Some(kept) = self.0.lock().get_mut(id) {
            kept.outcome = Some(outcome.into());
        }
    }
}

/// Lets the oldest calls of an account, or of all, go until there is room for one more.
fn make_room(all: &mut HashMap<String, KeptCall>, account: Option<KeyId>, max: usize) {
    loop {
        let of = |kept: &KeptCall| account.is_none_or(|account| kept.account == account);
        let mut ours = all.iter().filter(|(_, kept)| of(kept));
        if ours.clone().count() < max {
            return;
        }
        let oldest = ours.by_ref().min_by_key(|(_, kept)| kept.asked).map(|(id, _)| id.clone());
        oldest.and_then(|id| all.remove(&id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> AskedCall {
        AskedCall { shown: "files__write".into(), arguments: arguments.into(), pin: "p".into() }
    }

    #[test]
    fn a_call_is_taken_once_by_the_key_that_it_was_asked_of() {
        let (approvals, ours, theirs) = (Approvals::default(), KeyId(1), KeyId(2));
        let id = approvals.ask(ours, call("{}"));
        assert!(is_approval_id(&id));
        assert_eq!(approvals.take(theirs, &id), KnownCall::Unknown);
        assert_eq!(approvals.take(ours, "mcpr_0"), KnownCall::Unknown);
        assert_eq!(approvals.find(theirs, &id), KnownCall::Unknown);
        assert_eq!(approvals.find(ours, &id), KnownCall::Waiting(call("{}")), "to look is not to take");
        assert_eq!(approvals.take(ours, &id), KnownCall::Waiting(call("{}")));
        assert_eq!(approvals.take(ours, &id), KnownCall::Over(LOST.into()), "it may have run");
        approvals.settle(&id, "written");
        assert_eq!(approvals.take(ours, &id), KnownCall::Over("written".into()));
        assert_eq!(approvals.take(theirs, &id), KnownCall::Unknown);
    }

    #[test]
    fn one_key_s_calls_push_out_its_own_and_nobody_else_s() {
        let (approvals, ours, theirs) = (Approvals::default(), KeyId(1), KeyId(2));
        let kept = approvals.ask(theirs, call("t"));
        let ids: Vec<String> = (0..=APPROVALS_PER_KEY).map(|n| approvals.ask(ours, call(&n.to_string()))).collect();
        assert_eq!(approvals.take(ours, &ids[0]), KnownCall::Unknown);
        assert_eq!(approvals.take(ours, &ids[1]), KnownCall::Waiting(call("1")));
        assert_eq!(approvals.take(theirs, &kept), KnownCall::Waiting(call("t")));
    }
}
