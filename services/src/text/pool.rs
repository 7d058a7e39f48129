//! A few plain threads for work that would hold the async ones up: rendering and tokenizing long prompts. Holders come
//! in turns, so whoever has much of it to do waits for himself. What has begun is done to its end: most of the time in
//! a text of megabytes may be one word of it, and half of such a word takes hundreds of megabytes for as long as
//! somebody else's turn would be.

mod turns;

use crate::holder::Holder;
use crate::limits;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use tokio::sync::oneshot;
use turns::FairQueue;

/// Of a thread's stack, where nothing else is said; as the standard library has it.
const STACK_BYTES: usize = 2 << 20;
/// How far the threads of long work stand back, as `nice` counts: the kernel gives them a tenth of a contested core.
/// A step of the engine waits for its slowest thread, so whoever takes a core from it for a while stops every stream.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from one bounded queue, a holder's after every other's. Dropping the pool lets queued jobs
/// finish and waits for them.
#[derive(Debug)]
pub struct TextPool {
    queue: Arc<JobQueue>,
    threads: Vec<JoinHandle<()>>,
}

/// Where threads look for jobs.
struct JobQueue {
    waiting: Mutex<WaitingJobs>,
    /// Something came, or nothing will any more.
    changed: Condvar,
}

struct WaitingJobs {
    jobs: FairQueue<Job>,
    /// No job will come any more.
    closed: bool,
}

/// Two pools, so that what is short never waits behind what is long.
#[derive(Debug)]
pub struct Lanes {
    short: TextPool,
    long: TextPool,
}

impl Lanes {
    /// `threads` threads for short texts and one for long ones: that many long texts at once would take the cores from
    /// the rest.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Ok(Self {
            short: TextPool::new("text", threads, limits::TEXT_JOBS_MAX)?,
            long: TextPool::aside("text-long", 1, limits::LONG_TEXT_JOBS_MAX, STACK_BYTES)?,
        })
    }

    /// Where a text of this many bytes is worked on.
    pub fn for_bytes(&self, bytes: usize) -> &TextPool {
        if bytes > limits::LONG_TEXT_BYTES { &self.long } else { &self.short }
    }
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The caller may come back.
    #[error("there is no room for this to wait for a text thread now: all requests share {max} places")]
    Full {
        /// The most jobs that may wait, all holders' together.
        max: usize,
    },
    /// The job panicked, which is a bug; its thread goes on.
    #[error("preparing the prompt failed, which is a fault of the server")]
    Panicked,
}

impl TextPool {
    /// `threads` threads behind a queue of `queue_max` jobs, at least one of each; `name` is what their names begin
    /// with.
    pub fn new(name: &str, threads: usize, queue_max: usize) -> std::io::Result<Self> {
        Self::spawn(name, (threads, threads), queue_max, STACK_BYTES, || {})
    }

    /// Starts a pool whose threads have stacks of `stack` bytes, for work that takes long: it gives way to the engine
    /// and to the network where cores are short, and of several threads one tenant leaves one to the others.
    pub fn aside(name: &str, threads: usize, queue_max: usize, stack: usize) -> std::io::Result<Self> {
        Self::spawn(name, (threads, threads.saturating_sub(1)), queue_max, stack, give_way)
    }

    /// A pool that gives way as [`TextPool::aside`] does, all of whose threads one tenant may have: its jobs are short.
    pub fn in_the_background(name: &str, threads: usize, queue_max: usize) -> std::io::Result<Self> {
        Self::spawn(name, (threads, threads), queue_max, STACK_BYTES, give_way)
    }

    /// Of the threads one holder may have `share` at once. `begin` runs on each before its first job.
    fn spawn(
        name: &str,
        (threads, share): (usize, usize),
        queue_max: usize,
        stack: usize,
        begin: fn(),
    ) -> std::io::Result<Self> {
        let queue = Arc::new(JobQueue::new(queue_max, share.max(1)));
        let spawn = |i| {
            let queue = queue.clone();
            let thread = Builder::new().name(format!("{name}-{i}")).stack_size(stack);
            thread.spawn(move || {
                begin();
                while let Some((holder, job)) = queue.next() {
                    job();
                    queue.done(holder);
                }
            })
        };
        // Where one cannot be had, those before it end with the queue.
        let mut pool = Self { queue: queue.clone(), threads: Vec::new() };
        for i in 0..threads.max(1) {
            pool.threads.push(spawn(i)?);
        }
        Ok(pool)
    }

