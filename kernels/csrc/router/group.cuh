// Rows by expert: group (one block), count and place (a chunk of pairs a block).
#pragma once
#include "router/rows.cuh"

struct Ranks {
    int next[WARPS][E]; // pairs of each warp's part, then where its next one goes
    int sums[WARPS];
};

// Pairs of a lane: warp i has the i-th part of a chunk, 32 at a time in order.
#define ROUNDS (CHUNK / THREADS)
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

// Experts of each of N threads: tid, tid + N, ...
template <int N> constexpr int EXPERTS_OF = (E + N - 1) / N;
// Turns the counts of a thread's experts into where each begins; all N threads.
template <int N>
__device__ __forceinline__ void begins(int (&sums)[N / WARP], const int (&count)[EXPERTS_OF<N>], int (&first)[EXPERTS_OF<N>]) {
    int lane = threadIdx.x % WARP, base = 0;
#pragma unroll
    for (int i = 0; i < EXPERTS_OF<N>; i++) {
        int upto = count[i];
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(~0u, upto, step);
            if (lane >= step) upto += other;
        }
        if (lane == WARP - 1) sums[threadIdx.x / WARP] = upto;
        __syncthreads();
        int before = 0, all = 0;
#pragma unroll
        for (int w = 0; w < N / WARP; w++) {
            if (w < threadIdx.x / WARP) before += sums[w];
            all += sums[w];
        }
        first[i] = base + before + upto - count[i];
        base += all;
        __syncthreads();
    }
}

// Lists with a place for each expert are made by whoever chooses, a pair as soon as it is known, in whatever order: a launch before empties
// them.
__device__ __forceinline__ void empty_lists(const Arguments &args) {
    if (!args.groups || !args.pitch || blockIdx.x != 0 || blockIdx.y != 0) return;
    for (int e = threadIdx.x; e < E; e += blockDim.x) args.groups[e] = make_int4(e, e * args.pitch, 0, 0);
}
// A row's pairs, by the warp that chose them.
__device__ __forceinline__ void list_row(const Arguments &args, int row, int expert) {
    int k = threadIdx.x % WARP;
    if (!args.groups || !args.pitch || k >= USED || expert < 0) return;
    int at = expert * args.pitch + atomicAdd(&args.groups[expert].z, 1);
    args.in_rows[at] = row, args.out_rows[at] = row * USED + k;
}

// Rows that one block groups beside other work, and in a launch of its own.
#define GROUPED_ROWS 256
#define GROUPED_ALONE 512
#define ALONE_THREADS 1024
template <int ROWS, int N> struct Members {
    static constexpr int WORDS = ROWS / 32;
    u32 rows[WORDS][E];      // of each expert, a bit a row
    u16 before[WORDS / 2][E]; // how many rows of it are before those of two words
    int first[E];
    int sums[N / WARP];
};

// Up to ROWS rows, by one block of N threads. A row has an expert once, so where its pair goes is told by the rows before it that have the same.
template <int ROWS, int N> __device__ __forceinline__ void group_all(Members<ROWS, N> &members, const Arguments &args) {
    constexpr int WORDS = ROWS / 32, PAIRS = (ROWS * USED + N - 1) / N; // pairs of a thread
    int pairs = args.rows * USED, expert[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        int p = i * N + threadIdx.x;
        expert[i] = p < pairs ? __ldcg(args.experts + p) : -1;
    }
    for (int i = threadIdx.x; i < WORDS * E; i += N) (&members.rows[0][0])[i] = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        int row = (i * N + threadIdx.x) / USED;
        if (expert[i] >= 0) atomicOr(&members.rows[row / 32][expert[i]], 1u << row % 32);
    }
    __syncthreads();
    int count[EXPERTS_OF<N>], first[EXPERTS_OF<N>];
#pragma unroll
    for (int i = 0; i < EXPERTS_OF<N>; i++) {
        int e = i * N + threadIdx.x;
        count[i] = 0;
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            if (e >= E) break;
            if (w % 2 == 0) members.before[w / 2][e] = count[i];
            count[i] += __popc(members.rows[w][e]);
        }
    }
    if (!args.pitch) begins<N>(members.sums, count, first);
#pragma unroll
    for (int i = 0; i < EXPERTS_OF<N>; i++) {
        int e = i * N + threadIdx.x;
        if (e >= E) continue;
        if (args.pitch) first[i] = e * args.pitch;
        members.first[e] = first[i];
        args.groups[e] = make_int4(e, first[i], count[i], 0);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        int p = i * N + threadIdx.x, row = p / USED, e = expert[i];
        if (e < 0) continue;
        int word = row / 32, at = members.first[e] + members.before[word / 2][e];
        if (word % 2) at += __popc(members.rows[word - 1][e]);
        at += __popc(members.rows[word][e] & ((1u << row % 32) - 1));
        args.in_rows[at] = row;
        args.out_rows[at] = p;
    }
}

extern "C" __global__ void __launch_bounds__(ALONE_THREADS) group(const Arguments args) {
    __shared__ Members<GROUPED_ALONE, ALONE_THREADS> members;
    let_next_start();
    wait_for_inputs();
    group_all(members, args);
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
    int total[EXPERTS_OF<THREADS>], first[EXPERTS_OF<THREADS>], chunks = gridDim.x;
#pragma unroll
    for (int i = 0; i < EXPERTS_OF<THREADS>; i++) {
        int e = i * THREADS + threadIdx.x;
        total[i] = 0;
        if (e >= E) continue;
#pragma unroll 16
        for (int c = 0; c < chunks; c++) total[i] += __ldcg(args.offsets + (u64)c * E + e);
    }
    begins<THREADS>(ranks.sums, total, first);
#pragma unroll
    for (int i = 0; i < EXPERTS_OF<THREADS>; i++) {
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
