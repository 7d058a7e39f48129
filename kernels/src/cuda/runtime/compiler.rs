//! Compiles a program's source for one architecture with NVRTC. Needs its library, but neither a device nor a driver.

use super::arguments::DeviceStruct;
use super::error::CudaError;
use super::{arguments, waits};
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One source with the shapes it is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// For messages and file names.
    pub name: &'static str,
    /// CUDA C++; may include the files of `csrc`, and `arguments.cuh`.
    pub source: &'static str,
    /// What it finds in `arguments.cuh`: declarations of the structs that it shares with the host.
    pub arguments: String,
    /// Passed as `-DNAME=VALUE`, in order.
    pub defines: Vec<(&'static str, i64)>,
}

/// Text of a program's file in `csrc`.
macro_rules! source {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/csrc/", $path))
    };
}
pub(in crate::cuda) use source;

/// Files that a source may include, each by its path in `csrc`.
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        [$(($path, source!($path))),*]
    };
}

/// Every file that a source may include.
const FILES: [(&str, &str); 80] = files![
    "attention/copies.cuh",
    "attention/decode.cuh",
    "attention/formats.cuh",
    "attention/head.cuh",
    "attention/numbers.cuh",
    "attention/prefill.cuh",
    "attention/splits.cuh",
    "attention/tile.cuh",
    "attention/warpgroups.cuh",
    "attention/write.cuh",
    "common/base.cuh",
    "common/cluster.cuh",
    "common/counters.cuh",
    "common/epilogues.cuh",
    "common/int8_rows.cuh",
    "common/lora.cuh",
    "common/lora_shrink.cuh",
    "common/mbarrier.cuh",
    "common/waits.cuh",
    "encode/minimum.cuh",
    "encode/values.cuh",
    "experts/adapters.cuh",
    "experts/barrier.cuh",
    "experts/chosen.cuh",
    "experts/hidden.cuh",
    "experts/memory.cuh",
    "experts/scores.cuh",
    "experts/shape.cuh",
    "experts/staged.cuh",
    "experts/stream.cuh",
    "experts/tiles.cuh",
    "gdn/chunk.cuh",
    "gdn/conv.cuh",
    "gdn/finish.cuh",
    "gdn/gates.cuh",
    "gdn/pairs.cuh",
    "gdn/pieces.cuh",
    "gdn/products.cuh",
    "gdn/scan.cuh",
    "gdn/several.cuh",
    "mamba2/chunk.cuh",
    "mamba2/decode.cuh",
    "mamba2/prompt.cuh",
    "mamba2/scan.cuh",
    "mamba2/state.cuh",
    "product/columns.cuh",
    "router/choose.cuh",
    "router/few.cuh",
    "router/group.cuh",
    "router/many.cuh",
    "router/ordered.cuh",
    "router/prompts.cuh",
    "router/row_a_block.cuh",
    "router/rows.cuh",
    "router/score.cuh",
    "router/tiled.cuh",
    "rows/half_rows.cuh",
    "rows/inputs.cuh",
    "rows/lora_prompts.cuh",
    "rows/tables.cuh",
    "sampler/arithmetic.cuh",
    "sampler/exchange.cuh",
    "sampler/report.cuh",
    "sampler/row.cuh",
    "sampler/select.cuh",
    "sampler/shared.cuh",
    "weights/halves.cuh",
    "weights/iq3_s_grid.cuh",
    "weights/layout.cuh",
    "wide/activations.cuh",
    "wide/columns.cuh",
    "wide/epilogue.cuh",
    "wide/expand.cuh",
    "wide/feed.cuh",
    "wide/listed.cuh",
    "wide/multiply.cuh",
    "wide/read.cuh",
    "wide/stages.cuh",
    "wide/warpgroups.cuh",
    "wide/wgmma.cuh",
];

/// Names of the files that a text includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("#include \"")?.strip_suffix('"'))
}

