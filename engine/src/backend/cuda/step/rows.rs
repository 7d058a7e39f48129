//! A step's plan as the device sees it: arrays of rows, pieces and sample places. Data in, data out: no device.
//!
//! Decode rows run in passes through a captured graph, one position of a sequence a pass and what is drafted behind
//! it; prompt pieces run beside them. Several positions of the recurrent form (recomputed after preemption) go as
//! drafts do, all of which count: so many in a pass as a sequence may have drafts, and the row before them.

use super::leader::{AskedAt, Lead, Leader, RowPlace};
use super::stored::{Lacking, StoredStates};
use crate::CHUNK_TOKENS;
use crate::backend::cuda::error::CudaResult;
use crate::ids::{CheckpointId, SeqId, SlotId, TokenId};
use crate::step::{Form, Piece, PieceTokens, SampleRow, ScoredToken, StepPlan};
use chimere_kernels::cuda::draft_head::{BEHIND_WORDS, ROW_WORDS};
use chimere_kernels::cuda::gdn_prefill::chunk_number;
use chimere_kernels::cuda::router::cut_words;
use std::ops::Range;

/// One position of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The token fed, -1 for the one that the slot sampled last, or `draft_head::KEPT`.
    pub(crate) token: i32,
    pub(crate) slot: i32,
    pub(crate) position: i32,
    pub(crate) prompt_len: i32,
    /// What its slot lacks of the positions before it, if it is a decode row and not drafted.
    pub(crate) lacking: Lacking,
    /// As [`cut_words`] makes it.
    pub(crate) cut: [i32; 2],
}

impl Row {
    /// Slot of the row's sequence.
    pub(crate) fn slot(&self) -> SlotId {
        SlotId(self.slot as u32)
    }
}

/// Consecutive prefill rows of one sequence, as kernels read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceRows {
    pub(crate) slot: i32,
    pub(crate) start: i32,
    pub(crate) first_row: i32,
    pub(crate) rows: i32,
}

impl PieceRows {
    /// Slot of the piece's sequence.
    pub(crate) fn slot(&self) -> SlotId {
        SlotId(self.slot as u32)
    }

    /// Slot of the piece's sequence, and the position behind its last row.
    pub(crate) fn end(&self) -> (SlotId, u32) {
        (self.slot(), (self.start + self.rows) as u32)
    }
}

/// A token to sample.
#[derive(Clone, Debug)]
pub(crate) struct SampleAt {
    pub(crate) place: RowPlace,
    /// The slot whose history of tokens counts for the penalties.
    pub(crate) history: u32,
    pub(crate) row: SampleRow,
}

/// A piece with drafts.
#[derive(Clone, Debug)]
pub(crate) struct DraftedAt {
    /// Its first sample, which is the one in the first draft's place.
    pub(crate) first_sample: usize,
    /// Of one that follows another, so many whatever they are.
    pub(crate) tokens: Vec<TokenId>,
    /// What it follows, whose guesses are its drafts.
    pub(crate) lead: Option<Lead>,
}

/// A known token to score, by the logits of a prefill row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScoreAt {
    pub(crate) row: usize,
    pub(crate) seq: SeqId,
    pub(crate) position: u32,
    pub(crate) token: TokenId,
    pub(crate) top: u8,
}

/// Neighbouring prefill rows whose hidden states are summed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PooledAt {
    pub(crate) first_row: usize,
    pub(crate) seq: SeqId,
    pub(crate) positions: Range<u32>,
}

/// Whether any row of a decode pass is drafted, or lacks what only kernels that know drafts apply.
pub(crate) fn takes_drafts(pass: &[Row]) -> bool {
    let behind = pass.windows(2).any(|pair| pair[0].slot == pair[1].slot);
    behind || pass.iter().any(|row| !row.lacking.does_without_drafts())
}

/// What a decode pass has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassRoom {
    /// Rows of all sequences.
    pub(crate) rows: usize,
    /// Drafted rows behind one of a sequence.
    pub(crate) drafts: usize,
}

