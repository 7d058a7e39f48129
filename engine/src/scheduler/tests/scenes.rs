//! What the scheduler plans, scene by scene, in the words of [`trace`](super::trace).

use super::trace::{Stage, check};
use crate::ids::{Micros, RequestId};
use crate::scheduler::{Pace, Rejected, Request, Spec, Terms};

#[test]
fn a_prompt_is_computed_then_each_token_takes_a_row() {
    check("A prompt 10 max 3", "A[0..10] | A+1 | A+1 A=length | -");
}

#[test]
fn a_long_prompt_is_split_and_decodes_go_on() {
    check("budget 65; A prompt 150; B decoding", "B+1 A[0..64] | B+1 A[64..128] | B+1 A[128..150] | B+1 A+1");
}

#[test]
fn prompts_of_several_requests_share_a_step_with_decode_rows() {
    check("budget 256; A decoding; B prompt 20; C prompt 30", "A+1 B[0..20] C[0..30] | A+1 B+1 C+1");
}

#[test]
fn a_large_budget_takes_a_prompt_whole() {
    check("budget 256; A prompt 200", "A[0..200] | A+1");
}

#[test]
fn prompt_pieces_end_at_multiples_of_64() {
    check("budget 200; A prompt 250", "A[0..192] | A[192..250] | A+1");
}

#[test]
fn a_budget_below_a_unit_still_moves_a_prompt() {
    check("budget 1; A prompt 100 max 1; B decoding", "B+1 A[0..64] | B+1 A[64..100] A=length | B+1");
}

#[test]
fn beyond_the_budget_only_one_unit_is_granted() {
    check("budget 40; A prompt 100; B prompt 100", "A[0..64] | A[64..100] | A+1 B[0..64] | A+1 B[64..100] | A+1 B+1");
}

#[test]
fn a_short_prompt_fills_what_a_long_one_leaves() {
    check("budget 100; A prompt 150; B prompt 30", "A[0..64] B[0..30] | A[64..150] B+1");
}

#[test]
fn prompts_are_computed_in_order_of_arrival() {
    check("budget 64; A prompt 128; B prompt 64", "A[0..64] | A[64..128] | A+1 B[0..64] | A+1 B+1");
}

#[test]
fn a_lower_priority_value_goes_first() {
    check("budget 64; A prompt 128 priority 1; B prompt 64", "B[0..64] | B+1 A[0..64] | B+1 A[64..128] | B+1 A+1");
}

#[test]
fn a_more_urgent_request_overtakes_a_prompt_under_way() {
    check(
        "budget 64; A prompt 192 priority 1; @2 B prompt 100",
        "A[0..64] | B[0..64] | B[64..100] | B+1 A[64..128] | B+1 A[128..192]",
    );
}

#[test]
fn sequences_join_and_leave_at_every_step() {
    check(
        "A decoding; @2 B prompt 5 max 2; @3 C prompt 7 max 2; @4 D prompt 3 max 1",
        "A+1 | A+1 B[0..5] | A+1 B+1 C[0..7] B=length | A+1 C+1 D[0..3] C=length D=length | A+1",
    );
}

#[test]
fn every_decode_row_runs_even_beyond_the_budget() {
    check("budget 1; A decoding; B decoding; C decoding", "A+1 B+1 C+1 | A+1 B+1 C+1");
}

#[test]
fn an_end_id_ends_a_sequence_and_frees_its_slot() {
    check("slots 1; A ends 2; B prompt 5", "A[0..10] | A+1 A=stop | B[0..5]");
}

#[test]
fn a_context_that_is_full_ends_a_sequence() {
    check("context 12; A prompt 10", "A[0..10] | A+1 A=length | -");
}

#[test]
fn without_max_tokens_a_small_pool_bounds_the_output() {
    check("pages 1; A prompt 30", "A[0..30] | A+1 | A+1 A=length | -");
}

#[test]
fn a_prompt_without_output_is_computed_and_ends() {
    check("A prompt 100 max 0", "A[0..100] A=length | -");
}

#[test]
fn all_choices_of_a_prompt_without_output_end_together() {
    check("A prompt 10 max 0 n 2", "A.0[0..10] A.0=length A.1=length | -");
}

