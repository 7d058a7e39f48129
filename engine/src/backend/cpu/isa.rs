//! Which instructions the CPU backend uses.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use std::arch::asm;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// The variable that picks a weaker set than the best of this machine.
const VARIABLE: &str = "CHIMERE_ISA";

/// Instruction sets with kernels of their own, weaker ones first. All give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Portable code, the definition of every result.
    Scalar,
    /// 256-bit vectors of x86-64, with FMA and F16C.
    Avx2,
    /// As `Avx2`, with byte dot products (AVX-VNNI).
    AvxVnni,
    /// 512-bit vectors with byte dot products (VNNI).
    Avx512,
    /// As `Avx512`, with matrix tiles for many rows.
    Amx,
    /// 128-bit vectors of AArch64.
    Neon,
    /// As `Neon`, with byte dot products.
    NeonDot,
}

/// `CHIMERE_ISA` names no instruction set of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE} is {got:?}, this machine has {}", names(.has))]
pub struct IsaError {
    /// The name that `CHIMERE_ISA` has.
    pub got: String,
    /// The sets that this machine has.
    pub has: &'static [Isa],
}

impl Isa {
    /// The set in use: the one that `CHIMERE_ISA` names, else the best of this machine. Read once.
    ///
    /// # Errors
    /// If `CHIMERE_ISA` names none of [`Isa::available`].
    pub fn chosen() -> Result<Self, IsaError> {
        static CHOSEN: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
        CHOSEN.get_or_init(|| asked().unwrap_or_else(|| Ok(strongest(Self::available())))).clone()
    }

    /// [`Isa::chosen`] where it is known to exist: a backend is made only with a set that does.
    ///
    /// # Panics
    /// If [`Isa::chosen`] is an error.
    #[inline]
    pub fn host() -> Self {
        static HOST: OnceLock<Isa> = OnceLock::new();
        *HOST.get_or_init(|| Self::chosen().unwrap_or_else(|e| panic!("{e}")))
    }

    /// All that this machine has, weakest first.
    pub fn available() -> &'static [Self] {
        static AVAILABLE: OnceLock<Vec<Isa>> = OnceLock::new();
        AVAILABLE.get_or_init(detect)
    }

    /// The name that `CHIMERE_ISA` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
            Isa::Neon => "neon",
            Isa::NeonDot => "neondot",
        }
    }

    /// Whether `CHIMERE_ISA` holds the backend to `self`, also where it could use more.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_asked(self) -> bool {
        asked() == Some(Ok(self))
    }
}

/// The set that `CHIMERE_ISA` names; `None` if it is not set or empty.
fn asked() -> Option<Result<Isa, IsaError>> {
    let name = std::env::var_os(VARIABLE)?;
    let name = name.to_string_lossy();
    (!name.is_empty()).then(|| named(&name, Isa::available()))
}

fn named(name: &str, has: &'static [Isa]) -> Result<Isa, IsaError> {
    has.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| IsaError { got: name.to_owned(), has })
}

fn strongest(has: &[Isa]) -> Isa {
    *has.last().expect("scalar code runs everywhere")
}

/// Names in a list for people.
fn names(sets: &[Isa]) -> String {
    sets.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ")
}

fn detect() -> Vec<Isa> {
    let mut all = vec![Isa::Scalar];
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! has {
            ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
        }
        if has!("avx2" "fma" "f16c") {
            all.push(Isa::Avx2);
        }
        let narrow = all.len() == 2;
        if narrow && has!("avxvnni") {
            all.push(Isa::AvxVnni);
        }
        if narrow && has!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni") {
            all.push(Isa::Avx512);
            if has_tiles() {
                all.push(Isa::Amx);
            }
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        all.push(Isa::Neon);
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            all.push(Isa::NeonDot);
        }
    }
    all
}

/// Whether the processor has the instructions of matrix tiles and the kernel lets this process use them.
#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    (__cpuid(0).eax >= 7) && __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8 && permitted()
}

/// Linux enlarges a process's saved state for tiles only on request.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: a system call that takes two integers and touches no memory of ours.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") REQUEST_PERMISSION, in("rsi") TILE_DATA,
             out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn permitted() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_this_machine_is_known_by_its_name() {
        for isa in Isa::available() {
            assert_eq!(named(isa.name(), Isa::available()), Ok(*isa));
        }
    }

    #[test]
    fn a_name_that_this_machine_lacks_is_refused_with_those_that_it_has() {
        const HAS: &[Isa] = &[Isa::Scalar, Isa::Avx2, Isa::Avx512];
        for name in ["amx", "AVX2", "sse", "neon"] {
            let text = named(name, HAS).expect_err("not there").to_string();
            assert_eq!(text, format!("CHIMERE_ISA is \"{name}\", this machine has scalar, avx2, avx512"));
        }
    }

    #[test]
    fn the_strongest_set_is_taken_unless_one_is_asked_for() {
        assert_eq!(strongest(&[Isa::Scalar, Isa::Neon, Isa::NeonDot]), Isa::NeonDot);
        let asked = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        assert_eq!(Isa::host().name(), asked.as_deref().unwrap_or(strongest(Isa::available()).name()));
    }
}
