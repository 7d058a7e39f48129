//! Contexts of more tokens than tables count densely: one is kept where it says more than the longest end of it that is
//! kept, which is where some token follows that end and never follows it. So there are few, and what is left out is
//! what a shorter context says as well.
//!
//! They are found in the occurrences of one dense context at a time, sorted by what stands before it: a suffix array
//! of the reversed texts, in parts. Where one token alone follows nothing longer can say more, and most contexts end
//! there.

use super::ngrams::Continuation;
use super::record::OrderImage;
use crate::engram::context;
use crate::engram::order::ORDER_MAX;
use crate::ids::TokenId;

/// One n-gram of the texts: where its continuation stands.
#[derive(Clone, Copy)]
pub(super) struct Occurrence {
    /// Hash of the n-gram's context.
    pub(super) hash: u64,
    pub(super) text: u32,
    pub(super) at: u32,
}

/// What of a text is kept.
#[derive(Clone, Copy)]
pub(super) struct LongRules {
    /// The longest contexts; [`ORDER_MAX`] wants none.
    pub(super) longest: usize,
    /// Rarer continuations are not listed.
    pub(super) min_count: u32,
    /// When the texts were seen, seconds since 1970.
    pub(super) time: u32,
}

/// The long contexts of some texts in the making.
pub(super) struct LongContexts<'a> {
    texts: &'a [&'a [TokenId]],
    rules: LongRules,
    /// By length, from [`ORDER_MAX`] + 1 on.
    kept: Vec<Vec<LongContext>>,
}

struct LongContext {
    hash: u64,
    /// Where its continuation stands for the first time.
    at: Occurrence,
    total: u64,
    list: Vec<Continuation>,
}

/// How many different tokens follow a context in the text, and in its list.
#[derive(Clone, Copy)]
pub(super) struct Followers {
    pub(super) seen: usize,
    pub(super) listed: usize,
}

impl Followers {
    /// Whether less than this can be said of a longer context, and something at all.
    fn can_be_fewer(self) -> bool {
        self.seen > 1 && self.listed > 1
    }
}

impl<'a> LongContexts<'a> {
    /// None yet of these texts.
    pub(super) fn new(texts: &'a [&'a [TokenId]], rules: LongRules) -> Self {
        let lengths = rules.longest.saturating_sub(ORDER_MAX);
        Self { texts, rules, kept: (0..lengths).map(|_| Vec::new()).collect() }
    }

    /// Takes the contexts that end with one of [`ORDER_MAX`] tokens, all of whose occurrences are `group`. Bit 0 of
    /// what comes back is set if some of the next length are kept, and so on.
    pub(super) fn take(&mut self, group: &[Occurrence], end: Followers) -> u32 {
        if self.kept.is_empty() || !end.can_be_fewer() {
            return 0;
        }
        let (texts, longest) = (self.texts, self.rules.longest);
        let older = |o: &Occurrence| {
            let (ids, at) = (texts[o.text as usize], o.at as usize);
            ids[at.saturating_sub(longest)..at - ORDER_MAX].iter().rev()
        };
        let mut group = group.to_vec();
        group.sort_unstable_by(|a, b| older(a).cmp(older(b)).then((a.text, a.at).cmp(&(b.text, b.at))));
        self.refine(&group, ORDER_MAX, end)
    }

    /// `group` has the same `depth` ids before it, of which the longest kept end is followed as `end` says.
    fn refine(&mut self, group: &[Occurrence], depth: usize, end: Followers) -> u32 {
        if depth == self.rules.longest || !end.can_be_fewer() {
            return 0;
        }
        let texts = self.texts;
        let before = |o: &Occurrence| texts[o.text as usize][..o.at as usize].iter().rev().nth(depth).copied();
        let mut lengths = 0;
        for same in group.chunk_by(|a, b| before(a) == before(b)).filter(|same| before(&same[0]).is_some()) {
            let (seen, list) = listed(texts, self.rules, same);
            let of_this = Followers { seen, listed: list.len() };
            let is_kept = !list.is_empty() && seen < end.seen && list.len() < end.listed;
            if is_kept {
                lengths |= 1 << (depth - ORDER_MAX);
                let ids = self.ids(&same[0], depth + 1);
                let kept = LongContext { hash: context::hash(ids), at: same[0], total: same.len() as u64, list };
                self.kept[depth - ORDER_MAX].push(kept);
            }
            lengths |= self.refine(same, depth + 1, if is_kept { of_this } else { end });
        }
        lengths
    }

    /// The context of this length before a place.
    fn ids(&self, o: &Occurrence, len: usize) -> &'a [TokenId] {
        &self.texts[o.text as usize][o.at as usize - len..o.at as usize]
    }

    /// Their images, shortest first; `Err` has a length of which there are too many.
    pub(super) fn finish(mut self) -> Result<Vec<OrderImage>, usize> {
        let mut images = Vec::new();
        for (len, mut kept) in (ORDER_MAX + 1..).zip(std::mem::take(&mut self.kept)) {
            kept.sort_unstable_by(|a, b| (a.hash, self.ids(&a.at, len)).cmp(&(b.hash, self.ids(&b.at, len))));
            let mut image = OrderImage::new(len);
            for mut context in kept {
                let ids = self.ids(&context.at, len);
                image.push(context.hash, ids, context.total, &mut context.list).then_some(()).ok_or(len)?;
            }
            images.extend(image.finish());
        }
        Ok(images)
    }
}

/// How many different tokens stand at some places, and those that are frequent enough to be listed, by rising id.
fn listed(texts: &[&[TokenId]], rules: LongRules, places: &[Occurrence]) -> (usize, Vec<Continuation>) {
    let id = |o: &Occurrence| texts[o.text as usize][o.at as usize];
    let mut ids: Vec<TokenId> = places.iter().map(id).collect();
    ids.sort_unstable();
    let (mut seen, mut list) = (0, Vec::new());
    for same in ids.chunk_by(|a, b| a == b) {
        seen += 1;
        if same.len() >= rules.min_count as usize {
            list.push(Continuation { token: same[0], count: same.len() as u32, time: rules.time });
        }
    }
    (seen, list)
}