#[test]
fn with_two_steps_in_flight_a_row_takes_a_token_that_is_not_committed() {
    check("lag 2; A prompt 10 max 4", "A[0..10] | A+? | A+? | A+? | - A=length");
}

#[test]
fn a_thinking_row_waits_for_no_outcome_with_two_steps_in_flight_and_for_one_with_three() {
    check("lag 2; A thinks 2 max 6", "A[0..10] | A+? | A+? | A+? | A+? | A+? A?2 | - A=length");
    check("lag 3; A thinks 2 max 6", "A[0..10] | A+? | - | A+?");
}

#[test]
fn an_end_id_wastes_one_row_when_commits_lag() {
    check("lag 2; A ends 2; B prompt 5 max 3", "A[0..10] B[0..5] | A+? B+? | A+? B+? A=stop | - B=length");
}

#[test]
fn a_length_limit_wastes_no_row_when_commits_lag() {
    check("lag 2; A prompt 10 max 2", "A[0..10] | A+? | - A=length");
}

#[test]
fn a_slot_is_reused_while_a_wasted_row_is_in_flight() {
    check("lag 2; slots 1; A ends 1; B prompt 40 max 2", "A[0..10] | A+? A=stop | B[0..40] | B+?");
}

#[test]
fn no_more_steps_are_planned_than_may_be_in_flight() {
    check("lag 3; A prompt 10", "A[0..10] | A+? | A+? | A+?");
}
#[test]
fn the_youngest_gives_way_to_an_older_one_and_goes_on_after_it() {
    check(
        "pages 3; A prompt 30 max 5; B prompt 31 max 8",
        "A[0..30] B[0..31] | A+1 B+1 | A+1 B+1 | A+1 ~B | A+1 A=length | B[0..31] | B+3 | B+1",
    );
}

#[test]
fn what_a_request_was_spared_is_known_also_while_it_is_preempted() {
    let mut stage = Stage::new("pages 3; A prompt 30 max 5; B prompt 31 max 8");
    let steps: Vec<_> = (1..=4).map(|step| stage.step(step)).collect();
    assert_eq!(steps[3], "A+1 ~B");
    assert_eq!(stage.scheduler.cached_tokens(RequestId(1)), Some(0));
    stage.run_to_the_end();
}

#[test]
fn the_lowest_priority_gives_way_even_if_it_is_older() {
    check(
        "pages 3; A prompt 31 priority 1 max 8; B prompt 30 max 5",
        "B[0..30] A[0..31] | B+1 A+1 | B+1 A+1 | B+1 ~A | B+1 B=length | A[0..31]",
    );
}

#[test]
fn the_youngest_waits_for_a_page_and_keeps_what_it_has() {
    check(
        "pages 3; A prompt 31 max 4; B prompt 30 max 6",
        "A[0..31] B[0..30] | A+1 B+1 | A+1 B+1 | A+1 A=length | B+1 | B+1",
    );
}

#[test]
fn outputs_are_recomputed_within_the_budget() {
    check(
        "after 96; budget 64; pages 8; A prompt 33 max 98; B prompt 33 max 120",
        "A+1 ~B | A+1 A=length | B[0..33] | B+64 | B+31 | B+1",
    );
}

#[test]
fn recomputed_outputs_share_the_budget_with_decode_rows() {
    check(
        "after 96; budget 64; pages 12; A prompt 33 max 98; B prompt 33 max 110; C prompt 33 max 120",
        "A+1 B+1 ~C | A+1 B+1 A=length | B+1 C[0..33] | B+1 C+64 | B+1 C+30 | B+1 C+1",
    );
}

#[test]
fn where_each_recomputed_position_is_a_pass_a_step_has_few_of_them() {
    check(
        "after 96; passes 16; budget 64; pages 12; A prompt 33 max 98; B prompt 33 max 110; C prompt 33 max 120",
        "A+1 B+1 ~C | A+1 B+1 A=length | B+1 C[0..33] | B+1 C+16 | B+1 C+16 | B+1 C+16",
    );
}

