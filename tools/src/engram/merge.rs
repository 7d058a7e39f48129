//! `chimere engram merge`: one table of several, as if it had been built from all their texts.

use super::{failed, write};
use crate::CliError;
use chimere_engine::engram::{Table, merge};
use std::path::PathBuf;

/// Adds the counts of tables of one tokenizer. What each of them was built without stays away.
#[derive(clap::Args, Debug, Clone)]
pub struct MergeArgs {
    /// The tables that are to be joined.
    #[arg(value_name = "TABLE", required = true)]
    pub tables: Vec<PathBuf>,
    /// Table to write; it may be one of those joined.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

pub(super) fn run(args: &MergeArgs) -> Result<(), CliError> {
    let (first, others) = args.tables.split_first().expect("clap asks for a table");
    let mut tables = vec![Table::open(first).map_err(failed)?];
    for path in others {
        // Refused here with the file's name; the engine would say which number it has.
        tables.push(Table::open_for(path, tables[0].tokenizer()).map_err(failed)?);
    }
    let image = merge(&tables.iter().collect::<Vec<_>>()).map_err(failed)?;
    println!("{}", write(&args.out, &image)?);
    Ok(())
}
