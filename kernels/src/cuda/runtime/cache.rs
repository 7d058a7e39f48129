//! Compiled programs on disk, named by what they were compiled from.

use super::compiler::{Arch, Compiler, Program};
use super::error::CudaError;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

/// A directory of machine code. A file that is missing or cannot be written costs time, never correctness.
#[derive(Debug)]
pub struct KernelCache {
    dir: PathBuf,
    compiler: OnceLock<Compiler>,
}

/// Machine code that no directory took, by fingerprint: a second backend of the process does not compile it again.
static UNWRITTEN: Mutex<Option<HashMap<String, Arc<[u8]>>>> = Mutex::new(None);

/// Marks the file's format, and ends where the machine code begins.
const HEADER: &str = "chimere-kernel-1";

impl KernelCache {
    /// Uses `dir`, which is made when something is written.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), compiler: OnceLock::new() }
    }

    /// `CHIMERE_KERNEL_CACHE`, else `$XDG_CACHE_HOME/chimere/kernels`, else `~/.cache/chimere/kernels`, else a
    /// directory for temporary files.
    pub fn default_dir() -> PathBuf {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        var("CHIMERE_KERNEL_CACHE").unwrap_or_else(|| {
            let base = var("XDG_CACHE_HOME")
                .or_else(|| var("HOME").map(|h| h.join(".cache")))
                .unwrap_or_else(std::env::temp_dir);
            base.join("chimere/kernels")
        })
    }

    /// Machine code of `program`: from the directory, else compiled and kept there.
    ///
    /// Files made with any compiler serve, so that a machine without one runs what was built ahead of time.
    ///
    /// # Errors
    /// If it must be compiled, and there is no compiler or the program does not compile.
    pub fn get(&self, program: &Program, arch: Arch) -> Result<Vec<u8>, CudaError> {
        self.get_or(program, arch, || self.compiler()?.compile(program, arch))
    }

    fn get_or(
        &self,
        program: &Program,
        arch: Arch,
        compile: impl FnOnce() -> Result<Vec<u8>, CudaError>,
    ) -> Result<Vec<u8>, CudaError> {
        let fingerprint = program.fingerprint(arch);
        let path = self.path(program, arch, &fingerprint);
        if let Some(cubin) = read(&path, &fingerprint).or_else(|| unwritten(&fingerprint)) {
            return Ok(cubin);
        }
        let cubin = compile()?;
        // A directory that cannot be written costs the next start its time, and this process a copy.
        if write(&path, &fingerprint, &cubin).is_err() {
            let mut all = UNWRITTEN.lock().expect("nothing panics while it is held");
            all.get_or_insert_default().insert(fingerprint, cubin.as_slice().into());
        }
        Ok(cubin)
    }

    /// How many of `programs` the directory lacks for `arch`: none of them means that no compiler is needed.
    pub fn missing(&self, programs: &[Program], arch: Arch) -> usize {
        programs.iter().filter(|p| !self.has(p, arch)).count()
    }

    fn has(&self, program: &Program, arch: Arch) -> bool {
        let fingerprint = program.fingerprint(arch);
        read(&self.path(program, arch, &fingerprint), &fingerprint).or_else(|| unwritten(&fingerprint)).is_some()
    }

    /// Compiles `program` for each of `archs` that the directory lacks, on all cores and without a device; returns how
    /// many.
    ///
    /// # Errors
    /// If something cannot be compiled.
    pub fn build(&self, programs: &[Program], archs: &[Arch]) -> Result<usize, CudaError> {
        let work: Vec<(&Program, Arch)> = archs.iter().flat_map(|arch| programs.iter().map(|p| (p, *arch))).collect();
        self.build_each(&work, &|_, _| ())
    }

    /// Loads the compiler if the directory lacks one of `programs`, so that who has none hears of it at once.
    ///
    /// # Errors
    /// If there is no compiler, and something to compile.
    pub fn can_build(&self, programs: &[Program], arch: Arch) -> Result<(), CudaError> {
        if self.missing(programs, arch) > 0 { self.compiler().map(|_| ()) } else { Ok(()) }
    }

    /// Compiles those of `work` that the directory lacks, on all cores and without a device, what takes long first;
    /// returns how many. `progress` is told how many are done and how many there are, at first and after each, from any
    /// thread.
    ///
    /// # Errors
    /// If something cannot be compiled.
    pub fn build_each(
        &self,
        work: &[(&Program, Arch)],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<usize, CudaError> {
        let work: Vec<_> = in_turn(work).into_iter().filter(|(p, arch)| !self.has(p, *arch)).collect();
        if work.is_empty() {
            return Ok(0);
        }
        // Before the threads, so that the library is loaded once.
        self.compiler()?;
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        progress(0, work.len());
        let compile = || -> Result<(), CudaError> {
            while let Some((program, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.get(program, *arch)?;
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, work.len());
            }
            Ok(())
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(work.len());
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(compile)).collect();
            workers.into_iter().try_for_each(|w| w.join().expect("compiling does not panic"))
        })?;
        Ok(work.len())
    }

    fn compiler(&self) -> Result<&Compiler, CudaError> {
        if let Some(compiler) = self.compiler.get() {
            return Ok(compiler);
        }
        let compiler = Compiler::load()?;
        Ok(self.compiler.get_or_init(|| compiler))
    }

    fn path(&self, program: &Program, arch: Arch, fingerprint: &str) -> PathBuf {
        self.dir.join(format!("{}-{arch}-{:032x}.cubin", program.name, fnv128(fingerprint.as_bytes())))
    }
}