#[test]
fn where_recomputed_positions_share_passes_a_step_has_as_many_more() {
    check(
        "after 96; passes 16 of 2; budget 64; pages 12; A prompt 33 max 98; B prompt 33 max 110; C prompt 33 max 120",
        "A+1 B+1 ~C | A+1 B+1 A=length | B+1 C[0..33] | B+1 C+32 | B+1 C+32 | B+1 C+30",
    );
}

#[test]
fn tokens_in_flight_stay_with_a_preempted_sequence() {
    check(
        "lag 2; pages 3; A prompt 30 max 5; B prompt 31 max 8",
        "A[0..30] B[0..31] | A+? B+? | A+? B+? | A+? ~B | A+? | - A=length | B[0..31] | B+3",
    );
}

#[test]
fn a_preempted_sequence_may_end_with_a_token_that_was_in_flight() {
    check(
        "lag 2; pages 3; A prompt 30 max 6; B prompt 31 ends 3",
        "A[0..30] B[0..31] | A+? B+? | A+? B+? | A+? ~B B=stop | A+?",
    );
}

#[test]
fn a_start_never_preempts() {
    check("pages 3; A prompt 31; B prompt 40 max 2", "A[0..31] | A+1 | A+1 | A+1");
}

#[test]
fn nobody_overtakes_a_request_that_waits_for_pages() {
    check(
        "pages 4; A prompt 60 max 4; B prompt 60 max 2; C prompt 5 max 2",
        "A[0..60] | A+1 | A+1 | A+1 A=length | B[0..60] C[0..5]",
    );
}

#[test]
fn a_prompt_for_several_choices_is_preempted_as_one() {
    check(
        "after 65; context 4000; budget 95; pages 101; A prompt 31 max 70; B prompt 3168 n 2 max 2",
        "A+1 | A+1 ~B.0 ~B.1 | A+1 | A+1 | A+1 A=length | B.0[0..64]",
    );
}

#[test]
fn choices_share_a_prompt_and_copy_its_part_filled_page() {
    check("A prompt 40 n 2 max 3", "A.0[0..40] | fork A.1+page A.0+1 A.1+1 | A.0+1 A.1+1 A.0=length A.1=length");
}

#[test]
fn choices_copy_no_page_when_the_prompt_ends_on_one() {
    check("A prompt 64 n 3 max 2", "A.0[0..64] | fork A.1 fork A.2 A.0+1 A.1+1 A.2+1 A.0=length A.1=length A.2=length");
}

#[test]
fn choices_of_one_token_need_no_fork() {
    check("A prompt 40 n 3 max 1", "A.0[0..40] A.0=length A.1=length A.2=length | -");
}

#[test]
fn choices_fork_while_their_first_tokens_are_in_flight() {
    check("lag 2; A prompt 40 n 2", "A.0[0..40] | fork A.1+page A.0+? A.1+? | A.0+? A.1+?");
}

#[test]
fn choices_fork_from_a_choice_that_has_ended_and_whose_slot_is_reused() {
    check(
        "slots 2; A prompt 40 n 2 ends 1 max 4; B prompt 5",
        "A.0[0..40] A.0=stop | fork A.1+page A.1+1 B[0..5] | A.1+1 B+1",
    );
}

#[test]
fn choices_wait_until_all_have_a_slot() {
    check(
        "slots 2; A prompt 10 max 3; B prompt 10 n 2; C prompt 5",
        "A[0..10] | A+1 | A+1 A=length | B.0[0..10] | fork B.1+page B.0+1 B.1+1",
    );
}

#[test]
fn a_choice_that_finds_no_page_at_the_fork_runs_later() {
    check("pages 2; A prompt 40 n 2 max 2", "A.0[0..40] ~A.1 | A.0+1 A.0=length | A.1[0..40] | A.1+1 A.1=length");
}

#[test]
fn a_choice_is_preempted_and_recomputed_alone() {
    check(
        "pages 6; A prompt 62 max 6; B prompt 62 n 2 max 6",
        "A[0..62] B.0[0..62] | fork B.1+page A+1 B.0+1 B.1+1 | A+1 B.0+1 B.1+1 | A+1 B.0+1 ~B.1 | A+1 B.0+1 | A+1 B.0+1 A=length B.0=length | B.1[0..62] | B.1+3",
    );
}

