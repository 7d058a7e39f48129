//! Lexers of a grammar, each shared by the outputs of one lane: what the lexer has worked out for one of them the
//! others find, and it is one table in a core's caches where there would be as many as outputs.
//!
//! A lexer counts its steps and states and stops for good when there are too many, and a panic in it leaves nothing of
//! it. So an output whose lexer stops starts over with one of its own ([`Lexers::own`]): what others have read never
//! ends an output.

use llguidance::Matcher;
use parking_lot::Mutex;

/// A grammar before any token, with the lexers of its lanes.
pub(super) struct Lexers {
    /// Reads nothing: each lexer begins as a copy of its own.
    before: Matcher,
    lanes: Mutex<Vec<Option<Matcher>>>,
}

impl Lexers {
    pub(super) fn new(before: Matcher) -> Self {
        Self { before, lanes: Mutex::default() }
    }

    /// The grammar with a lexer that nobody else reads with.
    pub(super) fn own(&self) -> Matcher {
        self.before.deep_clone()
    }

    /// The grammar with the lexer of a lane.
    pub(super) fn of_lane(&self, lane: usize) -> Matcher {
        let mut lanes = self.lanes.lock();
        if lanes.len() <= lane {
            lanes.resize_with(lane + 1, || None);
        }
        // A copy of a matcher has the same lexer.
        lanes[lane].get_or_insert_with(|| self.own()).clone()
    }

    /// Outputs that begin in this lane get another lexer.
    pub(super) fn discard(&self, lane: usize) {
        if let Some(stopped) = self.lanes.lock().get_mut(lane) {
            *stopped = None;
        }
    }
}
