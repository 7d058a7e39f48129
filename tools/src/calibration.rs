//! Text that the model writes itself: what its inputs look like where it is used, without a data set.
//!
//! Sequences are conversations in the model's own template, in which it speaks both parts, or free text. All are drawn
//! at temperature 1 and computed side by side.

use crate::CliError;
use crate::figures::StepProgress;
use chimere::text::{Conversation, Message, Role, TextModel, TokenKind};
use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::Backend;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
use chimere_engine::format::blocks::SplitMix;
use chimere_engine::ids::{PageId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::model::Model;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, PieceTokens, Sample, SampleRow, StateStart, StepPlan};
use std::sync::Arc;

/// A user's turn that is longer than this is closed.
const USER_TOKENS_MAX: u32 = 96;
/// Rows a sequence may feed in one step: what the template puts between two turns is shorter.
const PENDING_TOKENS_MAX: usize = 64;
/// Sequences that are computed side by side.
const BATCH: u32 = 64;
/// Stands for what the user says when the template is asked what is around it.
const MARK: &str = "\u{fdd4}user\u{fdd4}";

/// How much text is written, of which kind, and on how many threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calibration {
    pub(crate) sequences: u32,
    /// Tokens of each sequence.
    pub(crate) tokens: u32,
    pub(crate) mix: TextMix,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
}

/// The shares of conversations and of free text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextMix {
    /// To weigh by: one sequence in eight is a conversation, the others begin behind the token that parts texts. The
    /// early layers of the shipped model answer to what a template repeats three times as much as to prose, and its
    /// divergences are twice as large: with half of the text they had the say.
    MostlyProse,
    /// To compare and to watch: half conversations, half what follows a random token.
    Half,
}

impl TextMix {
    fn is_conversation(self, index: u32) -> bool {
        match self {
            Self::MostlyProse => index % 8 == 1,
            Self::Half => index % 2 == 1,
        }
    }
}

/// Is told every token that was drawn, with the number of its sequence.
pub(crate) type EachSample<'a> = &'a mut dyn FnMut(u32, &Sample);

/// Writes the sequences, each exactly as long as was asked for. The same seed writes the same text.
pub(crate) fn write(model: &Model, text: &TextModel, options: &Calibration) -> Result<Vec<Vec<TokenId>>, CliError> {
    write_watched(model, text, options, false, &mut |_, _| {})
}

/// Writes the sequences as [`write`] does and hands `each` every token that was drawn, with the number of its sequence
/// and, if `experts` asks for them, with the experts that its row was given to.
pub(crate) fn write_watched(
    model: &Model,
    text: &TextModel,
    options: &Calibration,
    experts: bool,
    each: EachSample<'_>,
) -> Result<Vec<Vec<TokenId>>, CliError> {
    let turns = TemplateParts::of(model, text);
    let mut progress = StepProgress::new("writing calibration text");
    let (mut all, steps) = (Vec::new(), options.sequences.div_ceil(BATCH) as usize * options.tokens as usize);
    while (all.len() as u32) < options.sequences {
        let (first, done) = (all.len() as u32, all.len().div_ceil(BATCH as usize) * options.tokens as usize);
        let count = BATCH.min(options.sequences - first);
        let sequence = |i| WrittenSequence::new(i, &turns, (model, text), (options, experts));
        let sequences = (first..first + count).map(sequence).collect();
        let each = &mut |of: u32, sample: &Sample| each(first + of, sample);
        all.extend(batch(model, &turns, options, sequences, (each, |at| progress.show(done + at, steps)))?);
    }
    progress.end();
    Ok(all)
}

/// Tokens that the template puts around turns.
struct TemplateParts {
    /// Before the user's first words.
    user: Vec<TokenId>,
    /// From the end of the user's words to the assistant's.
    assistant: Vec<TokenId>,
    /// From the token that ends the assistant's turn to the user's next words.
    next_user: Vec<TokenId>,
    end_ids: Vec<TokenId>,
    /// All tokens around and between turns.
    parts: Vec<TokenId>,
}

