//! Makes files of stores searchable, on a few threads of its own that give way to all others: read by a child, cut,
//! indexed. Where a file stands is on the disk, so a service that was killed goes on where it stood.

use super::cut::{Cut, passages};
use super::index::{FileSegment, StoreIndex, VectorRows};
use super::library::{Library, VectorStore};
use super::members::{FaultCode, FileInfo, MemberFault, MemberState};
use super::outline::{ChildWord, TextSection};
use super::parse::{ChildBounds, ChildFault, DocumentFormat, read_with_child};
use super::tables::{self, PassageSpan};
use crate::limits::{INDEX_BYTES_MAX, STORE_CHUNKS_MAX};
use crate::metrics;
use chimere_engine::files::open_regular;
use chimere_engine::ids::KeyId;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::{self, Read};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// How much more than other threads these give way: half of what there is.
const NICE: i32 = 10;
/// Bytes of a file from which its kind is told.
const HEAD_BYTES: u64 = 4096;

/// The work that waits and the threads that do it. Dropped, it ends them; what they did not finish is begun anew by the
/// next service.
pub(super) struct Ingest {
    shared: Arc<IngestShared>,
    threads: Vec<JoinHandle<()>>,
}

struct IngestShared {
    library: Arc<Library>,
    queue: Mutex<IngestQueue>,
    /// Work has come, or the bytes of a file were read, or it ends.
    changed: Condvar,
}

#[derive(Default)]
struct IngestQueue {
    waiting: BTreeMap<KeyId, VecDeque<IngestJob>>,
    /// The account that had its turn last.
    last: KeyId,
    /// Hashes of the files that are being worked on: bytes that came twice are read once.
    running: HashSet<String>,
    closed: bool,
}

/// A file that is to be made searchable in a store.
#[derive(Clone)]
struct IngestJob {
    store: Arc<VectorStore>,
    file: Arc<FileInfo>,
    /// That of the file in the store: another one means that it has begun anew.
    number: u64,
}

/// Why a file does not become searchable.
enum Stop {
    /// Nobody wants it any more.
    Unwanted,
    /// It is given up for this reason.
    Fault(MemberFault),
}

impl Stop {
    fn server(why: impl std::fmt::Display) -> Self {
        Self::Fault(MemberFault { code: FaultCode::ServerError, message: why.to_string() })
    }

    fn invalid(why: impl Into<String>) -> Self {
        Self::Fault(MemberFault { code: FaultCode::InvalidFile, message: why.into() })
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::server(error)
    }
}

impl Ingest {
    /// Starts the threads, and goes on with what the service before this one did not finish.
    pub(super) fn start(library: Arc<Library>) -> io::Result<Self> {
        let threads = library.settings.threads.max(1);
        let shared = Arc::new(IngestShared { library, queue: Mutex::default(), changed: Condvar::new() });
        let stores: Vec<_> = shared.library.stores.read().values().cloned().collect();
        stores.iter().for_each(|store| shared.push(store, |_| true));
        let mut all = Self { shared: shared.clone(), threads: Vec::new() };
        for i in 0..threads {
            let (shared, stores) = (shared.clone(), if i == 0 { stores.clone() } else { Vec::new() });
            let thread = std::thread::Builder::new().name(format!("ingest-{i}"));
            all.threads.push(thread.spawn(move || shared.run(&stores))?);
        }
        Ok(all)
    }

    /// Tells the metrics what waits.
    pub(super) fn export(&self) {
        self.shared.queue.lock().export();
    }

    /// Begins to work on files of a store.
    pub(super) fn push(&self, store: &Arc<VectorStore>, files: &[String]) {
        let files: HashSet<&str> = files.iter().map(String::as_str).collect();
        self.shared.push(store, |file| files.contains(file));
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

impl IngestShared {
    /// Puts those files of a store into the queue that are not searchable yet, oldest first.
    fn push(&self, store: &Arc<VectorStore>, wanted: impl Fn(&str) -> bool) {
        let mut jobs: Vec<IngestJob> = {
            let state = store.state.read();
            let begun = state.members.values().filter(|member| member.state == MemberState::InProgress);
            let begun = begun.filter(|member| wanted(&member.file_id));
            let file = |id: &str| self.library.file(store.owner, id).ok();
            begun
                .filter_map(|m| Some(IngestJob { store: store.clone(), file: file(&m.file_id)?, number: m.number }))
                .collect()
        };
        jobs.sort_by_key(|job| job.number);
        let mut queue = self.queue.lock();
        queue.waiting.entry(store.owner).or_default().extend(jobs);
        queue.export();
        drop(queue);
        self.changed.notify_all();
    }

    fn run(&self, stores: &[Arc<VectorStore>]) {
        rustix::process::setpriority_process(None, NICE).ok();
        for store in stores {
            if self.queue.lock().closed {
                return;
            }
            self.library.load(store);
        }
        while let Some(job) = self.take() {
            let done = catch_unwind(AssertUnwindSafe(|| self.work(&job)));
            let stop = done.unwrap_or_else(|_| Err(Stop::server("a fault of the service"))).err();
            if let Some(stop) = stop {
                self.give_up(&job, stop);
            }
            self.queue.lock().running.remove(&job.file.sha256);
            self.changed.notify_all();
        }
    }

    /// The next work, whose bytes nobody else is reading. None when the service ends.
    fn take(&self) -> Option<IngestJob> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.take() {
                queue.export();
                return Some(job);
            }
            self.changed.wait(&mut queue);
        }
    }

