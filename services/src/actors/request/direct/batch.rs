//! The requests of one call that no actor answers for: a few of them are in the scheduler's hands at a time, and all
//! together they count as one request, also among those that wait.

use super::DirectError;
use crate::actors::messages::Refusal;
use crate::actors::phase::DEADLINE_PASSED;
use crate::actors::request::ServiceHandles;
use crate::actors::request::stopwatch::Stopwatch;
use crate::limits::BATCH_IN_FLIGHT_MAX;
use crate::metrics;
use crate::metrics::gateway::Gateway;
use chimere_engine::scheduler::{Rejected, RequestTimes, Terms};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait with nothing in flight where a refusal does not say.
const RETRY: Duration = Duration::from_secs(1);

/// Runs requests by their numbers: `first` of them, and those that `finished` names when it is told of a result.
/// Whoever stops waiting cancels what is not done yet. `outcome` is counted if all went well.
///
/// One is in the scheduler's hands at first, and one more for each that ends. Once one of them was taken, the others
/// take no place in the queue, and those of a key that may have no more requests now wait for it. An error means that
/// nothing was taken, that a request can never run, that the deadline passed, or that the engine failed.
pub(in crate::actors::request) async fn run<T, F>(
    handles: &ServiceHandles,
    outcome: &'static str,
    first: Vec<usize>,
    terms: Terms,
    start: impl Fn(usize, Terms) -> F,
    finished: impl FnMut(usize, T) -> Vec<usize>,
) -> Result<(), DirectError>
where
    F: Future<Output = Result<(T, RequestTimes), DirectError>>,
{
    let mut end = End { outcome: "cancelled", gateway: handles.gateway.clone() };
    let ran = run_all(handles, first, terms, start, finished).await;
    end.outcome = match &ran {
        Ok(()) => outcome,
        Err(DirectError::Refused(_)) => "rejected",
        Err(DirectError::Failed(why)) if why == DEADLINE_PASSED => "deadline",
        Err(DirectError::Failed(_)) => "failed",
    };
    ran
}

/// Counts how it ended, also when nobody waits for it any more.
struct End {
    outcome: &'static str,
    gateway: Arc<Gateway>,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.outcome != "rejected" {
            // Together, so that they balance whatever ended it.
            ::metrics::counter!(metrics::REQUESTS_STARTED).increment(1);
            ::metrics::counter!(metrics::REQUESTS_TOTAL, "outcome" => self.outcome).increment(1);
            self.gateway.ended(self.outcome);
        }
    }
}

async fn run_all<T, F>(
    handles: &ServiceHandles,
    first: Vec<usize>,
    terms: Terms,
    start: impl Fn(usize, Terms) -> F,
    mut finished: impl FnMut(usize, T) -> Vec<usize>,
) -> Result<(), DirectError>
where
    F: Future<Output = Result<(T, RequestTimes), DirectError>>,
{
    let start = &start;
    let one = |at: usize, exempt| async move { (at, start(at, Terms { exempt, ..terms }).await) };
    let mut watch = Stopwatch::new(0, handles.gateway.clone());
    let (mut waiting, mut running) = (VecDeque::from(first), FuturesUnordered::new());
    let (mut window, mut taken) = (1, false);
    loop {
        while running.len() < window
            && let Some(at) = waiting.pop_front()
        {
            running.push(one(at, taken || terms.exempt));
        }
        let Some(ended) = running.next().await else { break };
        match ended {
            (at, Ok((result, times))) => {
                watch.started(times);
                waiting.extend(finished(at, result));
                (window, taken) = ((window + 1).min(BATCH_IN_FLIGHT_MAX), true);
            }
            (at, Err(DirectError::Refused(refusal))) if passes(&refusal) && (taken || !running.is_empty()) => {
                waiting.push_front(at);
                // Those in flight may all be refused yet; one at a time is always tried.
                window = running.len().max(1);
                if running.is_empty() {
                    tokio::time::sleep(refusal.retry_after.unwrap_or(RETRY)).await;
                }
            }
            (_, Err(error)) => return Err(error),
        }
    }
    watch.end(handles.clock.now());
    Ok(())
}

/// There will be room later.
fn passes(refusal: &Refusal) -> bool {
    use Rejected::{KeyBusy, KeyRate, QueueFull, QueueTokensFull, WaitTooLong};
    matches!(
        refusal.reason,
        QueueFull { .. } | QueueTokensFull { .. } | KeyBusy { .. } | KeyRate { .. } | WaitTooLong { .. }
    )
}
