//! KV pages: which are free, how many sequences share each of the others, and which are kept for prompts to come.
//!
//! Free pages can be lent to idle work. A page that is lent still counts as free, and whoever claims a page gets it
//! where no other is left, so nothing that claims pages can tell whether some are lent.

use crate::ids::{PageId, SeqId};
use std::collections::BTreeMap;

/// One of so many pages is left to idle work where the prefix cache could have it too. Otherwise a cache that has
/// filled up would leave no free page to lend.
const PAGES_A_SPARE_ONE: u32 = 32;

/// All pages of the device. A page is free, or is kept, or has as many owners as page tables name it.
#[derive(Debug)]
pub(crate) struct Pages {
    owners: Vec<u32>,
    /// Named by the prefix cache too.
    kept: Vec<bool>,
    /// Kept and without an owner: to be had for the giving up of what needs them.
    reclaimable: u32,
    /// Last freed, first claimed: a small set of pages stays in use, and the order depends on nothing but the calls.
    free: Vec<PageId>,
    /// Free pages that a sequence of idle work uses until they are claimed.
    lent: BTreeMap<SeqId, Vec<PageId>>,
    /// Number of all pages that are lent.
    lent_count: u32,
}

impl Pages {
    /// A pool of `count` free pages.
    pub(crate) fn new(count: u32) -> Self {
        Self {
            owners: vec![0; count as usize],
            kept: vec![false; count as usize],
            reclaimable: 0,
            free: (0..count).rev().map(PageId).collect(),
            lent: BTreeMap::new(),
            lent_count: 0,
        }
    }

    /// Takes a free page for one owner. Where all free pages are lent, the youngest borrower loses all of its pages.
    pub(crate) fn claim(&mut self) -> Option<PageId> {
        if self.free.is_empty() {
            self.call_in_youngest();
        }
        let page = self.free.pop()?;
        let owners = &mut self.owners[page.0 as usize];
        assert_eq!(*owners, 0, "page {page} was free and owned");
        *owners = 1;
        Some(page)
    }

    /// Adds an owner to a page that has one, or that is kept.
    pub(crate) fn share(&mut self, page: PageId) {
        let (owners, kept) = (&mut self.owners[page.0 as usize], self.kept[page.0 as usize]);
        assert!(*owners > 0 || kept, "page {page} is shared but nobody has it");
        self.reclaimable -= u32::from(*owners == 0);
        *owners += 1;
    }

    /// Takes one owner away; the page of the last one is free at once, if it is not kept.
    pub(crate) fn release(&mut self, page: PageId) {
        let owners = &mut self.owners[page.0 as usize];
        assert!(*owners > 0, "page {page} is released twice");
        *owners -= 1;
        if *owners > 0 {
            return;
        }
        if self.kept[page.0 as usize] {
            self.reclaimable += 1;
        } else {
            self.free.push(page);
        }
    }

    /// Keeps a page that has an owner when its owners are gone.
    pub(crate) fn keep(&mut self, page: PageId) {
        assert!(self.owners[page.0 as usize] > 0, "page {page} is kept but nobody has it");
        assert!(!std::mem::replace(&mut self.kept[page.0 as usize], true), "page {page} is kept twice");
    }

    /// Gives a kept page up; it is free at once, if it has no owner.
    pub(crate) fn give_up(&mut self, page: PageId) {
        assert!(std::mem::replace(&mut self.kept[page.0 as usize], false), "page {page} is given up but was not kept");
        if self.owners[page.0 as usize] == 0 {
            self.reclaimable -= 1;
            self.free.push(page);
        }
    }

    /// Lends a free page that is not lent yet to a sequence, behind those that it has. Nobody else loses one for it.
    pub(crate) fn lend(&mut self, borrower: SeqId) -> Option<PageId> {
        let page = self.free.pop()?;
        self.lent.entry(borrower).or_default().push(page);
        self.lent_count += 1;
        Some(page)
    }

    /// Pages that could be lent now.
    pub(crate) fn lendable(&self) -> u32 {
        self.free.len() as u32
    }

    /// The pages that a sequence has borrowed and not lost, in the order in which it got them.
    pub(crate) fn lent_to(&self, borrower: SeqId) -> &[PageId] {
        self.lent.get(&borrower).map_or(&[], Vec::as_slice)
    }