    fn is_wanted(&self, job: &IngestJob) -> bool {
        let state = job.store.state.read();
        let member = state.members.get(&job.file.id);
        member.is_some_and(|m| m.number == job.number && m.state == MemberState::InProgress)
            && !self.queue.lock().closed
    }

    fn work(&self, job: &IngestJob) -> Result<(), Stop> {
        if !self.is_wanted(job) {
            return Err(Stop::Unwanted);
        }
        if !self.library.texts.has(&job.file.sha256) {
            self.read(job)?;
        }
        let (segment, bytes) = self.cut(job)?;
        self.library.load(&job.store);
        self.check_room(job, &segment)?;
        let (file, chunks) = (job.file.id.as_str(), segment.spans().len());
        let completed = self.library.settle(
            &job.store,
            (file, job.number),
            |member| (member.state, member.bytes, member.chunks) = (MemberState::Completed, bytes, chunks),
            Some(segment),
        );
        let store = job.store.id.as_str();
        match completed.map_err(Stop::server)? {
            true => tracing::info!(store, file, chunks, bytes, "a file can be searched"),
            false => return Err(Stop::Unwanted),
        }
        Ok(())
    }

    /// Has the file read by a child.
    fn read(&self, job: &IngestJob) -> Result<(), Stop> {
        let (settings, sha256) = (&self.library.settings, job.file.sha256.as_str());
        let path = self.library.bytes_path(sha256);
        let mut head = Vec::new();
        open_regular(&path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
        let format = DocumentFormat::of(&head, &job.file.filename);
        let bounds = ChildBounds {
            program: &settings.program,
            memory_bytes: settings.parse_bytes,
            seconds: settings.parse_seconds,
        };
        let (mut writer, mut fault) = (self.library.texts.begin(sha256)?, None);
        let read = read_with_child(
            bounds,
            (open_regular(&path)?, format),
            || self.is_wanted(job),
            |line| {
                Ok(match writer.hear(line)? {
                    ChildWord::More => false,
                    ChildWord::End => true,
                    ChildWord::Fault(why) => {
                        fault = Some(why);
                        true
                    }
                })
            },
        );
        match (read, fault) {
            (_, Some(fault)) => Err(Stop::Fault(fault)),
            (Ok(()), None) => Ok(writer.finish()?),
            (Err(ChildFault::Unwanted), _) => Err(Stop::Unwanted),
            (Err(ChildFault::TooSlow), _) => {
                let seconds = settings.parse_seconds;
                Err(Stop::invalid(format!("it takes more than {seconds} s to read (documents.parse_seconds)")))
            }
            (Err(ChildFault::Died(why)), _) => Err(Stop::invalid(why)),
            (Err(ChildFault::Io(error)), _) => Err(error.into()),
        }
    }

    /// The passages of a file, and the bytes of its text.
    fn cut(&self, job: &IngestJob) -> Result<(FileSegment, u64), Stop> {
        let (texts, sha256) = (&self.library.texts, job.file.sha256.as_str());
        let outline: Arc<[TextSection]> = texts.outline(sha256)?.into();
        let (text, cut) = (texts.open(sha256)?, self.chunking(job));
        let mut segment = FileSegment::of(&job.file.id, outline.clone());
        for (i, section) in outline.iter().enumerate() {
            if !self.is_wanted(job) {
                return Err(Stop::Unwanted);
            }
            let words = text.read(section.start, section.end)?;
            for range in passages(&words, cut, &*self.library.settings.count) {
                let at = |within: usize| (section.start + within) as u32;
                let span = PassageSpan { start: at(range.start), end: at(range.end) };
                segment.push(&job.file.filename, i, span, &words[range]);
            }
            if segment.spans().len() > STORE_CHUNKS_MAX {
                return Err(Stop::invalid(format!("it has more than {STORE_CHUNKS_MAX} passages")));
            }
        }
        Ok((segment, outline.last().map_or(0, |section| section.end as u64)))
    }

    fn chunking(&self, job: &IngestJob) -> Cut {
        let state = job.store.state.read();
        let chunking = state.members.get(&job.file.id).map(|member| member.chunking).unwrap_or_default();
        let (tokens, overlap) = chunking.sizes(self.library.settings.chunk_tokens);
        Cut { tokens, overlap }
    }

    fn check_room(&self, job: &IngestJob, segment: &FileSegment) -> Result<(), Stop> {
        let have = job.store.index.read().as_ref().map_or(0, StoreIndex::len);
        let more = segment.spans().len();
        if have + more > STORE_CHUNKS_MAX {
            let message = format!(
                "the store has {have} passages, {more} more would exceed {STORE_CHUNKS_MAX}: put the file into another"
            );
            return Err(Stop::invalid(message));
        }
        let all = self.library.index_bytes.load(Ordering::Relaxed);
        let width = self.library.settings.vectors.as_ref().map(|maker| maker.width);
        let vectors = more as u64 * width.map_or(0, VectorRows::row_bytes);
        if all + segment.bytes() + vectors > INDEX_BYTES_MAX {
            return Err(Stop::server(format!(
                "the words and vectors of all stores take {all} bytes, at most {INDEX_BYTES_MAX} are kept"
            )));
        }
        Ok(())
    }

    fn give_up(&self, job: &IngestJob, stop: Stop) {
        let (store, file) = (job.store.id.as_str(), job.file.id.as_str());
        if let Stop::Fault(fault) = stop {
            tracing::warn!(store, file, code = fault.code.name(), why = fault.message, "a file cannot be searched");
            let state = MemberState::Failed(fault);
            let settled =
                self.library.settle(&job.store, (file, job.number), |member| member.state = state.clone(), None);
            if let Err(error) = settled {
                tracing::error!(store, file, %error, "the state of a file cannot be kept; the next start tries anew");
                if let Some(member) = job.store.state.write().members.get_mut(file) {
                    member.state = state;
                }
            }
        }
        // Removed meanwhile, it may have left a text behind.
        let _changing = self.library.changing();
        self.library.forget_bytes(&job.file.sha256);
    }
}

impl IngestQueue {
    fn take(&mut self) -> Option<IngestJob> {
        let after = self.waiting.range((Bound::Excluded(self.last), Bound::Unbounded));
        let owners: Vec<KeyId> = after.chain(self.waiting.range(..=self.last)).map(|(owner, _)| *owner).collect();
        for owner in owners {
            let jobs = self.waiting.get_mut(&owner)?;
            let Some(at) = jobs.iter().position(|job| !self.running.contains(&job.file.sha256)) else { continue };
            let job = jobs.remove(at)?;
            if jobs.is_empty() {
                self.waiting.remove(&owner);
            }
            self.last = owner;
            self.running.insert(job.file.sha256.clone());
            return Some(job);
        }
        None
    }

