// A block's part of a state, one token past it, and what both ways of Mamba-2 do: convolution, step sizes, the norm of a group's values.
#pragma once
#include "arguments.cuh"
#include "common/int8_rows.cuh"
#include "gdn/gates.cuh"

#define WARPS (THREADS / WARP)
// Lanes that share a row of the state, each with VECS times four neighbouring columns; rows of a thread.
#define LANES (N / 4 < WARP ? N / 4 : WARP)
#define VECS (N / 4 / LANES)
#define OWN (PART * LANES / THREADS)
// What a token gives a block: its part of x, B and C of its group.
#define MIXED (PART + 2 * N)
#define GROUP_VALUES (VALUES / G)
static_assert(OWN >= 1 && OWN <= LANES && (OWN & (OWN - 1)) == 0, "sums are halved between lanes");

// Head and part of a block, and its group.
struct Place {
    int head, first, group; // first: of the head's values
};
__device__ __forceinline__ Place place_of(int block) { return {block / PARTS, block % PARTS * PART, block / PARTS / (H / G)}; }

// Where channel `j` of a block's own lies among all.
__device__ __forceinline__ int channel(const Place &at, int j) {
    if (j < PART) return at.head * P + at.first + j;
    return j < PART + N ? VALUES + at.group * N + j - PART : VALUES + (G + at.group) * N + j - PART - N;
}

// Row `i` of a thread, of the block's PART.
__device__ __forceinline__ int row_of(const Thread &me, int i) { return (i * WARPS + me.warp) * (WARP / LANES) + me.lane / LANES; }
__device__ __forceinline__ int column_of(const Thread &me, int v) { return (v * LANES + me.lane % LANES) * 4; }
// After `advance` a lane has the sum of this one of its rows, the first of those that have it stores it.
__device__ __forceinline__ int summed_row(const Thread &me) { return row_of(me, me.lane % LANES / (LANES / OWN)); }
__device__ __forceinline__ bool stores_sum(const Thread &me) { return me.lane % (LANES / OWN) == 0; }

struct State {
    float4 h[OWN][VECS];

    __device__ __forceinline__ void load(const Thread &me, const float *from) {
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int v = 0; v < VECS; v++) h[i][v] = *(const float4 *)(from + row_of(me, i) * N + column_of(me, v));
    }
    __device__ __forceinline__ void store(const Thread &me, float *to) const {
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int v = 0; v < VECS; v++) *(float4 *)(to + row_of(me, i) * N + column_of(me, v)) = h[i][v];
    }
};
// That of a block in a slot.
__device__ __forceinline__ float *state_of(const Arguments &args, const Place &at, int slot) {
    return args.state + (((u64)slot * H + at.head) * P + at.first) * N;
}

// OWN sums over LANES lanes: each step halves what a lane keeps, as long as it has several.
__device__ __forceinline__ float add_lanes(const Thread &me, float (&sum)[OWN]) {
    int step = LANES / 2;
#pragma unroll
    for (int left = OWN; left > 1; left /= 2, step /= 2) {
        bool upper = me.lane & step;
#pragma unroll
        for (int i = 0; i < left / 2; i++) {
            float other = __shfl_xor_sync(~0u, upper ? sum[i] : sum[i + left / 2], step);
            sum[i] = __fadd_rn(upper ? sum[i + left / 2] : sum[i], other);
        }
    }
#pragma unroll
    for (; step > 0; step /= 2) sum[0] = __fadd_rn(sum[0], __shfl_xor_sync(~0u, sum[0], step));
    return sum[0];
}

