//! Whether a plan fits a backend's capacity: the same answer from every backend.

use super::{BackendError, BackendInfo};
use crate::adapter::ResidentAdapter;
use crate::constraint::{Effect, Source, Sources};
use crate::step::{Form, Piece, PieceTokens, SCORED_NEXT_MAX, SampleRow, StateCopy, StateStart, StepPlan, Transfer};
use crate::{CHUNK_TOKENS, PAGE_TOKENS};
use std::collections::{HashMap, HashSet};

/// Capacities, page tables, token ids. A plan that fails here is a bug of the scheduler, told apart from a crash.
pub(super) fn check(plan: &StepPlan, info: &BackendInfo) -> Result<(), BackendError> {
    let fail = |why: String| Err(BackendError::Plan { step: plan.id, why });
    for copy in &plan.copies {
        let ok = match copy {
            StateCopy::Slot { from, to } => from.0.max(to.0) < info.slots,
            StateCopy::Page { from, to } => from.0.max(to.0) < info.pages,
        };
        if !ok {
            return fail(format!("{copy:?} is beyond {} slots or {} pages", info.slots, info.pages));
        }
    }
    for transfer in &plan.transfers {
        check_transfer(transfer, info).or_else(|why| fail(format!("transfer {}: {why}", transfer.id)))?;
    }
    let rows: u64 = plan.pieces.iter().map(|p| u64::from(p.len())).sum();
    if rows > u64::from(info.step_rows_max) {
        return fail(format!("{rows} rows, at most {}", info.step_rows_max));
    }
    let drafts: u64 = plan.pieces.iter().map(|p| p.drafts.len() as u64).sum();
    if drafts > u64::from(info.drafts.step_max) {
        return fail(format!("{drafts} drafted tokens, at most {}", info.drafts.step_max));
    }
    let decoded =
        plan.pieces.iter().filter(|p| p.form == Form::Recurrent).map(|p| p.drafts.len() as u64 + 1).sum::<u64>();
    if drafts > 0 && decoded > u64::from(info.drafts.rows_max) {
        return fail(format!("{decoded} rows after prompts with drafts, at most {}", info.drafts.rows_max));
    }
    let follow = plan.pieces.iter().filter(|p| p.follows.is_some()).count();
    if follow > 0 && (follow < plan.pieces.len() || rows > u64::from(info.drafts.follow_rows_max)) {
        let (all, max) = (plan.pieces.len(), info.drafts.follow_rows_max);
        return fail(format!("{follow} of {all} pieces follow others, with {rows} rows: all or none, at most {max}"));
    }
    check_adapters(plan).or_else(fail)?;
    let mut slots = vec![false; info.slots as usize];
    let mut written = HashSet::new();
    if let Some(export) = plan.pieces.iter().flat_map(|p| &p.exports).find(|export| !written.insert(export.to)) {
        return fail(format!("two exports write checkpoint {}", export.to));
    }
    for piece in &plan.pieces {
        check_piece(piece, info).or_else(|why| fail(format!("sequence {}: {why}", piece.seq)))?;
        if std::mem::replace(&mut slots[piece.slot.0 as usize], true) {
            return fail(format!("two pieces write slot {}", piece.slot));
        }
    }
    Ok(())
}

/// Of one step a slot has one adapter, and an adapter one slot.
fn check_adapters(plan: &StepPlan) -> Result<(), String> {
    let (mut adapters, mut slots) = (HashMap::new(), HashMap::new());
    for ResidentAdapter { adapter, slot, .. } in plan.pieces.iter().filter_map(|piece| piece.adapter.as_ref()) {
        let other = *adapters.entry(*slot).or_insert(adapter.number);
        if other != adapter.number || *slots.entry(adapter.number).or_insert(*slot) != *slot {
            return Err(format!("adapters {other} and {} in slot {slot} and another", adapter.number));
        }
    }
    Ok(())
}

fn check_transfer(transfer: &Transfer, info: &BackendInfo) -> Result<(), String> {
    if transfer.checkpoint.0 >= info.checkpoints {
        return Err(format!("checkpoint {} of {}", transfer.checkpoint, info.checkpoints));
    }
    let blocks = transfer.blocks.iter().chain(transfer.units.iter().map(|(_, block)| block));
    if let Some(block) = blocks.into_iter().find(|block| block.0 >= info.host_blocks) {
        return Err(format!("block {block} of {} of the host", info.host_blocks));
    }
    match transfer.units.iter().flat_map(|(pages, _)| pages).find(|page| page.0 >= info.pages) {
        Some(page) => Err(format!("page {page} of {}", info.pages)),
        None => Ok(()),
    }
}

/// Where its state comes from, and where copies of it go.
fn check_state(piece: &Piece, info: &BackendInfo) -> Result<(), String> {
    if let StateStart::Restore { from, prompt, .. } = &piece.state {
        if from.0 >= info.checkpoints {
            return Err(format!("checkpoint {from} of {}", info.checkpoints));
        }
        if (prompt.len() as u64) < u64::from(piece.start) {
            return Err(format!("a history of {} tokens for {} positions", prompt.len(), piece.start));
        }
    }
    let end = piece.start + piece.len();
    for export in &piece.exports {
        if export.to.0 >= info.checkpoints {
            return Err(format!("checkpoint {} of {}", export.to, info.checkpoints));
        }
        let whole = export.position.is_multiple_of(CHUNK_TOKENS) && piece.form == Form::Chunked;
        if !whole || export.position <= piece.start || export.position > end {
            let (form, start) = (piece.form, piece.start);
            return Err(format!("a checkpoint at {} of {form:?} positions {start}..{end}", export.position));
        }
    }
    Ok(())
}

