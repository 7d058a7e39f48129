//! The section `engram`.

use super::check::{InvalidKey, threads, within};
use crate::engram::{Defaults, ModeName, PhaseName};
use crate::limits;
use serde::{Deserialize, Serialize};

/// Tables of n-grams, and what holds for requests that do not say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engram {
    /// Where tables lie; empty offers none.
    pub directory: String,
    /// Tables for requests that name none.
    pub tables: Vec<String>,
    /// How tables change probabilities.
    pub mode: ModeName,
    /// File of strengths for `auto`, as `chimere engram calibrate` writes it; empty takes those of the program.
    pub strengths: String,
    /// Strength of a bias.
    pub alpha: f64,
    /// Share of a mixture.
    pub lambda: f64,
    /// Continuations with fewer occurrences are passed over.
    pub min_count: u32,
    /// The part of an output in which tables speak.
    pub phase: PhaseName,
    /// Threads that share the lookups of large batches; 0 takes one for every four cores, at least 1 and at most 4.
    pub threads: u32,
    /// Seconds after which the directory is looked at again; 0 never looks.
    pub reload_seconds: u64,
    /// Texts are learned if they are at least this good, 0 to 1.
    pub learn_quality_min: f64,
    /// Mebibytes that all collections may take in memory.
    pub collections_mib: u64,
}

impl Default for Engram {
    fn default() -> Self {
        let own = Defaults::default();
        // The shortest decimals that read as these, where f64 would show what f32 rounds to.
        let decimal = |x: f32| x.to_string().parse().expect("a number reads back");
        Self {
            directory: String::new(),
            tables: own.tables,
            mode: own.mode,
            strengths: String::new(),
            alpha: decimal(own.alpha),
            lambda: decimal(own.lambda),
            min_count: own.min_count,
            phase: own.phase,
            threads: 0,
            reload_seconds: 10,
            learn_quality_min: 0.5,
            collections_mib: limits::COLLECTIONS_MIB,
        }
    }
}

impl Engram {
    /// What holds for a request that does not say.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            tables: self.tables.clone(),
            mode: self.mode(),
            alpha: self.alpha as f32,
            lambda: self.lambda as f32,
            min_count: self.min_count,
            phase: self.phase,
        }
    }

    /// A strength that was set where no mode was means its mode: it was set to be used.
    fn mode(&self) -> ModeName {
        let own = Self::default();
        match self.mode {
            ModeName::Auto if self.lambda != own.lambda => ModeName::Mixture,
            ModeName::Auto if self.alpha != own.alpha => ModeName::Bias,
            mode => mode,
        }
    }

    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        self.defaults().check()?;
        threads("threads", self.threads)?;
        within("learn_quality_min", self.learn_quality_min, 0.0..=1.0)?;
        within("collections_mib", self.collections_mib, 0..=limits::COLLECTIONS_MIB_MAX)
    }
}
