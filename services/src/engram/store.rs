//! Everything that tables were taught over the API, in one embedded database beside them. What is acknowledged is in
//! it; the files that requests read are made from it and can be made again.
//!
//! A table's log is a list of writes. Its curated layer is the last text that was put, its learned layer is all that
//! was learned, faded by age; a removal hides what came before it. To undo a write is to take it off the log's end.
//!
//! The database is open only while it is used: so a command can undo a write while the service runs.

use super::name::TableName;
use crate::database::{self, DatabaseError, OpenDatabase};
use crate::limits;
use crate::text::Fingerprint;
use chimere_engine::engram::{BuildOptions, Image, ORDER_MAX, Orders, Table, build, fade, merge};
use chimere_engine::ids::{KeyId, TokenId};
use parking_lot::Mutex;
use redb::{ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};

/// Name of the database in the directory of tables.
const FILE: &str = "store.redb";
/// (table, number of the write) to the write.
const LOG: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("log");
/// (table, number of the write) to (account that wrote it, its tokens). Writes of old stores and of commands have none.
const OWNERS: TableDefinition<'_, (&str, u64), (u64, u64)> = TableDefinition::new("owners");
/// Table to (revision, revision that was published, when in seconds since 1970, whether its curated file is made here).
const STATE: TableDefinition<'_, &str, (u64, u64, u32, bool)> = TableDefinition::new("state");
/// `tokenizer` to the hash of the ids that the log holds, `next` to the number of the next write.
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// The table of writes, to read or to write.
trait WriteLog: ReadableTable<(&'static str, u64), &'static [u8]> {}

impl<T: ReadableTable<(&'static str, u64), &'static [u8]>> WriteLog for T {}

const DAY_S: u32 = 24 * 3600;
/// After this long without being seen again what was learned counts half.
pub(super) const HALF_LIFE_S: u32 = 30 * DAY_S;
/// After this long without being seen again what was learned is forgotten.
pub(super) const FORGOTTEN_S: u32 = 90 * DAY_S;
/// Learned layers are made anew this often, so that they fade.
const FADE_PERIOD_S: u32 = DAY_S;

/// The log of all tables of a directory.
pub struct Store {
    directory: PathBuf,
    ids: Fingerprint,
    /// One use at a time in this process; the file's own lock keeps other processes out. True when the file was looked
    /// at as a whole.
    using: Mutex<bool>,
    /// Tokens that all tables may have been taught together.
    taught_max: u64,
}

/// Why a write or a look was not possible. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database, its file or its contents.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A table that nothing was written to.
    #[error("nothing was ever written to the table {0}")]
    Unknown(String),
    /// A table whose log is as long as it may be.
    #[error("the table {name} has been taught {got} tokens that are not forgotten yet, {more} more would exceed {max}")]
    Full {
        /// The table that is full.
        name: String,
        /// Tokens in its log.
        got: u64,
        /// Tokens of this write.
        more: u64,
        /// The most that there may be.
        max: u64,
    },
    /// An account that has taught its share of all that tables may be taught.
    #[error("this key has taught {got} tokens that are kept, {more} more would exceed its share of {max}")]
    NoShare {
        /// Tokens that it has taught.
        got: u64,
        /// Tokens of this write.
        more: u64,
        /// What all may have together.
        max: u64,
    },
}

/// One change of what a table was taught.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A curated text in the place of the one before.
    Put(Texts),
    /// Texts that are learned on top.
    Learn(Texts),
    /// Away with both layers.
    Remove {
        /// When, seconds since 1970.
        time: u32,
    },
}

/// Token ids of texts, and when they came.
#[derive(Clone, Debug, PartialEq)]
pub struct Texts {
    /// When the texts were taught, in seconds since 1970.
    pub time: u32,
    /// Lengths of the contexts, in tokens, that the texts are learned under.
    pub orders: Orders,
    /// One list a text.
    pub texts: Vec<Vec<TokenId>>,
}

