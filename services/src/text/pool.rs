//! A few plain threads for work that would hold the async ones up: rendering and tokenizing long prompts.

use crate::limits;
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};
use tokio::sync::oneshot;

/// Of a thread's stack, where nothing else is said; as the standard library has it.
const STACK_BYTES: usize = 2 << 20;
/// How far the threads of long work stand back, as `nice` counts: the kernel gives them a tenth of a contested core.
/// A step of the engine waits for its slowest thread, so whoever takes a core from it for a while stops every stream.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from one bounded queue. Dropping the pool lets queued jobs finish and waits for them.
#[derive(Debug)]
pub struct TextPool {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    queue_max: usize,
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
    #[error("{max} prompts are waiting for a tokenizer thread, more cannot")]
    Full {
        /// The most jobs that may wait.
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
        Self::spawn(name, threads, queue_max, STACK_BYTES, || {})
    }

    /// The same with so many bytes for each thread's stack, for work that takes long: it gives way to the engine and to
    /// the network where cores are short.
    pub fn aside(name: &str, threads: usize, queue_max: usize, stack: usize) -> std::io::Result<Self> {
        Self::spawn(name, threads, queue_max, stack, give_way)
    }

    /// `begin` runs on each thread before its first job.
    fn spawn(name: &str, threads: usize, queue_max: usize, stack: usize, begin: fn()) -> std::io::Result<Self> {
        let (jobs, inbox) = bounded::<Job>(queue_max.max(1));
        let spawn = |i| {
            let inbox: Receiver<Job> = inbox.clone();
            let thread = Builder::new().name(format!("{name}-{i}")).stack_size(stack);
            thread.spawn(move || {
                begin();
                inbox.iter().for_each(|job| job());
            })
        };
        let threads = (0..threads.max(1)).map(spawn).collect::<Result<_, _>>()?;
        Ok(Self { jobs: Some(jobs), threads, queue_max: queue_max.max(1) })
    }

    /// Runs a job on one of the threads. If the caller stops waiting, a job that has not begun is skipped.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, PoolError> {
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
        let jobs = self.jobs.as_ref().expect("the queue is closed by drop alone");
        match jobs.try_send(Box::new(job)) {
            Ok(()) => result.await.map_err(|_| PoolError::Panicked),
            Err(TrySendError::Full(_)) => Err(PoolError::Full { max: self.queue_max }),
            Err(TrySendError::Disconnected(_)) => unreachable!("threads catch panics and live as long as the pool"),
        }
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
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread cannot panic: its jobs are caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, mpsc};

    #[actix_rt::test]
    async fn a_job_runs_on_a_thread_of_the_pool() {
        let pool = TextPool::new("text", 2, 4).unwrap();
        let name = pool.run(|| std::thread::current().name().map(str::to_owned)).await.unwrap();
        assert!(name.unwrap().starts_with("text-"));
    }

    #[cfg(target_os = "linux")]
    #[actix_rt::test]
    async fn long_work_gives_way_and_short_work_does_not() {
        let lanes = Lanes::new(1).unwrap();
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let here = niceness();
        assert_eq!(lanes.for_bytes(1).run(niceness).await.unwrap(), here);
        let long = lanes.for_bytes(limits::LONG_TEXT_BYTES + 1).run(niceness).await.unwrap();
        assert_eq!(long, (here + NICE).min(19));
        assert_eq!(niceness(), here, "the thread alone gives way");
    }

    #[actix_rt::test]
    async fn a_short_text_does_not_wait_for_long_ones() {
        let lanes = Lanes::new(1).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let long = lanes.for_bytes(limits::LONG_TEXT_BYTES + 1);
        let mut busy = Box::pin(long.run(move || (begun.send(()).unwrap(), may_go.recv().unwrap())));
        assert!(futures_util::poll!(&mut busy).is_pending());
        has_begun.recv().unwrap();
        assert_eq!(lanes.for_bytes(limits::LONG_TEXT_BYTES).run(|| 7).await, Ok(7));
        assert!(futures_util::poll!(&mut busy).is_pending(), "the long one still runs");
        go.send(()).unwrap();
        busy.await.unwrap();
    }

    #[actix_rt::test]
    async fn a_panic_fails_its_own_job_only() {
        let pool = TextPool::new("text", 1, 4).unwrap();
        assert_eq!(pool.run(|| -> u32 { panic!("on purpose") }).await, Err(PoolError::Panicked));
        assert_eq!(pool.run(|| 7).await, Ok(7));
    }

    #[actix_rt::test]
    async fn a_full_queue_refuses_and_abandoned_jobs_are_skipped() {
        let pool = TextPool::new("text", 1, 1).unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        let (begun, has_begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        {
            let counter = Arc::clone(&ran);
            let mut busy = Box::pin(pool.run(move || (begun.send(()).unwrap(), may_go.recv().unwrap())));
            assert!(futures_util::poll!(&mut busy).is_pending());
            has_begun.recv().unwrap();
            let mut waiting = Box::pin(pool.run(move || counter.fetch_add(1, Ordering::SeqCst)));
            assert!(futures_util::poll!(&mut waiting).is_pending());
            assert_eq!(pool.run(|| ()).await, Err(PoolError::Full { max: 1 }));
        }
        go.send(()).unwrap();
        drop(pool);
        assert_eq!(ran.load(Ordering::SeqCst), 0, "nobody waited for it any more");
    }
}