#[test]
fn a_waiting_request_is_cancelled() {
    check("slots 1; A max 2 decoding; B prompt 5; C prompt 6; @1 cancel B", "A+1 A=length | C[0..6]");
}

#[test]
fn a_prompt_is_cancelled_between_its_pieces() {
    check("budget 64; A prompt 200; B prompt 10; @2 cancel A", "A[0..64] | B[0..10] | B+1");
}

#[test]
fn a_sequence_is_cancelled_with_rows_in_flight() {
    check("lag 2; A prompt 10; B prompt 10; @3 cancel A", "A[0..10] B[0..10] | A+? B+? | B+? | B+?");
}

#[test]
fn a_preempted_sequence_is_cancelled() {
    check(
        "pages 3; A prompt 30 max 6; B prompt 31; @5 cancel B",
        "A[0..30] B[0..31] | A+1 B+1 | A+1 B+1 | A+1 ~B | A+1 | A+1 A=length | -",
    );
}

#[test]
fn choices_are_cancelled_between_the_prompt_and_the_fork() {
    check("A decoding; B prompt 40 n 2; @2 cancel B; @2 C prompt 40", "A+1 B.0[0..40] | A+1 C[0..40]");
}

#[test]
fn one_choice_is_cancelled_and_the_others_fork_all_the_same() {
    check("A prompt 40 n 2 max 4; @2 cancel A.0", "A.0[0..40] | fork A.1+page A.1+1");
}

#[test]
fn a_full_queue_refuses() {
    check("queue 1; A prompt 5; B prompt 5", "B!queue A[0..5]");
}

#[test]
fn a_preempted_sequence_takes_no_place_in_the_queue() {
    check(
        "queue 1; pages 3; A prompt 29 max 6; @2 B prompt 31 max 6; @6 C prompt 5; @6 D prompt 5",
        "A[0..29] | A+1 B[0..31] | A+1 B+1 | A+1 B+1 | A+1 ~B | D!queue A+1 A=length | B[0..31]",
    );
}

#[test]
fn the_service_s_own_request_is_not_refused_for_what_others_have_waiting() {
    let mut stage = Stage::new("queue 1");
    assert_eq!(stage.happen("A prompt 10 max 1"), "");
    let own = Request::new(RequestId(9), [0], Spec::greedy(1));
    let mut admit = |exempt| {
        let terms = Terms { exempt, ..Terms::default() };
        stage.scheduler.admit_under(own.clone(), &terms, Micros(0), &Pace::default())
    };
    assert_eq!(admit(false), Err(Rejected::QueueFull { waiting: 1, max: 1 }));
    assert_eq!(admit(true), Ok(()));
}

#[test]
fn a_part_of_a_call_that_was_taken_leaves_the_queue_to_others() {
    let mut stage = Stage::new("queue 2");
    let mut admit = |id, exempt| {
        let terms = Terms { exempt, ..Terms::default() };
        let request = Request::new(RequestId(id), [0; 5], Spec::greedy(1));
        stage.scheduler.admit_under(request, &terms, Micros(0), &Pace::default())
    };
    (10..20).for_each(|id| assert_eq!(admit(id, true), Ok(())));
    assert_eq!((admit(1, false), admit(2, false)), (Ok(()), Ok(())));
    assert_eq!(admit(3, false), Err(Rejected::QueueFull { waiting: 2, max: 2 }));
    assert_eq!(stage.scheduler.stats().requests_new, 12);
}

#[test]
fn prompt_tokens_in_the_queue_are_bounded() {
    check("queue-tokens 50; A prompt 45; B prompt 6", "B!queue-tokens A[0..45]");
}

#[test]
fn an_empty_queue_takes_a_prompt_beyond_its_bound() {
    check("queue-tokens 50; A prompt 60", "A[0..60]");
}

#[test]
fn more_choices_than_slots_are_refused() {
    check("slots 2; A n 3", "A!choices -");
}

#[test]
fn a_prompt_without_room_for_a_token_is_refused() {
    check("context 20; A prompt 20; B prompt 20 max 0; C prompt 19", "A!prompt B[0..20] C[0..19] B=length C=length");
}

#[test]
fn what_cannot_fit_even_alone_is_refused() {
    check("pages 2; A prompt 60 max 6; B prompt 60 max 5", "A!pages B[0..60] | B+1 | B+1 | B+1 | B+1 B=length");
}

