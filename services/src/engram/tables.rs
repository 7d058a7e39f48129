//! The tables that a service offers: a directory's files, mapped, with one filter over all. A request takes a snapshot
//! and keeps it, so a table may be replaced or removed while requests use it.

use super::access::{Access, Asker};
use super::defaults::Defaults;
use super::name::TableName;
use crate::holder::KeyHash;
use crate::{limits, metrics};
use chimere_engine::engram::{Filter, JointPrior, Latest, Member, Table, TableBits, TokenizerHash, publish};
use chimere_engine::files::Stamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Suffix of a table's file.
pub(super) const SUFFIX: &str = "engr";
/// Where learned layers lie, beside the curated tables of the same names.
pub(super) const LEARNED: &str = "learned";

/// Tables by name, replaced as a whole.
pub struct Tables {
    /// `None` offers no tables; requests may still bring documents.
    directory: Option<PathBuf>,
    tokenizer: TokenizerHash,
    defaults: Defaults,
    /// The table of what is learned, which all requests use that name none.
    learned: Option<TableName>,
    live: Latest<TableSet>,
    /// Held while a new set is made, so that two changes do not undo each other.
    changing: Mutex<()>,
}

/// All tables at one moment.
pub struct TableSet {
    files: BTreeMap<PathBuf, MappedTable>,
    names: BTreeMap<String, Vec<TableLayer>>,
    filter: Arc<Filter>,
    access: Access,
    /// Priors of tables that were asked for together, by where the tables are: they stay there as long as this does.
    priors: Mutex<Vec<(Vec<usize>, Arc<JointPrior>)>>,
}

/// A table's layer, with the bit that the set's filter has for it.
type TableLayer = (Arc<Table>, TableBits);

/// A mapped file, and what tells it from one that took its place.
#[derive(Clone)]
struct MappedTable {
    table: Arc<Table>,
    stamp: Stamp,
}

/// What a table holds, over its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Name by which requests ask for the table.
    pub name: String,
    /// Curated and learned: 1 or 2.
    pub layers: usize,
    /// Tokens that it was made from.
    pub tokens: u64,
    /// N-grams of all orders.
    pub ngrams: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Why a directory's tables cannot be offered. Names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TablesError(pub String);

/// A table that is not there for this key: whether others may use it is not told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no table {name:?} here{}", offered(.visible))]
pub struct NotThere {
    /// The name asked for.
    pub name: String,
    /// What this key may use.
    pub visible: Vec<String>,
}

fn offered(visible: &[String]) -> String {
    if visible.is_empty() { "; there are none".into() } else { format!("; there are {}", visible.join(", ")) }
}

impl Tables {
    /// Opens every table of the directory. One that cannot be used is an error: whoever starts a service should hear of
    /// it.
    pub fn open(directory: Option<PathBuf>, tokenizer: TokenizerHash, defaults: Defaults) -> Result<Self, TablesError> {
        let (live, changing) = (Latest::default(), Mutex::new(()));
        let tables = Self { directory, tokenizer, defaults, learned: None, live, changing };
        tables.clear_unfinished();
        let (set, mistakes) = tables.read(&TableSet::default())?;
        match mistakes.into_iter().next() {
            Some(mistake) => Err(mistake),
            None => {
                tables.put(set);
                Ok(tables)
            }
        }
    }

    /// With a table that all requests use which name none, once it is there.
    #[must_use]
    pub fn with_learned(self, learned: Option<TableName>) -> Self {
        Self { learned, ..self }
    }

    /// The table of what is learned.
    pub fn learned(&self) -> Option<&TableName> {
        self.learned.as_ref()
    }

    /// Puts a file in the place of a table's curated layer, or takes it away, and offers what is there then.
    ///
    /// # Errors
    /// If there is no directory, it cannot be written, or the file is no table; names it.
    pub fn place(&self, name: &TableName, bytes: Option<&[u8]>) -> Result<(), TablesError> {
        let path = self.file_of(name);
        if self.directory.is_none() {
            return Err(TablesError(format!("{}: there is no directory for tables", path.display())));
        }
        put_bytes(&path, bytes).map_err(|e| TablesError(format!("{}: {e}", path.display())))?;
        self.reload().map(drop)
    }

