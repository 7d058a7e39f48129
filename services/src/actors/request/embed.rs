//! Reads texts for their hidden states: each is a request of its own to the scheduler, a few at a time, and gives a
//! vector of length 1.

use super::ServiceHandles;
use super::direct::{DirectError, DirectRequest, batch};
use crate::actors::live::{LiveEntry, LiveRequests};
use crate::metrics;
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::{Event, Pooling, Request, RequestTimes, Spec, Terms};
use std::sync::Arc;

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

/// A vector of length 1 for each text, made as [`batch::run`] says it.
pub async fn embed(
    handles: &ServiceHandles,
    live: &LiveRequests,
    name: Arc<str>,
    texts: Texts,
) -> Result<Vec<Vec<f32>>, DirectError> {
    let Texts { prompts, pooling, priority, terms } = texts;
    let mut vectors = vec![Vec::new(); prompts.len()];
    let start = |at: usize, terms: Terms| {
        let request = request(live.enter(name.clone()), prompts[at].clone(), pooling, priority);
        read_one(handles, request, terms)
    };
    let finished = |at: usize, vector| {
        vectors[at] = vector;
        Vec::new()
    };
    batch::run(handles, "embedded", (0..prompts.len()).collect(), terms, start, finished).await?;
    ::metrics::counter!(metrics::EMBEDDING_INPUTS).increment(prompts.len() as u64);
    Ok(vectors)
}

/// The vector of one text that the service reads for itself: it is nobody's request and counts as none. As idle work it
/// takes from nobody, but may not be as long as another text; otherwise it comes behind every other of its kind.
pub async fn read_own(
    handles: &ServiceHandles,
    live: &LiveRequests,
    name: Arc<str>,
    (prompt, pooling): (Arc<[TokenId]>, Pooling),
    idle: bool,
) -> Result<Vec<f32>, DirectError> {
    let terms = Terms { exempt: !idle, idle, ..Terms::default() };
    let (vector, _) = read_one(handles, request(live.enter(name), prompt, pooling, i32::MAX), terms).await?;
    Ok(vector)
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

/// A vector of the given direction and length 1; one without a direction stays as it is.
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
