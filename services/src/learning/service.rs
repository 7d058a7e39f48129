//! What the service keeps for learning: remembered answers in memory, examples in a database that a thread of its own
//! writes. No answer waits for it: what cannot be taken is dropped and counted.

use super::artefacts::Artefact;
use super::consent::Consent;
use super::example::{Example, ExampleSet, TruthSource};
use super::gate::GateRules;
use super::recent::{GivenAnswer, RecentAnswers};
use super::store::{BroughtExample, ExampleStore, StoreBounds, Withdrawal};
use super::stored::StoredExample;
use super::versions::{LearnerRuns, Versions};
use crate::clock::{TimeOfDay, unix_seconds};
use crate::database::DatabaseError;
use crate::engram::TableName;
use crate::limits::{LEARNING_EXPIRE_SECONDS, LEARNING_QUEUE};
use crate::metrics::learning::{ExampleDrop, count_dropped};
use chimere_engine::ids::KeyId;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// What the operator sets.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningSettings {
    /// What is kept of callers on this machine where no key is asked for.
    pub keyless: Consent,
    /// How much is kept, and how long.
    pub bounds: StoreBounds,
    /// What is learned of it, and when.
    pub learner: LearnerSettings,
}

/// What is learned, and what it takes to be served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnerSettings {
    /// The table that corrected facts become; none is learned without one.
    pub table: Option<TableName>,
    /// Directory of the questions that judge what was learned.
    pub families: Option<PathBuf>,
    /// When it is learned each day; never by itself where there is no time.
    pub at: Option<TimeOfDay>,
    /// What passes the gate is served at once; else an administrator accepts it.
    pub accept: bool,
    /// What a candidate has to show.
    pub rules: GateRules,
}

/// Whether anything is kept for learning.
#[derive(Default)]
pub enum LearningService {
    /// The operator names no directory: nothing is opened, remembered or written.
    #[default]
    Off,
    /// The database cannot be opened, for this reason; it is left as it is.
    Failed(String),
    /// Examples are kept in a database.
    Open(Arc<Learning>),
}

/// The writer is gone or does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too much waits to be written")]
pub struct LearningBusy;

/// See the file's head.
pub struct Learning {
    store: Arc<ExampleStore>,
    settings: LearningSettings,
    recent: Mutex<RecentAnswers>,
    runs: LearnerRuns,
    jobs: Option<Sender<LearningJob>>,
    writer: Option<JoinHandle<()>>,
}

/// Something that changes the database.
enum LearningJob {
    /// Accounts bring some examples.
    Add(Vec<(KeyId, Example)>, Told<Vec<BroughtExample>>),
    /// An answer was checked; nobody waits.
    Checked(KeyId, Arc<GivenAnswer>, Vec<TruthSource>),
    /// An account takes back all that it brought, or one example.
    Forget(KeyId, Option<String>, Told<Withdrawal>),
}

/// To whoever waits for the disk.
type Told<T> = oneshot::Sender<Result<T, DatabaseError>>;

/// What the disk says, once it does.
pub type LearningReply<T> = oneshot::Receiver<Result<T, DatabaseError>>;

impl LearningService {
    /// That of a directory, if there is one. A database that cannot be opened is told and left alone: answers do not
    /// need it.
    pub fn open(directory: Option<&Path>, settings: LearningSettings) -> Self {
        let Some(directory) = directory else { return Self::Off };
        match Learning::open(directory, settings) {
            Ok(learning) => Self::Open(Arc::new(learning)),
            Err(error) => {
                tracing::error!(%error, "nothing is kept for learning; the file is left as it is");
                Self::Failed(error.to_string())
            }
        }
    }

    /// Tells the metrics what there is.
    pub fn export(&self) {
        if let Some(learning) = self.get() {
            learning.store.export();
        }
    }

    /// What is kept, where something is.
    pub fn get(&self) -> Option<&Arc<Learning>> {
        if let Self::Open(learning) = self { Some(learning) } else { None }
    }
}

impl Learning {
    fn open(directory: &Path, settings: LearningSettings) -> Result<Self, DatabaseError> {
        Self::over(ExampleStore::open(directory, settings.bounds, unix_seconds())?, settings)
    }

    fn over(store: ExampleStore, settings: LearningSettings) -> Result<Self, DatabaseError> {
        let (store, (jobs, inbox)) = (Arc::new(store), bounded(LEARNING_QUEUE));
        let writer = LearningWriter { store: store.clone(), inbox };
        let thread = std::thread::Builder::new().name("learning".into()).spawn(move || writer.run());
        let writer = Some(thread.map_err(|e| DatabaseError::failed(Path::new("learning"), e))?);
        let (recent, runs) = (Mutex::default(), LearnerRuns::default());
        Ok(Self { store, settings, recent, runs, jobs: Some(jobs), writer })
    }

    /// What the operator has set.
    pub fn settings(&self) -> &LearningSettings {
        &self.settings
    }

