//! `chimere engram rollback`: a table as it was before its last write.

use super::{TableVocabulary, failed, now};
use crate::CliError;
use chimere::engram::{Store, TableName, publish_table};
use std::path::PathBuf;

/// Undoes the last text that a table was taught, that was put in it, or its removal. The service may run: it sees the
/// change when it looks at the directory next.
#[derive(clap::Args, Debug, Clone)]
pub struct RollbackArgs {
    /// Name of the table.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Directory of tables, as in the configuration's engram.directory.
    #[arg(long, value_name = "DIR")]
    pub tables: PathBuf,
    /// Model whose ids the tables speak of [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub tokenizer_of: Option<PathBuf>,
}

pub(super) fn run(args: &RollbackArgs) -> Result<(), CliError> {
    let name = TableName::new(&args.name).map_err(|e| CliError::Usage(format!("NAME: {e}")))?;
    let vocabulary = TableVocabulary::find(args.tokenizer_of.as_deref())?;
    let store = Store::new(args.tables.clone(), vocabulary.fingerprint);
    let revision = store.undo(&name).map_err(failed)?;
    publish_table(&store, &name, now()).map_err(failed)?;
    println!("{name}: revision {revision} is as before the last write");
    Ok(())
}