impl Texts {
    /// Tokens of all texts.
    pub fn tokens(&self) -> u64 {
        self.texts.iter().map(|t| t.len() as u64).sum()
    }
}

/// What a table's log amounts to.
#[derive(Debug, Default)]
pub struct ReplayedLog {
    /// The revision that this is.
    pub revision: u64,
    /// `None`: no curated layer was made here.
    pub curated: Option<Image>,
    /// `None`: nothing learned that is not forgotten.
    pub learned: Option<Image>,
    /// The curated file is made here: without a curated layer it has to go.
    pub owns_curated: bool,
}

impl Store {
    /// The store of a directory; its file is made with the first write.
    pub fn new(directory: PathBuf, ids: Fingerprint) -> Self {
        Self { directory, ids, using: Mutex::new(false), taught_max: limits::ENGRAM_TAUGHT_TOKENS_MAX }
    }

    /// Where the tables lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    fn failed(&self, why: impl std::fmt::Display) -> StoreError {
        DatabaseError::failed(&self.file(), why).into()
    }

    fn broke(&self, why: impl Into<redb::Error>) -> StoreError {
        DatabaseError::of(&self.file(), why).into()
    }

    /// Adds a write; it is on the disk when this returns. Returns the table's new revision.
    pub fn write(&self, name: &TableName, write: &Write) -> Result<u64, StoreError> {
        self.write_for(KeyId::default(), name, write)
    }

    /// Writes on behalf of an account, which may take no more of the room than it leaves to the other accounts.
    pub fn write_for(&self, account: KeyId, name: &TableName, write: &Write) -> Result<u64, StoreError> {
        self.with(|db| {
            let txn = db.begin_write().map_err(|e| self.broke(e))?;
            {
                let mut log = txn.open_table(LOG).map_err(|e| self.broke(e))?;
                let mut owners = txn.open_table(OWNERS).map_err(|e| self.broke(e))?;
                self.check_room(&log, name, write)?;
                self.check_share(&owners, account, write)?;
                let number = self.next_number(&txn)?;
                log.insert((name.as_str(), number), encode(write).as_slice()).map_err(|e| self.broke(e))?;
                let owned = (account.0, tokens(write));
                owners.insert((name.as_str(), number), owned).map_err(|e| self.broke(e))?;
                self.compact(&mut log, name, write_time(write))?;
                // What was compacted away is nobody's any more.
                let writes = (name.as_str(), 0)..=(name.as_str(), u64::MAX);
                let kept = |key: (&str, u64), _: (u64, u64)| !log.get(key).is_ok_and(|write| write.is_none());
                owners.retain_in(writes, kept).map_err(|e| self.broke(e))?;
            }
            let revision = self.bump(&txn, name, matches!(write, Write::Put(_)))?;
            txn.commit().map_err(|e| self.broke(e))?;
            Ok(revision)
        })
    }

    /// Takes the last write off a table's log. Returns the table's new revision.
    pub fn undo(&self, name: &TableName) -> Result<u64, StoreError> {
        if !self.file().exists() {
            return Err(StoreError::Unknown(name.to_string()));
        }
        self.with(|db| {
            let txn = db.begin_write().map_err(|e| self.broke(e))?;
            {
                let mut log = txn.open_table(LOG).map_err(|e| self.broke(e))?;
                let last = self.entries(&log, name)?.last().map(|(number, _)| *number);
                let last = last.ok_or_else(|| StoreError::Unknown(name.to_string()))?;
                log.remove((name.as_str(), last)).map_err(|e| self.broke(e))?;
                let mut owners = txn.open_table(OWNERS).map_err(|e| self.broke(e))?;
                owners.remove((name.as_str(), last)).map_err(|e| self.broke(e))?;
            }
            let revision = self.bump(&txn, name, false)?;
            txn.commit().map_err(|e| self.broke(e))?;
            Ok(revision)
        })
    }

    /// Tables whose files are older than their log, or whose learned layer is due to fade.
    pub fn unpublished(&self, now: u32) -> Result<Vec<TableName>, StoreError> {
        if !self.file().exists() {
            return Ok(Vec::new());
        }
        self.with(|db| {
            // Where the store cannot be written, nor can what is made from it.
            if db.is_read_only() {
                return Ok(Vec::new());
            }
            let txn = db.begin_read().map_err(|e| self.broke(e))?;
            let state = txn.open_table(STATE).map_err(|e| self.broke(e))?;
            let mut names = Vec::new();
            for row in state.iter().map_err(|e| self.broke(e))? {
                let (name, value) = row.map_err(|e| self.broke(e))?;
                let (revision, published, at, _) = value.value();
                if (revision != published || now.saturating_sub(at) >= FADE_PERIOD_S)
                    // A name that is none was written by nobody here; there is no file to make for it.
                    && let Ok(name) = TableName::new(name.value())
                {
                    names.push(name);
                }
            }
            Ok(names)
        })
    }

    /// When something was last published or written, in seconds since 1970; 0 if never. A clock that shows much more
    /// than that is doubtful.
    pub fn last_seen(&self) -> Result<u32, StoreError> {
        if !self.file().exists() {
            return Ok(0);
        }
        self.with(|db| {
            let txn = db.begin_read().map_err(|e| self.broke(e))?;
            let state = txn.open_table(STATE).map_err(|e| self.broke(e))?;
            let mut last = 0;
            for row in state.iter().map_err(|e| self.broke(e))? {
                let (_, value) = row.map_err(|e| self.broke(e))?;
                last = last.max(value.value().2);
            }
            Ok(last)
        })
    }

    /// What a table's files should hold.
    pub fn layers(&self, name: &TableName, now: u32) -> Result<ReplayedLog, StoreError> {
        let (state, entries) = self.with(|db| {
            let txn = db.begin_read().map_err(|e| self.broke(e))?;
            let log = txn.open_table(LOG).map_err(|e| self.broke(e))?;
            let state = txn.open_table(STATE).map_err(|e| self.broke(e))?;
            let state = state.get(name.as_str()).map_err(|e| self.broke(e))?.map(|s| s.value());
            Ok((state, self.entries(&log, name)?))
        })?;
        let (revision, _, _, owns_curated) = state.ok_or_else(|| StoreError::Unknown(name.to_string()))?;
        let (curated, learned) = self.fold(&entries.into_iter().map(|(_, write)| write).collect::<Vec<_>>(), now)?;
        Ok(ReplayedLog { revision, curated, learned, owns_curated })
    }

    /// Calls `publish` while nobody can write, if the table is still at `revision`, and notes that it was published.
    /// False if it is not.
    pub fn publish(
        &self,
        name: &TableName,
        revision: u64,
        now: u32,
        publish: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool, StoreError> {
        self.with(|db| {
            let txn = db.begin_write().map_err(|e| self.broke(e))?;
            {
                let mut state = txn.open_table(STATE).map_err(|e| self.broke(e))?;
                let current = state.get(name.as_str()).map_err(|e| self.broke(e))?.map(|s| s.value());
                let Some((_, _, _, owns)) = current.filter(|c| c.0 == revision) else { return Ok(false) };
                publish().map_err(|e| self.failed(e))?;
                state.insert(name.as_str(), (revision, revision, now, owns)).map_err(|e| self.broke(e))?;
            }
            txn.commit().map_err(|e| self.broke(e))?;
            Ok(true)
        })
    }

    /// How many writes a table's log has.
    pub fn writes(&self, name: &TableName) -> Result<usize, StoreError> {
        self.with(|db| {
            let txn = db.begin_read().map_err(|e| self.broke(e))?;
            let log = txn.open_table(LOG).map_err(|e| self.broke(e))?;
            Ok(self.entries(&log, name)?.len())
        })
    }

    /// Whether nothing was ever written to a table.
    pub fn unknown(&self, name: &TableName) -> Result<bool, StoreError> {
        Ok(self.state(name)?.is_none())
    }

    /// Whether a table's curated file is made here, so that it may be replaced and removed.
    pub fn owns_curated(&self, name: &TableName) -> Result<bool, StoreError> {
        Ok(self.state(name)?.is_some_and(|state| state.3))
    }

    fn state(&self, name: &TableName) -> Result<Option<(u64, u64, u32, bool)>, StoreError> {
        if !self.file().exists() {
            return Ok(None);
        }
        self.with(|db| {
            let txn = db.begin_read().map_err(|e| self.broke(e))?;
            let state = txn.open_table(STATE).map_err(|e| self.broke(e))?;
            Ok(state.get(name.as_str()).map_err(|e| self.broke(e))?.map(|s| s.value()))
        })
    }

    fn with<T>(&self, work: impl FnOnce(&OpenDatabase) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut checked = self.using.lock();
        let open = if *checked { database::open } else { database::open_checked };
        let db = open(&self.file()).map_err(|e| self.broke(e))?;
        *checked = true;
        self.check_tokenizer(&db)?;
        work(&db)
    }

    /// The ids in the log mean nothing to another tokenizer.
    fn check_tokenizer(&self, db: &OpenDatabase) -> Result<(), StoreError> {
        let read = db.begin_read().map_err(|e| self.broke(e))?;
        match read.open_table(META) {
            Ok(meta) => {
                let got = meta.get("tokenizer").map_err(|e| self.broke(e))?;
                let same = got.as_ref().is_some_and(|got| got.value() == self.ids.hash.0);
                if same {
                    Ok(())
                } else {
                    Err(self.failed(format!("wanted the tokenizer {}, got another", self.ids.hash)))
                }
            }
            Err(redb::TableError::TableDoesNotExist(_)) => self.begin(db),
            Err(e) => Err(self.broke(e)),
        }
    }

    fn begin(&self, db: &OpenDatabase) -> Result<(), StoreError> {
        let txn = db.begin_write().map_err(|e| self.broke(e))?;
        {
            txn.open_table(LOG).map_err(|e| self.broke(e))?;
            txn.open_table(STATE).map_err(|e| self.broke(e))?;
            let mut meta = txn.open_table(META).map_err(|e| self.broke(e))?;
            meta.insert("tokenizer", self.ids.hash.0.as_slice()).map_err(|e| self.broke(e))?;
            meta.insert("next", 0u64.to_le_bytes().as_slice()).map_err(|e| self.broke(e))?;
        }
        txn.commit().map_err(|e| self.broke(e))
    }

    /// Numbers are never used again, so that an undone write cannot come back.
    fn next_number(&self, txn: &redb::WriteTransaction) -> Result<u64, StoreError> {
        let mut meta = txn.open_table(META).map_err(|e| self.broke(e))?;
        let next = meta.get("next").map_err(|e| self.broke(e))?;
        let next = next.and_then(|v| Some(u64::from_le_bytes(v.value().try_into().ok()?)));
        let next = next.ok_or_else(|| self.failed("wanted the number of the next write, got none"))?;
        meta.insert("next", (next + 1).to_le_bytes().as_slice()).map_err(|e| self.broke(e))?;
        Ok(next)
    }

    fn bump(&self, txn: &redb::WriteTransaction, name: &TableName, puts: bool) -> Result<u64, StoreError> {
        let mut state = txn.open_table(STATE).map_err(|e| self.broke(e))?;
        let before = state.get(name.as_str()).map_err(|e| self.broke(e))?.map(|s| s.value());
        let (revision, published, at, owns) = before.unwrap_or_default();
        state.insert(name.as_str(), (revision + 1, published, at, owns || puts)).map_err(|e| self.broke(e))?;
        Ok(revision + 1)
    }

    /// A table's writes, oldest first.
    fn entries(&self, log: &impl WriteLog, name: &TableName) -> Result<Vec<(u64, Write)>, StoreError> {
        let mut entries = Vec::new();
        for row in log.range((name.as_str(), 0)..=(name.as_str(), u64::MAX)).map_err(|e| self.broke(e))? {
            let (key, value) = row.map_err(|e| self.broke(e))?;
            let write = decode(value.value())
                .ok_or_else(|| self.failed(format!("write {} of {name} is damaged", key.value().1)))?;
            entries.push((key.value().1, write));
        }
        Ok(entries)
    }

    /// What is learned adds up, until it is removed; what is put takes the place of what was put before.
    fn check_room(&self, log: &impl WriteLog, name: &TableName, write: &Write) -> Result<(), StoreError> {
        let learned = |write: &Write| match write {
            Write::Learn(texts) => texts.tokens(),
            _ => 0,
        };
        let (got, more) = match write {
            Write::Remove { .. } => return Ok(()),
            Write::Put(texts) => (0, texts.tokens()),
            Write::Learn(texts) => {
                let writes = self.entries(log, name)?;
                let kept = writes.iter().rev().map(|(_, w)| w).take_while(|w| !matches!(w, Write::Remove { .. }));
                (kept.map(learned).sum(), texts.tokens())
            }
        };
        let max = limits::ENGRAM_LEARNED_TOKENS_MAX;
        if got + more > max { Err(StoreError::Full { name: name.to_string(), got, more, max }) } else { Ok(()) }
    }

    /// An account may have as much as it leaves for others, as with all shared room.
    fn check_share(
        &self,
        owners: &impl ReadableTable<(&'static str, u64), (u64, u64)>,
        account: KeyId,
        write: &Write,
    ) -> Result<(), StoreError> {
        let (mut all, mut got, more) = (0, 0, tokens(write));
        for row in owners.iter().map_err(|e| self.broke(e))? {
            let (owner, tokens) = row.map_err(|e| self.broke(e))?.1.value();
            all += tokens;
            got += if owner == account.0 { tokens } else { 0 };
        }
        let max = self.taught_max;
        // Who comes without a key is the machine's owner.
        let share = if account == KeyId::default() { max } else { max.saturating_sub(all + more) };
        let fits = more == 0 || (all + more <= max && got + more <= share);
        if fits { Ok(()) } else { Err(StoreError::NoShare { got, more, max }) }
    }

    /// Drops what can be neither read nor restored any more: what is forgotten, all but the last few puts, and an old
    /// removal with all that it hides.
    fn compact(
        &self,
        log: &mut redb::Table<'_, (&'static str, u64), &'static [u8]>,
        name: &TableName,
        now: u32,
    ) -> Result<(), StoreError> {
        let entries = self.entries(log, name)?;
        let puts: Vec<u64> = entries.iter().filter(|(_, w)| matches!(w, Write::Put(_))).map(|(n, _)| *n).collect();
        let kept_from = puts.len().checked_sub(limits::ENGRAM_VERSIONS_MAX).map_or(0, |i| puts[i]);
        let old = |time: u32| now.saturating_sub(time) > FORGOTTEN_S;
        let hidden_to =
            entries.iter().rev().find(|(_, w)| matches!(w, Write::Remove { time } if old(*time))).map(|(n, _)| *n);
        let gone = |number: u64, write: &Write| match write {
            _ if hidden_to.is_some_and(|last| number <= last) => true,
            Write::Put(_) => number < kept_from,
            Write::Learn(texts) => old(texts.time),
            Write::Remove { .. } => false,
        };
        for (number, _) in entries.iter().filter(|(number, write)| gone(*number, write)) {
            log.remove((name.as_str(), *number)).map_err(|e| self.broke(e))?;
        }
        Ok(())
    }

    /// The curated and the learned layer that some writes amount to.
    fn fold(&self, writes: &[Write], now: u32) -> Result<(Option<Image>, Option<Image>), StoreError> {
        let curated = curated(writes).map(|texts| self.build(texts)).transpose()?;
        let since = writes.iter().rposition(|w| matches!(w, Write::Remove { .. })).map_or(0, |at| at + 1);
        let days = by_day(&writes[since..]);
        let tables = days
            .iter()
            .map(|texts| Ok(Table::in_memory(&self.build(texts)?)))
            .collect::<Result<Vec<_>, StoreError>>()?;
        if tables.is_empty() {
            return Ok((curated, None));
        }
        let all = merge(&tables.iter().collect::<Vec<_>>()).map_err(|e| self.failed(e))?;
        let faded = fade(&Table::in_memory(&all), now, HALF_LIFE_S, FORGOTTEN_S);
        let any_left = !Table::in_memory(&faded).stats().is_empty();
        Ok((curated, any_left.then_some(faded)))
    }

    fn build(&self, texts: &Texts) -> Result<Image, StoreError> {
        let options = BuildOptions {
            orders: texts.orders,
            longest: ORDER_MAX,
            min_count: 1,
            vocab: self.ids.vocab,
            tokenizer: self.ids.hash,
            time: texts.time,
        };
        let lists: Vec<&[TokenId]> = texts.texts.iter().map(Vec::as_slice).collect();
        build(&lists, &options).map_err(|e| self.failed(e))
    }
}

