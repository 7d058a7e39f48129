// gdn_finish: the gated norm and the int8 form of rows.
#pragma once
#include "arguments.cuh"
#include "common/int8_rows.cuh"
#include "gdn/pieces.cuh"

#define FINISH_PARTS 4
#define FINISH_ROWS (C / FINISH_PARTS / (THREADS / WARP))

// Block (FINISH_PARTS * chunk + part, value head): a warp takes FINISH_ROWS tokens.
extern "C" __global__ void __launch_bounds__(THREADS) gdn_finish(const Arguments args) {
    let_next_start();
    int lane = threadIdx.x % WARP, h = blockIdx.y, first = (blockIdx.x % FINISH_PARTS * (THREADS / WARP) + threadIdx.x / WARP) * FINISH_ROWS;
    float w[V / 32];
#pragma unroll
    for (int b = 0; b < V / 32; b++) w[b] = __ldg(args.norm + 32 * b + lane);
    wait_for_inputs();
    Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x / FINISH_PARTS);
    int end = min(first + FINISH_ROWS, chunk.filled);
#pragma unroll 4
    for (int t = first; t < end; t++) {
        u64 row = chunk.row(t), at = row * (HV * V) + h * V;
        float o[V / 32], z[V / 32], sum = 0;
#pragma unroll
        for (int b = 0; b < V / 32; b++) o[b] = args.values[at + 32 * b + lane], z[b] = args.x[row * X_STRIDE + Z_AT + h * V + 32 * b + lane];
#pragma unroll
        for (int b = 0; b < V / 32; b++) sum = __fmaf_rn(o[b], o[b], sum);
        float scale = __frcp_rn(__fsqrt_rn(__fmaf_rn(warp_sum(sum), 1.0f / V, args.eps)));
#pragma unroll
        for (int b = 0; b < V / 32; b++)
            quantize_block(o[b] * scale * w[b] * silu(z[b]), args.codes + (at + 32 * b) * PLANES, args.meta + (at / 32 + b) * PLANES);
    }
}
