// The choice for very many rows, prompts', whose sums are whole: a warp a row. Choices are those of row_a_block.cuh, bit for bit.
#pragma once
#include "router/row_a_block.cuh"

// A row's shared gate, without its factor: all parts by one warp, some at a time on their way.
__device__ __forceinline__ float gate_of(const Arguments &args, int row) {
    constexpr int AT_ONCE = PartOfRow<COLS>::VECTORS <= 2 ? 4 : 1;
    float gate = 0;
#pragma unroll
    for (int part = 0; part < SCORE_PARTS; part += AT_ONCE) {
        PartOfRow<COLS> x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) x[i].read(args.x + (u64)row * COLS, part + i, true);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            PartOfRow<COLS> norm, weights;
            norm.read(args.norm, part + i, true), weights.read(args.shared_gate, part + i, true);
            x[i].multiply(norm);
            gate += x[i].score(weights);
        }
    }
    return gate;
}

extern "C" __global__ void __launch_bounds__(THREADS) choose_many(const Arguments args) {
    let_next_start();
    const int row = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Biases<E> biases(args.bias);
    wait_for_inputs();
    if (row >= args.rows) return;
    float value[EACH_LANE];
#pragma unroll
    for (int i = 0; i < EACH_LANE; i++) value[i] = i * WARP + lane < E ? __ldcg(args.scores + (u64)row * STRIDE + i * WARP + lane) : 0.0f;
    // What is added up from zero has no negative zero, and keys tell zeros apart.
#pragma unroll
    for (int i = 0; i < EACH_LANE; i++) value[i] = __fadd_rn(0.0f, value[i]);
    const Asked asked = read_ahead(args, row);
    select_row(args, row, asked, value, args.gate_scored ? __ldcg(args.scores + (u64)row * STRIDE + E) : gate_of(args, row), biases);
}