    /// Versions of what was learned from the examples.
    pub fn versions(&self) -> Versions<'_> {
        self.store.versions()
    }

    /// The run of a learner that is on its way, and what came of the last one.
    pub fn runs(&self) -> &LearnerRuns {
        &self.runs
    }

    /// Remembers an answer of an account that consents, so that feedback can name it.
    pub fn remember(&self, account: KeyId, id: &str, answer: Arc<GivenAnswer>) {
        self.recent.lock().put(account, id, answer);
    }

    /// A remembered answer of an account.
    pub fn remembered(&self, account: KeyId, id: &str) -> Option<Arc<GivenAnswer>> {
        self.recent.lock().get(account, id)
    }

    /// Keeps an answer that a check has proved right, if the disk keeps up.
    pub fn keep_checked(&self, account: KeyId, answer: Arc<GivenAnswer>, truth: Vec<TruthSource>) {
        if self.send(LearningJob::Checked(account, answer, truth)).is_err() {
            count_dropped(ExampleDrop::Queue, 1);
        }
    }

    /// Keeps examples, all of them or none; the reply comes when the disk has them.
    ///
    /// # Errors
    /// If too much waits for the disk.
    pub fn add(&self, brought: Vec<(KeyId, Example)>) -> Result<LearningReply<Vec<BroughtExample>>, LearningBusy> {
        let (told, reply) = oneshot::channel();
        let count = brought.len() as u64;
        let sent = self.send(LearningJob::Add(brought, told));
        sent.inspect_err(|_| count_dropped(ExampleDrop::Queue, count)).map(|()| reply)
    }

    /// Lets go of what an account brought, or of one example of it. All that is remembered of the account is forgotten
    /// at once; the reply comes when the disk has let go too.
    ///
    /// # Errors
    /// If too much waits for the disk.
    pub fn forget(&self, account: KeyId, id: Option<String>) -> Result<LearningReply<Withdrawal>, LearningBusy> {
        self.recent.lock().forget(account);
        self.runs.forget_answers();
        let (told, reply) = oneshot::channel();
        self.send(LearningJob::Forget(account, id, told)).map(|()| reply)
    }

    /// All that an account brought, the oldest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn of_account(&self, account: KeyId) -> Result<Vec<StoredExample>, DatabaseError> {
        let ends = unix_seconds().saturating_sub(self.settings.bounds.seconds);
        let mut own = self.store.of_account(account)?;
        own.retain(|stored| stored.example.at >= ends);
        Ok(own)
    }

    /// Examples of some sets, the oldest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn of_sets(&self, sets: &[ExampleSet]) -> Result<Vec<StoredExample>, DatabaseError> {
        let mut all = self.store.all()?;
        all.retain(|stored| sets.contains(&stored.example.set));
        Ok(all)
    }

    /// All that was trained on examples, by name.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn artefacts(&self) -> Result<Vec<(String, Artefact)>, DatabaseError> {
        self.store.artefacts()
    }

    fn send(&self, job: LearningJob) -> Result<(), LearningBusy> {
        let jobs = self.jobs.as_ref().ok_or(LearningBusy)?;
        jobs.try_send(job).map_err(|_| LearningBusy)
    }
}

impl Drop for Learning {
    /// Waits until what was taken is written.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(writer) = self.writer.take() {
            writer.join().ok();
        }
    }
}

/// The thread that writes.
struct LearningWriter {
    store: Arc<ExampleStore>,
    inbox: Receiver<LearningJob>,
}

impl LearningWriter {
    fn run(self) {
        loop {
            match self.inbox.recv_timeout(Duration::from_secs(LEARNING_EXPIRE_SECONDS)) {
                Ok(job) => self.done(job),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.store.expire(unix_seconds()) {
                        tracing::error!(%error, "examples whose time is over could not be removed; it is tried again");
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn done(&self, job: LearningJob) {
        match job {
            // Nobody may wait for it any more, here and below.
            LearningJob::Add(brought, told) => drop(told.send(self.added(brought))),
            LearningJob::Checked(account, answer, truth) => {
                let example = answer.with_checks(account, truth, unix_seconds());
                self.added(vec![(account, example)]).ok();
            }
            LearningJob::Forget(account, id, told) => {
                drop(told.send(self.store.forget(account, id.as_deref(), unix_seconds())));
            }
        }
    }

    fn added(&self, brought: Vec<(KeyId, Example)>) -> Result<Vec<BroughtExample>, DatabaseError> {
        let count = brought.len() as u64;
        let outcome = self.store.add(brought, unix_seconds());
        match &outcome {
            Ok(kept) => {
                let secrets = kept.iter().filter(|kept| **kept == BroughtExample::Secret).count() as u64;
                count_dropped(ExampleDrop::Secret, secrets);
            }
            Err(error) => {
                tracing::error!(%error, "examples could not be written");
                count_dropped(ExampleDrop::Write, count);
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::example::tests::example;

    fn settings() -> LearningSettings {
        let bounds = StoreBounds { bytes_max: 1 << 20, seconds: 1 << 30 };
        LearningSettings { keyless: Consent::Off, bounds, learner: LearnerSettings::default() }
    }

    #[test]
    fn without_a_directory_nothing_is_there_and_a_damaged_file_is_left_as_it_is() {
        assert!(LearningService::open(None, settings()).get().is_none());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("learning.redb");
        std::fs::write(&file, vec![7; 10_000]).unwrap();
        let service = LearningService::open(Some(dir.path()), settings());
        assert!(matches!(&service, LearningService::Failed(why) if why.contains("learning.redb")));
        assert_eq!(std::fs::read(&file).unwrap(), vec![7; 10_000]);
    }

    #[test]
    fn what_was_brought_is_on_the_disk_when_it_is_opened_again_and_its_file_is_its_owner_s() {
        let dir = tempfile::tempdir().unwrap();
        let open = || LearningService::open(Some(dir.path()), settings()).get().unwrap().clone();
        let now = unix_seconds();
        let learning = open();
        let taken = learning.add(vec![(KeyId(1), Example { at: now, ..example("a b c", "d") })]).is_ok();
        drop(learning);
        assert!(taken, "what was taken is written before the end");
        let learning = open();
        assert_eq!(learning.of_account(KeyId(1)).unwrap().len(), 1);
        let reply = learning.forget(KeyId(1), None).unwrap();
        assert_eq!(reply.blocking_recv().unwrap().unwrap().examples, 1);
        assert!(learning.of_account(KeyId(1)).unwrap().is_empty());
        #[cfg(unix)]
        {
            let file = std::fs::metadata(dir.path().join("learning.redb")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
