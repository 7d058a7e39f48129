//! What happens where a mapped file has lost its pages, because somebody cut it or because its disk failed: the system
//! sends SIGBUS, whose default is the end of the process. Maps that are watched read zeros from then on, and whoever
//! made them can ask.
//!
//! A signal may come at any instruction, so the handler takes no lock and no memory: the watched ranges lie in a table
//! of numbers.

#[cfg(unix)]
pub(super) use unix::FaultWatch;

#[cfg(unix)]
mod unix {
    use std::io;
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Files that are mapped at once, over all models of the process: the largest releases have a few hundred parts.
    const WATCHED_MAX: usize = 4096;

    struct Slot {
        /// 0 is a free slot; no map begins there.
        start: AtomicUsize,
        bytes: AtomicUsize,
        hit: AtomicBool,
    }

    static SLOTS: [Slot; WATCHED_MAX] =
        [const { Slot { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), hit: AtomicBool::new(false) } };
            WATCHED_MAX];
    /// The action of the signal before ours: the standard library's, which reports a stack that overflowed.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    /// Set once the handler is installed, or to the error number of the system's refusal.
    static LISTENS: OnceLock<Result<(), i32>> = OnceLock::new();

    /// A range of memory that may lose its pages. Dropped before the range is unmapped.
    #[derive(Debug)]
    pub(in crate::format) struct FaultWatch(Option<usize>);

    impl FaultWatch {
        /// Watches a map from its first to its last byte.
        pub(in crate::format) fn over(map: &memmap2::Mmap) -> io::Result<Self> {
            if map.is_empty() {
                return Ok(Self(None));
            }
            listen()?;
            let start = map.as_ptr().addr();
            let claim =
                |slot: &Slot| slot.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            let slot = SLOTS.iter().position(claim);
            let slot = slot.ok_or_else(|| {
                io::Error::other(format!("more than {WATCHED_MAX} files of models are mapped at once"))
            })?;
            SLOTS[slot].hit.store(false, Ordering::Relaxed);
            SLOTS[slot].bytes.store(map.len(), Ordering::Release);
            Ok(Self(Some(slot)))
        }

        /// Whether zeros were read in the place of what was to be read.
        pub(in crate::format) fn met_a_missing_page(&self) -> bool {
            self.0.is_some_and(|slot| SLOTS[slot].hit.load(Ordering::Acquire))
        }
    }

    impl Drop for FaultWatch {
        fn drop(&mut self) {
            if let Some(slot) = self.0 {
                SLOTS[slot].bytes.store(0, Ordering::Release);
                SLOTS[slot].start.store(0, Ordering::Release);
            }
        }
    }

    /// Installs the handler, once. A thread that comes while another one installs it waits for that.
    fn listen() -> io::Result<()> {
        (*LISTENS.get_or_init(install)).map_err(io::Error::from_raw_os_error)
    }

    fn install() -> Result<(), i32> {
        let refused = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        let mut before = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: a null pointer asks for the action of now, which is written to `before`.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) } != 0 {
            return Err(refused());
        }
        // The handler reads it, so it is stored before there is one.
        // SAFETY: the call above succeeded and wrote it.
        BEFORE.get_or_init(|| unsafe { before.assume_init() });
        // SAFETY: a zeroed action is one without flags; the handler has the signature that SA_SIGINFO asks for, and
        // keeps to what signal handlers may do. SA_ONSTACK as the standard library's, which may be asked next.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_missing_page as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut())
        };
        if done == 0 { Ok(()) } else { Err(refused()) }
    }

    extern "C" fn on_missing_page(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system passes a valid pointer with SA_SIGINFO, and SIGBUS has an address.
        let at = unsafe { (*info).si_addr() }.addr();
        let hit = SLOTS.iter().find(|slot| {
            let start = slot.start.load(Ordering::Acquire);
            start != 0 && at >= start && at - start < slot.bytes.load(Ordering::Acquire)
        });
        if hit.is_some_and(put_zeros) {
            return;
        }
        // Not ours: the instruction runs again and meets who was there before.
        if let Some(before) = BEFORE.get() {
            // SAFETY: it was the action of this signal.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
    }

    /// Lays zeros over the whole range, which nobody writes to: one map takes the place of the other, so that a file of
    /// any size costs one.
    fn put_zeros(slot: &Slot) -> bool {
        slot.hit.store(true, Ordering::Release);
        let start = std::ptr::with_exposed_provenance_mut(slot.start.load(Ordering::Acquire));
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the range is a map that its owner keeps while it is watched, reads only, and believes nothing of
        // after this.
        let zeros = unsafe { libc::mmap(start, slot.bytes.load(Ordering::Acquire), libc::PROT_READ, flags, -1, 0) };
        zeros != libc::MAP_FAILED
    }
}

/// Where there is no such signal, a file that is mapped cannot be cut.
#[cfg(not(unix))]
#[derive(Debug)]
pub(super) struct FaultWatch;

#[cfg(not(unix))]
impl FaultWatch {
    pub(super) fn over(_: &memmap2::Mmap) -> std::io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn met_a_missing_page(&self) -> bool {
        false
    }
}
