// What the splits of long rows come to: a row's partial sums are added in their order, by one of two ways that have the same bytes.
//
// Of few rows the query heads are shared out among all blocks, D threads for each, when those have nothing else to do: one multiprocessor alone
// would take as long to read a row's splits as all took to make them. Who adds waits for who stores, so all blocks must run at a time; a grid
// has no more than the chip has room for. Of many rows, whose heads would be more than can be added at a time, the block that is done last
// with a row adds all of it.
#pragma once
#include "common/counters.cuh"

#define ADDERS (THREADS / D) // query heads that a block adds at a time where they are shared out
static_assert(ADDERS > 0, "a thread knows a value");
static_assert(sizeof(Decode::keys) >= ADDERS * ADD_WEIGHTS * sizeof(float), "weights stand where keys did");

// Whether the heads of so many rows are shared out.
__device__ __forceinline__ bool shares_out(int rows) { return rows * HEADS <= ADDERS * (int)gridDim.x; }

// A row and key-value head with several splits.
struct Split {
    int row, head, splits;

    __device__ __forceinline__ int *counter(const Arguments &args) const { return args.counters + (row * HKV + head) * 2; }
    // The first split.
    __device__ __forceinline__ u64 base(const Arguments &args) const { return ((u64)row * HKV + head) * args.splits_max; }
};

// Says that this block has stored `count` more splits, and returns to all whether it is to add them: if it is the last, and they are not shared
// out. All that any block wrote of them is visible then.
__device__ __forceinline__ bool tell_stored(const Thread &me, const Arguments &args, const Split &of, int count, bool shared_out) {
    __syncthreads();
    int *counter = of.counter(args);
    if (shared_out) {
        if (me.id == 0) tell(counter, count);
        return false;
    }
    bool last = false;
    if (me.id == 0) {
        last = tell_and_hear(counter, count) + count == of.splits;
        if (last) *counter = 0;
    }
    return __syncthreads_or(last);
}

// What each split of a query head counts, 0 past the last, by one warp. `weights`: [ADD_WEIGHTS] in shared memory.
__device__ __forceinline__ void weigh(const Arguments &args, float *weights, const Split &of, int h) {
    const int lane = lane_id();
    const float none = __int_as_float(0xff800000);
    float2 own[SPLITS_MAX / WARP];
    float top = none, sum = 0;
#pragma unroll
    for (int i = 0; i < SPLITS_MAX / WARP; i++) {
        int k = i * WARP + lane;
        own[i] = k < of.splits ? fresh8(args.stats + (of.base(args) + k) * GQ + h) : make_float2(none, 0);
        top = fmaxf(top, own[i].x);
    }
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < SPLITS_MAX / WARP; i++) own[i].y *= exp2_fast(own[i].x - top), sum += own[i].y;
    float inverse = 1.0f / warp_sum(sum);
#pragma unroll
    for (int i = 0; i < SPLITS_MAX / WARP; i++) weights[i * WARP + lane] = own[i].y * inverse;
    for (int k = SPLITS_MAX + lane; k < ADD_WEIGHTS; k += WARP) weights[k] = 0;
}

// V values beside one another, 1 or 4, of ADD_AHEAD splits, all of which are under way together.
template <int V> struct Partials {
    uint2 of[ADD_AHEAD];

    // From split `first` on; past the last, that one again.
    __device__ __forceinline__ void load(const u16 *from, int first, int splits) {
#pragma unroll
        for (int k = 0; k < ADD_AHEAD; k++) {
            const u16 *at = from + (u64)min(first + k, splits - 1) * GQ * D;
            if (V == 1) of[k].x = fresh2(at);
            else of[k] = fresh_words(at);
        }
    }
    __device__ __forceinline__ void add(float (&sum)[V], const float *weights) const {
#pragma unroll
        for (int k = 0; k < ADD_AHEAD; k++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                u32 two = i / 2 ? of[k].y : of[k].x;
                sum[i] = __fmaf_rn(weights[k], i % 2 ? high_half(two) : low_half(two), sum[i]);
            }
    }
    // Adds all; the first ADD_AHEAD were loaded.
    __device__ __forceinline__ void add_all(float (&sum)[V], const float *weights, const u16 *from, int splits) {
#pragma unroll 1
        for (int first = 0;;) {
            add(sum, weights + first);
            first += ADD_AHEAD;
            if (first >= splits) break;
            load(from, first, splits);
        }
    }
};

