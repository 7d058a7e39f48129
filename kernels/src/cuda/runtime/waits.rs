//! Waits of kernels that a bound ends: what they are called, and the record that tells the host afterwards which ended.
//!
//! A wait that is longer than its bound traps (`csrc/common/waits.cuh`). A trap takes the device's memory with it, so
//! the thread first stores its place to memory of the host, of which every module with such waits has the address. The
//! list of waits is written down once, here, and the device's numbers are made of it.

use super::error::{CudaError, DriverResult};
use cudarc::driver::{CudaContext, result, sys};
use std::ffi::CString;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file by which sources include the numbers of waits.
pub(in crate::cuda) const FILE: &str = "common/wait_numbers.cuh";

/// The device's variable with the address of the record.
const VARIABLE: &str = "ended_waits";

/// A place in a kernel's source where threads look again and again until something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedWait {
    /// The device's name of it.
    pub name: &'static str,
    /// Where it stands in `csrc`.
    pub file: &'static str,
    /// What is waited for.
    pub what: &'static str,
}

const fn wait(name: &'static str, file: &'static str, what: &'static str) -> BoundedWait {
    BoundedWait { name, file, what }
}

/// All of them; a wait's number is its place here.
pub const WAITS: [BoundedWait; 21] = [
    wait("DECODE_PAGES", "attention/decode.cuh", "pages of keys or values"),
    wait("SPLITS_STORED", "attention/splits.cuh", "the splits of a row"),
    wait("PREFILL_STEP_FULL", "attention/warpgroups.cuh", "a step's keys or values"),
    wait("PREFILL_STEP_FREE", "attention/warpgroups.cuh", "a step's place to be free"),
    wait("PREFILL_RAW_PAGES", "attention/warpgroups.cuh", "a step's encoded pages"),
    wait("ENDLESS", "common/endless.cu", "what never comes"),
    wait("EXPERT_ADAPTERS", "experts/adapters.cuh", "a row of A of the shared expert's adapters"),
    wait("EXPERT_BLOCKS", "experts/barrier.cuh", "all blocks of the launch"),
    wait("EXPERT_SCORES", "experts/experts.cu", "scores of a row"),
    wait("PAIR_CHUNK_FREE", "gdn/pairs.cuh", "a chunk's place to be free"),
    wait("PAIR_CHUNK_FULL", "gdn/pairs.cuh", "a chunk"),
    wait("SCAN_CHUNK", "gdn/scan.cuh", "a chunk"),
    wait("DELTA_STATE", "gdn/several.cuh", "the state of a row"),
    wait("DELTA_ROW", "gdn/several.cuh", "the inputs of a row"),
    wait("MAMBA2_HALF", "mamba2/scan.cuh", "half a chunk"),
    wait("ROUTER_SCORES", "router/few.cuh", "scores of a row"),
    wait("ROUTER_TILE_SCORED", "router/ordered.cuh", "scores of a tile of rows"),
    wait("ROUTER_WEIGHTS", "router/prompts.cuh", "a step's weights"),
    wait("SAMPLER_EXCHANGE", "sampler/exchange.cuh", "what another block of the row has found"),
    wait("WIDE_STAGE_EMPTY", "wide/feed.cuh", "a stage to be empty"),
    wait("WIDE_STAGE_FULL", "wide/feed.cuh", "a stage to be full"),
];

/// The waits' numbers for the device.
pub(in crate::cuda) fn numbers() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let names: Vec<_> = WAITS.iter().enumerate().map(|(number, w)| format!("{} = {number}", w.name)).collect();
        format!("// Made of waits.rs.\n#pragma once\nenum Wait {{ {} }};\n", names.join(", "))
    });
    &TEXT
}

/// A wait that a bound has ended, and the thread that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedWait {
    /// Which wait it was.
    pub wait: BoundedWait,
    /// The thread's block, x and y.
    pub block: (u32, u32),
    /// The thread's number in its block.
    pub thread: u32,
}

impl EndedWait {
    /// What the word of `wait` says: the device's `END_WAIT` makes it.
    fn read(wait: BoundedWait, word: u64) -> Option<Self> {
        let bits = |from: u32, count: u32| (word >> from) as u32 & ((1 << count) - 1);
        (word >> 63 == 1).then(|| Self { wait, block: (bits(32, 31), bits(16, 16)), thread: bits(0, 16) })
    }
}

impl fmt::Display for EndedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wait: BoundedWait { name, file, what }, block: (x, y), thread } = self;
        write!(f, "a wait did not end: for {what}, by block ({x}, {y}), thread {thread} ({name}, {file})")
    }
}