    /// Runs a job on one of the threads, in its holder's turn. If the caller stops waiting, a job that has not begun is
    /// skipped.
    pub async fn run<T: Send + 'static>(
        &self,
        holder: Holder,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (reply, result) = oneshot::channel();
        let job = move || {
            if reply.is_closed() {
                return;
            }
            // The closure is dropped with the panic, so nothing of it is seen half done.
            if let Ok(value) = catch_unwind(AssertUnwindSafe(job)) {
                // The caller may have left in the meantime.
                let _ = reply.send(value);
            }
        };
        self.queue.push(holder, Box::new(job))?;
        result.await.map_err(|_| PoolError::Panicked)
    }
}

impl JobQueue {
    fn new(max: usize, share: usize) -> Self {
        let waiting = WaitingJobs { jobs: FairQueue::new(max, share), closed: false };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn push(&self, holder: Holder, job: Job) -> Result<(), PoolError> {
        let mut waiting = self.waiting.lock();
        let max = waiting.jobs.max();
        let pushed = waiting.jobs.push(holder, job);
        drop(waiting);
        // The job that found no room is dropped here, where nobody waits for the lock.
        pushed.map_err(|_job| PoolError::Full { max })?;
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a job, and says whose it is. `None` when there is none for this thread and none will come.
    fn next(&self) -> Option<(Holder, Job)> {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.jobs.pop() {
                Some(next) => return Some(next),
                None if waiting.closed => return None,
                None => self.changed.wait(&mut waiting),
            }
        }
    }

    /// A job has run: another one of its holder may.
    fn done(&self, holder: Holder) {
        self.waiting.lock().jobs.done(holder);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_all();
    }
}

impl fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// Lets this thread give way. Linux counts it by thread, as nothing else does; elsewhere threads stay as they are.
fn give_way() {
    #[cfg(target_os = "linux")]
    // A sandbox may forbid it, and then nothing is lost but the courtesy.
    rustix::process::nice(NICE).ok();
}

impl Drop for TextPool {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A thread cannot panic: its jobs are caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::ids::KeyId;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    const A: Holder = Holder::Key(KeyId(1));
    const B: Holder = Holder::Key(KeyId(2));

    /// A job that waits for a word, and what says that it has begun, and the word.
    fn busy() -> (impl FnOnce() + Send + 'static, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let ((begun, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel());
        (move || (begun.send(()).unwrap(), may_go.recv().unwrap()).0, has_begun, go)
    }

    #[actix_rt::test]
    async fn a_job_runs_on_a_thread_of_the_pool() {
        let pool = TextPool::new("text", 2, 4).unwrap();
        let name = pool.run(A, || std::thread::current().name().map(str::to_owned)).await.unwrap();
        assert!(name.unwrap().starts_with("text-"));
    }

    #[cfg(target_os = "linux")]
    #[actix_rt::test]
    async fn long_work_gives_way_and_short_work_does_not() {
        let lanes = Lanes::new(1).unwrap();
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let here = niceness();
        assert_eq!(lanes.for_bytes(1).run(A, niceness).await.unwrap(), here);
        let long = lanes.for_bytes(limits::LONG_TEXT_BYTES + 1).run(A, niceness).await.unwrap();
        assert_eq!(long, (here + NICE).min(19));
        assert_eq!(niceness(), here, "the thread alone gives way");
    }

    #[actix_rt::test]
    async fn a_short_text_does_not_wait_for_long_ones() {
        let lanes = Lanes::new(1).unwrap();
        let (job, has_begun, go) = busy();
        let mut busy = Box::pin(lanes.for_bytes(limits::LONG_TEXT_BYTES + 1).run(A, job));
        assert!(futures_util::poll!(&mut busy).is_pending());
        has_begun.recv().unwrap();
        assert_eq!(lanes.for_bytes(limits::LONG_TEXT_BYTES).run(A, || 7).await, Ok(7));
        assert!(futures_util::poll!(&mut busy).is_pending(), "the long one still runs");
        go.send(()).unwrap();
        busy.await.unwrap();
    }