#[test]
fn draining_takes_nothing_new_and_finishes_the_rest() {
    check(
        "slots 1; A max 3 decoding; B prompt 5 max 1; @2 drain; @2 C prompt 5",
        "A+1 | C!draining A+1 A=length | B[0..5] B=length | -",
    );
}

#[test]
fn a_lost_engine_fails_what_runs_and_what_waits() {
    check("slots 1; A decoding; B prompt 5; @2 fail; @3 C prompt 5", "A+1 | A=failed B=failed - | C!draining -");
}

#[test]
fn prompt_scores_come_with_each_piece() {
    check(
        "budget 64; A prompt 150 max 1 scored",
        "A[0..64] A#1..64 | A[64..128] A#65..128 | A[128..150] A#129..149 A=length",
    );
}

#[test]
fn a_last_piece_of_one_token_has_no_score_of_its_own() {
    check(
        "budget 64; A prompt 65 max 1 scored; B prompt 1 max 1 scored",
        "A[0..64] A#1..64 | A[64..65] B[0..1] A=length B=length",
    );
}

#[test]
fn a_prompt_is_scored_from_a_position_on_and_before_what_may_follow_it() {
    check(
        "budget 64; A prompt 150 max 0 from 100 behind 2",
        "A[0..64] | A[64..128] A#100..128 | A[128..150] A#129..150 A=length",
    );
    check("A prompt 70 max 0 from 70 behind 3", "A[0..70] A#70..70 A=length");
    check("A prompt 64 max 0 from 70", "A[0..64] A=length");
}

#[test]
fn what_is_not_scored_may_come_from_the_cache() {
    check(
        "checkpoints 4; A prompt 150 max 0 like 7 until 150; @2 B prompt 151 max 0 like 7 until 151 from 129 behind 1; \
         @3 C prompt 151 max 0 like 7 until 151 from 128 behind 1",
        "A[0..150]^128 A=length | B[128..151] B#129..151 B=length | C[0..151] C#128..151 C=length",
    );
}

#[test]
fn a_prompt_is_scored_without_output() {
    check("A prompt 100 max 0 scored", "A[0..100] A#1..99 A=length");
}

#[test]
fn a_prompt_s_hidden_state_comes_once_with_its_end() {
    check(
        "budget 64; A prompt 100 max 0 pooled; B prompt 10 max 1",
        "A[0..64] | A[64..100] B[0..10] A=pooled A=length B=length",
    );
}

#[test]
fn a_prompt_is_scored_once_for_all_choices() {
    check("A prompt 10 n 2 max 1 scored", "A.0[0..10] A#1..9 A.0=length A.1=length");
}

#[test]
fn a_recomputed_prompt_is_not_scored_again() {
    check(
        "pages 3; A prompt 30 max 5; B prompt 31 max 8 scored",
        "A[0..30] B[0..31] B#1..30 | A+1 B+1 | A+1 B+1 | A+1 ~B | A+1 A=length | B[0..31] | B+3",
    );
}

#[test]
fn a_preempted_sequence_waits_for_its_tokens_in_flight() {
    check(
        "lag 3; pages 3; A prompt 30 ends 2; B prompt 31 max 8",
        "A[0..30] B[0..31] | A+? B+? | A+? B+? | A+? ~B A=stop | - | B[0..31] | B+3",
    );
}

#[test]
fn a_recomputed_prompt_is_scored_from_where_its_scores_ended() {
    check(
        "after 93; context 4000; budget 128; pages 101; A prompt 31 max 70; B prompt 3168 max 1 scored",
        "B[2944..3072] | B[3072..3168] B#3137..3167 B=length",
    );
}

#[test]
fn a_key_that_was_served_less_overtakes_those_that_wait() {
    check(
        "budget 64; slots 2; A prompt 64 max 1 key 1; B prompt 64 max 1 key 1; C prompt 64 max 1 key 1; @2 D prompt 10 max 1 key 2",
        "A[0..64] A=length | D[0..10] D=length | B[0..64] B=length | C[0..64] C=length",
    );
}

