//! Reads texts for their hidden states: each is a request of its own to the scheduler, a few at a time, and gives a
//! vector of length 1.

use super::ServiceHandles;
use super::direct::{DirectError, DirectRequest};
use super::stopwatch::Stopwatch;
use crate::actors::live::{LiveEntry, LiveRequests};
use crate::actors::messages::Refusal;
use crate::actors::phase::DEADLINE_PASSED;
use crate::limits::EMBEDDING_IN_FLIGHT_MAX;
use crate::metrics;
use crate::metrics::gateway::Gateway;
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::{Event, Pooling, Rejected, Request, RequestTimes, Spec, Terms};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait with nothing in flight where a refusal does not say.
const RETRY: Duration = Duration::from_secs(1);

/// The texts that vectors are made of.
pub struct Texts {
    /// At least one; each has a token and fits the context.
    pub prompts: Vec<Arc<[TokenId]>>,
    /// Which rows make a vector.
    pub pooling: Pooling,
    /// Lower runs first among the requests of a key.
    pub priority: i32,
    /// Whose texts they are, and by when they have to be read.
    pub terms: Terms,
}

/// A vector of length 1 for each text. Whoever stops waiting cancels what is not read yet.
///
/// Many texts are no reason for a no: once one of them was taken, those that find no room wait for it. An error means
/// that nothing was taken, that a text can never run, that the deadline passed, or that the engine failed.
pub async fn embed(
    handles: &ServiceHandles,
    live: &LiveRequests,
    name: Arc<str>,
    texts: Texts,
) -> Result<Vec<Vec<f32>>, DirectError> {
    let mut end = End { outcome: "cancelled", gateway: handles.gateway.clone() };
    let read = read_all(handles, live, name, texts).await;
    end.outcome = match &read {
        Ok(_) => "embedded",
        Err(DirectError::Refused(_)) => "rejected",
        Err(DirectError::Failed(why)) if why == DEADLINE_PASSED => "deadline",
        Err(DirectError::Failed(_)) => "failed",
    };
    read
}

/// The vector of one text that the service reads for itself, behind every other of its kind: it is nobody's request and
/// counts as none.
pub async fn read_own(
    handles: &ServiceHandles,
    live: &LiveRequests,
    name: Arc<str>,
    prompt: Arc<[TokenId]>,
    pooling: Pooling,
) -> Result<Vec<f32>, DirectError> {
    let terms = Terms { exempt: true, ..Terms::default() };
    let (vector, _) = read_one(handles, request(live.enter(name), prompt, pooling, i32::MAX), terms).await?;
    Ok(vector)
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

async fn read_all(
    handles: &ServiceHandles,
    live: &LiveRequests,
    name: Arc<str>,
    texts: Texts,
) -> Result<Vec<Vec<f32>>, DirectError> {
    let Texts { prompts, pooling, priority, terms } = texts;
    let one = |at: usize| {
        let request = request(live.enter(name.clone()), prompts[at].clone(), pooling, priority);
        async move { (at, read_one(handles, request, terms).await) }
    };
    let mut watch = Stopwatch::new(0, handles.gateway.clone());
    let mut vectors = vec![Vec::new(); prompts.len()];
    let (mut waiting, mut running) = ((0..prompts.len()).collect::<VecDeque<_>>(), FuturesUnordered::new());
    let (mut window, mut done) = (EMBEDDING_IN_FLIGHT_MAX, 0);
    while done < prompts.len() {
        while running.len() < window
            && let Some(at) = waiting.pop_front()
        {
            running.push(one(at));
        }
        match running.next().await.expect("what is not done is waiting or running") {
            (at, Ok((vector, times))) => {
                vectors[at] = vector;
                watch.started(times);
                done += 1;
                window = (window + 1).min(EMBEDDING_IN_FLIGHT_MAX);
            }
            (at, Err(DirectError::Refused(refusal))) if passes(&refusal) && (done > 0 || !running.is_empty()) => {
                waiting.push_front(at);
                // Those in flight may all be refused yet; a text at a time is always tried.
                window = running.len().max(1);
                if running.is_empty() {
                    tokio::time::sleep(refusal.retry_after.unwrap_or(RETRY)).await;
                }
            }
            (_, Err(error)) => return Err(error),
        }
    }
    ::metrics::counter!(metrics::EMBEDDING_INPUTS).increment(done as u64);
    watch.end(handles.clock.now());
    Ok(vectors)
}

/// There will be room later.
fn passes(refusal: &Refusal) -> bool {
    use Rejected::{KeyBusy, KeyRate, QueueFull, QueueTokensFull, WaitTooLong};
    matches!(
        refusal.reason,
        QueueFull { .. } | QueueTokensFull { .. } | KeyBusy { .. } | KeyRate { .. } | WaitTooLong { .. }
    )
}

fn request(entry: LiveEntry, prompt: Arc<[TokenId]>, pooling: Pooling, priority: i32) -> (LiveEntry, Request) {
    let spec = Spec { priority, pool: Some(pooling), ..Spec::greedy(0) };
    let request = Request::new(entry.id, prompt, spec);
    (entry, request)
}

async fn read_one(
    handles: &ServiceHandles,
    (entry, request): (LiveEntry, Request),
    terms: Terms,
) -> Result<(Vec<f32>, RequestTimes), DirectError> {
    let mut direct = DirectRequest::start(handles, entry, request, terms).await?;
    let mut vector = Vec::new();
    loop {
        match direct.event().await? {
            Event::Pooled(mean) => vector = unit(mean),
            Event::Finished { times, .. } => return Ok((vector, times)),
            _ => {}
        }
    }
}

/// The same direction at length 1; of no direction, as it is.
fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let square: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    if square > 0.0 && square.is_finite() {
        let scale = square.sqrt().recip();
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_has_length_1_and_its_direction() {
        assert_eq!(unit(vec![3.0, 0.0, -4.0]), [0.6, 0.0, -0.8]);
        assert_eq!(unit(vec![0.0; 2]), [0.0; 2]);
        let huge = unit(vec![1e30, 1e30]);
        assert!((huge[0] - 0.5f32.sqrt()).abs() < 1e-6, "{huge:?}");
    }
}