    fn export(&self) {
        export(self.waiting.values().map(VecDeque::len).sum());
    }
}

/// Tells the metrics how many files wait.
pub(super) fn export(waiting: usize) {
    ::metrics::gauge!(metrics::INGEST_QUEUE).set(waiting as f64);
}

impl Library {
    /// Reads the passages of a store into memory, if they are not there yet. One file that cannot be read is left out.
    pub(super) fn load(&self, store: &VectorStore) {
        // Those who search what is there share it.
        if store.index.read().is_some() {
            return;
        }
        let mut index = store.index.write();
        if index.is_some() {
            return;
        }
        let mut completed: Vec<_> = {
            let state = store.state.read();
            let completed = state.members.values().filter(|member| member.state == MemberState::Completed);
            completed.map(|member| (member.number, member.file_id.clone())).collect()
        };
        completed.sort_unstable();
        let mut loaded = self.empty_index();
        for (_, file) in completed {
            match self.segment(store, &file) {
                Ok(segment) => {
                    loaded.append(segment);
                    self.load_vectors(store, &file, &mut loaded);
                }
                Err(error) => tracing::error!(store = store.id, file, error, "a file of a store cannot be searched"),
            }
        }
        self.index_bytes.fetch_add(loaded.bytes(), Ordering::Relaxed);
        store.count(&loaded);
        *index = Some(loaded);
        drop(index);
        self.export();
    }

    /// An index as it begins.
    pub(super) fn empty_index(&self) -> StoreIndex {
        StoreIndex::of_width(self.settings.vectors.as_ref().map(|maker| maker.width))
    }

    /// The passages of a file as they were found before.
    fn segment(&self, store: &VectorStore, file: &str) -> Result<FileSegment, String> {
        let spans =
            self.db.read(|txn| tables::spans(txn, (store.owner, &store.id, file))).map_err(|e| e.to_string())?;
        let file = self.file(store.owner, file).map_err(|e| e.to_string())?;
        let outline: Arc<[TextSection]> = self.texts.outline(&file.sha256).map_err(|e| e.to_string())?.into();
        let text = self.texts.open(&file.sha256).map_err(|e| e.to_string())?;
        let (mut segment, mut section) = (FileSegment::of(&file.id, outline.clone()), 0);
        for span in spans {
            let (start, end) = (span.start as usize, span.end as usize);
            while outline.get(section).is_some_and(|section| section.end < end) {
                section += 1;
            }
            if section == outline.len() {
                return Err("its passages are not those of its text".into());
            }
            segment.push(&file.filename, section, span, &text.read(start, end).map_err(|e| e.to_string())?);
        }
        Ok(segment)
    }
}
