//! KV pages: which are free, and how many sequences share each of the others.

use crate::ids::PageId;

/// All pages of the device. A page is free, or has as many owners as page tables name it.
#[derive(Debug)]
pub(crate) struct Pages {
    owners: Vec<u32>,
    /// Last freed, first claimed: a small set of pages stays in use, and the order depends on nothing but the calls.
    free: Vec<PageId>,
}

impl Pages {
    /// `count` free pages.
    pub(crate) fn new(count: u32) -> Self {
        Self { owners: vec![0; count as usize], free: (0..count).rev().map(PageId).collect() }
    }

    /// Takes a free page for one owner.
    pub(crate) fn claim(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        let owners = &mut self.owners[page.0 as usize];
        debug_assert_eq!(*owners, 0, "page {page} was free and owned");
        *owners = 1;
        Some(page)
    }

    /// Adds an owner to a page that has one.
    pub(crate) fn share(&mut self, page: PageId) {
        let owners = &mut self.owners[page.0 as usize];
        assert!(*owners > 0, "page {page} is shared but nobody owns it");
        *owners += 1;
    }

    /// Takes one owner away; the page of the last one is free at once.
    pub(crate) fn release(&mut self, page: PageId) {
        let owners = &mut self.owners[page.0 as usize];
        assert!(*owners > 0, "page {page} is released twice");
        *owners -= 1;
        if *owners == 0 {
            self.free.push(page);
        }
    }

    /// Pages nobody owns.
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// All pages.
    pub(crate) fn total(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Owners of each page and the free list, for tests that count them again.
    #[cfg(test)]
    pub(crate) fn audit(&self) -> (&[u32], &[PageId]) {
        (&self.owners, &self.free)
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
}
