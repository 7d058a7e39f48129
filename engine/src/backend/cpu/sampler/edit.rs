//! The logits that tokens are drawn from, made of the model's own: masks, penalties, biases and mixtures.

use crate::backend::cpu::sampler::history::History;
use crate::backend::cpu::sampler::scan::{largest, number};
use crate::backend::cpu::sampler::weights::Total;
use crate::backend::cpu::simd::run;
use crate::constraint::Constraint;
use crate::ids::TokenId;
use crate::sampling::SamplingParams;
use crate::step::SampleRow;
use chimere_kernels::reference::sampler::{self as definition, Mixture};

/// Writes the logits after what may not come and after penalties to `out`, minus infinity for what is no number; false
/// if nothing changes them, as nothing does where they are `finite` numbers and nothing is said about them.
pub(super) fn edit(
    (logits, finite): (&[f32], bool),
    row: &SampleRow,
    history: &History,
    c: &Constraint,
    out: &mut Vec<f32>,
) -> bool {
    let p = &*row.params;
    let penalties = p.reads_history();
    let free = c.mask.is_none() && c.forbidden.is_empty();
    if p.logit_bias.is_empty() && free && !penalties && finite {
        return false;
    }
    copy_allowed(logits, c.mask.as_deref(), out);
    // What is no number stays none, and no bias and no penalty brings back what may not come.
    let mut at = |id: TokenId, f: &dyn Fn(f32) -> f32| {
        if let Some(l) = out.get_mut(id as usize) {
            *l = number(f(*l));
        }
    };
    p.logit_bias.iter().for_each(|(id, bias)| at(*id, &|l| l + bias));
    c.forbidden.iter().for_each(|id| at(*id, &|_| f32::NEG_INFINITY));
    if penalties {
        let p = sampling(p);
        history
            .iter()
            .for_each(|(id, seen)| at(id, &|l| definition::penalised(l, &p, seen.in_prompt, seen.output_count)));
    }
    true
}

/// Copies numbers, and minus infinity for what is none or what a mask does not allow. Most words of most masks allow
/// all of their tokens or none.
fn copy_allowed(logits: &[f32], mask: Option<&[u32]>, out: &mut Vec<f32>) {
    out.clear();
    let Some(mask) = mask else { return out.extend(logits.iter().copied().map(number)) };
    let words = mask.iter().copied().chain(std::iter::repeat(0));
    for (part, word) in logits.chunks(u32::BITS as usize).zip(words) {
        match word {
            u32::MAX => out.extend(part.iter().copied().map(number)),
            0 => out.resize(out.len() + part.len(), f32::NEG_INFINITY),
            _ => out.extend(part.iter().enumerate().map(|(bit, l)| match word >> bit & 1 {
                0 => f32::NEG_INFINITY,
                _ => number(*l),
            })),
        }
    }
}

/// Adds biases to logits that are numbers, and leaves numbers.
pub(super) fn add(logits: &mut [f32], list: &[(TokenId, f32)]) {
    for (id, bias) in list {
        if let Some(l) = logits.get_mut(*id as usize) {
            *l = number(*l + bias);
        }
    }
}

/// All weights are in units of the sum over the logits as they come in, also where a token is listed twice.
pub(super) fn mix(logits: &mut [f32], list: &[(TokenId, f32)]) {
    if list.is_empty() {
        return;
    }
    let best = largest(logits);
    let Some(mixture) = Mixture::new(best, || run(Total { logits, best })) else { return };
    for &(id, weight) in list {
        if let Some(l) = logits.get_mut(id as usize) {
            *l = mixture.mixed(*l, weight);
        }
    }
}

/// The parameters as the definition takes them; what ends a sequence is the scheduler's to forbid.
pub(super) fn sampling(p: &SamplingParams) -> definition::Sampling<'_> {
    definition::Sampling {
        temperature: p.temperature,
        top_p: p.top_p,
        top_k: p.top_k,
        min_p: p.min_p,
        seed: p.seed,
        repetition_penalty: p.repetition_penalty,
        presence_penalty: p.presence_penalty,
        frequency_penalty: p.frequency_penalty,
        logit_bias: &p.logit_bias,
        min_tokens: 0,
        end_ids: &[],
    }
}