// All query heads to `o` in shared memory, by all threads.
__device__ __forceinline__ void add_heads(const Thread &me, const Arguments &args, float *o, const Split &of) {
    constexpr int V = 4, VECTORS = GQ * D / V, TURNS = (VECTORS + THREADS - 1) / THREADS;
    for (int h = me.warp; h < GQ; h += WARPS) weigh(args, o + h * ADD_WEIGHTS, of, h);
    __syncthreads();
    float sum[TURNS][V] = {};
#pragma unroll
    for (int j = 0; j < TURNS; j++) {
        const int v = j * THREADS + me.id;
        if (v >= VECTORS) break;
        const u16 *from = args.partials + of.base(args) * GQ * D + v * V;
        Partials<V> partials;
        partials.load(from, 0, of.splits);
        partials.add_all(sum[j], o + v / (D / V) * ADD_WEIGHTS, from, of.splits);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TURNS; j++)
        if (j * THREADS + me.id < VECTORS) ((float4 *)o)[j * THREADS + me.id] = make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
}

// A query head to int8, by D threads whose barrier is `meeting`.
__device__ __forceinline__ void add_head(const Arguments &args, float *weights, int meeting, const Split &of, int h) {
    const int d = threadIdx.x % D, warp = d / WARP;
    int *counter = of.counter(args);
    float gate = GATED ? query_of(args.x + (u64)of.row * X_STRIDE, of.head * GQ + h)[D + d] : 0.0f;
    // Ends when the blocks that have a split of the row have stored it. They do so before they wait here themselves, and all blocks of the launch run
    // at a time: the grid has as many as the chip holds (`Attention::load`), blocks of the kernels before leave, and a later kernel's do not come
    // before all of these run (common/base.cuh). The counter is cleared by the last that has seen it.
    if (d == 0) await_told<SPLITS_STORED>(counter, of.splits);
    meet<D>(meeting);
    const u16 *from = args.partials + (of.base(args) * GQ + h) * D + d;
    Partials<1> partials;
    partials.load(from, 0, of.splits);
    if (warp == 0) weigh(args, weights, of, h);
    meet<D>(meeting);
    float sum[1] = {};
    partials.add_all(sum, weights, from, of.splits);
    u64 at = (u64)of.row * OUT_STRIDE + (of.head * GQ + h) * D + warp * 32;
    quantize_block(gated(sum[0], gate), args.codes + at * PLANES, args.meta + at / 32 * PLANES);
    // Whoever is the last that needed to know clears both.
    if (d == 0 && atomicAdd(counter + 1, 1) == GQ - 1) counter[0] = counter[1] = 0;
}

// This block's share of the heads of all rows with several splits.
__device__ __forceinline__ void add_share(const Thread &me, const Arguments &args, Decode &s) {
    __syncthreads();
    const int adder = me.id / D;
    if (adder >= ADDERS) return;
    float *weights = (float *)s.keys + adder * ADD_WEIGHTS;
    for (int i = adder * gridDim.x + blockIdx.x; i < args.rows * HEADS; i += ADDERS * gridDim.x) {
        const int row = i / HEADS, before = row ? s.ends[row - 1] : 0;
        const Split of = {row, i / GQ % HKV, s.ends[row] - before};
        if (of.splits > 1) add_head(args, weights, 1 + adder, of, i % GQ);
    }
}