impl TemplateParts {
    /// Nothing of a model without a template: it writes free text only.
    fn of(model: &Model, text: &TextModel) -> Option<Self> {
        let template = text.template()?;
        let user = Message::new(Role::User, MARK);
        let conversation = |messages| Conversation { messages, ..Conversation::default() };
        let one = template.render(&conversation(vec![user.clone()])).ok()?;
        let said = Message::new(Role::Assistant, MARK);
        let two = template.render(&conversation(vec![user.clone(), said, user])).ok()?;
        let (before, after) = one.split_once(MARK)?;
        let between = two.rsplit(MARK).nth(1)?;
        let end_ids = model.text.end_ids.clone();
        let encode = |part: &str| text.tokenizer().encode(part);
        // The model ends its turn itself; what follows goes on from there.
        let next: Vec<TokenId> = encode(between);
        let own_end = usize::from(next.first().is_some_and(|id| end_ids.contains(id)));
        let (user, assistant, next_user) = (encode(before), encode(after), next[own_end..].to_vec());
        let parts = [&user, &assistant, &next].into_iter().flatten().copied().collect();
        Some(Self { user, assistant, next_user, end_ids, parts })
    }
}

/// One text while it is written.
struct WrittenSequence {
    ids: Vec<TokenId>,
    /// Of `ids`, those that were computed.
    fed: usize,
    params: Arc<SamplingParams>,
    /// Tokens that the user has said in this turn; `None` while the assistant speaks or the text is free.
    said: Option<u32>,
    free: bool,
    samples: u32,
    /// Tokens that it began with.
    opening: u32,
}

impl WrittenSequence {
    fn new(
        index: u32,
        turns: &Option<TemplateParts>,
        (model, text): (&Model, &TextModel),
        (options, report): (&Calibration, bool),
    ) -> Self {
        let (seed, mix) = (options.seed, options.mix);
        let own = seed ^ u64::from(index) << 32;
        let params = Arc::new(SamplingParams { seed: own, report, ..SamplingParams::default() });
        let (ids, free) = match turns {
            Some(turns) if mix.is_conversation(index) && !turns.user.is_empty() => (turns.user.clone(), false),
            _ => {
                let between = (mix == TextMix::MostlyProse).then(|| between_texts(turns, model)).flatten();
                (vec![between.unwrap_or_else(|| first_word(model, text, seed, index))], true)
            }
        };
        let opening = ids.len() as u32;
        Self { ids, fed: 0, params, said: (!free).then_some(0), free, samples: 0, opening }
    }

    /// Takes a token, and what the template puts behind it.
    fn push(&mut self, token: TokenId, turns: &Option<TemplateParts>) {
        self.samples += 1;
        self.ids.push(token);
        let Some(turns) = turns.as_ref().filter(|_| !self.free) else { return };
        let ends = turns.end_ids.contains(&token);
        match &mut self.said {
            Some(said) if ends || *said >= USER_TOKENS_MAX => {
                if ends {
                    self.ids.pop();
                }
                self.ids.extend(&turns.assistant);
                self.said = None;
            }
            Some(said) => *said += 1,
            None if ends => {
                self.ids.extend(&turns.next_user);
                self.said = Some(0);
            }
            None => {}
        }
    }
}

/// What ends a text and no turn: where texts follow one another, the next one begins behind it.
fn between_texts(turns: &Option<TemplateParts>, model: &Model) -> Option<TokenId> {
    let of_turns = |id: &TokenId| turns.as_ref().is_some_and(|t| t.parts.contains(id));
    model.text.end_ids.iter().copied().find(|id| !of_turns(id))
}

/// A token that stands for text, drawn by the seed and the sequence's number.
fn first_word(model: &Model, text: &TextModel, seed: u64, index: u32) -> TokenId {
    let mut rng = SplitMix::new(seed, u64::from(index));
    let draw = |rng: &mut SplitMix| (rng.next_u64() % model.config.vocab as u64) as TokenId;
    // A vocabulary that is nothing but control tokens would have none; then any will do.
    let tries: Vec<TokenId> = (0..64).map(|_| draw(&mut rng)).collect();
    let ordinary = |id: &&TokenId| **id < text.tokenizer().len() && text.tokenizer().kind(**id) == TokenKind::Text;
    *tries.iter().find(ordinary).unwrap_or(&tries[0])
}