    /// A borrower returns its pages, if it still has some.
    pub(crate) fn return_lent(&mut self, borrower: SeqId) {
        let pages = self.lent.remove(&borrower).unwrap_or_default();
        self.lent_count -= pages.len() as u32;
        self.free.extend(pages);
    }

    fn call_in_youngest(&mut self) {
        if let Some(youngest) = self.lent.last_key_value().map(|(borrower, _)| *borrower) {
            self.return_lent(youngest);
        }
    }

    /// Free pages that the prefix cache leaves, as far as it decides.
    pub(crate) fn spare(&self) -> u32 {
        self.total() / PAGES_A_SPARE_ONE
    }

    /// Does a sequence have it?
    pub(crate) fn is_owned(&self, page: PageId) -> bool {
        self.owners[page.0 as usize] > 0
    }

    /// Pages that nobody owns or keeps, those that are lent among them.
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32 + self.lent_count
    }

    /// Pages that are kept and have no owner.
    pub(crate) fn reclaimable(&self) -> u32 {
        self.reclaimable
    }

    /// Pages that sequences may come to have: free ones, and those that are only kept.
    pub(crate) fn available(&self) -> u32 {
        self.free() + self.reclaimable
    }

    /// Number of pages, free and taken.
    pub(crate) fn total(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Owners of each page, whether it is kept, and which are free, for tests that count them again.
    #[cfg(test)]
    pub(crate) fn audit(&self) -> (&[u32], &[bool], Vec<PageId>) {
        let lent: Vec<_> = self.lent.values().flatten().copied().collect();
        assert_eq!(lent.len() as u32, self.lent_count, "what is lent is counted");
        (&self.owners, &self.kept, [&self.free[..], &lent].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_page_is_free_when_its_last_owner_lets_go() {
        let mut pages = Pages::new(2);
        let page = pages.claim().unwrap();
        pages.share(page);
        pages.release(page);
        assert_eq!(pages.free(), 1);
        pages.release(page);
        assert_eq!((pages.free(), pages.total()), (2, 2));
        assert_eq!(pages.claim(), Some(page), "the last freed is claimed first");
    }

    #[test]
    fn an_empty_pool_has_nothing_to_claim() {
        let mut pages = Pages::new(1);
        assert!(pages.claim().is_some());
        assert_eq!(pages.claim(), None);
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn a_page_released_twice_is_a_bug() {
        let mut pages = Pages::new(1);
        let page = pages.claim().unwrap();
        pages.release(page);
        pages.release(page);
    }

    #[test]
    fn a_lent_page_is_free_and_the_youngest_borrower_loses_all_of_its_pages_to_a_claim() {
        let mut pages = Pages::new(4);
        let (old, young) = (SeqId(1), SeqId(2));
        for borrower in [old, young, young, old] {
            assert!(pages.lend(borrower).is_some());
        }
        assert_eq!((pages.free(), pages.lendable(), pages.lend(young)), (4, 0, None), "nobody loses one for a loan");
        pages.claim().unwrap();
        assert_eq!((pages.lent_to(old).len(), pages.lent_to(young).len()), (2, 0));
        assert_eq!((pages.free(), pages.lendable()), (3, 1));
        pages.claim().unwrap();
        assert_eq!(pages.lent_to(old).len(), 2, "a free page comes first");
        pages.return_lent(old);
        assert_eq!((pages.free(), pages.lendable()), (2, 2));
        pages.return_lent(old);
        assert_eq!(pages.free(), 2, "who has lost or returned them has none to return");
    }

    #[test]
    fn a_kept_page_waits_for_a_prompt_to_come_or_is_given_up() {
        let mut pages = Pages::new(1);
        let page = pages.claim().unwrap();
        pages.keep(page);
        assert_eq!((pages.available(), pages.is_owned(page)), (0, true));
        pages.release(page);
        assert_eq!((pages.free(), pages.reclaimable(), pages.available()), (0, 1, 1));
        assert_eq!(pages.claim(), None, "what is kept is not free");
        pages.share(page);
        assert_eq!(pages.available(), 0);
        pages.give_up(page);
        assert_eq!(pages.available(), 0, "a sequence has it still");
        pages.release(page);
        assert_eq!((pages.free(), pages.reclaimable()), (1, 0));
    }
}