    /// Removes what was being written when a process before this one ended. Files of processes that live are theirs.
    fn clear_unfinished(&self) {
        let directories = self.directory.iter().flat_map(|directory| [directory.clone(), directory.join(LEARNED)]);
        for entry in directories.filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten() {
            if unfinished(&entry.file_name().to_string_lossy()).is_some_and(|process| !lives(process)) {
                // Who may not remove it may not serve worse for it.
                let _left = std::fs::remove_file(entry.path());
            }
        }
    }

    /// The tables of now.
    pub fn snapshot(&self) -> Arc<TableSet> {
        self.live.snapshot()
    }

    /// The settings of a key's requests.
    pub fn defaults(&self, set: &TableSet, key: Option<&KeyHash>) -> Defaults {
        let mut defaults = set.access.defaults(key, &self.defaults);
        let learned = self.learned.iter().map(|name| name.as_str().to_owned());
        let own = learned.filter(|name| set.names.contains_key(name) && !defaults.tables.contains(name));
        defaults.tables.extend(own.collect::<Vec<_>>());
        defaults
    }

    /// Where the tables lie, if there are any.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Where the curated layer of a table lies, or would.
    pub fn file_of(&self, name: &TableName) -> PathBuf {
        self.directory.clone().unwrap_or_default().join(format!("{name}.{SUFFIX}"))
    }

    /// Hash of the tokenizer whose ids the tables hold.
    pub fn tokenizer(&self) -> TokenizerHash {
        self.tokenizer
    }

    /// Looks at the directory again. What is new or other is opened, what is gone is let go; a file that cannot be used
    /// leaves the table that was there before, and is reported. True if anything changed.
    pub fn reload(&self) -> Result<bool, TablesError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.snapshot();
        let (set, mistakes) = self.read(&before)?;
        let same = set.stamps().eq(before.stamps()) && set.access == before.access;
        if !same {
            let gone = self
                .defaults
                .tables
                .iter()
                .filter(|name| before.names.contains_key(*name) && !set.names.contains_key(*name));
            gone.for_each(|name| {
                tracing::warn!(name, "a table of engram.tables is gone; requests that name none do without it")
            });
            self.put(set);
        }
        mistakes.into_iter().next().map_or(Ok(!same), Err)
    }

    fn put(&self, set: TableSet) {
        self.live.replace(set);
        self.export();
    }

    /// Tells the metrics what is on offer. For a start: tables may be opened before there is anybody to tell.
    pub fn export(&self) {
        let set = self.snapshot();
        let bytes = set.files.values().map(|f| f.table.bytes()).sum::<usize>() + set.filter.bytes();
        ::metrics::gauge!(metrics::ENGRAM_TABLES).set(set.names.len() as f64);
        ::metrics::gauge!(metrics::ENGRAM_TABLE_BYTES).set(bytes as f64);
    }

    /// The directory's tables, those of `before` where they are the same, and what was wrong with others.
    fn read(&self, before: &TableSet) -> Result<(TableSet, Vec<TablesError>), TablesError> {
        let Some(directory) = &self.directory else { return Ok((TableSet::default(), Vec::new())) };
        let (mut files, mut mistakes) = (BTreeMap::new(), Vec::new());
        // With a mistake in it what held before holds on: neither would everybody be let in, nor would tables stand
        // still.
        let access = Access::read(directory, &self.defaults).unwrap_or_else(|mistake| {
            mistakes.push(TablesError(mistake));
            before.access.clone()
        });
        for (path, stamp) in self.list(directory, &mut mistakes)? {
            let old = before.files.get(&path);
            match old.filter(|old| old.stamp == stamp).cloned().map_or_else(|| self.map(&path, stamp), Ok) {
                Ok(mapped) => drop(files.insert(path, mapped)),
                Err(mistake) => {
                    mistakes.push(mistake);
                    files.extend(old.cloned().map(|old| (path, old)));
                }
            }
        }
        Ok((TableSet::new(files, access, before), mistakes))
    }

    fn map(&self, path: &Path, stamp: Stamp) -> Result<MappedTable, TablesError> {
        let table = Table::open_for(path, self.tokenizer).map_err(|e| TablesError(e.to_string()))?;
        Ok(MappedTable { table: Arc::new(table), stamp })
    }

    /// Files of tables, curated ones and learned ones.
    fn list(&self, directory: &Path, mistakes: &mut Vec<TablesError>) -> Result<Vec<(PathBuf, Stamp)>, TablesError> {
        let mut all = list_one(directory, mistakes)?;
        let learned = directory.join(LEARNED);
        if learned.is_dir() {
            match list_one(&learned, mistakes) {
                Ok(files) => all.extend(files),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        Ok(all)
    }
}

/// The file as it should be: whole, or away.
pub(super) fn put_bytes(path: &Path, bytes: Option<&[u8]>) -> io::Result<()> {
    let Some(bytes) = bytes else {
        return match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Err(_) => Ok(()),
            // Away for good only when the directory is on the disk.
            Ok(()) => File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all(),
        };
    };
    publish(path, |out| out.write_all(bytes)).map_err(io::Error::other)
}