impl PassRoom {
    /// How many rows of a sequence a pass takes where it is not drafts that make them more: so many that those of all
    /// have room in one.
    fn rows_of_each<'a>(self, pieces: impl Iterator<Item = &'a Piece> + Clone) -> u32 {
        let taken = |each: u32| -> u32 { pieces.clone().map(|p| p.len().min(p.rows_a_pass(each))).sum() };
        (2..=1 + self.drafts as u32).rev().find(|each| taken(*each) as usize <= self.rows).unwrap_or(1)
    }
}

/// All rows of a step.
#[derive(Debug, Default)]
pub(crate) struct StepRows {
    /// Run one after another, before everything else; no slot comes twice in one but with its drafts, which stand right
    /// behind its row.
    pub(crate) before: Vec<Vec<Row>>,
    /// Run one after another, after the prefill.
    pub(crate) passes: Vec<Vec<Row>>,
    pub(crate) prefill: Vec<Row>,
    pub(crate) pieces: Vec<PieceRows>,
    /// What the rows of the last pass follow, `[BEHIND_WORDS]` each as the device reads it; empty if they follow
    /// nothing.
    pub(crate) behind: Vec<i32>,
    /// In the plan's order.
    pub(crate) samples: Vec<SampleAt>,
    /// In the plan's order.
    pub(crate) drafted: Vec<DraftedAt>,
    /// In the plan's order, who asks for guesses.
    pub(crate) asked: Vec<AskedAt>,
    /// In the plan's order.
    pub(crate) scores: Vec<ScoreAt>,
    /// In the plan's order.
    pub(crate) pooled: Vec<PooledAt>,
    /// Chunks of the prefill after which the state is kept, by their number on the device, and where.
    pub(crate) exports: Vec<(usize, CheckpointId)>,
    /// Rows that may do with fewer experts.
    pub(crate) cut_rows: usize,
}

impl StepRows {
    /// Lays out a checked plan, whose passes have room for so many rows, and drafts of a sequence.
    ///
    /// # Errors
    /// If a piece follows another than one of `leader`, the step before.
    pub(crate) fn of(
        plan: &StepPlan,
        room: PassRoom,
        stored: &mut StoredStates,
        leader: Option<&Leader>,
    ) -> CudaResult<Self> {
        let mut all = Self::default();
        let decodes = |p: &Piece| p.form == Form::Recurrent && p.score.is_none();
        let decoding = plan.pieces.iter().filter(|p| decodes(p));
        let each = room.rows_of_each(decoding.clone());
        let passes = decoding.map(|p| p.passes(each)).max().unwrap_or(0);
        all.passes.resize_with(passes as usize, Vec::new);
        for piece in &plan.pieces {
            all.cut_rows += piece.experts.map_or(0, |_| piece.len() as usize);
            let lead = piece.follows.map(|_| Leader::of(leader, piece)).transpose()?;
            let place = match &lead {
                Some(lead) => all.push_following(piece, lead, stored),
                None if decodes(piece) => all.push_decode(piece, each, stored),
                None => all.push_prefill(piece, stored),
            };
            all.push_samples(piece, place, lead);
        }
        Ok(all)
    }

    /// `place`: that of the first sample. Choices share it; behind it stand the samples of drafted rows.
    fn push_samples(&mut self, piece: &Piece, place: RowPlace, lead: Option<Lead>) {
        let (first_sample, history, drafts) = (self.samples.len(), piece.slot.0, piece.drafts.len());
        self.samples.extend(piece.samples.iter().enumerate().map(|(i, row)| {
            let place = match place {
                RowPlace::Decode(row) => RowPlace::Decode(row + i.min(drafts)),
                RowPlace::Prefill(row) => RowPlace::Prefill(row),
            };
            SampleAt { place, history, row: row.clone() }
        }));
        if drafts > 0 {
            self.drafted.push(DraftedAt { first_sample, tokens: piece.drafts.clone(), lead });
        }
        if piece.guesses > 0 {
            let sample = piece.samples.first().expect("guesses follow a sample").clone();
            self.asked.push(AskedAt::of(piece, place, first_sample, sample));
        }
    }

