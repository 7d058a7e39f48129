//! Keeps addresses for a plan until it is allocated.

use memmap2::MmapMut;

/// Address space that is kept for a plan, so that one that cannot be allocated is refused with a sentence: a failed
/// allocation would abort the process. No memory is touched.
#[derive(Debug)]
pub struct Reservation {
    _map: Option<MmapMut>,
}

impl Reservation {
    /// `None` if the system does not give that much, such as under `ulimit -v`.
    pub fn of(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        let map = (bytes > 0).then(|| MmapMut::map_anon(bytes)).transpose().ok()?;
        Some(Self { _map: map })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_are_addresses_cannot_be_reserved() {
        assert!(Reservation::of(0).is_some() && Reservation::of(1 << 30).is_some());
        assert!(Reservation::of(1 << 60).is_none() && Reservation::of(u64::MAX).is_none());
    }
}