// One token. `mixed`: MIXED values of it in shared memory. Gives a lane h C + d x of its `summed_row`.
__device__ __forceinline__ float advance(const Thread &me, State &state, const float *mixed, float dt, float decay, float d) {
    float4 b[VECS], c[VECS];
    float sum[OWN];
#pragma unroll
    for (int v = 0; v < VECS; v++) {
        b[v] = *(const float4 *)(mixed + PART + column_of(me, v));
        c[v] = *(const float4 *)(mixed + PART + N + column_of(me, v));
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        float u = __fmul_rn(dt, mixed[row_of(me, i)]);
        sum[i] = 0;
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            float4 &h = state.h[i][v];
            h.x = __fmaf_rn(b[v].x, u, __fmul_rn(decay, h.x)), h.y = __fmaf_rn(b[v].y, u, __fmul_rn(decay, h.y));
            h.z = __fmaf_rn(b[v].z, u, __fmul_rn(decay, h.z)), h.w = __fmaf_rn(b[v].w, u, __fmul_rn(decay, h.w));
            sum[i] = __fmaf_rn(c[v].x, h.x, sum[i]), sum[i] = __fmaf_rn(c[v].y, h.y, sum[i]);
            sum[i] = __fmaf_rn(c[v].z, h.z, sum[i]), sum[i] = __fmaf_rn(c[v].w, h.w, sum[i]);
        }
    }
    return __fmaf_rn(d, mixed[summed_row(me)], add_lanes(me, sum));
}

// Convolution and SiLU of one channel, the oldest input first.
__device__ __forceinline__ float convolved(float4 taps, float bias, float a, float b, float c, float now) {
    float sum = __fmaf_rn(a, taps.x, bias);
    sum = __fmaf_rn(b, taps.y, sum);
    sum = __fmaf_rn(c, taps.z, sum);
    return silu(__fmaf_rn(now, taps.w, sum));
}

// {dt, log decay} of a head.
__device__ __forceinline__ float2 step_of(float raw, float bias, float a_neg) {
    float x = __fadd_rn(raw, bias), dt = x > 20.0f ? x : log1pf(expf(x));
    return make_float2(dt, __fmul_rn(dt, a_neg));
}

// Values of a group that a thread gates and norms.
#define GATED_A_THREAD ((GROUP_VALUES + THREADS - 1) / THREADS)

// Gate, norm and int8 form of a group's values of a row, by all threads of a block. What other blocks of the launch wrote is read past L1,
// once and all of it at a time: one block waits here for what a whole group wrote.
__device__ __forceinline__ void finish_group(const Thread &me, const Arguments &args, u64 row, int group) {
    __shared__ float of_warp[WARPS];
    const float *y = args.values + row * VALUES + group * GROUP_VALUES, *z = args.x + row * X_STRIDE + group * GROUP_VALUES;
    float gated[GATED_A_THREAD], weight[GATED_A_THREAD], scale = 1, sum = 0;
#pragma unroll
    for (int n = 0; n < GATED_A_THREAD; n++) {
        int i = me.id + n * THREADS;
        bool own = i < GROUP_VALUES;
        gated[n] = own ? __ldcg(y + i) : 0;
        weight[n] = own ? z[i] : 0;
    }
#pragma unroll
    for (int n = 0; n < GATED_A_THREAD; n++) {
        gated[n] = __fmul_rn(gated[n], silu(weight[n]));
        sum = __fmaf_rn(gated[n], gated[n], sum);
    }
    if constexpr (NORMED) {
#pragma unroll
        for (int n = 0; n < GATED_A_THREAD; n++) weight[n] = __ldg(args.norm + group * GROUP_VALUES + min(me.id + n * THREADS, GROUP_VALUES - 1));
        sum = warp_sum(sum);
        __syncthreads();
        if (me.lane == 0) of_warp[me.warp] = sum;
        __syncthreads();
        sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum = __fadd_rn(sum, of_warp[w]);
        scale = __frcp_rn(__fsqrt_rn(__fmaf_rn(sum, 1.0f / GROUP_VALUES, args.eps)));
    }
    u64 at = row * OUT_STRIDE + group * GROUP_VALUES;
#pragma unroll
    for (int n = 0; n < GATED_A_THREAD; n++) {
        int i = me.id + n * THREADS;
        if (i >= GROUP_VALUES) break;
        float v = gated[n];
        if constexpr (NORMED) v = __fmul_rn(__fmul_rn(v, scale), weight[n]);
        u64 block = at / 32 + i / 32;
        quantize_block(v, args.codes + block * (32 * PLANES), args.meta + block * PLANES);
    }
}