    /// Rows of a piece end together with those of all others, so that every sampled row stands in the last pass. Behind
    /// the first of a pass the others stand as its drafts do, and count.
    fn push_decode(&mut self, piece: &Piece, each: u32, stored: &mut StoredStates) -> RowPlace {
        let (each, mut rows) = (piece.rows_a_pass(each) as usize, rows_of(piece));
        let mut left = piece.len() as usize;
        let first = self.passes.len() - left.div_ceil(each);
        for pass in &mut self.passes[first..] {
            let behind = (left - 1) % each;
            let row = rows.next().expect("as many rows as positions");
            pass.push(Row { lacking: stored.row(piece.slot, row.position as u32, behind), ..row });
            pass.extend(rows.by_ref().take(behind));
            left -= 1 + behind;
        }
        let last = self.passes.last().expect("a piece has rows, and as many passes as they take");
        RowPlace::Decode(last.len() - 1 - piece.drafts.len())
    }

    /// Rows that go on behind a step whose outcome the device alone knows. Of a plan either all pieces do or none.
    fn push_following(&mut self, piece: &Piece, lead: &Lead, stored: &mut StoredStates) -> RowPlace {
        let state = stored.follow(piece.slot, piece.start, piece.drafts.len(), lead.clone());
        let last = self.passes.last_mut().expect("a decode row has a pass");
        let place = RowPlace::Decode(last.len());
        last.extend(rows_of(piece));
        self.behind.extend((0..=piece.drafts.len()).flat_map(|nth| lead.words(nth, state)));
        assert_eq!(self.behind.len(), BEHIND_WORDS * last.len(), "all rows follow");
        place
    }

    /// Prefill begins at a whole chunk; what stands before it is computed position by position.
    fn push_prefill(&mut self, piece: &Piece, stored: &mut StoredStates) -> RowPlace {
        let (first_row, mut rows) = (self.prefill.len(), rows_of(piece));
        let unaligned = piece.start.next_multiple_of(CHUNK_TOKENS) - piece.start;
        for (i, row) in rows.by_ref().take(unaligned as usize).enumerate() {
            if self.before.len() == i {
                self.before.push(Vec::new());
            }
            self.before[i].push(Row { lacking: stored.row(piece.slot, row.position as u32, 0), ..row });
        }
        self.prefill.extend(rows);
        let (slot, start, rows) =
            (piece.slot.0 as i32, (piece.start + unaligned) as i32, (piece.len() - unaligned) as i32);
        self.pieces.push(PieceRows { slot, start, first_row: first_row as i32, rows });
        self.scores.extend(piece.scored().into_iter().map(|ScoredToken { row, position, token, top }| ScoreAt {
            row: first_row + row as usize,
            seq: piece.seq,
            position,
            token,
            top,
        }));
        // Such a piece begins at a whole chunk, so all of it is prefill. So does one with exports.
        let number =
            |at: u32| chunk_number(self.pieces.len() - 1, first_row, ((at - piece.start) / CHUNK_TOKENS) as usize);
        self.exports.extend(piece.exports.iter().map(|e| (number(e.position) - 1, e.to)));
        self.pooled.extend(piece.pooled_units().map(|positions| PooledAt {
            first_row: first_row + (positions.start - piece.start) as usize,
            seq: piece.seq,
            positions,
        }));
        RowPlace::Prefill(self.prefill.len() - 1)
    }

    /// Prefill rows whose logits are sampled from, in their order, once each.
    pub(crate) fn sampled_prefill(&self) -> Vec<i32> {
        let rows = self
            .samples
            .iter()
            .filter_map(|s| if let RowPlace::Prefill(row) = s.place { Some(row as i32) } else { None });
        let mut rows: Vec<i32> = rows.collect();
        rows.dedup();
        rows
    }
}

