// What the blocks of a row tell each other, and sums, largest and smallest of a block.
#pragma once
#include "common/waits.cuh"
#include "sampler/shared.cuh"

// Scratch of a group, in u64: what the next launch goes on from; messages of even and odd exchanges; the list; three histograms, of
// which one is in use, one clean, and one perhaps still read by a slow block.
#define RING_AT 16
#define RING_WORDS (2 * WORDS_MAX * BLOCKS_MAX)
#define LIST_AT (RING_AT + 2 * RING_WORDS)
#define BINS_AT (LIST_AT + 2 * LIST_MAX)
#define GROUP_WORDS (BINS_AT + 3 * BINS)

__device__ __forceinline__ void put(u64 *to, u32 tag, u32 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"((u64)tag << 32 | value) : "memory");
}
// Waits for N words of this exchange, all of them at once. A word carries its tag, so that no fence is needed between payload and flag.
//
// Ends when the block whose words they are has put them. It does so at the same exchange, before it waits: all blocks of a group take the same
// branches (`Group`). All blocks of the launch run at a time: the grid has no more than the chip holds (`Sampler::load`), blocks of the kernels
// before leave, and a later kernel's do not come before all of these run (common/base.cuh). A word is not overwritten before it was read, as
// `exchange` says.
template <int N> __device__ __forceinline__ void take(const u64 *from, u32 stride, u32 tag, u32 (&value)[N]) {
    u64 word[N];
    wait_until<SAMPLER_EXCHANGE>([&] {
#pragma unroll
        for (int i = 0; i < N; i++) asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word[i]) : "l"(from + i * stride) : "memory");
        bool here = true;
#pragma unroll
        for (int i = 0; i < N; i++) here = here && (u32)(word[i] >> 32) == tag;
        return here;
    });
#pragma unroll
    for (int i = 0; i < N; i++) value[i] = (u32)word[i];
}

struct Nothing {
    __device__ __forceinline__ void operator()() const {}
};

// The next exchange of a group, and its histogram.
struct Turn {
    u32 epoch, turn;
};

// The blocks of a row. Every block of a group takes part in every exchange, so all branches around exchanges depend on the row's
// parameters and on what was exchanged before.
struct Group {
    u64 *scratch;
    Shared &s;
    u32 blocks, block, epoch, turn;

    // Behind what had the group by value.
    __device__ __forceinline__ void go_on(const Turn &next) { epoch = next.epoch, turn = next.turn; }

    // `s.got[k][b]` becomes `v[k]` of block b; `v` is the same in all threads of a block. Messages of exchange e may be overwritten
    // by those of e + 2: whoever writes these has read all of e + 1, which were written after all of e were read.
    // While it waits, a thread that has no message to read does `meanwhile`.
    template <int K, bool FENCED = false, class Work = Nothing>
    __device__ __forceinline__ void exchange(const u64 (&v)[K], Work meanwhile = Work()) {
        __syncthreads();
        epoch++;
        int tid = threadIdx.x;
        if (blocks == 1) {
#pragma unroll
            for (int k = 0; k < K; k++)
                if (tid == k) s.got[k][0] = v[k];
        } else {
            u64 *ring = scratch + RING_AT + (epoch & 1) * RING_WORDS;
            if (FENCED && tid < 2 * K) __threadfence();
#pragma unroll
            for (int w = 0; w < 2 * K; w++)
                if (tid == w) put(ring + w * BLOCKS_MAX + block, epoch, (u32)(v[w / 2] >> (w % 2 * 32)));
            if (tid < blocks) {
                u32 words[2 * K];
                take(ring + tid, BLOCKS_MAX, epoch, words);
#pragma unroll
                for (int k = 0; k < K; k++) s.got[k][tid] = (u64)words[2 * k + 1] << 32 | words[2 * k];
                if (FENCED) __threadfence();
            }
        }
        if (tid == THREADS - 1) meanwhile();
        __syncthreads();
    }
};

// ---- Reductions; every thread gets the result ----

enum Kind { SUM, MAX, MIN };
template <Kind KIND> __device__ __forceinline__ u64 both(u64 a, u64 b) { return KIND == SUM ? a + b : KIND == MAX ? max(a, b) : min(a, b); }
template <Kind KIND> __device__ __forceinline__ u64 none() { return KIND == MIN ? ALL : 0; }
template <Kind KIND> __device__ __forceinline__ u64 warp_all(u64 v) {
    if (KIND == SUM) {
        // In three parts, small enough that 32 of them fit in a word.
        const u32 part = (1u << 22) - 1;
        u64 low = __reduce_add_sync(~0u, (u32)v & part), middle = __reduce_add_sync(~0u, (u32)(v >> 22) & part);
        return low + (middle << 22) + ((u64)__reduce_add_sync(~0u, (u32)(v >> 44)) << 44);
    }
    u32 high = (u32)(v >> 32), low = (u32)v;
    u32 first = KIND == MAX ? __reduce_max_sync(~0u, high) : __reduce_min_sync(~0u, high);
    low = high == first ? low : (u32)none<KIND>();
    return (u64)first << 32 | (KIND == MAX ? __reduce_max_sync(~0u, low) : __reduce_min_sync(~0u, low));
}
template <Kind KIND> __device__ __forceinline__ u64 all_parts(const u64 *part) {
    u64 v = part[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++) v = both<KIND>(v, part[w]);
    return v;
}
// Three at once.
template <Kind A, Kind B, Kind C> __device__ __forceinline__ void block_all(u64 (&v)[3], u64 (&part)[WORDS_MAX][WARPS]) {
    v[0] = warp_all<A>(v[0]), v[1] = warp_all<B>(v[1]), v[2] = warp_all<C>(v[2]);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 3; k++)
        if (threadIdx.x % WARP == k) part[k][threadIdx.x / WARP] = v[k];
    __syncthreads();
    v[0] = all_parts<A>(part[0]), v[1] = all_parts<B>(part[1]), v[2] = all_parts<C>(part[2]);
}
template <Kind KIND> __device__ __forceinline__ u64 block_all(u64 v, u64 *part) {
    v = warp_all<KIND>(v);
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = v;
    __syncthreads();
    return all_parts<KIND>(part);
}
// Over blocks `0..n` of what was exchanged.
template <Kind KIND> __device__ __forceinline__ u64 got_all(const u64 *got, u32 n) {
    u64 v = none<KIND>();
    for (u32 b = threadIdx.x % WARP; b < n; b += WARP) v = both<KIND>(v, got[b]);
    return warp_all<KIND>(v);
}
// Sum over the threads before this one; `total` gets that of all.
__device__ __forceinline__ u64 block_before(u64 v, u64 *part, u64 &total) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u64 sum = v;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        u64 other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
    }
    __syncthreads();
    if (lane == WARP - 1) part[warp] = sum;
    __syncthreads();
    u64 before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) before += part[w];
        total += part[w];
    }
    return before + sum - v;
}
