//! Room that many share: bytes of bodies, bytes of what they say, connections. Whoever holds much leaves as much for
//! the others, so that one alone can never keep the rest out; and what is refused tells nobody what others hold.

use crate::holder::Holder;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// So many units for all.
#[derive(Debug)]
pub struct Room {
    total: usize,
    /// What each may have as long as there is any room at all.
    least: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by: HashMap<Holder, usize>,
}

impl Room {
    /// Of `total` units, of which each holder may have `least` whatever others hold, if they are there.
    pub fn new(total: usize, least: usize) -> Arc<Self> {
        Arc::new(Self { total, least, held: Mutex::default() })
    }

    /// How much there is for all together.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Takes so many units, unless the holder would then have more than what is left for others, or there are not as
    /// many.
    pub fn take(self: &Arc<Self>, holder: Holder, units: usize) -> Option<Share> {
        let mut held = self.held.lock();
        let all = held.all.checked_add(units).filter(|all| *all <= self.total)?;
        let own = held.by.get(&holder).copied().unwrap_or(0) + units;
        if !holder.may_have(own, self.least, self.total - all) {
            return None;
        }
        held.all = all;
        held.by.insert(holder, own);
        Some(Share { room: self.clone(), holder, units })
    }
}

/// Some units of a room, given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    room: Arc<Room>,
    holder: Holder,
    units: usize,
}

impl Share {
    /// How many it has.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Takes more of the same for the same. False if there is no room; what was held stays.
    pub fn grow(&mut self, units: usize) -> bool {
        let Some(mut more) = self.room.take(self.holder, units) else { return false };
        self.units += std::mem::take(&mut more.units);
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.room.held.lock();
        held.all -= self.units;
        if let Some(own) = held.by.get_mut(&self.holder) {
            *own -= self.units;
            // An entry a holder that holds nothing would be kept for ever.
            if *own == 0 {
                held.by.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::ids::KeyId;

    const A: Holder = Holder::Key(KeyId(1));
    const B: Holder = Holder::Key(KeyId(2));

    #[test]
    fn one_alone_leaves_half_for_the_others_and_all_of_it_comes_back() {
        let room = Room::new(100, 10);
        let mut ours: Vec<Share> = std::iter::from_fn(|| room.take(A, 5)).collect();
        assert_eq!(ours.len(), 10, "half");
        let theirs: Vec<Share> = std::iter::from_fn(|| room.take(B, 5)).collect();
        assert_eq!(theirs.len(), 5, "half of the rest");
        ours.clear();
        drop(theirs);
        assert!(room.held.lock().by.is_empty() && room.held.lock().all == 0);
        assert!(room.take(A, 50).is_some() && room.take(A, 51).is_none());
    }

    #[test]
    fn a_little_is_everybody_s_while_there_is_any_and_a_trusted_proxy_s_all() {
        let room = Room::new(100, 60);
        let first = room.take(A, 60).unwrap();
        assert!(room.take(A, 1).is_none() && room.take(B, 41).is_none());
        let second = room.take(B, 40).unwrap();
        assert!(room.take(Holder::Many, 1).is_none());
        drop((first, second));
        assert!(room.take(Holder::Many, 100).is_some());
    }

    #[test]
    fn a_share_grows_as_far_as_it_might_have_begun() {
        let room = Room::new(100, 0);
        let mut share = room.take(A, 1).unwrap();
        assert!(share.grow(49) && !share.grow(1));
        drop(share);
        assert_eq!(room.held.lock().all, 0);
    }
}