/// Memory of the host with a word for each wait, which the device can write to.
#[derive(Debug)]
pub(in crate::cuda) struct WaitRecord {
    words: NonNull<AtomicU64>,
    context: Arc<CudaContext>,
}

// SAFETY: it owns memory that is touched by atomic operations alone.
unsafe impl Send for WaitRecord {}
// SAFETY: as above.
unsafe impl Sync for WaitRecord {}

impl WaitRecord {
    /// Takes the memory; no wait has ended yet.
    pub(in crate::cuda) fn new(context: &Arc<CudaContext>) -> Result<Self, CudaError> {
        context.bind_to_thread().during("cuCtxSetCurrent")?;
        let bytes = size_of::<[u64; WAITS.len()]>();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a context is bound; the memory is freed once, in `drop`.
        let words = unsafe { result::malloc_host(bytes, flags) }.during("cuMemHostAlloc")?;
        let words = NonNull::new(words.cast::<AtomicU64>()).expect("the driver succeeded");
        // SAFETY: just allocated with this size, in whole pages.
        unsafe { words.write_bytes(0, WAITS.len()) };
        Ok(Self { words, context: context.clone() })
    }

    /// Has the waits of a module that was just loaded record here. Does nothing for a module without such waits.
    ///
    /// # Safety
    /// The module is loaded in this context, none of its kernels was launched yet, and this record outlives it.
    pub(in crate::cuda) unsafe fn keep_for(&self, module: sys::CUmodule) -> Result<(), CudaError> {
        let name = CString::new(VARIABLE).expect("it has no zero byte");
        // SAFETY: the module is loaded.
        let variable = match unsafe { result::module::get_global(module, name) } {
            Ok((address, bytes)) if bytes == size_of::<u64>() => address,
            Ok((_, got)) => {
                let want = size_of::<u64>();
                return Err(CudaError::Argument { kernel: VARIABLE.into(), got, want });
            }
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_FOUND => return Ok(()),
            Err(error) => return Err(error).during("cuModuleGetGlobal"),
        };
        // Memory that was taken as mapped has one address for host and device.
        let address = self.words.as_ptr() as u64;
        // SAFETY: the variable is a word, as was just found.
        unsafe { result::memcpy_htod_sync(variable, &[address]) }.during("cuMemcpyHtoD")
    }

    /// The waits that have ended.
    pub(in crate::cuda) fn ended(&self) -> Vec<EndedWait> {
        // SAFETY: as many words were allocated and zeroed.
        let words = unsafe { std::slice::from_raw_parts(self.words.as_ptr(), WAITS.len()) };
        let all = WAITS.iter().zip(words);
        all.filter_map(|(wait, word)| EndedWait::read(*wait, word.load(Ordering::Acquire))).collect()
    }
}

