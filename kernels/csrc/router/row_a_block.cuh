// The choice after a launch that stored sums of segments: a block for a row or for eight.
#pragma once
#include "router/group.cuh"

#define SEGMENTS_MAX 16

struct Scores {
    float value[E];
    float gate[SCORE_PARTS]; // parts of the shared gate's
    Asked asked;
};

// A thread's scores of a row, in segments; a block has a row.
struct Segments {
    static constexpr int EACH = (E + THREADS - 1) / THREADS;
    float part[EACH][SEGMENTS_MAX];

    __device__ __forceinline__ void read(const Arguments &args, int row) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int e = i * THREADS + threadIdx.x, segments = e < E ? args.segments : 0;
            const float *from = args.scores + (u64)row * STRIDE + e;
#pragma unroll
            for (int s = 0; s < SEGMENTS_MAX; s++, from += (u64)args.rows * STRIDE) part[i][s] = s < segments ? __ldcg(from) : 0.0f;
        }
    }
    // Added in order; zeros behind the last change nothing.
    __device__ __forceinline__ void add(float *value) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int e = i * THREADS + threadIdx.x;
            float sum = 0;
#pragma unroll
            for (int s = 0; s < SEGMENTS_MAX; s++) sum += part[i][s];
            if (e < E) value[e] = sum;
        }
    }
};

// By one warp, when all scores are there.
__device__ __forceinline__ void choose_row(const Scores &scores, const Arguments &args, int row) {
    float value[EACH_LANE], gate = 0;
    Biases<E> biases(args.bias);
#pragma unroll
    for (int i = 0; i < EACH_LANE; i++) {
        int e = i * WARP + threadIdx.x % WARP;
        value[i] = e < E ? scores.value[e] : 0.0f;
    }
#pragma unroll
    for (int part = 0; part < SCORE_PARTS; part++) gate += scores.gate[part];
    list_row(args, row, select_row(args, row, scores.asked, value, gate, biases));
}

// The shared gate's score where it lies beside the experts': its segments in order.
__device__ __forceinline__ float scored_gate(const Arguments &args, int row) {
    const int lane = threadIdx.x % WARP;
    const float mine = lane < args.segments ? __ldcg(args.scores + ((u64)lane * args.rows + row) * STRIDE + E) : 0.0f;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < SEGMENTS_MAX; s++) sum += __shfl_sync(~0u, mine, s);
    return sum;
}

// Everything of a row but its choice, by all threads, whose loads are under way together. The weights that all rows need are read once.
__device__ __forceinline__ void add_up(Scores &scores, const Arguments &args, int row, const PartOfRow<COLS> &norm, const PartOfRow<COLS> &gate) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    PartOfRow<COLS> x;
    Segments segments;
    x.read(args.x + (u64)row * COLS, warp, !args.gate_scored);
    segments.read(args, row);
    if (warp == 0) {
        Asked asked = read_ahead(args, row);
        if (lane == 0) scores.asked = asked;
    }
    x.multiply(norm);
    float part = x.score(gate);
    if (args.gate_scored) part = warp == 0 ? scored_gate(args, row) : 0.0f;
    if (lane == 0) scores.gate[warp] = part;
    segments.add(scores.value);
}

// EACH rows a block: one where rows are few, a warp each where they fill the device.
template <int EACH> __device__ __forceinline__ void choose(const Arguments &args) {
    static_assert(WARPS == SCORE_PARTS && EACH <= WARPS, "a warp a part, and at least one a row");
    __shared__ Scores scores[EACH];
    let_next_start();
    int first = blockIdx.x * EACH, warp = threadIdx.x / WARP, row = first + warp;
    PartOfRow<COLS> norm, gate;
    norm.read(args.norm, warp, true), gate.read(args.shared_gate, warp, true);
    wait_for_inputs();
#pragma unroll 1
    for (int i = 0; i < EACH && first + i < args.rows; i++) add_up(scores[i], args, first + i, norm, gate);
    __syncthreads();
    if (warp < EACH && row < args.rows) choose_row(scores[warp], args, row);
}

extern "C" __global__ void __launch_bounds__(THREADS) choose1(const Arguments args) {
    __shared__ Members<GROUPED_ROWS, THREADS> members;
    choose<1>(args);
    if (!args.groups || args.pitch || !last_to_finish(args.counters, gridDim.x)) return;
    group_all(members, args);
}
// More rows than one block groups.
extern "C" __global__ void __launch_bounds__(THREADS) choose8(const Arguments args) { choose<8>(args); }
