//! What the generations of a turn took together.

use crate::actors::request::output::{RequestUsage, Timings};
use crate::actors::request::report::{Report, ThinkingReport};

/// Adds what a later round took to what the rounds before it did. Its own tokens are left.
pub(in crate::turn) fn add(total: &mut RequestUsage, round: RequestUsage) {
    total.timings = together(total, &round);
    total.prompt_tokens += round.prompt_tokens;
    total.cached_tokens += round.cached_tokens;
    total.completion_tokens += round.completion_tokens;
    total.reasoning_tokens += round.reasoning_tokens;
    total.room = total.room.or(round.room);
    total.moments = round.moments;
    round.reports.into_iter().for_each(|report| add_report(&mut total.reports, report));
}

/// Times add up; the first token is the first round's. The time of all is not known here.
fn together(total: &RequestUsage, round: &RequestUsage) -> Timings {
    let (a, b) = (&total.timings, &round.timings);
    // The gaps between tokens count as often as there are some.
    let gaps = |usage: &RequestUsage| usage.completion_tokens.saturating_sub(1);
    let all = gaps(total) + gaps(round);
    let weighed = a.itl_mean * gaps(total) + b.itl_mean * gaps(round);
    Timings {
        queue: a.queue + b.queue,
        prefill: a.prefill + b.prefill,
        ttft: a.ttft,
        itl_mean: weighed.checked_div(all).unwrap_or_default(),
        itl_p95: a.itl_p95.max(b.itl_p95),
        decode: a.decode + b.decode,
        total: a.total + b.total,
    }
}

/// Adds a report to the one of its kind, where both count something; else the later one stands.
fn add_report(all: &mut Vec<Report>, later: Report) {
    let same = |report: &&mut Report| std::mem::discriminant(*report) == std::mem::discriminant(&later);
    let Some(earlier) = all.iter_mut().find(same) else { return all.push(later) };
    *earlier = match (&*earlier, later) {
        (Report::Thinking(before), Report::Thinking(now)) => {
            Report::Thinking(ThinkingReport { tokens: before.tokens + now.tokens, ..now })
        }
        (Report::Yielded(before), Report::Yielded(now)) => Report::Yielded(before.with(now)),
        (Report::Speculation(before), Report::Speculation(now)) => Report::Speculation(before.with(&now)),
        (Report::Prediction(before), Report::Prediction(now)) => Report::Prediction(before.with(now)),
        (Report::Engram(before), Report::Engram(now)) => Report::Engram(Box::new(before.with(*now))),
        (_, later) => later,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rounds_add_up_and_the_first_token_stays_the_first_one_s() {
        let ms = Duration::from_millis;
        let usage = |tokens: u32, time: u64, ended| RequestUsage {
            prompt_tokens: 10 * tokens,
            cached_tokens: tokens,
            completion_tokens: tokens,
            timings: Timings { ttft: ms(time), itl_mean: ms(time), itl_p95: ms(time), ..Timings::default() },
            reports: vec![Report::Thinking(ThinkingReport { tokens, ended: vec![ended] })],
            ..RequestUsage::default()
        };
        let mut total = usage(3, 4, "model");
        add(&mut total, usage(2, 10, "budget"));
        assert_eq!((total.prompt_tokens, total.cached_tokens, total.completion_tokens), (50, 5, 5));
        let timings = &total.timings;
        assert_eq!((timings.ttft, timings.itl_mean, timings.itl_p95), (ms(4), ms(6), ms(10)));
        assert_eq!(total.reports, [Report::Thinking(ThinkingReport { tokens: 5, ended: vec!["budget"] })]);
        let mut none = RequestUsage::default();
        add(&mut none, RequestUsage::default());
        assert_eq!(none, RequestUsage::default());
    }
}