/// Drafts stand behind a decode row, each with a sample of its own sequence and one before them.
fn check_drafts(piece: &Piece, info: &BackendInfo) -> Result<(), String> {
    let (drafts, max) = (piece.drafts.len(), info.drafts.piece_max);
    if drafts == 0 {
        return Ok(());
    }
    if drafts as u64 > u64::from(max) {
        return Err(format!("{drafts} drafted tokens, at most {max} behind one"));
    }
    if piece.form != Form::Recurrent || piece.score.is_some() {
        return Err(format!("{drafts} drafted tokens behind {:?} positions: only decode rows have some", piece.form));
    }
    if !info.drafts.penalties && piece.samples.iter().any(|sample| sample.params.reads_history()) {
        return Err(format!("{drafts} drafted tokens for samples with penalties"));
    }
    let late = Sources::only(Source::Grammar);
    let own = |sample: &SampleRow| {
        sample.seq == piece.seq && sample.slot == piece.slot && sample.waits_for.without(late).is_empty()
    };
    if piece.samples.len() != drafts + 1 || !piece.samples.iter().all(own) {
        return Err(format!(
            "{drafts} drafted tokens want {} samples of their sequence that wait for a grammar or nobody",
            drafts + 1
        ));
    }
    Ok(())
}

/// What follows a piece whose drafts are not known is a decode row with some of its guesses, and has pages whatever
/// counts. Whether there is such a piece, the backend sees.
fn check_follows(piece: &Piece) -> Result<(), String> {
    if piece.drafts.is_empty() || piece.tokens != PieceTokens::Sampled {
        let drafts = piece.drafts.len();
        return Err(format!("{drafts} drafted tokens behind {:?} that follows another: 1 and more", piece.tokens));
    }
    if piece.state != StateStart::Continue || piece.samples.iter().any(|row| !row.waits_for.is_empty()) {
        return Err("a piece that follows another goes on from its state, and waits for no rules".into());
    }
    Ok(())
}

/// Guesses follow a sampled token of the piece's own sequence.
fn check_guesses(piece: &Piece, info: &BackendInfo) -> Result<(), String> {
    let (guesses, max) = (piece.guesses, if info.drafts.guesses { info.drafts.piece_max } else { 0 });
    if guesses > max {
        return Err(format!("{guesses} guesses of a draft head, at most {max}"));
    }
    let own = piece.samples.len() == piece.drafts.len() + 1 && piece.samples.iter().all(|row| row.seq == piece.seq);
    if guesses > 0 && !own {
        return Err(format!("{guesses} guesses behind {} samples, not all of one choice", piece.samples.len()));
    }
    Ok(())
}

fn check_piece(piece: &Piece, info: &BackendInfo) -> Result<(), String> {
    if let Some(slot) = piece.adapter.as_ref().map(|adapter| adapter.slot)
        && usize::from(slot.0) >= info.adapter_slots
    {
        return Err(format!("slot {slot} for an adapter, of {} of {}", info.adapter_slots, info.device));
    }
    if piece.is_empty() {
        return Err("a piece without tokens".into());
    }
    let end = u64::from(piece.start) + u64::from(piece.follows.unwrap_or(0)) + u64::from(piece.len());
    if end > u64::from(info.context) {
        return Err(format!("position {end} is beyond the context of {}", info.context));
    }
    if piece.slot.0 >= info.slots {
        return Err(format!("slot {} of {}", piece.slot, info.slots));
    }
    if (piece.pages.len() as u64) < end.div_ceil(u64::from(PAGE_TOKENS)) {
        return Err(format!("{} pages for {end} positions", piece.pages.len()));
    }
    if let Some(page) = piece.pages.iter().find(|p| p.0 >= info.pages) {
        return Err(format!("page {page} of {}", info.pages));
    }
    if let Some(cut) = piece.experts.filter(|cut| cut.min == 0 || cut.max < cut.min) {
        return Err(format!("experts cut to between {} and {}", cut.min, cut.max));
    }
    if piece.pool_from.is_some() && (piece.form != Form::Chunked || !piece.start.is_multiple_of(CHUNK_TOKENS)) {
        return Err(format!(
            "hidden states of {:?} positions from {} on: only prompt pieces report them",
            piece.form, piece.start
        ));
    }
    check_state(piece, info)?;
    check_drafts(piece, info)?;
    if piece.follows.is_some() {
        check_follows(piece)?;
    }
    check_guesses(piece, info)?;
    let known = if let PieceTokens::Known(ids) = &piece.tokens { &ids[..] } else { &[] };
    if let Some(id) = known.iter().chain(&piece.drafts).find(|id| **id >= info.vocab) {
        return Err(format!("token {id} of a vocabulary of {}", info.vocab));
    }
    let next = piece.score.as_ref().map_or(&[][..], |score| &score.next);
    if next.len() > SCORED_NEXT_MAX {
        return Err(format!("{} tokens scored behind a piece, at most {SCORED_NEXT_MAX}", next.len()));
    }
    if let Some(next) = next.iter().find(|id| **id >= info.vocab) {
        return Err(format!("scored token {next} of a vocabulary of {}", info.vocab));
    }
    for sample in &piece.samples {
        if sample.slot.0 >= info.slots {
            return Err(format!("sample into slot {} of {}", sample.slot, info.slots));
        }
        let forced =
            sample.rules.iter().find_map(|rule| if let Effect::Force(id) = rule.effect { Some(id) } else { None });
        if let Some(id) = forced.filter(|id| *id >= info.vocab) {
            return Err(format!("forced token {id} of a vocabulary of {}", info.vocab));
        }
        if let Some(early) = sample.waits_for.iter().find(|source| !source.is_deferred()) {
            return Err(format!("a sample waits for {}, whose rules come with the plan", early.name()));
        }
    }
    Ok(())
}