fn rows_of(piece: &Piece) -> impl Iterator<Item = Row> + use<'_> {
    let (slot, prompt_len, cut) = (piece.slot.0 as i32, piece.prompt_len as i32, cut_words(piece.experts.as_ref()));
    let certain: &[TokenId] = if let PieceTokens::Known(ids) = &piece.tokens { ids } else { &[] };
    let sampled = (piece.tokens == PieceTokens::Sampled).then_some(-1);
    let tokens = certain.iter().map(|id| *id as i32).chain(sampled).chain(piece.drafts.iter().map(|id| *id as i32));
    (piece.start..).zip(tokens).map(move |(position, token)| Row {
        token,
        slot,
        position: position as i32,
        prompt_len,
        lacking: Lacking::default(),
        cut,
    })
}

/// Rows as arrays one after another, filled up to `n` with rows that are none.
pub(crate) fn columns(rows: &[Row], n: usize) -> Vec<i32> {
    let none = Row { token: 0, slot: -1, position: 0, prompt_len: 0, lacking: Lacking::default(), cut: [0; 2] };
    let all = || rows.iter().copied().chain(std::iter::repeat_n(none, n - rows.len()));
    let mut words = Vec::with_capacity(ROW_WORDS * n);
    words.extend(all().map(|r| r.token));
    words.extend(all().map(|r| r.slot));
    words.extend(all().map(|r| r.position));
    words.extend(all().map(|r| r.prompt_len));
    words.extend(all().flat_map(|r| r.cut));
    words.extend(all().map(|r| r.lacking.word()));
    words.extend(all().map(|r| r.lacking.drafted));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PageId, SlotId, StepId};
    use crate::sampling::SamplingParams;
    use crate::step::{ExpertCut, ScoreRows, StateStart};
    use std::sync::Arc;

    fn piece(slot: u32, form: Form, start: u32, tokens: PieceTokens, sampled: bool) -> Piece {
        let row = SampleRow::new(SeqId(u64::from(slot)), SlotId(slot), Arc::new(SamplingParams::greedy()));
        let samples = if sampled { vec![row] } else { Vec::new() };
        let (seq, pages) = (SeqId(u64::from(slot)), vec![PageId(0)]);
        Piece {
            seq,
            slot: SlotId(slot),
            state: StateStart::at(start),
            form,
            start,
            tokens,
            drafts: Vec::new(),
            guesses: 0,
            pages,
            prompt_len: 4,
            samples,
            score: None,
            experts: None,
            adapter: None,
            follows: None,
            ends: Arc::default(),
            pool_from: None,
            exports: Vec::new(),
        }
    }

    fn plan(pieces: Vec<Piece>) -> StepPlan {
        StepPlan::new(StepId(1), pieces)
    }

    const ROOM: PassRoom = PassRoom { rows: 128, drafts: 3 };

    fn laid_out(plan: &StepPlan) -> StepRows {
        laid_out_in(ROOM, plan)
    }

    fn laid_out_in(room: PassRoom, plan: &StepPlan) -> StepRows {
        let mut stored = StoredStates::new(8);
        stored.begin(plan);
        StepRows::of(plan, room, &mut stored, None).unwrap()
    }

    fn positions(pass: &[Row]) -> Vec<(i32, i32)> {
        pass.iter().map(|r| (r.slot, r.position)).collect()
    }

    #[test]
    fn decode_rows_and_prompts_part() {
        let plan = plan(vec![
            piece(3, Form::Recurrent, 9, PieceTokens::Sampled, true),
            piece(1, Form::Chunked, 0, PieceTokens::Known(vec![7, 8, 9, 6]), true),
            piece(2, Form::Recurrent, 5, PieceTokens::Known(vec![4]), true),
        ]);
        let rows = laid_out(&plan);
        assert_eq!(rows.passes.len(), 1);
        assert_eq!(
            rows.passes[0][0],
            Row { token: -1, slot: 3, position: 9, prompt_len: 4, lacking: Lacking::default(), cut: [0; 2] }
        );
        assert_eq!(rows.passes[0][1].token, 4);
        assert_eq!(rows.pieces, [PieceRows { slot: 1, start: 0, first_row: 0, rows: 4 }]);
        let places: Vec<RowPlace> = rows.samples.iter().map(|s| s.place).collect();
        assert_eq!(places, [RowPlace::Decode(0), RowPlace::Prefill(3), RowPlace::Decode(1)]);
        assert_eq!(rows.prefill.len(), 4);
    }

    #[test]
    fn recomputed_positions_stand_as_drafts_do_and_end_in_the_last_pass() {
        let recomputed = piece(0, Form::Recurrent, 6, PieceTokens::Known((1..=6).collect()), true);
        let plan = plan(vec![recomputed, piece(1, Form::Recurrent, 4, PieceTokens::Sampled, true)]);
        let in_passes = |room| {
            let rows = laid_out_in(room, &plan);
            assert_eq!(rows.samples[0].place, RowPlace::Decode(rows.passes.last().unwrap().len() - 2));
            rows.passes.iter().map(|p| positions(p)).collect::<Vec<_>>()
        };
        let last = |from: i32| (from..12).map(|at| (0, at)).chain([(1, 4)]).collect::<Vec<_>>();
        assert_eq!(in_passes(ROOM), [vec![(0, 6), (0, 7)], last(8)]);
        assert_eq!(in_passes(PassRoom { rows: 3, ..ROOM }), [vec![(0, 6), (0, 7)], vec![(0, 8), (0, 9)], last(10)]);
        let alone = in_passes(PassRoom { drafts: 0, ..ROOM });
        assert_eq!((alone.len(), &alone[5]), (6, &last(11)));
        let rows = laid_out(&plan);
        let lacking = |pass: usize, row: usize| rows.passes[pass][row].lacking;
        assert_eq!(
            (lacking(1, 0).pending, lacking(1, 0).drafted),
            (2, 1),
            "the row behind two, of which one was drafted"
        );
        assert_eq!((lacking(0, 1), lacking(1, 3)), (Lacking::default(), Lacking::default()));
    }

    #[test]
    fn drafts_stand_behind_their_row_in_the_last_pass_each_with_its_sample() {
        let sampled = piece(1, Form::Recurrent, 5, PieceTokens::Known(vec![6]), true);
        let samples = vec![sampled.samples[0].clone(); 3];
        let drafted = Piece { drafts: vec![70, 71], samples, ..sampled };
        let plan = plan(vec![
            piece(0, Form::Recurrent, 6, PieceTokens::Known(vec![1, 2]), true),
            drafted,
            piece(2, Form::Recurrent, 9, PieceTokens::Sampled, true),
        ]);
        let rows = laid_out(&plan);
        let passes: Vec<_> = rows.passes.iter().map(|p| positions(p)).collect();
        assert_eq!(passes, [vec![(0, 6), (0, 7), (1, 5), (1, 6), (1, 7), (2, 9)]]);
        assert_eq!(rows.passes[0].iter().map(|r| r.token).collect::<Vec<_>>(), [1, 2, 6, 70, 71, -1]);
        let places: Vec<RowPlace> = rows.samples.iter().map(|s| s.place).collect();
        assert_eq!(places, [1, 2, 3, 4, 5].map(RowPlace::Decode));
        let [at] = &rows.drafted[..] else { panic!("{:?}", rows.drafted) };
        assert_eq!((at.first_sample, &at.tokens[..], at.lead.is_none()), (1, &[70, 71][..], true));
        let last = rows.passes[0][5];
        assert_eq!([&rows.passes[0][..], &[last]].map(takes_drafts), [true, false]);
        let lacking = Row { lacking: Lacking { pending: 3, drafted: 1, stores: false }, ..last };
        assert!(takes_drafts(&[lacking]), "who comes behind drafts finds what they left");
    }

    #[test]
    fn guesses_are_made_behind_decode_rows_and_prompts_as_far_as_pages_reach() {
        let sampled = piece(1, Form::Recurrent, 5, PieceTokens::Known(vec![6]), true);
        let samples = vec![sampled.samples[0].clone(); 3];
        let asking = Piece { drafts: vec![70, 71], samples, guesses: 4, pages: vec![PageId(3)], ..sampled };
        let prompt = Piece { guesses: 2, ..piece(0, Form::Chunked, 0, PieceTokens::Known(vec![7; 4]), true) };
        let rows = laid_out(&plan(vec![prompt, asking]));
        let [behind_prompt, asked] = &rows.asked[..] else { panic!("{:?}", rows.asked) };
        assert_eq!((behind_prompt.words(), behind_prompt.position), ([!0, 0, 3, 32], 3));
        assert_eq!((asked.words(), asked.position), ([0, 1, 2, 32], 5));
        assert_eq!([0, 2, 24, 26, 40].map(|accepted| asked.room(accepted)), [4, 4, 2, 0, 0]);
    }

    #[test]
    fn a_prompt_runs_as_one_from_a_whole_chunk_on() {
        let plan = plan(vec![piece(0, Form::Chunked, 62, PieceTokens::Known((0..70).collect()), true)]);
        let rows = laid_out(&plan);
        assert_eq!(rows.before.iter().map(|p| positions(p)).collect::<Vec<_>>(), [[(0, 62)], [(0, 63)]]);
        assert_eq!(rows.pieces, [PieceRows { slot: 0, start: 64, first_row: 0, rows: 68 }]);
        assert_eq!((rows.prefill[0].position, rows.sampled_prefill()), (64, vec![67]));
    }

    #[test]
    fn every_row_of_a_piece_has_its_cut_however_it_runs() {
        let cut = ExpertCut { min: 1, max: 3, mass: 0.5 };
        let cut_piece =
            |slot, start, tokens| Piece { experts: Some(cut), ..piece(slot, Form::Recurrent, start, tokens, true) };
        let rows = laid_out(&plan(vec![
            cut_piece(0, 62, PieceTokens::Known((0..70).collect())),
            cut_piece(1, 9, PieceTokens::Sampled),
            piece(2, Form::Recurrent, 9, PieceTokens::Sampled, true),
            piece(3, Form::Chunked, 0, PieceTokens::Known(vec![1, 2]), true),
        ]));
        let all = rows.before.iter().chain(&rows.passes).flatten().chain(&rows.prefill);
        let of_slot = |slot| all.clone().filter(move |r| r.slot == slot);
        assert_eq!([0, 1, 2, 3].map(|s| of_slot(s).count()), [70, 1, 1, 2]);
        assert!([0, 1].into_iter().flat_map(of_slot).all(|r| r.cut == cut_words(Some(&cut)) && r.cut[0] != 0));
        assert!([2, 3].into_iter().flat_map(of_slot).all(|r| r.cut == [0; 2]));
        assert_eq!(rows.cut_rows, 71);
    }

    #[test]
    fn units_of_hidden_states_lie_where_their_piece_does() {
        let pooled = |slot, start, len, from| {
            let tokens = PieceTokens::Known(vec![1; len]);
            Piece { pool_from: Some(from), ..piece(slot, Form::Chunked, start, tokens, false) }
        };
        let decode = piece(7, Form::Recurrent, 9, PieceTokens::Sampled, true);
        let rows = laid_out(&plan(vec![pooled(0, 64, 70, 0), decode, pooled(1, 0, 10, 9), pooled(2, 0, 64, 80)]));
        let got: Vec<_> = rows.pooled.iter().map(|p| (p.seq.0, p.first_row, p.positions.clone())).collect();
        assert_eq!(got, [(0, 0, 64..128), (0, 64, 128..134), (1, 79, 9..10)]);
    }

    #[test]
    fn a_scored_row_is_measured_by_the_token_after_it() {
        let mut scored = piece(0, Form::Chunked, 64, PieceTokens::Known(vec![1, 2, 3]), false);
        scored.score = Some(ScoreRows { top: 2, next: [9].into(), ..ScoreRows::default() });
        let rows = laid_out(&plan(vec![scored]));
        let got: Vec<_> = rows.scores.iter().map(|s| (s.row, s.position, s.token)).collect();
        assert_eq!(got, [(0, 65, 2), (1, 66, 3), (2, 67, 9)]);
    }
}