fn batch(
    model: &Model,
    turns: &Option<TemplateParts>,
    options: &Calibration,
    mut sequences: Vec<WrittenSequence>,
    (each, mut progress): (EachSample<'_>, impl FnMut(usize)),
) -> Result<Vec<Vec<TokenId>>, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(e.to_string());
    let pages = (options.tokens as usize + PENDING_TOKENS_MAX).div_ceil(PAGE_TOKENS as usize) as u32;
    let config = CpuConfig {
        threads: options.threads,
        slots: sequences.len() as u32,
        pages: pages * sequences.len() as u32,
        checkpoints: 0,
        kv_type: KvType::F16,
        exact: false,
        step_rows_max: (sequences.len() * PENDING_TOKENS_MAX) as u32,
        context: pages * PAGE_TOKENS,
        drafts: 0,
        draft_head: false,
    };
    let mut backend = CpuBackend::new(model, &config, &mut |_| {}).map_err(|e| failed(&e))?;
    for step in 0.. {
        let live = sequences.iter().enumerate().filter(|(_, s)| s.ids.len() < options.tokens as usize);
        let (slots, pieces): (Vec<usize>, Vec<Piece>) = live.map(|(i, s)| (i, piece(i as u32, s, pages))).unzip();
        if pieces.is_empty() {
            break;
        }
        let outcome = backend.launch(StepPlan::new(StepId(step), pieces)).and_then(|pending| pending.wait());
        for (i, sample) in slots.into_iter().zip(outcome.map_err(|e| failed(&e))?.samples) {
            each(i as u32, &sample);
            sequences[i].fed = sequences[i].ids.len();
            sequences[i].push(sample.token, turns);
        }
        progress(step as usize);
    }
    let cut = |s: WrittenSequence| s.ids.into_iter().take(options.tokens as usize).collect();
    Ok(sequences.into_iter().map(cut).collect())
}

/// A piece of the tokens that a sequence has not computed yet, with a draw of the token after them.
fn piece(index: u32, s: &WrittenSequence, pages: u32) -> Piece {
    let (seq, slot) = (SeqId(index.into()), SlotId(index));
    let end = s.ids.len() as u32;
    let sample = SampleRow { output_index: s.samples, ..SampleRow::new(seq, slot, s.params.clone()) };
    Piece {
        seq,
        slot,
        state: StateStart::at(s.fed as u32),
        form: if s.fed == 0 { Form::Chunked } else { Form::Recurrent },
        start: s.fed as u32,
        tokens: PieceTokens::Known(s.ids[s.fed..].to_vec()),
        drafts: Vec::new(),
        guesses: 0,
        pages: (0..end.div_ceil(PAGE_TOKENS)).map(|p| PageId(index * pages + p)).collect(),
        prompt_len: s.opening,
        samples: vec![sample],
        score: None,
        experts: None,
        adapter: None,
        follows: None,
        ends: Arc::default(),
        pool_from: None,
        exports: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::model;

    #[test]
    fn the_model_writes_conversations_and_the_same_ones_again() {
        let nano = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano");
        let model = model::load(&nano).unwrap();
        let text = TextModel::new(&model.text).unwrap();
        let of_seed = |seed| Calibration { sequences: 5, tokens: 100, mix: TextMix::MostlyProse, seed, threads: 1 };
        let write = |seed| write(&model, &text, &of_seed(seed)).unwrap();
        let all = write(7);
        assert!(all.len() == 5 && all.iter().all(|ids| ids.len() == 100));
        assert_eq!(all, write(7));
        assert_ne!(all, write(8));
        let spoken = text.tokenizer().decode(&all[1], true);
        assert!(spoken.starts_with("<|im_start|>user\n"), "{spoken}");
        let free = text.tokenizer().decode(&all[0], true);
        assert!(free.starts_with("<|endoftext|>") && !free.starts_with("<|endoftext|><|im_start|>"), "{free}");
    }
}