impl Program {
    /// A program whose kernels take an `A` and share no other struct with the host.
    pub(in crate::cuda) fn of<A: DeviceStruct>(
        name: &'static str,
        source: &'static str,
        defines: Vec<(&'static str, i64)>,
    ) -> Self {
        Self { name, source, arguments: arguments::file(&[A::declaration()]), defines }
    }

    /// A program whose kernels take an `A`, of which a field is an `N`.
    pub(in crate::cuda) fn naming<N: DeviceStruct, A: DeviceStruct>(
        name: &'static str,
        source: &'static str,
        defines: Vec<(&'static str, i64)>,
    ) -> Self {
        Self { name, source, arguments: arguments::file(&[N::declaration(), A::declaration()]), defines }
    }

    fn options(&self, arch: Arch) -> Vec<String> {
        let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".into(), "-default-device".into()];
        options.extend(self.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        options
    }

    /// The files that it includes, also by way of others, in the order in which they are met.
    fn files(&self) -> Vec<(&str, &str)> {
        let made = [(arguments::FILE, self.arguments.as_str()), (waits::FILE, waits::numbers())];
        let all = || FILES.into_iter().chain(made);
        let (mut found, mut texts) = (Vec::<(&str, &str)>::new(), vec![self.source]);
        while let Some(text) = texts.pop() {
            for name in included(text).filter(|name| found.iter().all(|f| f.0 != *name)).collect::<Vec<_>>() {
                // What is not there is left to the compiler, which names the line.
                if let Some(file) = all().find(|file| file.0 == name) {
                    found.push(file);
                    texts.push(file.1);
                }
            }
        }
        found
    }

    /// Everything that decides what the compiler makes of it, except the compiler.
    pub(in crate::cuda) fn fingerprint(&self, arch: Arch) -> String {
        let options = self.options(arch).join(" ");
        let files = self.files();
        let texts = files.iter().map(|(_, text)| *text);
        [options.as_str()].into_iter().chain(texts).chain([self.source]).collect::<Vec<_>>().join("\n")
    }
}

/// An architecture that machine code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arch(&'static str);

impl Arch {
    /// All that are supported.
    pub const ALL: [Arch; 6] =
        [Arch("sm_80"), Arch("sm_86"), Arch("sm_89"), Arch("sm_90a"), Arch("sm_100a"), Arch("sm_120a")];

    /// The newest one whose code a device of this compute capability runs.
    ///
    /// Code for `sm_XY` runs on `X.Z` with `Z >= Y`, that for `sm_XYa` on `X.Y` alone.
    pub fn of_capability(major: i32, minor: i32) -> Option<Self> {
        let number = 10 * major + minor;
        Self::ALL.into_iter().rev().find(|arch| {
            if arch.0.ends_with('a') {
                arch.number() == number
            } else {
                arch.number() <= number && arch.number() / 10 == major
            }
        })
    }

    fn number(self) -> i32 {
        self.0.trim_start_matches("sm_").trim_end_matches('a').parse().expect("the table has numbers")
    }

    /// Whether blocks form clusters that read one another's shared memory.
    pub fn has_clusters(self) -> bool {
        self.number() >= 90
    }

    /// Whether it has matrix instructions of four warps, which no other architecture runs.
    pub fn has_warpgroups(self) -> bool {
        self.0 == "sm_90a"
    }

    /// Whether the scan of prompts has two warps for a state's columns, as `gdn/prefill.cu` says, and blocks of decode
    /// rows a place in shared memory for their next state, as `gdn/decode.cu` does.
    pub(in crate::cuda) fn has_paired_scan(self) -> bool {
        self.has_clusters() && self.shared_bytes_max() == 227 << 10
    }

    /// Shared memory that a block may have.
    pub fn shared_bytes_max(self) -> usize {
        match self.number() {
            80 => 163 << 10,
            90 | 100 => 227 << 10,
            _ => 99 << 10,
        }
    }

    /// Whether a kernel may start before the one ahead of it has ended.
    pub fn has_dependent_launch(self) -> bool {
        self.number() >= 90
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for Arch {
    type Err = CudaError;

    fn from_str(name: &str) -> Result<Self, CudaError> {
        Self::ALL.into_iter().find(|arch| arch.0 == name).ok_or_else(|| CudaError::Arch { got: name.into() })
    }
}

/// The run-time compiler NVRTC; its library is loaded once for the whole process.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    version: (i32, i32),
}

impl Compiler {
    /// Loads the library: from the path in `CHIMERE_NVRTC` if that is set, else where the loader finds it.
    ///
    /// # Errors
    /// If it is not there or too old.
    pub fn load() -> Result<Self, CudaError> {
        let tried = std::env::var_os("CHIMERE_NVRTC").map(PathBuf::from);
        if let Some(path) = &tried {
            preload(path).map_err(|_| CudaError::NoCompiler { tried: tried.clone() })?;
        }
        // SAFETY: only tries to load the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoCompiler { tried });
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is present, and has had this function in every release.
        let code = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        if code != sys::nvrtcResult::NVRTC_SUCCESS || major < 13 {
            return Err(CudaError::OldCompiler { major, minor });
        }
        Ok(Self { version: (major, minor) })
    }

    /// CUDA release of the library.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Machine code of `program`.
    ///
    /// # Errors
    /// With the compiler's messages if it does not compile.
    pub fn compile(&self, program: &Program, arch: Arch) -> Result<Vec<u8>, CudaError> {
        let options = program.options(arch);
        let failed = |code: String, log: String| CudaError::Compile {
            program: program.name,
            arch: arch.to_string(),
            options: options.join(" "),
            code,
            log,
        };
        let handle = Handle::create(program).map_err(|code| failed(format!("{code:?}"), String::new()))?;
        // SAFETY: the handle is alive, here and below.
        unsafe { result::compile_program(handle.0, &options) }
            .map_err(|e| failed(format!("{:?}", e.0), handle.log()))?;
        handle.cubin().map_err(|code| failed(format!("{code:?}"), handle.log()))
    }
}

/// Loads the library at `path` for good: what looks for it by its short name from now on gets this one. The builtins
/// that lie beside it come first, because the library of the wheel does not look there.
fn preload(path: &Path) -> Result<(), libloading::Error> {
    let beside = path.parent().and_then(|dir| std::fs::read_dir(dir).ok());
    let builtins = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libnvrtc-builtins.so"));
    let paths = beside.into_iter().flatten().flatten().map(|entry| entry.path()).filter(builtins);
    for path in paths.chain([path.to_owned()]) {
        // SAFETY: the libraries are NVRTC's by the user's word; their initialisers do nothing that depends on our
        // state.
        std::mem::forget(unsafe { libloading::Library::new(path) }?);
    }
    Ok(())
}

struct Handle(sys::nvrtcProgram);

impl Handle {
    fn create(program: &Program) -> Result<Self, sys::nvrtcResult> {
        let text = |s: &str| CString::new(s).expect("sources have no zero bytes");
        let (source, name) = (text(program.source), text(program.name));
        let files: Vec<[CString; 2]> =
            program.files().into_iter().map(|(name, file)| [text(name), text(file)]).collect();
        let [names, texts] = [0, 1].map(|part| files.iter().map(|file| file[part].as_ptr()).collect::<Vec<_>>());
        let mut handle = std::ptr::null_mut();
        // SAFETY: strings end in zero and outlive the call, which copies them; there are as many names as texts.
        let code = unsafe {
            let (source, name, count) = (source.as_ptr(), name.as_ptr(), files.len() as i32);
            sys::nvrtcCreateProgram(&mut handle, source, name, count, texts.as_ptr(), names.as_ptr())
        };
        if code == sys::nvrtcResult::NVRTC_SUCCESS { Ok(Self(handle)) } else { Err(code) }
    }

    fn log(&self) -> String {
        // SAFETY: the handle is alive.
        let Ok(log) = (unsafe { result::get_program_log(self.0) }) else { return String::new() };
        let bytes: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
        CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |s| s.to_string_lossy().into_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, sys::nvrtcResult> {
        let mut size = 0;
        // SAFETY: the handle is alive.
        let code = unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) };
        if code != sys::nvrtcResult::NVRTC_SUCCESS {
            return Err(code);
        }
        let mut cubin = vec![0u8; size];
        // SAFETY: the buffer has the size that was asked for.
        let code = unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()) };
        if code == sys::nvrtcResult::NVRTC_SUCCESS { Ok(cubin) } else { Err(code) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `create`, destroyed once. A failure leaves nothing to do.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_the_newest_code_that_it_runs() {
        let of = |major, minor| Arch::of_capability(major, minor).map(|a| a.0);
        assert_eq!(of(8, 0), Some("sm_80"));
        assert_eq!(of(8, 7), Some("sm_86"));
        assert_eq!(of(8, 9), Some("sm_89"));
        assert_eq!(of(9, 0), Some("sm_90a"));
        assert_eq!(of(12, 0), Some("sm_120a"));
        assert_eq!(of(12, 1), None, "code with a suffix runs on its own chip only");
        assert_eq!(of(7, 5), None);
    }

    #[test]
    fn every_file_of_the_sources_can_be_included() {
        let csrc = Path::new(env!("CARGO_MANIFEST_DIR")).join("csrc");
        let folders = std::fs::read_dir(&csrc).unwrap().map(|folder| folder.unwrap().path());
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
        let headers = files.filter(|file| file.extension().is_some_and(|e| e == "cuh"));
        let mut there: Vec<String> =
            headers.map(|file| file.strip_prefix(&csrc).unwrap().to_str().unwrap().replace('\\', "/")).collect();
        there.sort();
        assert_eq!(there, FILES.map(|(name, _)| name), "listed in another order, or not at all");
    }

    #[test]
    fn a_program_s_code_depends_on_the_files_that_it_includes_and_on_no_others() {
        let source = "#include \"router/choose.cuh\"\n#include \"arguments.cuh\"\n#include \"not/there.cuh\"\n";
        let program = Program { name: "sample", source, arguments: "struct A {};".into(), defines: vec![] };
        let mut names: Vec<&str> = program.files().into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["arguments.cuh", "common/base.cuh", "router/choose.cuh"]);
        let other = Program { arguments: "struct B {};".into(), ..program.clone() };
        assert_ne!(program.fingerprint(Arch::ALL[0]), other.fingerprint(Arch::ALL[0]));
    }

    #[test]
    fn an_unknown_architecture_is_named() {
        assert_eq!("sm_90a".parse::<Arch>().unwrap().to_string(), "sm_90a");
        assert!("sm_90".parse::<Arch>().unwrap_err().to_string().contains("`sm_90` is not one of"));
    }
}
