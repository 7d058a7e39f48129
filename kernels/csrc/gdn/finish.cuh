// gdn_finish: the gated norm and the int8 form of rows, or rows of f16 where the product behind it reads such; and the convolution's ring, which
// the convolution of this piece has read by now.
#pragma once
#include "arguments.cuh"
#include "common/int8_rows.cuh"
#include "gdn/pieces.cuh"
#include "rows/half_rows.cuh"

#define FINISH_PARTS 4
#define FINISH_ROWS (C / FINISH_PARTS / (THREADS / WARP))

// Lanes of a token, eight values each (common/int8_rows.cuh, quantize_quads), and tokens of a warp at a time.
#define TOKEN_LANES (V / 8)
#define TOKENS_AT_ONCE (WARP / TOKEN_LANES)

__device__ __forceinline__ float squares_of(float4 v) { return __fmaf_rn(v.x, v.x, __fmaf_rn(v.y, v.y, __fmaf_rn(v.z, v.z, __fmul_rn(v.w, v.w)))); }
__device__ __forceinline__ float4 gated_norm(float4 o, float scale, float4 w, float4 z) {
    return make_float4(o.x * scale * w.x * silu_fast(z.x), o.y * scale * w.y * silu_fast(z.y), o.z * scale * w.z * silu_fast(z.z),
                       o.w * scale * w.w * silu_fast(z.w));
}

// What the convolution of the tokens after the piece's first `rows` wants of them, to the ring of `slot`. `h`: the block's value head.
__device__ __forceinline__ void keep_inputs(const Arguments &args, const Chunk &chunk, int h, int slot, int rows) {
    float *ring = args.tail + (u64)slot * 4 * CHANNELS;
    for (int n = max(0, rows - 4); n < rows; n++)
        for (int ch = h * THREADS + threadIdx.x; ch < CHANNELS; ch += HV * THREADS)
            ring[((chunk.start + n) & 3) * CHANNELS + ch] = number_of(inputs(args)[((u64)chunk.first_row + n) * X_STRIDE + ch]);
}

// Block (FINISH_PARTS * chunk + part, value head): a warp takes FINISH_ROWS tokens.
extern "C" __global__ void __launch_bounds__(THREADS) gdn_finish(const Arguments args) {
    static_assert(FINISH_ROWS % TOKENS_AT_ONCE == 0, "a warp has whole turns");
    let_next_start();
    const int lane = threadIdx.x % WARP, h = blockIdx.y, of_token = lane % TOKEN_LANES, at = of_token / 4 * 32 + of_token % 4 * 4;
    const int first = (blockIdx.x % FINISH_PARTS * (THREADS / WARP) + threadIdx.x / WARP) * FINISH_ROWS + lane / TOKEN_LANES;
    const float4 w0 = __ldg((const float4 *)(args.norm + at)), w1 = __ldg((const float4 *)(args.norm + at + 16));
    wait_for_inputs();
    const Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x / FINISH_PARTS);
    if (chunk.filled > 0 && blockIdx.x % FINISH_PARTS == 0) {
        if (chunk.index * C + C >= chunk.rows) keep_inputs(args, chunk, h, chunk.slot, chunk.rows);
        const int kept_at = args.exports ? args.exports[blockIdx.x / FINISH_PARTS] : -1;
        if (kept_at >= 0) keep_inputs(args, chunk, h, kept_at, chunk.index * C + C);
    }
#pragma unroll
    for (int t = 0; t < FINISH_ROWS; t += TOKENS_AT_ONCE) {
        const bool live = first + t < chunk.filled;
        const u64 row = live ? chunk.row(first + t) : 0, block = (row * (HV * V) + h * V + at) / 32;
        const float *o = args.values + row * (HV * V) + h * V + at;
        const Input *z = inputs(args) + row * X_STRIDE + Z_AT + h * V + at;
        float4 o0 = make_float4(0, 0, 0, 0), o1 = o0, z0 = o0, z1 = o0;
        if (live) o0 = *(const float4 *)o, o1 = *(const float4 *)(o + 16), z0 = four_of(z), z1 = four_of(z + 16);
        float sum = __fadd_rn(squares_of(o0), squares_of(o1));
#pragma unroll
        for (int step = TOKEN_LANES / 2; step > 0; step /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
        const float scale = __frcp_rn(__fsqrt_rn(__fmaf_rn(sum, 1.0f / V, args.eps)));
        const float4 a = gated_norm(o0, scale, w0, z0), b = gated_norm(o1, scale, w1, z1);
        if (PLANES == 1 && args.halves) {
            if (live) put_hidden_quads(args.halves, row, args.half_rows, h * V + at / 32 * 32, a, b);
        } else {
            quantize_quads(a, b, args.codes + block * 32 * PLANES, args.meta + block * PLANES, live);
        }
    }
}