/// The files that may be tables; each that cannot is a mistake of its own and leaves the others alone.
fn list_one(directory: &Path, mistakes: &mut Vec<TablesError>) -> Result<Vec<(PathBuf, Stamp)>, TablesError> {
    let failed = |e: std::io::Error| TablesError(format!("{}: {e}", directory.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|suffix| suffix != SUFFIX) {
            continue;
        }
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        // Files that are being written begin with a dot.
        if stem.is_empty() || stem.starts_with('.') {
            continue;
        }
        if let Err(e) = TableName::new(stem) {
            mistakes.push(TablesError(format!("{}: a table's name: {e}", path.display())));
            continue;
        }
        match std::fs::metadata(&path) {
            Ok(meta) => files.push((path, Stamp::of_metadata(&meta))),
            // Removed between the listing and the look at it.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => mistakes.push(TablesError(format!("{}: {e}", path.display()))),
        }
    }
    Ok(files)
}

/// The process that writes or wrote a file of this name, `.NAME.engr.PROCESS-NUMBER.part`.
fn unfinished(name: &str) -> Option<u32> {
    let (rest, numbers) = name.strip_prefix('.')?.strip_suffix(".part")?.rsplit_once('.')?;
    rest.ends_with(SUFFIX).then(|| numbers.split_once('-')?.0.parse().ok())?
}

/// Is there a process of this number?
fn lives(process: u32) -> bool {
    let number = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    number.is_some_and(|number| rustix::process::test_kill_process(number) != Err(rustix::io::Errno::SRCH))
}

impl Default for TableSet {
    /// A set without a table.
    fn default() -> Self {
        let filter = Arc::new(Filter::of_tables(std::iter::empty()));
        Self {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            filter,
            access: Access::default(),
            priors: Mutex::default(),
        }
    }
}

impl TableSet {
    fn new(files: BTreeMap<PathBuf, MappedTable>, access: Access, before: &TableSet) -> Self {
        let mut names: BTreeMap<String, Vec<TableLayer>> = BTreeMap::new();
        // In this order the filter gets them; the one of before had the same files in the same order if it is kept.
        for (i, (path, mapped)) in files.iter().enumerate() {
            let name = path.file_stem().and_then(|s| s.to_str()).expect("a listed file has a table's name");
            names.entry(name.to_owned()).or_default().push((mapped.table.clone(), TableBits::of(i)));
        }
        let mut set = Self { files, names, filter: before.filter.clone(), access, priors: Mutex::default() };
        if !set.stamps().eq(before.stamps()) {
            set.filter = Arc::new(Filter::of_tables(set.files.values().map(|f| &*f.table)));
        }
        set
    }

    fn stamps(&self) -> impl Iterator<Item = (&PathBuf, Stamp)> {
        self.files.iter().map(|(path, mapped)| (path, mapped.stamp))
    }

    /// How many tables there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// One filter over all tables.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// The layers of a table, for whoever may use it.
    pub fn find(&self, name: &str, asker: &Asker) -> Result<Vec<Member>, NotThere> {
        match self.names.get(name).filter(|_| self.allows(name, asker)) {
            Some(layers) => Ok(layers.iter().map(|(table, bit)| Member::new(table.clone(), *bit)).collect()),
            None => {
                let visible = self.visible(asker).map(|(name, _)| name.clone()).collect();
                Err(NotThere { name: name.into(), visible })
            }
        }
    }

    /// One prior of these tables of this set, made when they are first asked for together. `None` when too many others
    /// were: then each table is asked for its own, which takes longer and says the same.
    pub fn prior(&self, tables: &[Member]) -> Option<Arc<JointPrior>> {
        let places: Vec<usize> = tables.iter().map(|t| Arc::as_ptr(t.table()).addr()).collect();
        let mut priors = self.priors.lock();
        let known = priors.iter().find(|(of, _)| *of == places).map(|(_, prior)| prior.clone());
        if known.is_some() || tables.is_empty() || priors.len() == limits::ENGRAM_PRIORS {
            return known;
        }
        let prior = Arc::new(JointPrior::of(tables.iter().map(Member::table)));
        priors.push((places, prior.clone()));
        Some(prior)
    }