fn unwritten(fingerprint: &str) -> Option<Vec<u8>> {
    let all = UNWRITTEN.lock().expect("nothing panics while it is held");
    all.as_ref()?.get(fingerprint).map(|cubin| cubin.to_vec())
}

/// Each of them once, as it is begun.
fn in_turn<'a>(work: &[(&'a Program, Arch)]) -> Vec<(&'a Program, Arch)> {
    let mut seen = HashSet::new();
    let mut work: Vec<_> = work.iter().copied().filter(|w| seen.insert(*w)).collect();
    work.sort_by_key(|(program, _)| turn(program.name));
    work
}

/// When a program of this name is compiled: those that take seconds come first (`scripts/compile_times.py`), because a
/// start waits for the last program.
fn turn(name: &str) -> usize {
    const LONG: [&str; 8] =
        ["sampler", "experts", "sampler of draws", "attention", "router", "gdn_prefill", "mamba2", "warpgroup"];
    LONG.iter().position(|long| *long == name).unwrap_or(LONG.len())
}

/// FNV-1a of 128 bits. The whole fingerprint is compared too, so that a collision cannot load the wrong code.
fn fnv128(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes
        .iter()
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

fn header(fingerprint: &str) -> String {
    format!("{HEADER}\n{}\n{fingerprint}\n", fingerprint.len())
}

fn read(path: &Path, fingerprint: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let rest = bytes.strip_prefix(header(fingerprint).as_bytes())?;
    let (length, cubin) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*length) == cubin.len() as u64).then(|| cubin.to_vec())
}

/// Through a file of another name, so that a second process or thread never reads half a file.
fn write(path: &Path, fingerprint: &str, cubin: &[u8]) -> std::io::Result<()> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let part = path.with_extension(format!("part-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut bytes = header(fingerprint).into_bytes();
    bytes.extend((cubin.len() as u64).to_le_bytes());
    bytes.extend(cubin);
    fs::write(&part, bytes)?;
    fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(value: i64) -> Program {
        let source = "extern \"C\" __global__ void sample() {}";
        Program { name: "sample", source, arguments: String::new(), defines: vec![("VALUE", value)] }
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("chimere-kernel-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn what_was_kept_is_found_again_and_only_for_the_same_source_shape_and_chip() {
        let cache = KernelCache::new(scratch("same"));
        let [a, b]: [Arch; 2] = [Arch::ALL[0], Arch::ALL[3]];
        let path = |p: &Program, arch| cache.path(p, arch, &p.fingerprint(arch));
        write(&path(&program(1), a), &program(1).fingerprint(a), b"code").unwrap();
        assert_eq!(cache.get(&program(1), a).unwrap(), b"code");
        assert!(read(&path(&program(2), a), &program(2).fingerprint(a)).is_none());
        assert!(read(&path(&program(1), b), &program(1).fingerprint(b)).is_none());
        assert_eq!([cache.missing(&[program(1), program(2)], a), cache.missing(&[program(1)], b)], [1, 1]);
        fs::remove_dir_all(&cache.dir).unwrap();
    }

    #[test]
    fn a_second_backend_compiles_nothing_again_although_no_directory_keeps_the_code() {
        // A file stands where the directory would be.
        let place = scratch("unwritten");
        fs::write(&place, b"in the way").unwrap();
        let (program, arch, compiled) = (program(77), Arch::ALL[3], AtomicUsize::new(0));
        let get = |arch| {
            let compile = || Ok(vec![compiled.fetch_add(1, Ordering::Relaxed) as u8]);
            KernelCache::new(place.join("kernels")).get_or(&program, arch, compile).unwrap()
        };
        assert_eq!([get(arch), get(arch), get(Arch::ALL[0]), get(arch)], [[0], [0], [1], [0]].map(Vec::from));
        assert_eq!(KernelCache::new(&place).missing(std::slice::from_ref(&program), arch), 0);
        fs::remove_file(&place).unwrap();
    }

    #[test]
    fn each_program_is_compiled_once_and_what_takes_long_first() {
        let (a, b, chip, other) = (program(1), program(2), Arch::ALL[3], Arch::ALL[0]);
        let [long, longest] = ["experts", "sampler"].map(|name| Program { name, ..program(3) });
        let work = [(&a, chip), (&b, chip), (&a, chip), (&long, chip), (&longest, chip), (&a, other)];
        let want = [(&longest, chip), (&long, chip), (&a, chip), (&b, chip), (&a, other)];
        assert_eq!(in_turn(&work), want);
    }

    #[test]
    fn a_file_that_was_cut_short_or_belongs_to_other_source_is_not_used() {
        let cache = KernelCache::new(scratch("cut"));
        let (arch, p) = (Arch::ALL[0], program(1));
        let path = cache.path(&p, arch, &p.fingerprint(arch));
        write(&path, &p.fingerprint(arch), b"code").unwrap();
        let whole = fs::read(&path).unwrap();
        for len in (0..whole.len()).step_by(211).chain(whole.len() - 13..whole.len()) {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(read(&path, &p.fingerprint(arch)).is_none(), "{len} of {} bytes", whole.len());
        }
        fs::write(&path, &whole).unwrap();
        assert!(read(&path, &program(2).fingerprint(arch)).is_none());
        fs::remove_dir_all(&cache.dir).unwrap();
    }
}
