//! Work that waits, in turns: after one piece of a holder's comes one of every other holder's that has any, and no
//! holder has more than its share of the threads. Data alone: no thread, no clock.

use crate::holder::Holder;
use std::collections::{HashMap, VecDeque};

/// What waits. A holder's own work keeps the order in which it came.
#[derive(Debug)]
pub(super) struct FairQueue<J> {
    max: usize,
    /// The most pieces of one holder that may run at once.
    share: usize,
    len: usize,
    /// Each holder that waits, once; the next one first.
    order: VecDeque<Holder>,
    waiting: HashMap<Holder, VecDeque<J>>,
    /// Pieces that run, of holders that have any.
    running: HashMap<Holder, usize>,
}

impl<J> FairQueue<J> {
    /// Room for this many pieces of work, at least one, of which so many of one holder may run at once.
    pub(super) fn new(max: usize, share: usize) -> Self {
        Self {
            max: max.max(1),
            share,
            len: 0,
            order: VecDeque::new(),
            waiting: HashMap::new(),
            running: HashMap::new(),
        }
    }

    /// The most that may wait.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Puts work behind what its holder has waiting. Comes back if there is no room, or if the holder, who may always
    /// have one piece, would leave less of it to the others than it has.
    pub(super) fn push(&mut self, holder: Holder, job: J) -> Result<(), J> {
        let (own, left) = (self.of(holder), self.max - self.len);
        if left == 0 || !holder.may_have(own + 1, 1, left - 1) {
            return Err(job);
        }
        if own == 0 {
            self.order.push_back(holder);
        }
        self.waiting.entry(holder).or_default().push_back(job);
        self.len += 1;
        Ok(())
    }

    /// The next piece, which runs until [`Self::done`]: of the holder that has waited longest since its last one, among
    /// those that do not have their share of the threads already.
    pub(super) fn pop(&mut self) -> Option<(Holder, J)> {
        let at = self.order.iter().position(|holder| self.may_run(*holder))?;
        let holder = self.order.remove(at)?;
        let jobs = self.waiting.get_mut(&holder)?;
        let job = jobs.pop_front()?;
        if jobs.is_empty() {
            // An entry a holder that waits for nothing would be kept for ever.
            self.waiting.remove(&holder);
        } else {
            self.order.push_back(holder);
        }
        self.len -= 1;
        *self.running.entry(holder).or_default() += 1;
        Some((holder, job))
    }

    /// A piece of this holder's has run.
    pub(super) fn done(&mut self, holder: Holder) {
        if let Some(running) = self.running.get_mut(&holder) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&holder);
            }
        }
    }

    fn may_run(&self, holder: Holder) -> bool {
        holder == Holder::Many || self.running.get(&holder).is_none_or(|running| *running < self.share)
    }

    fn of(&self, holder: Holder) -> usize {
        self.waiting.get(&holder).map_or(0, VecDeque::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::ids::KeyId;

    /// A letter is a holder; `*` is a proxy that is trusted.
    fn holder(letter: char) -> Holder {
        if letter == '*' { Holder::Many } else { Holder::Key(KeyId(letter.into())) }
    }

    /// Pushes what `came` says, each letter one piece, pops at each `.`, and then the rest: the order in which it ran.
    fn check(max: usize, came: &str, ran: &str) {
        let (mut turns, mut order, mut count) = (FairQueue::new(max, 1), Vec::new(), HashMap::new());
        let next = |turns: &mut FairQueue<String>| {
            let (holder, job) = turns.pop()?;
            turns.done(holder);
            Some(job)
        };
        for letter in came.chars() {
            if letter == '.' {
                order.extend(next(&mut turns));
                continue;
            }
            let n = count.entry(letter).and_modify(|n| *n += 1).or_insert(1);
            turns.push(holder(letter), format!("{letter}{n}")).unwrap();
        }
        order.extend(std::iter::from_fn(|| next(&mut turns)));
        assert_eq!(order.join(" "), ran, "{came}");
        assert!(turns.waiting.is_empty() && turns.order.is_empty() && turns.running.is_empty() && turns.len == 0);
    }

    /// How many of each letter of `asked`, in a row, found room.
    fn fit(max: usize, asked: &str) -> HashMap<char, usize> {
        let (mut turns, mut fit) = (FairQueue::new(max, 1), HashMap::new());
        for letter in asked.chars() {
            *fit.entry(letter).or_insert(0) += usize::from(turns.push(holder(letter), ()).is_ok());
        }
        fit
    }

    #[test]
    fn after_one_of_a_holder_s_comes_one_of_every_other() {
        check(100, "aaaab", "a1 b1 a2 a3 a4");
        check(100, "aaabbc", "a1 b1 c1 a2 b2 a3");
        check(100, "aaa.b.c.a", "a1 a2 b1 a3 c1 a4");
        check(100, "a.a.a", "a1 a2 a3");
        check(100, "***a", "*1 a1 *2 *3");
    }

    #[test]
    fn one_alone_leaves_half_of_the_places_to_the_others() {
        assert_eq!(fit(8, "aaaaaaaabbbbbbbb"), HashMap::from([('a', 4), ('b', 2)]));
        assert_eq!(fit(4, "aabc"), HashMap::from([('a', 2), ('b', 1), ('c', 1)]), "one each while there is any");
        assert_eq!(fit(4, "*****"), HashMap::from([('*', 4)]), "a proxy that is trusted may have all");
        assert_eq!(fit(1, "ab"), HashMap::from([('a', 1), ('b', 0)]));
    }

    #[test]
    fn of_one_holder_s_pieces_no_more_run_at_once_than_its_share() {
        let (a, b, many) = (holder('a'), holder('b'), holder('*'));
        let mut turns = FairQueue::new(100, 2);
        ["a1", "a2", "a3"].into_iter().for_each(|job| turns.push(a, job).unwrap());
        assert_eq!([turns.pop(), turns.pop(), turns.pop()], [Some((a, "a1")), Some((a, "a2")), None]);
        turns.push(b, "b1").unwrap();
        assert_eq!(turns.pop(), Some((b, "b1")), "it waits for none of them");
        turns.done(b);
        turns.done(a);
        assert_eq!([turns.pop(), turns.pop()], [Some((a, "a3")), None]);
        ["1", "2", "3", "4"].into_iter().for_each(|job| turns.push(many, job).unwrap());
        assert_eq!(std::iter::from_fn(|| turns.pop()).count(), 4, "a proxy that is trusted may have all");
    }
}