impl Drop for WaitRecord {
    fn drop(&mut self) {
        // A failure leaves nothing to do: the process is ending or the device is lost.
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `new`, freed once; modules that have the address hold the record.
        let _ = unsafe { result::free_host(self.words.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_word_tells_the_block_and_the_thread_that_waited() {
        let wait = WAITS[0];
        let word = 1 << 63 | 0x7fff_fffe << 32 | 0xfedc << 16 | 1023;
        let ended = EndedWait::read(wait, word).unwrap();
        assert_eq!(ended, EndedWait { wait, block: (0x7fff_fffe, 0xfedc), thread: 1023 });
        assert_eq!(EndedWait::read(wait, 1 << 63), Some(EndedWait { wait, block: (0, 0), thread: 0 }));
        assert_eq!(EndedWait::read(wait, 0), None);
        let text = EndedWait { wait, block: (3, 5), thread: 7 }.to_string();
        let want = "pages of keys or values, by block (3, 5), thread 7 (DECODE_PAGES, attention/decode.cuh)";
        assert_eq!(text, format!("a wait did not end: for {want}"));
    }

    #[test]
    fn the_device_s_numbers_are_places_in_the_list() {
        assert!(numbers().contains("enum Wait { DECODE_PAGES = 0, SPLITS_STORED = 1, "));
        assert!(numbers().contains(&format!("WIDE_STAGE_FULL = {} }}", WAITS.len() - 1)));
        let names: HashSet<_> = WAITS.iter().map(|w| w.name).collect();
        assert_eq!(names.len(), WAITS.len(), "two waits have one name");
    }

    /// Path in `csrc` and text of every file of the device.
    fn sources() -> Vec<(String, String)> {
        let csrc = Path::new(env!("CARGO_MANIFEST_DIR")).join("csrc");
        let folders = fs::read_dir(&csrc).unwrap().map(|folder| folder.unwrap().path());
        let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
        let name = |path: &Path| path.strip_prefix(&csrc).unwrap().to_str().unwrap().replace('\\', "/");
        files.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
    }

    /// Lines of a file without its comments.
    fn code(text: &str) -> impl Iterator<Item = &str> {
        text.lines().map(|line| line.split("//").next().unwrap_or_default().trim())
    }

    #[test]
    fn every_wait_of_the_sources_is_listed_with_its_file_and_no_other_is() {
        const FUNCTIONS: [&str; 4] = ["barrier_wait<", "wait_until<", "await_told<", "await_scores<"];
        let mut found = HashSet::new();
        for (file, text) in sources() {
            let uses = code(&text).flat_map(|line| FUNCTIONS.iter().flat_map(|f| line.split(f).skip(1)));
            let names = uses.map(|rest| rest.split(['>', ',']).next().unwrap().to_owned());
            // A function that is told the wait hands it on.
            found.extend(names.filter(|name| name != "WAIT").map(|name| (file.clone(), name)));
        }
        let listed = WAITS.iter().map(|w| (w.file.to_owned(), w.name.to_owned())).collect();
        assert_eq!(found, listed);
    }

    /// Loops whose turns no counter bounds, with the reason why each ends. Whoever waits for other threads or for
    /// copies uses `csrc/common/waits.cuh` instead, where this looks for none.
    const LOOPS: [(&str, &str, &str); 12] = [
        ("attention/decode.cuh", "while (per * SPLITS_MAX < pages)", "`per` doubles"),
        ("attention/decode.cuh", "while (item.behind < DRAFTS", "`behind` grows"),
        ("attention/splits.cuh", "for (int first = 0;;)", "`first` grows to `splits`"),
        ("drafts/head.cu", "while (right < drafts", "`right` grows"),
        ("experts/experts.cu", "for (;;)", "`group` grows to the groups of outputs"),
        ("gdn/decode.cu", "for (int first = 0;;)", "`first` grows to the rows"),
        ("gdn/decode.cu", "while (BEHIND && count < ROWS", "`count` grows"),
        ("gdn/several.cuh", "for (slot = -1; row < end", "`row` grows"),
        ("gdn/several.cuh", "while (next.slot >= 0)", "`row` grows to `end`"),
        ("rows/embed.cu", "while ((seen >> shift & 0x7fff) != 0x7fff)", "each turn another row has added"),
        ("sampler/sampler.cu", "for (;;)", "two draws at most"),
        ("wide/wide.cu", "while (segment < GROUP_SEGMENTS)", "`segment` grows"),
    ];

    #[test]
    fn nothing_waits_but_by_the_functions_that_have_a_bound() {
        let mut loops = Vec::new();
        for (file, text) in sources().into_iter().filter(|(file, _)| file != "common/waits.cuh") {
            for line in code(&text) {
                for instruction in ["try_wait", "test_wait", " bra ", "goto "] {
                    assert!(!line.contains(instruction), "{file}: `{line}` waits without a bound");
                }
                let open = line.starts_with("do ") || line.starts_with("} while") || line.contains(";)");
                if line.contains("while (") || open {
                    loops.push((file.clone(), line.to_owned()));
                }
            }
        }
        for (file, line) in &loops {
            let known = LOOPS.iter().any(|(of, begin, _)| of == file && line.contains(begin));
            assert!(known, "{file}: `{line}`: why does it end? A wait for others needs a bound");
        }
        let stale = LOOPS.iter().find(|(of, begin, _)| !loops.iter().any(|(f, line)| f == of && line.contains(begin)));
        assert_eq!(stale, None, "there is no such loop");
    }

    #[test]
    fn what_other_blocks_write_is_looked_at_again_only_inside_a_bounded_wait() {
        // Who reads past the caches of its own multiprocessor, and so may be made to look again.
        const LOOKS: [&str; 5] = [
            "common/counters.cuh",
            "common/endless.cu",
            "experts/barrier.cuh",
            "router/score.cuh",
            "sampler/exchange.cuh",
        ];
        // Each looks once.
        const ONCE: [&str; 2] = ["rows/embed.cu", "rows/history.cu"];
        for (file, text) in sources() {
            let looks = code(&text).any(|line| {
                ["ld.acquire", "ld.relaxed", "ld.volatile", "*(volatile"].iter().any(|way| line.contains(way))
            });
            let known = LOOKS.contains(&file.as_str()) && text.contains("wait_until<") || ONCE.contains(&file.as_str());
            assert_eq!(looks, known, "{file}: what is looked at again belongs into `wait_until`");
        }
    }
}
