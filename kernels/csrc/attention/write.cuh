// Keys and values of many rows of a step, before tiles of them attend.
#pragma once
#include "arguments.cuh"
#include "attention/formats.cuh"

// Keys and values of a step's rows: block (row, key-value head), one warp each.
extern "C" __global__ void __launch_bounds__(2 * WARP) attention_write(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    int row = blockIdx.x, head = blockIdx.y, slot = args.slots[row];
    if (slot < 0) return;
    int position = args.positions[row];
    u64 page = (u64)args.page_table[(u64)slot * args.pages_max + position / PAGE] * HKV + head;
    const u64 at = (u64)row * X_STRIDE;
    const u16 *halves = (const u16 *)args.x + at;
    Head h;
    if (threadIdx.x < WARP) {
        if (args.half_x) load_head(h, key_of(halves, head));
        else load_head(h, key_of(args.x + at, head));
        norm_head(h, args.k_norm, args.eps);
        rotate_head<IN_WRITE>(h, turn_of(args.turns, position));
        Keys::store(h, args.k_cache + page * Keys::BYTES, position % PAGE);
    } else {
        if (args.half_x) load_head(h, value_of(halves, head));
        else load_head(h, value_of(args.x + at, head));
        Values::store(h, args.v_cache + page * Values::BYTES, position % PAGE);
    }
}
