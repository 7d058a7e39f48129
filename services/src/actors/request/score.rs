//! Log-probabilities of texts that may follow a prompt, along their tokens: nothing is sampled. Texts that differ in
//! their last token alone share a request, and a prompt that others begin with is computed before them.

use super::ServiceHandles;
use super::direct::{DirectError, DirectRequest, batch};
use crate::actors::live::{LiveEntry, LiveRequests};
use chimere_engine::CHUNK_TOKENS;
use chimere_engine::adapter::ScaledAdapter;
use chimere_engine::ids::{CacheScope, TokenId};
use chimere_engine::scheduler::{Event, PromptScores, Request, RequestTimes, Spec, Terms};
use chimere_engine::step::{SCORED_NEXT_MAX, Score};
use std::collections::HashMap;
use std::sync::Arc;

/// A prompt, and what may follow it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stem {
    /// At least one token.
    pub prompt: Vec<TokenId>,
    /// The tokens of each text that may follow, at least one; none begins another.
    pub paths: Vec<Vec<TokenId>>,
}

/// What is to be scored, and under which terms.
pub struct Scoring {
    /// The prompts, of which there is at least one.
    pub stems: Vec<Stem>,
    /// The scope of the prefix cache, by which the prompts' common beginnings are computed once.
    pub cache: Option<CacheScope>,
    /// The account that pays, and by when it has to be done.
    pub terms: Terms,
}

/// Log-probabilities of all paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathScores {
    /// For each path of each stem the sum of its tokens' log-probabilities, in nats.
    pub logprobs: Vec<Vec<f64>>,
    /// Tokens of the first request that a cache spared: what this call did not leave there itself.
    pub cached_tokens: u32,
}

/// Scores every path of every stem.
pub async fn score(
    handles: &ServiceHandles,
    live: &LiveRequests,
    name: Arc<str>,
    scoring: Scoring,
) -> Result<PathScores, DirectError> {
    let work = Work::of(&scoring);
    let mut out = PathScores {
        logprobs: scoring.stems.iter().map(|s| vec![0.0; s.paths.len()]).collect(),
        ..PathScores::default()
    };
    let start = |at: usize, terms: Terms| {
        let entry = live.enter(name.clone());
        let request = work.request(at, &entry);
        read_one(handles, entry, request, terms)
    };
    let finished = |at: usize, read: Read| {
        if at == 0 {
            out.cached_tokens = read.cached_tokens;
        }
        let group = &work.groups[at];
        for (path, logprob) in group.logprobs(&read.scores) {
            out.logprobs[group.stem][path] = logprob;
        }
        work.unlocked_by(at)
    };
    batch::run(handles, "decided", work.first(), scoring.terms, start, finished).await?;
    Ok(out)
}

/// The scores of tokens behind one prompt, with an adapter or without.
pub async fn scores_behind(
    handles: &ServiceHandles,
    live: &LiveRequests,
    prompt: Arc<[TokenId]>,
    (asked, adapter): (PromptScores, Option<ScaledAdapter>),
) -> Result<Vec<Score>, DirectError> {
    let entry = live.enter("probe".into());
    let spec = Spec { score_prompt: Some(asked), adapter, ..Spec::greedy(0) };
    let request = Request::new(entry.id, prompt, spec);
    let terms = Terms { exempt: true, ..Terms::default() };
    Ok(read_one(handles, entry, request, terms).await?.0.scores)
}

/// Tokens that [`score`] computes where nothing is cached before: common beginnings once, and of each request what does
/// not end with a chunk of them.
pub fn work_tokens(scoring: &Scoring) -> usize {
    let work = Work::of(scoring);
    let mut seen = vec![false; scoring.stems.len()];
    let of = |group: &PathGroup| {
        let stem = scoring.stems[group.stem].prompt.len();
        let first = !std::mem::replace(&mut seen[group.stem], true);
        let spared = match (scoring.cache.is_some(), first) {
            (false, _) => 0,
            (true, true) => work.shared,
            (true, false) => stem,
        };
        stem - spared / CHUNK_TOKENS as usize * CHUNK_TOKENS as usize + group.way.len()
    };
    work.shared + work.groups.iter().map(of).sum::<usize>()
}