/// What is learned, the texts of one day and of the same orders together: so a layer is made of few tables however many
/// writes it has.
fn by_day(writes: &[Write]) -> Vec<Texts> {
    let mut days: Vec<Texts> = Vec::new();
    for write in writes {
        let Write::Learn(texts) = write else { continue };
        let same = |day: &&mut Texts| day.time / DAY_S == texts.time / DAY_S && day.orders == texts.orders;
        match days.iter_mut().find(same) {
            Some(day) => {
                day.time = day.time.max(texts.time);
                day.texts.extend(texts.texts.iter().cloned());
            }
            None => days.push(texts.clone()),
        }
    }
    days
}

/// The last text that was put and not removed.
fn curated(writes: &[Write]) -> Option<&Texts> {
    let last = writes.iter().rev().find(|w| !matches!(w, Write::Learn(_)))?;
    if let Write::Put(texts) = last { Some(texts) } else { None }
}

fn tokens(write: &Write) -> u64 {
    match write {
        Write::Put(texts) | Write::Learn(texts) => texts.tokens(),
        Write::Remove { .. } => 0,
    }
}

fn write_time(write: &Write) -> u32 {
    match write {
        Write::Put(texts) | Write::Learn(texts) => texts.time,
        Write::Remove { time } => *time,
    }
}