    #[actix_rt::test]
    async fn one_holder_s_long_texts_wait_for_each_other_and_another_s_for_one_of_them() {
        let lanes = Lanes::new(1).unwrap();
        let long = lanes.for_bytes(limits::LONG_TEXT_BYTES + 1);
        let (job, has_begun, go) = busy();
        let mut first = Box::pin(long.run(A, job));
        assert!(futures_util::poll!(&mut first).is_pending());
        has_begun.recv().unwrap();
        // Four of one key, and only then one of another's.
        let (ran, order) = mpsc::channel();
        let mut rest: Vec<_> = [(A, 1), (A, 2), (A, 3), (A, 4), (B, 5)]
            .into_iter()
            .map(|(holder, n)| {
                let ran = ran.clone();
                Box::pin(long.run(holder, move || ran.send(n).unwrap()))
            })
            .collect();
        for job in &mut rest {
            assert!(futures_util::poll!(job).is_pending());
        }
        go.send(()).unwrap();
        futures_util::future::join_all(rest).await.into_iter().for_each(Result::unwrap);
        first.await.unwrap();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [1, 5, 2, 3, 4]);
    }

    #[actix_rt::test]
    async fn one_holder_s_long_jobs_leave_a_thread_to_another_s() {
        let pool = TextPool::aside("long", 2, 8, STACK_BYTES).unwrap();
        let (job, has_begun, go) = busy();
        let mut first = Box::pin(pool.run(A, job));
        assert!(futures_util::poll!(&mut first).is_pending());
        has_begun.recv().unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&ran);
        let mut second = Box::pin(pool.run(A, move || counter.fetch_add(1, Ordering::SeqCst)));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(pool.run(B, || 7).await, Ok(7), "it waits for neither");
        assert_eq!(ran.load(Ordering::SeqCst), 0, "though the second was there before");
        go.send(()).unwrap();
        first.await.unwrap();
        assert_eq!(second.await, Ok(0));
    }

    #[actix_rt::test]
    async fn one_holder_leaves_half_of_the_places_to_the_others() {
        let pool = TextPool::new("text", 1, 4).unwrap();
        let (job, has_begun, go) = busy();
        let mut first = Box::pin(pool.run(A, job));
        assert!(futures_util::poll!(&mut first).is_pending());
        has_begun.recv().unwrap();
        let mut ours = [(); 2].map(|()| Box::pin(pool.run(A, || ())));
        for job in &mut ours {
            assert!(futures_util::poll!(job).is_pending());
        }
        assert_eq!(pool.run(A, || ()).await, Err(PoolError::Full { max: 4 }));
        let mut theirs = Box::pin(pool.run(B, || 7));
        assert!(futures_util::poll!(&mut theirs).is_pending());
        go.send(()).unwrap();
        assert_eq!(theirs.await, Ok(7));
    }

    #[actix_rt::test]
    async fn a_panic_fails_its_own_job_only() {
        let pool = TextPool::new("text", 1, 4).unwrap();
        assert_eq!(pool.run(A, || -> u32 { panic!("on purpose") }).await, Err(PoolError::Panicked));
        assert_eq!(pool.run(A, || 7).await, Ok(7));
    }

    #[actix_rt::test]
    async fn a_full_queue_refuses_and_abandoned_jobs_are_skipped() {
        let pool = TextPool::new("text", 1, 1).unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        let (job, has_begun, go) = busy();
        {
            let counter = Arc::clone(&ran);
            let mut busy = Box::pin(pool.run(A, job));
            assert!(futures_util::poll!(&mut busy).is_pending());
            has_begun.recv().unwrap();
            let mut waiting = Box::pin(pool.run(A, move || counter.fetch_add(1, Ordering::SeqCst)));
            assert!(futures_util::poll!(&mut waiting).is_pending());
            assert_eq!(pool.run(B, || ()).await, Err(PoolError::Full { max: 1 }));
        }
        go.send(()).unwrap();
        drop(pool);
        assert_eq!(ran.load(Ordering::SeqCst), 0, "nobody waited for it any more");
    }
}
