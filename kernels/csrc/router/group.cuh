// Rows by expert: group (one block), count and place (a chunk of pairs a block).
#pragma once
#include "router/rows.cuh"

struct Ranks {
    int next[WARPS][E]; // pairs of each warp's part, then where its next one goes
    int sums[WARPS];
};

// Pairs of a lane, for up to CHUNK_MAX of a block: warp i has the i-th part of ROUNDS * 32, 32 at a time in order.
#define CHUNK_MAX 2560
#define ROUNDS (CHUNK_MAX / THREADS)
struct Pairs {
    int first, rounds;
    int expert[ROUNDS];
    u32 same[ROUNDS]; // the lanes with the same expert
};

__device__ __forceinline__ void load_pairs(Pairs &pairs, const int *experts, int begin, int end) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    pairs.rounds = (end - begin + THREADS - 1) / THREADS;
    pairs.first = begin + warp * pairs.rounds * WARP + lane;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int p = pairs.first + i * WARP;
        pairs.expert[i] = i < pairs.rounds && p < end ? __ldcg(experts + p) : -1;
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++)
        if (i < pairs.rounds) pairs.same[i] = __match_any_sync(~0u, pairs.expert[i]);
}

// Counts by warp and expert.
__device__ __forceinline__ void count_pairs(Ranks &ranks, const Pairs &pairs) {
    for (int i = threadIdx.x; i < WARPS * E; i += THREADS) (&ranks.next[0][0])[i] = 0;
    __syncthreads();
    int *mine = ranks.next[threadIdx.x / WARP], lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        if (i >= pairs.rounds) break;
        bool leads = (pairs.same[i] & ((1u << lane) - 1)) == 0;
        if (leads && pairs.expert[i] >= 0) mine[pairs.expert[i]] += __popc(pairs.same[i]);
        __syncwarp();
    }
    __syncthreads();
}

// With `ranks.next` the places of each warp's next pairs.
__device__ __forceinline__ void place_pairs(Ranks &ranks, const Arguments &args, const Pairs &pairs) {
    int *mine = ranks.next[threadIdx.x / WARP], lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        if (i >= pairs.rounds) break;
        int e = pairs.expert[i], p = pairs.first + i * WARP, before = __popc(pairs.same[i] & ((1u << lane) - 1));
        int at = e >= 0 ? mine[e] + before : 0;
        __syncwarp();
        if (e >= 0) {
            if (before == 0) mine[e] += __popc(pairs.same[i]);
            args.in_rows[at] = p / USED;
            args.out_rows[at] = p;
        }
        __syncwarp();
    }
}

// Turns the counts of experts tid, tid + THREADS, ... into where each begins; all threads.
#define EXPERTS_A_THREAD ((E + THREADS - 1) / THREADS)
__device__ __forceinline__ void begins(Ranks &ranks, const int (&count)[EXPERTS_A_THREAD], int (&first)[EXPERTS_A_THREAD]) {
    int lane = threadIdx.x % WARP, base = 0;
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int upto = count[i];
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(~0u, upto, step);
            if (lane >= step) upto += other;
        }
        if (lane == WARP - 1) ranks.sums[threadIdx.x / WARP] = upto;
        __syncthreads();
        int before = 0, all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            if (w < threadIdx.x / WARP) before += ranks.sums[w];
            all += ranks.sums[w];
        }
        first[i] = base + before + upto - count[i];
        base += all;
        __syncthreads();
    }
}

// All pairs, CHUNK_MAX at most, by one block.
__device__ __forceinline__ void group_all(Ranks &ranks, const Arguments &args) {
    int count[EXPERTS_A_THREAD], first[EXPERTS_A_THREAD];
    Pairs pairs;
    load_pairs(pairs, args.experts, 0, args.rows * USED);
    count_pairs(ranks, pairs);
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x;
        count[i] = 0;
        for (int w = 0; w < WARPS && e < E; w++) {
            int n = ranks.next[w][e];
            ranks.next[w][e] = count[i];
            count[i] += n;
        }
    }
    begins(ranks, count, first);
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x;
        if (e >= E) continue;
        for (int w = 0; w < WARPS; w++) ranks.next[w][e] += first[i];
        args.groups[e] = make_int4(e, first[i], count[i], 0);
    }
    __syncthreads();
    place_pairs(ranks, args, pairs);
}

extern "C" __global__ void __launch_bounds__(THREADS) group(const Arguments args) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    group_all(ranks, args);
}

// Chunk blockIdx.x: its counts to offsets; then, by the last block, offsets become places and groups are written.
extern "C" __global__ void __launch_bounds__(THREADS) count(const Arguments args) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    int pairs = args.rows * USED, begin = blockIdx.x * CHUNK, end = begin + CHUNK < pairs ? begin + CHUNK : pairs;
    Pairs mine;
    load_pairs(mine, args.experts, begin, end);
    count_pairs(ranks, mine);
    for (int e = threadIdx.x; e < E; e += THREADS) {
        int n = 0;
        for (int w = 0; w < WARPS; w++) n += ranks.next[w][e];
        args.offsets[(u64)blockIdx.x * E + e] = n;
    }
    if (!last_to_finish(args.counters, gridDim.x)) return;
    int total[EXPERTS_A_THREAD], first[EXPERTS_A_THREAD], chunks = gridDim.x;
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x;
        total[i] = 0;
        if (e >= E) continue;
#pragma unroll 16
        for (int c = 0; c < chunks; c++) total[i] += __ldcg(args.offsets + (u64)c * E + e);
    }
    begins(ranks, total, first);
#pragma unroll
    for (int i = 0; i < EXPERTS_A_THREAD; i++) {
        int e = i * THREADS + threadIdx.x, at = first[i];
        if (e >= E) continue;
        args.groups[e] = make_int4(e, first[i], total[i], 0);
        for (int c = 0; c < chunks; c += 16) {
            int n[16];
#pragma unroll
            for (int j = 0; j < 16; j++) n[j] = c + j < chunks ? __ldcg(args.offsets + (u64)(c + j) * E + e) : 0;
#pragma unroll
            for (int j = 0; j < 16; j++) {
                if (c + j < chunks) args.offsets[(u64)(c + j) * E + e] = at;
                at += n[j];
            }
        }
    }
}

// After a launch that stored sums of segments: a warp chooses for a row, and the last block may group. `add(row, value)`: adds a row's
// segments, `gate(row)`: its score of the shared gate.
template <class A, class G> __device__ __forceinline__ void choose_rows(const Arguments &args, A add, G gate) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    int row = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row < args.rows) {
        Asked ahead = read_ahead(args, row);
        float value[EACH_LANE] = {};
        add(row, value);
        select_row(args, row, ahead, value, gate(row));
    }
    if (!args.groups || !last_to_finish(args.counters, gridDim.x)) return;
    group_all(ranks, args);
}

extern "C" __global__ void __launch_bounds__(THREADS) place(const Arguments args) {
    __shared__ Ranks ranks;
    let_next_start();
    wait_for_inputs();
    int pairs = args.rows * USED, begin = blockIdx.x * CHUNK, end = begin + CHUNK < pairs ? begin + CHUNK : pairs;
    Pairs mine;
    load_pairs(mine, args.experts, begin, end);
    count_pairs(ranks, mine);
    for (int e = threadIdx.x; e < E; e += THREADS) {
        int at = args.offsets[(u64)blockIdx.x * E + e];
        for (int w = 0; w < WARPS; w++) {
            int n = ranks.next[w][e];
            ranks.next[w][e] = at;
            at += n;
        }
    }
    __syncthreads();
    place_pairs(ranks, args, mine);
}