/// Paths of a stem that differ in their last token alone, as many as one request scores.
#[derive(Debug, PartialEq)]
struct PathGroup {
    stem: usize,
    /// The tokens before the last one.
    way: Vec<TokenId>,
    /// Numbers of the paths, with the last token of each.
    ends: Vec<(usize, TokenId)>,
}

impl PathGroup {
    /// Each path with the sum over its tokens: those on the way come first, in order, then the ends.
    fn logprobs<'a>(&'a self, scores: &'a [Score]) -> impl Iterator<Item = (usize, f64)> + 'a {
        assert_eq!(scores.len(), self.way.len() + self.ends.len(), "each token that was asked about is scored once");
        let (way, ends) = scores.split_at(self.way.len());
        let before: f64 = way.iter().map(|score| f64::from(score.logprobs.logprob)).sum();
        self.ends.iter().zip(ends).map(move |((path, _), end)| (*path, before + f64::from(end.logprobs.logprob)))
    }
}

/// The requests of a call, stem by stem.
struct Work<'a> {
    scoring: &'a Scoring,
    groups: Vec<PathGroup>,
    /// Tokens that all prompts begin with.
    shared: usize,
}

impl<'a> Work<'a> {
    fn of(scoring: &'a Scoring) -> Self {
        let groups = scoring.stems.iter().enumerate().flat_map(|(at, stem)| groups_of(at, stem)).collect();
        let first = &scoring.stems[0].prompt;
        let common = |stem: &Stem| first.iter().zip(&stem.prompt).take_while(|(a, b)| a == b).count();
        let shared = scoring.stems.iter().map(common).min().unwrap_or(0);
        Self { scoring, groups, shared }
    }

    fn is_first_of_stem(&self, at: usize) -> bool {
        at == 0 || self.groups[at - 1].stem != self.groups[at].stem
    }

    /// With a common beginning worth keeping the first request alone, else the first one of every stem.
    fn first(&self) -> Vec<usize> {
        if self.shared < CHUNK_TOKENS as usize { self.first_of_others(usize::MAX) } else { vec![0] }
    }

    /// The first request of every stem but the given one.
    fn first_of_others(&self, but: usize) -> Vec<usize> {
        (0..self.groups.len()).filter(|at| self.is_first_of_stem(*at) && self.groups[*at].stem != but).collect()
    }

    /// What goes on from what this request has left in the cache: the others of its stem, and of the very first one all
    /// other stems too.
    fn unlocked_by(&self, at: usize) -> Vec<usize> {
        if !self.is_first_of_stem(at) {
            return Vec::new();
        }
        let stem = self.groups[at].stem;
        let mut next: Vec<usize> =
            (at + 1..self.groups.len()).take_while(|other| self.groups[*other].stem == stem).collect();
        if at == 0 && self.first().len() == 1 {
            next.extend(self.first_of_others(stem));
        }
        next
    }

    fn request(&self, at: usize, entry: &LiveEntry) -> Request {
        let (group, stem) = (&self.groups[at], &self.scoring.stems[self.groups[at].stem]);
        let from = stem.prompt.len() as u32;
        let behind = group.ends.iter().map(|(_, token)| *token).collect();
        let spec = Spec {
            score_prompt: Some(PromptScores { top: 0, from, behind }),
            cache: self.scoring.cache,
            ..Spec::greedy(0)
        };
        // What nobody goes on from is not kept: it would push out what others want.
        let alone = self.groups.iter().filter(|other| other.stem == group.stem).take(2).count() == 1;
        let kept = [self.shared as u32, if alone { self.shared as u32 } else { from }];
        Request::new(entry.id, [&stem.prompt[..], &group.way].concat(), spec).with_turns(kept)
    }
}