#[test]
fn prompts_of_two_keys_take_turns() {
    check(
        "budget 64; A prompt 256 max 1 key 1; B prompt 192 max 1 key 2",
        "A[0..64] | B[0..64] | A[64..128] | B[64..128] | A[128..192] | B[128..192] B=length | A[192..256] A=length",
    );
}

#[test]
fn priority_counts_within_a_key_alone() {
    check(
        "budget 64; slots 1; A prompt 64 max 1 key 1; @2 B prompt 64 max 1 key 1 priority -5; @2 C prompt 64 max 1 key 2 priority 5; @2 D prompt 9 max 1 key 1",
        "A[0..64] A=length | C[0..64] C=length | B[0..64] B=length | D[0..9] D=length",
    );
}

#[test]
fn a_key_without_a_slot_gets_one_from_the_key_that_has_most() {
    check(
        "slots 2; A prompt 10 key 1; B prompt 10 key 1; @3 C prompt 10 key 2; @4 D prompt 10 key 2",
        "A[0..10] B[0..10] | A+1 B+1 | C[0..10] A+1 ~B | C+1 A+1 | C+1 A+1",
    );
}

#[test]
fn within_a_key_nobody_is_thrown_out_for_a_slot() {
    check(
        "slots 1; A prompt 10 max 4; @2 B prompt 10 max 1 priority -9",
        "A[0..10] | A+1 | A+1 | A+1 A=length | B[0..10] B=length",
    );
}

#[test]
fn a_modest_key_may_join_a_queue_that_is_full_of_another_s() {
    check(
        "slots 1; queue 2; A key 1; @2 B key 1; @2 C key 1; @2 D key 1; @2 E key 2 max 1; @2 F key 2 max 1; @2 G key 1",
        "A[0..10] | D!queue F!queue G!queue A+1 | A+1",
    );
}

#[test]
fn rows_of_a_key_that_has_more_than_its_share_sit_out_for_the_prompt_of_a_key_that_was_served_less() {
    check(
        "A prompt 60 key 1; B prompt 60 key 1; C prompt 60 key 1; @3 D prompt 90 max 2 key 2",
        "A[0..60] B[0..60] C[0..60] | A+1 B+1 C+1 | D[0..90] | D+1 A+1 B+1 C+1 D=length | A+1 B+1 C+1",
    );
}

#[test]
fn they_sit_out_as_long_as_it_was_served_less() {
    check(
        "A prompt 60 key 1; B prompt 60 key 1; C prompt 60 key 1; @3 D prompt 250 max 2 key 2",
        "A[0..60] B[0..60] C[0..60] | A+1 B+1 C+1 | D[0..192] | D[192..250] A+1 B+1 C+1 | A+1 B+1 C+1 D+1 D=length",
    );
}

#[test]
fn prompts_and_starts_of_that_key_sit_out_too() {
    check(
        "budget 128; A prompt 60 key 1; B prompt 60 key 1; @2 C prompt 200 key 1; @3 D prompt 90 max 1 key 2; @3 E prompt 30 key 1",
        "A[0..60] B[0..60] | A+1 B+1 C[0..64] | D[0..90] D=length | A+1 B+1 C[64..128] E[0..30]",
    );
}

#[test]
fn nobody_sits_out_who_has_no_more_than_his_share_or_is_of_the_same_key() {
    check("A prompt 60 key 1; @3 D prompt 90 max 2 key 2", "A[0..60] | A+1 | D[0..90] A+1 | A+1 D+1 D=length");
    check(
        "A prompt 60 key 1; B prompt 60 key 1; C prompt 60 key 1; @3 D prompt 60 max 2 key 1",
        "A[0..60] B[0..60] C[0..60] | A+1 B+1 C+1 | A+1 B+1 C+1 D[0..60] | A+1 B+1 C+1 D+1 D=length",
    );
}

#[test]
fn who_sits_out_with_a_token_in_flight_goes_on_from_it() {
    check(
        "lag 2; A prompt 60 key 1; B prompt 60 key 1; C prompt 60 key 1; @3 D prompt 90 max 2 key 2",
        "A[0..60] B[0..60] C[0..60] | A+? B+? C+? | D[0..90] | D+? A+1 B+1 C+1 | A+? B+? C+? D=length",
    );
}

