//! Answers that were given a short while ago, in memory, so that somebody can say what they think of one by its id.
//! Only accounts that consent have some; a restart forgets them.

use crate::limits::{LEARNING_RECENT_ACCOUNT_BYTES, LEARNING_RECENT_BYTES};
use crate::text::{Message, RawJson};
use chimere_engine::ids::KeyId;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes that an answer takes beside its texts, about.
const OWN_BYTES: usize = 512;

/// An answer, and the request that it answers.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenAnswer {
    /// The conversation before it.
    pub messages: Vec<Message>,
    /// Tools that the model was told of by whoever asked.
    pub tools: Vec<RawJson>,
    /// Text of the answer, without its thought.
    pub text: String,
    /// It calls tools of whoever asked, which its text does not say.
    pub calls: bool,
    /// The name that was asked: the model's, an adapter's or a pipeline's.
    pub model: String,
    /// Bytes that the request had.
    pub request_bytes: usize,
}

impl GivenAnswer {
    /// Bytes that it takes, about.
    fn bytes(&self) -> usize {
        OWN_BYTES + self.request_bytes + self.text.len()
    }
}

/// See the file's head.
#[derive(Default)]
pub(super) struct RecentAnswers {
    accounts: HashMap<KeyId, AccountAnswers>,
    bytes: usize,
}

/// The answers of an account, the oldest first.
#[derive(Default)]
struct AccountAnswers {
    bytes: usize,
    all: VecDeque<(Box<str>, usize, Arc<GivenAnswer>)>,
}

impl RecentAnswers {
    /// Remembers an answer by its id. The account's oldest go where it has no more room, and those of who has most
    /// where all have none.
    pub(super) fn put(&mut self, account: KeyId, id: &str, answer: Arc<GivenAnswer>) {
        let bytes = answer.bytes();
        if bytes > LEARNING_RECENT_ACCOUNT_BYTES {
            return;
        }
        let own = self.accounts.entry(account).or_default();
        own.all.push_back((id.into(), bytes, answer));
        own.bytes += bytes;
        self.bytes += bytes;
        while self.accounts[&account].bytes > LEARNING_RECENT_ACCOUNT_BYTES {
            self.drop_oldest(account);
        }
        while self.bytes > LEARNING_RECENT_BYTES {
            let most = self.accounts.iter().max_by_key(|(_, own)| own.bytes).map(|(most, _)| *most);
            most.into_iter().for_each(|most| self.drop_oldest(most));
        }
    }

    /// One of an account's answers, if it is remembered.
    pub(super) fn get(&self, account: KeyId, id: &str) -> Option<Arc<GivenAnswer>> {
        let mut all = self.accounts.get(&account)?.all.iter().rev();
        all.find(|(own, ..)| **own == *id).map(|(_, _, answer)| answer.clone())
    }

    /// Forgets all answers of an account.
    pub(super) fn forget(&mut self, account: KeyId) {
        self.bytes -= self.accounts.remove(&account).map_or(0, |own| own.bytes);
    }

    fn drop_oldest(&mut self, account: KeyId) {
        let Some(own) = self.accounts.get_mut(&account) else { return };
        if let Some((_, bytes, _)) = own.all.pop_front() {
            own.bytes -= bytes;
            self.bytes -= bytes;
        }
        if own.all.is_empty() {
            self.accounts.remove(&account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Role;

    fn answer(bytes: usize) -> Arc<GivenAnswer> {
        let messages = vec![Message::new(Role::User, "q")];
        let text = "a".repeat(bytes);
        let (tools, model) = (Vec::new(), "m".into());
        Arc::new(GivenAnswer { messages, tools, text, calls: false, model, request_bytes: 0 })
    }

    #[test]
    fn an_answer_is_its_account_s_alone_until_newer_ones_need_its_room() {
        let (mut recent, a, b) = (RecentAnswers::default(), KeyId(1), KeyId(2));
        recent.put(a, "1", answer(10));
        assert_eq!(recent.get(a, "1").map(|answer| answer.text.len()), Some(10));
        assert!(recent.get(b, "1").is_none() && recent.get(a, "2").is_none());
        recent.put(a, "large", answer(LEARNING_RECENT_ACCOUNT_BYTES));
        assert!(recent.get(a, "large").is_none() && recent.get(a, "1").is_some());
        recent.put(a, "2", answer(LEARNING_RECENT_ACCOUNT_BYTES / 2));
        recent.put(a, "3", answer(LEARNING_RECENT_ACCOUNT_BYTES / 2 - 2 * OWN_BYTES));
        assert!(recent.get(a, "1").is_none() && recent.get(a, "3").is_some());
        for n in 0..=(LEARNING_RECENT_BYTES / LEARNING_RECENT_ACCOUNT_BYTES) as u64 {
            recent.put(KeyId(10 + n), "x", answer(LEARNING_RECENT_ACCOUNT_BYTES - 2 * OWN_BYTES));
        }
        assert!(recent.bytes <= LEARNING_RECENT_BYTES);
        let held: usize = recent.accounts.values().map(|own| own.bytes).sum();
        assert_eq!(held, recent.bytes);
        recent.forget(KeyId(10));
        assert!(recent.get(KeyId(10), "x").is_none());
    }
}