/// u32 kind (0 put, 1 learn, 2 remove), u32 time, then for texts u32 lowest order, u32 highest, u32 texts, each u32
/// length and its ids.
fn encode(write: &Write) -> Vec<u8> {
    let (kind, time, texts) = match write {
        Write::Put(texts) => (0u32, texts.time, Some(texts)),
        Write::Learn(texts) => (1, texts.time, Some(texts)),
        Write::Remove { time } => (2, *time, None),
    };
    let mut words = vec![kind, time];
    if let Some(texts) = texts {
        let orders: Vec<usize> = texts.orders.iter().collect();
        let ends = [orders.first(), orders.last()].map(|order| order.map_or(0, |&o| o as u32));
        words.extend(ends);
        words.push(texts.texts.len() as u32);
        for text in &texts.texts {
            words.push(text.len() as u32);
            words.extend(text);
        }
    }
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Option<Write> {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut words = words.iter().map(|w| u32::from_le_bytes(*w));
    let (kind, time) = (words.next()?, words.next()?);
    if !rest.is_empty() || kind == 2 {
        return (rest.is_empty() && words.next().is_none()).then_some(Write::Remove { time });
    }
    let orders = Orders::new(words.next()? as usize, words.next()? as usize).ok()?;
    let count = words.next()?;
    let mut texts = Vec::new();
    for _ in 0..count {
        let len = words.next()? as usize;
        let text: Vec<TokenId> = words.by_ref().take(len).collect();
        if text.len() != len {
            return None;
        }
        texts.push(text);
    }
    let texts = Texts { time, orders, texts };
    match (kind, words.next()) {
        (0, None) => Some(Write::Put(texts)),
        (1, None) => Some(Write::Learn(texts)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::engram::{Context, Ngrams, TokenizerHash};

    const IDS: Fingerprint = Fingerprint { hash: TokenizerHash([5; 32]), vocab: 100 };
    const START: u32 = 400 * DAY_S;

    fn store() -> (tempfile::TempDir, Store, TableName) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned(), IDS);
        (dir, store, TableName::new("t").unwrap())
    }

    fn texts(day: u32, ids: &[TokenId]) -> Texts {
        Texts { time: START + day * DAY_S, orders: Orders::new(1, 2).unwrap(), texts: vec![ids.to_vec()] }
    }

    /// How often 2 followed 1, by layer.
    fn counts(store: &Store, name: &TableName, day: u32) -> [Option<u32>; 2] {
        let layers = store.layers(name, START + day * DAY_S).unwrap();
        [layers.curated, layers.learned].map(|image| {
            let table = Table::in_memory(&image?);
            let list: Vec<_> = table.find(&Context::new(&[1]), 1)?.iter().collect();
            list.iter().find(|c| c.0 == 2).map(|c| c.1)
        })
    }

    #[test]
    fn layers_are_apart_fade_and_go_back_write_by_write() {
        let (_dir, store, name) = store();
        let four = [1, 2, 1, 2, 1, 2, 1, 2];
        store.write(&name, &Write::Put(texts(0, &[1, 2]))).unwrap();
        store.write(&name, &Write::Learn(texts(0, &four))).unwrap();
        assert_eq!(counts(&store, &name, 0), [Some(1), Some(4)]);
        assert_eq!(counts(&store, &name, 30), [Some(1), Some(2)]);
        assert_eq!(counts(&store, &name, 90), [Some(1), Some(1)]);
        assert_eq!(counts(&store, &name, 91), [Some(1), None]);
        store.write(&name, &Write::Put(texts(1, &[1, 2, 1, 2]))).unwrap();
        store.write(&name, &Write::Remove { time: START + 2 * DAY_S }).unwrap();
        assert_eq!(counts(&store, &name, 2), [None, None]);
        store.write(&name, &Write::Learn(texts(2, &[1, 2]))).unwrap();
        assert_eq!(counts(&store, &name, 2), [None, Some(1)], "what came before the removal stays away");
        let mut back = Vec::new();
        while store.undo(&name).is_ok() {
            back.push(counts(&store, &name, 2));
        }
        assert_eq!(back, [[None, None], [Some(2), Some(4)], [Some(1), Some(4)], [Some(1), None], [None, None]]);
    }

    #[test]
    fn what_is_forgotten_is_dropped_and_a_removal_goes_on_hiding_what_it_hid() {
        let (_dir, store, name) = store();
        for day in 0..12 {
            store.write(&name, &Write::Put(texts(day, &[1, 2]))).unwrap();
        }
        assert_eq!(store.writes(&name).unwrap(), limits::ENGRAM_VERSIONS_MAX);
        store.write(&name, &Write::Remove { time: START + 12 * DAY_S }).unwrap();
        store.write(&name, &Write::Learn(texts(13, &[1, 2]))).unwrap();
        store.write(&name, &Write::Learn(texts(200, &[1, 3]))).unwrap();
        assert_eq!(store.writes(&name).unwrap(), 1);
        assert_eq!(counts(&store, &name, 200), [None, None]);
    }

    #[test]
    fn a_table_is_published_when_it_is_behind_and_each_day_anew_and_never_an_old_revision() {
        let (_dir, store, name) = store();
        assert_eq!(store.unpublished(START).unwrap(), []);
        store.write(&name, &Write::Learn(texts(0, &[1, 2]))).unwrap();
        assert_eq!(store.unpublished(START).unwrap(), std::slice::from_ref(&name));
        let seen = store.layers(&name, START).unwrap().revision;
        store.write(&name, &Write::Learn(texts(0, &[1, 3]))).unwrap();
        assert!(!store.publish(&name, seen, START, || panic!("it is an old one")).unwrap());
        let seen = store.layers(&name, START).unwrap().revision;
        assert!(store.publish(&name, seen, START, || Err("no room".into())).is_err());
        assert_eq!(store.unpublished(START).unwrap().len(), 1, "what failed is due");
        assert!(store.publish(&name, seen, START, || Ok(())).unwrap());
        assert_eq!(store.unpublished(START + DAY_S - 1).unwrap(), []);
        assert_eq!(store.unpublished(START + DAY_S).unwrap(), [name]);
    }

    #[test]
    fn a_store_of_another_tokenizer_and_more_than_a_table_holds_are_refused() {
        let (dir, store, name) = store();
        store.write(&name, &Write::Learn(texts(0, &[1, 2]))).unwrap();
        let other = Store::new(dir.path().to_owned(), Fingerprint { hash: TokenizerHash([6; 32]), ..IDS });
        let error = other.write(&name, &Write::Learn(texts(0, &[1, 2]))).unwrap_err().to_string();
        assert!(error.contains("store.redb: wanted the tokenizer 0606"), "{error}");
        let much = vec![1; limits::ENGRAM_LEARNED_TOKENS_MAX as usize - 1];
        let error = store.write(&name, &Write::Learn(texts(0, &much))).unwrap_err().to_string();
        assert!(
            error.contains("taught 2 tokens that are not forgotten yet, 4194303 more would exceed 4194304"),
            "{error}"
        );
        assert_eq!(store.writes(&name).unwrap(), 1);
    }

    #[test]
    fn a_full_table_that_is_removed_may_be_taught_anew() {
        let (_dir, store, name) = store();
        let learn = |tokens: u64| store.write(&name, &Write::Learn(texts(0, &vec![1; tokens as usize])));
        learn(limits::ENGRAM_LEARNED_TOKENS_MAX).unwrap();
        assert!(matches!(learn(1), Err(StoreError::Full { .. })));
        store.write(&name, &Write::Remove { time: START }).unwrap();
        learn(1).unwrap();
        store.undo(&name).unwrap();
        store.undo(&name).unwrap();
        assert!(matches!(learn(1), Err(StoreError::Full { .. })), "what was taken back counts again");
    }

    #[test]
    fn one_key_leaves_half_of_what_tables_may_be_taught_to_others_and_has_back_what_it_undoes() {
        let (_dir, mut store, _) = store();
        store.taught_max = 100;
        let table = |key: u64, i: usize| TableName::new(&format!("t{key}-{i}")).unwrap();
        let ten = Write::Put(texts(0, &[1; 10]));
        let taught =
            |key: u64| (0..).find_map(|i| store.write_for(KeyId(key), &table(key, i), &ten).err().map(|e| (i, e)));
        let (first, error) = taught(1).unwrap();
        assert_eq!((first, taught(2).unwrap().0), (5, 2), "half, and half of the rest");
        assert_eq!(
            error.to_string(),
            "this key has taught 50 tokens that are kept, 10 more would exceed its share of 100"
        );
        store.write_for(KeyId(1), &table(1, 0), &Write::Remove { time: START }).unwrap();
        store.undo(&table(1, 0)).unwrap();
        store.undo(&table(1, 0)).unwrap();
        assert!(store.write_for(KeyId(2), &table(2, 9), &ten).is_ok(), "what was taken back is there for others");
    }

    #[test]
    fn writes_come_back_as_they_went_and_damage_is_noticed() {
        for write in [
            Write::Put(texts(3, &[1, 2, 3])),
            Write::Learn(Texts { texts: vec![], ..texts(1, &[]) }),
            Write::Remove { time: 7 },
        ] {
            let bytes = encode(&write);
            assert_eq!(decode(&bytes), Some(write));
            assert!((0..bytes.len()).all(|n| decode(&bytes[..n]).is_none()));
            assert_eq!(decode(&[&bytes[..], &[0; 4]].concat()), None);
        }
    }
}