fn groups_of(at: usize, stem: &Stem) -> Vec<PathGroup> {
    let (mut groups, mut places): (Vec<PathGroup>, HashMap<&[TokenId], usize>) = (Vec::new(), HashMap::new());
    for (path, tokens) in stem.paths.iter().enumerate() {
        let (end, way) = tokens.split_last().expect("a path has a token");
        let room = places.get(way).copied().filter(|place| groups[*place].ends.len() < SCORED_NEXT_MAX);
        let place = room.unwrap_or_else(|| {
            groups.push(PathGroup { stem: at, way: way.to_vec(), ends: Vec::new() });
            groups.len() - 1
        });
        places.insert(way, place);
        groups[place].ends.push((path, *end));
    }
    groups
}

/// What one request brought.
struct Read {
    scores: Vec<Score>,
    cached_tokens: u32,
}

async fn read_one(
    handles: &ServiceHandles,
    entry: LiveEntry,
    request: Request,
    terms: Terms,
) -> Result<(Read, RequestTimes), DirectError> {
    let mut direct = DirectRequest::start(handles, entry, request, terms).await?;
    let mut scores = Vec::new();
    loop {
        match direct.event().await? {
            Event::Scored(more) => scores.extend(more),
            Event::Finished { times, usage, .. } => {
                return Ok((Read { scores, cached_tokens: usage.cached_tokens }, times));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scoring(stems: &[(u32, usize, &[&[TokenId]])]) -> Scoring {
        let stem = |(differs, len, paths): &(u32, usize, &[&[TokenId]])| Stem {
            prompt: (0..*len as u32).map(|i| if i < *differs { i } else { i + 1000 * differs }).collect(),
            paths: paths.iter().map(|path| path.to_vec()).collect(),
        };
        Scoring { stems: stems.iter().map(stem).collect(), cache: Some(CacheScope(1)), terms: Terms::default() }
    }

    #[test]
    fn paths_that_part_at_their_last_token_share_a_request() {
        let scoring = scoring(&[(9, 9, &[&[1, 2], &[1, 3], &[4], &[1, 5, 6]])]);
        let work = Work::of(&scoring);
        let shown: Vec<_> = work.groups.iter().map(|g| (g.way.clone(), g.ends.clone())).collect();
        assert_eq!(shown, [(vec![1], vec![(0, 2), (1, 3)]), (vec![], vec![(2, 4)]), (vec![1, 5], vec![(3, 6)])]);
        let many: Vec<Vec<TokenId>> = (0..70).map(|i| vec![7, i]).collect();
        let sizes: Vec<_> = groups_of(0, &Stem { prompt: vec![1], paths: many }).iter().map(|g| g.ends.len()).collect();
        assert_eq!(sizes, [32, 32, 6]);
    }

    #[test]
    fn common_beginnings_are_computed_before_what_begins_with_them() {
        let two: &[&[TokenId]] = &[&[1, 2], &[3, 4]];
        let long = scoring(&[(100, 120, two), (101, 130, two)]);
        let work = Work::of(&long);
        assert_eq!((work.shared, work.first()), (100, vec![0]));
        assert_eq!([0, 1, 2, 3].map(|at| work.unlocked_by(at)), [vec![1, 2], vec![], vec![3], vec![]]);
        // 100 tokens once, then what stands behind the last whole chunk: 56, 56, 66 and 2 tokens, and one on each way.
        assert_eq!(work_tokens(&long), 100 + 56 + 56 + 66 + 2 + 4);
        let short = scoring(&[(20, 40, two), (21, 40, two)]);
        assert_eq!(Work::of(&short).first(), [0, 2]);
        assert_eq!(Work::of(&short).unlocked_by(0), [1]);
    }
}
