//! `chimere engram prune`: a table without what is old or rare.

use super::{failed, now, write};
use crate::CliError;
use chimere_engine::engram::{ORDER_MAX, PruneRules, Table, prune};
use std::path::PathBuf;

const DAY_S: u32 = 24 * 60 * 60;
/// Tables count seconds in 32 bits.
const DAYS_MAX: i64 = (u32::MAX / DAY_S) as i64;

/// Forgets continuations; at least one rule is needed. Counts that stay are not changed, so pruning again changes
/// nothing.
#[derive(clap::Args, Debug, Clone)]
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true).args(["age_days_max", "min_count"]))]
pub struct PruneArgs {
    /// The table that is to be pruned.
    #[arg(value_name = "TABLE")]
    pub table: PathBuf,
    /// Table to write; it may be the same.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Remove continuations that were not seen for longer than this.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(0..=DAYS_MAX))]
    pub age_days_max: Option<u32>,
    /// Remove continuations with a weighted count below this from their lists; they still count as occurrences of their
    /// context.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub min_count: Option<u32>,
    /// A count weighs half after this long without being seen again, for --min-count.
    #[arg(long, value_name = "DAYS", requires = "min_count",
        value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX))]
    pub half_life_days: Option<u32>,
}

pub(super) fn run(args: &PruneArgs) -> Result<(), CliError> {
    let table = Table::open(&args.table).map_err(failed)?;
    if table.is_long() {
        let file = args.table.display();
        return Err(failed(format!(
            "{file}: wanted a table without contexts of more than {ORDER_MAX} tokens; build it anew"
        )));
    }
    let image = prune(&table, &args.rules(now()));
    let before: u64 = table.stats().iter().map(|s| s.ngrams).sum();
    println!("{}", write(&args.out, &image)?);
    println!("{} of {before} n-grams were forgotten", before - image.ngrams());
    Ok(())
}

impl PruneArgs {
    fn rules(&self, now: u32) -> PruneRules {
        PruneRules {
            now,
            half_life_s: self.half_life_days.map(|days| days * DAY_S),
            age_s_max: self.age_days_max.map(|days| days * DAY_S),
            min_count: self.min_count.unwrap_or(1),
        }
    }
}