    /// Whether he may use a table of this name, there or not.
    pub fn allows(&self, name: &str, asker: &Asker) -> bool {
        self.access.allows(asker, name)
    }

    /// What each table that he may use holds, by name.
    pub fn infos(&self, asker: &Asker) -> Vec<TableInfo> {
        let info = |(name, layers): (&String, &Vec<TableLayer>)| TableInfo {
            name: name.clone(),
            layers: layers.len(),
            // As many as a file says, which may be any number.
            tokens: layers.iter().fold(0, |sum, (t, _)| t.tokens().saturating_add(sum)),
            ngrams: layers.iter().flat_map(|(t, _)| t.stats()).map(|s| s.ngrams).sum(),
            bytes: layers.iter().map(|(t, _)| t.bytes() as u64).sum(),
        };
        self.visible(asker).map(info).collect()
    }

    fn visible(&self, asker: &Asker) -> impl Iterator<Item = (&String, &Vec<TableLayer>)> {
        self.names.iter().filter(move |(name, _)| self.allows(name, asker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::engram::{BuildOptions, ORDER_MAX, Orders, build};

    const TOKENIZER: TokenizerHash = TokenizerHash([5; 32]);

    fn put(directory: &Path, name: &str) {
        let options = BuildOptions {
            orders: Orders::new(1, 2).unwrap(),
            longest: ORDER_MAX,
            min_count: 1,
            vocab: 100,
            tokenizer: TOKENIZER,
            time: 1,
        };
        let image = build(&[&[1, 2, 1, 2]], &options).unwrap();
        publish(&directory.join(format!("{name}.{SUFFIX}")), |out| image.write(out)).unwrap();
    }

    fn names(tables: &Tables) -> Vec<String> {
        tables.snapshot().infos(&Asker { admin: true, ..Asker::default() }).into_iter().map(|info| info.name).collect()
    }

    #[test]
    #[cfg(unix)]
    fn one_bad_entry_leaves_the_other_tables() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a");
        let tables = Tables::open(Some(dir.path().to_owned()), TOKENIZER, Defaults::default()).unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a b.engr"), "x").unwrap();
        std::fs::write(at("cut.engr"), "x").unwrap();
        std::os::unix::fs::symlink(at("loop.engr"), at("loop.engr")).unwrap();
        std::fs::create_dir(at("folder.engr")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("fifo.engr")).status().unwrap().success());
        std::fs::write(at("access.toml"), "[tables").unwrap();
        put(dir.path(), "b");
        assert!(tables.reload().is_err(), "a mistake is told");
        assert_eq!(names(&tables), ["a", "b"], "what came is offered");
        std::fs::remove_file(at("a.engr")).unwrap();
        assert!(tables.reload().is_err());
        assert_eq!(names(&tables), ["b"], "what was removed is gone");
    }

    #[test]
    fn a_broken_access_file_lets_nobody_in_who_was_kept_out() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a");
        std::fs::write(dir.path().join("access.toml"), "[tables.a]\nkeys = []\n").unwrap();
        let tables = Tables::open(Some(dir.path().to_owned()), TOKENIZER, Defaults::default()).unwrap();
        std::fs::write(dir.path().join("access.toml"), "[tables.a\nkeys = []\n").unwrap();
        put(dir.path(), "b");
        assert!(tables.reload().is_err());
        assert!(tables.snapshot().find("a", &Asker::default()).is_err());
    }

    #[test]
    fn what_a_process_that_is_gone_was_writing_is_removed_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let (own, gone) = (std::process::id(), i32::MAX as u32);
        let file = |process: u32| dir.path().join(format!(".t.engr.{process}-0.part"));
        [own, gone].iter().for_each(|process| std::fs::write(file(*process), "half").unwrap());
        std::fs::write(dir.path().join(".notes.part"), "somebody's").unwrap();
        Tables::open(Some(dir.path().to_owned()), TOKENIZER, Defaults::default()).unwrap();
        assert!(file(own).exists() && !file(gone).exists() && dir.path().join(".notes.part").exists());
    }
}
