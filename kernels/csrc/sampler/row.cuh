// A row in shared memory: its slice, its best element, its edits.
#pragma once
#include "sampler/arithmetic.cuh"
#include "sampler/exchange.cuh"

struct Slice {
    float *values;
    u32 first, count;

    // Threads have runs of consecutive elements, of odd length so that they read different banks.
    __device__ __forceinline__ void run(u32 &from, u32 &to) const {
        u32 each = (count + THREADS - 1) / THREADS | 1;
        from = min(threadIdx.x * each, count), to = min(from + each, count);
    }
};

// The best element of a row of which some logit is no finite number: comes before every element, for a rank of 0 would be a NaN's.
#define NOT_FINITE 0ull

// The smallest (rank, id) over the block's elements, as `element`.
struct Best {
    float l = LOWEST;
    u32 id = 0xffffffffu;
    // A logit as it was read is no finite number.
    bool not_finite = false;

    __device__ __forceinline__ u64 first() const { return not_finite ? NOT_FINITE : id == 0xffffffffu ? ALL : element(l, id); }
    // Ids come in ascending order.
    __device__ __forceinline__ void see(float v, u32 at) {
        if (v > l || id == 0xffffffffu) l = v, id = at;
    }
};

// The row's best element, or NOT_FINITE; `s.bits` become those of its draw.
__device__ u64 best_of_row(Group &g, const Best &best, const SampleParams &p) {
    u64 v[1] = {block_all<MIN>(best.first(), g.s.part[0])};
    g.exchange<1>(v, [&] { g.s.bits = draw(p.seed, p.output_index, p.choice); });
    return got_all<MIN>(g.s.got[0], g.blocks);
}

__device__ Best load(const float *row, const Slice &slice) {
    Best best;
    const float4 *from = (const float4 *)(row + slice.first);
#pragma unroll 4
    for (u32 i = threadIdx.x; i < slice.count / 4; i += THREADS) {
        float4 v = __ldcg(from + i);
        best.not_finite |= !(fabsf(v.x) <= FINITE && fabsf(v.y) <= FINITE && fabsf(v.z) <= FINITE && fabsf(v.w) <= FINITE);
        v.x = numbers(v.x), v.y = numbers(v.y), v.z = numbers(v.z), v.w = numbers(v.w);
        u32 id = slice.first + 4 * i;
        best.see(v.x, id), best.see(v.y, id + 1), best.see(v.z, id + 2), best.see(v.w, id + 3);
        *(float4 *)(slice.values + 4 * i) = v;
    }
    return best;
}

__device__ void add_biases(const u32 *list, u32 n, const Slice &slice) {
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
        u32 at = __ldcg(list + 2 * i) - slice.first;
        if (at < slice.count) slice.values[at] = numbers(__fadd_rn(slice.values[at], __uint_as_float(__ldcg(list + 2 * i + 1))));
    }
    __syncthreads();
}

__device__ Best best_of_slice(const Slice &slice) {
    Best best;
    for (u32 i = threadIdx.x; i < slice.count; i += THREADS) best.see(slice.values[i], slice.first + i);
    return best;
}

// Up to the penalties, in the definition's order. A NaN may become minus infinity at once, for nothing later makes that a number again.
__device__ Best edit(const Arguments &args, const SampleParams &p, const Slice &slice, bool penalties) {
    __syncthreads();
    add_biases(args.lists + p.bias_at, p.biases, slice);
    if (p.ends > 0) {
        for (u32 i = threadIdx.x; i < p.ends; i += THREADS) {
            u32 at = __ldcg(args.lists + p.ends_at + i) - slice.first;
            if (at < slice.count) slice.values[at] = LOWEST;
        }
        __syncthreads();
    }
    if (p.mask_at >= 0 || penalties) {
        const u16 *row = args.history + (u64)max(p.history, 0) * VOCAB + slice.first;
        const u32 *mask = args.lists + max(p.mask_at, 0);
#pragma unroll 4
        for (u32 i = threadIdx.x; i < slice.count / 4; i += THREADS) {
            u32 id = slice.first + 4 * i;
            // Four at a time: a word of the mask has them all.
            u32 allowed = p.mask_at >= 0 ? __ldcg(mask + id / 32) >> id % 32 : ~0u;
            uint2 seen = penalties ? __ldcg((const uint2 *)(row + 4 * i)) : make_uint2(0, 0);
            float4 *at = (float4 *)(slice.values + 4 * i), v = *at;
            auto changed = [&](float l, int j, u32 word) {
                if (!(allowed >> j & 1)) l = LOWEST;
                return word == 0 ? l : numbers(penalised(l, p, word >> 15, word & 0x7fff));
            };
            v.x = changed(v.x, 0, seen.x & 0xffff), v.y = changed(v.y, 1, seen.x >> 16);
            v.z = changed(v.z, 2, seen.y & 0xffff), v.w = changed(v.w, 3, seen.y >> 16);
            *at = v;
        }
        __syncthreads();
    }
    return best_of_slice(slice);
}

// The sparse edits: biases, then mixtures by what all of the row weighs then, at temperature 1. Returns the best element.
__device__ u64 edit_sparsely(const Arguments &args, const SampleParams &p, Group &g, const Slice &slice) {
    Shared &s = g.s;
    const u32 *list = args.lists + p.edits_at;
    // Threads may still look for the other token in what is changed here.
    __syncthreads();
    u64 top = s.top;
    if (threadIdx.x == 0) s.which = EDITED;
    __syncthreads();
    if (p.edits > 0) {
        add_biases(list, p.edits, slice);
        top = best_of_row(g, best_of_slice(slice), p);
    }
    float best = of_rank((u32)(top >> 32));
    if (p.mixes == 0 || !(fabsf(best) <= FINITE)) return top;
    u64 total = 0;
    for (u32 i = threadIdx.x; i < slice.count; i += THREADS) total += weight(slice.values[i], best, 1.0f);
    u64 v[1] = {block_all<SUM>(total, s.part[0])};
    g.exchange(v);
    float sum = (float)((double)got_all<SUM>(s.got[0], g.blocks) * (1.0 / WEIGHT_ONE));
    list += 2 * p.edits;
    for (u32 i = threadIdx.x; i < p.mixes; i += THREADS) {
        u32 at = __ldcg(list + 2 * i) - slice.first;
        if (at < slice.count) slice.values[at] = mixed(slice.values[at], best, sum, __uint_as_float(__ldcg(list + 2 * i + 1)));
    }
    __syncthreads();
    return best_of_row(g, best_of_slice(slice), p);
}