#[test]
fn who_sits_out_may_be_cancelled_meanwhile() {
    check(
        "slots 5; budget 64; A prompt 60 key 1; B prompt 60 key 1; C prompt 60 key 1; D prompt 60 key 1; @5 E prompt 120 max 1 key 2; @6 cancel B",
        "A[0..60] | A+1 B[0..60] | A+1 B+1 C[0..60] | A+1 B+1 C+1 D[0..60] | E[0..64] | E[64..120] E=length | A+1 C+1 D+1",
    );
}

#[test]
fn decode_rows_and_prompts_of_several_keys_take_turns_where_prompts_are_passes_of_their_own() {
    check(
        "apart; A key 1 decoding; B prompt 150 max 3 key 2",
        "B[0..64] | A+1 | B[64..128] | A+1 | B[128..150] | A+1 B+1 | A+1 B+1 B=length | A+1",
    );
    check(
        "apart; A key 1 decoding; B prompt 150 max 3 key 1",
        "A+1 B[0..64] | A+1 B[64..128] | A+1 B[128..150] | A+1 B+1",
    );
}

#[test]
fn rows_within_their_share_take_turns_with_a_prompt_for_which_others_sit_out() {
    check(
        "apart; slots 5; A prompt 60 key 1; B prompt 60 key 1; C prompt 60 key 1; E prompt 10 key 3; @3 D prompt 150 max 1 key 2",
        "A[0..60] B[0..60] C[0..60] E[0..10] | E+1 A+1 B+1 C+1 | D[0..64] | E+1 | D[64..128] | E+1 | D[128..150] D=length | E+1 A+1 B+1 C+1",
    );
}

#[test]
fn a_second_turn_computes_what_follows_the_first_ones_opening() {
    check(
        "checkpoints 4; A prompt 150 like 7 until 140 turn 140 max 1; @3 B prompt 200 like 7 until 140 turn 190 max 1",
        "A[0..150]^128 A=length | - | B[128..200] B=length",
    );
}

#[test]
fn an_identical_prompt_computes_its_last_tokens_again() {
    check(
        "checkpoints 4; A prompt 128 like 7 until 128 max 1; @2 B prompt 128 like 7 until 128 max 1",
        "A[0..128]^64 A=length | B[64..128] B=length",
    );
}

#[test]
fn where_two_prompts_part_a_checkpoint_is_kept_for_the_third() {
    check(
        "checkpoints 4; A prompt 250 like 7 until 140 max 1; @2 B prompt 240 like 7 until 140 max 1; \
         @3 C prompt 200 like 7 until 140 max 1",
        "A[0..250]^192 A=length | B[0..240]^192^128 B=length | C[128..200]^192 C=length",
    );
}

#[test]
fn another_scope_and_prompts_whose_rows_all_report_find_nothing() {
    check(
        "checkpoints 4; A prompt 150 like 7 until 150 turn 140 max 1; @2 B prompt 150 like 7 until 150 turn 140 max 1 scope 1; \
         @3 C prompt 150 like 7 until 150 turn 140 max 1 scored; @4 D prompt 150 like 7 until 150 turn 140 max 1",
        "A[0..150]^128 A=length | B[0..150]^128 B=length | C[0..150] C#1..149 C=length | D[128..150] D=length",
    );
}

#[test]
fn kept_pages_make_room_before_anybody_is_preempted() {
    check(
        "checkpoints 4; pages 6; A prompt 120 like 7 until 120 max 1; @2 B prompt 180 max 1",
        "A[0..120]^64 A=length | B[0..180]^128 B=length",
    );
}

#[test]
fn a_preempted_sequence_goes_on_from_its_own_checkpoint() {
    check("checkpoints 4; pages 8; after 2; A prompt 60 max 80; B prompt 150 turn 140 max 40", "A+1 B+1 | A+1 B+1");
}

#[test]
fn choices_share_what_their_leader_found() {
    check(
        "checkpoints 4; A prompt 150 like 7 until 140 turn 140 max 1; @2 B prompt 200 like 7 until 140 turn 190 n 2 max 2",
        "A[0..150]^128 A=length | B.0[128..200] | fork B.1+page B.0+1 B.1+1 B.0=length B.1=length",
    );
}
