//! Which instructions the products use.

use std::sync::OnceLock;

/// Instruction sets with products of their own. All give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Portable code, the definition of every result.
    Scalar,
    /// 256-bit vectors of x86-64, with FMA and F16C.
    Avx2,
    /// 512-bit vectors with byte dot products (VNNI).
    Avx512,
    /// As `Avx512`, with matrix tiles for many rows.
    Amx,
    /// 128-bit vectors of AArch64.
    Neon,
    /// As `Neon`, with byte dot products.
    NeonDot,
}

impl Isa {
    /// The best that this host has; found once.
    pub fn host() -> Self {
        static HOST: OnceLock<Isa> = OnceLock::new();
        *HOST.get_or_init(|| *Self::available().last().expect("scalar code runs everywhere"))
    }

    /// All that this host has, weakest first.
    pub fn available() -> Vec<Self> {
        let mut all = vec![Isa::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! has {
                ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
            }
            if has!("avx2" "fma" "f16c") {
                all.push(Isa::Avx2);
            }
            if all.len() == 2 && has!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni") {
                all.push(Isa::Avx512);
                if super::amx::available() {
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
}
