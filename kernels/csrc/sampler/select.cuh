// Where a filter ends: the last element that top-k or top-p keeps.
#pragma once
#include "sampler/row.cuh"

// Lists the elements that `listed` accepts, in no order, in every block: `n` of them in the row, at most LIST_MAX, `before` of them
// in the blocks ahead. The exchange before it told `n` and `before`, and is what keeps the list's words from being overwritten early.
template <class Listed>
__device__ void list(Group &g, const Slice &slice, float best, float inverse, u32 n, u32 before, Listed listed) {
    Shared &s = g.s;
    if (threadIdx.x == 0) s.listed = 0;
    __syncthreads();
    u64 *words = g.scratch + LIST_AT;
    for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
        u64 e = element(slice.values[i], slice.first + i);
        if (!listed(slice.values[i], e)) continue;
        u32 at = before + atomicAdd(&s.listed, 1);
        if (at >= LIST_MAX) continue;
        if (g.blocks == 1) {
            s.list.item[at] = e;
        } else {
            put(words + 2 * at, g.epoch, (u32)e);
            put(words + 2 * at + 1, g.epoch, (u32)(e >> 32));
        }
    }
    __syncthreads();
    if (threadIdx.x < n) {
        u32 at = threadIdx.x;
        if (g.blocks > 1) {
            u32 value[2];
            take(words + 2 * at, 1, g.epoch, value);
            s.list.item[at] = (u64)value[1] << 32 | value[0];
        }
        s.list.weight[at] = weight(of_rank((u32)(s.list.item[at] >> 32)), best, inverse);
    }
    __syncthreads();
}

// Where a filter ends: the last element kept, and the number of elements in the list if those kept are among them.
struct Cut {
    u64 last;
    u32 listed;
};

// Adds up the blocks' histograms of a level and finds the bin in which the sum reaches `target`: `s.crit`, and in `s.before` the
// sum ahead of it. With `top_p` below 1 the target is that part of all.
__device__ void critical_bin(Group &g, u64 before, u64 &target, float top_p, u32 bin_last) {
    Shared &s = g.s;
    u32 tid = threadIdx.x;
    u64 bins[EACH_BINS];
    if (g.blocks > 1) {
        u64 *sums = g.scratch + BINS_AT + g.turn * BINS;
        g.turn = g.turn == 2 ? 0 : g.turn + 1;
        u64 *next = g.scratch + BINS_AT + g.turn * BINS;
        for (u32 b = tid; b < BINS; b += THREADS) {
            u64 v = s.bins[0][b] + ((u64)s.bins[1][b] << 16);
            if (v) atomicAdd(sums + b, v);
        }
        for (u32 b = g.block * THREADS + tid; b < BINS; b += g.blocks * THREADS) next[b] = 0;
        u64 nothing[1] = {0};
        g.exchange<1, true>(nothing);
#pragma unroll
        for (int i = 0; i < EACH_BINS; i++) bins[i] = __ldcg(sums + EACH_BINS * tid + i);
    } else {
#pragma unroll
        for (int i = 0; i < EACH_BINS; i++) bins[i] = s.bins[0][EACH_BINS * tid + i] + ((u64)s.bins[1][EACH_BINS * tid + i] << 16);
    }
    u64 mine = 0, total;
#pragma unroll
    for (int i = 0; i < EACH_BINS; i++) mine += bins[i];
    u64 sum = before + block_before(mine, s.part[0], total);
    if (top_p < 1.0f) target = top_p_target(top_p, total);
    if (tid == 0) s.crit = bin_last, s.before = before + total, s.in_bin = ALL;
    __syncthreads();
    if (sum < target && sum + mine >= target) {
#pragma unroll
        for (int i = 0; i < EACH_BINS; i++) {
            if (sum < target && sum + bins[i] >= target) s.crit = EACH_BINS * tid + i, s.before = sum, s.in_bin = bins[i];
            sum += bins[i];
        }
    }
    __syncthreads();
}

// Which elements count, how they are compared, and what is looked for: the first element, by rank, at which the number of elements reaches
// `target` (WEIGH false), or their weights do (WEIGH true).
template <bool WEIGH> struct Search {
    const Slice &slice;
    float best, inverse;
    u64 kept; // only elements up to this one count
    u64 prefix, before, target; // of codes: what is known of that element's; how much lies ahead of those that begin with it

    __device__ __forceinline__ bool counts(float l, u32 i) const { return kept == ALL || element(l, slice.first + i) <= kept; }

    // The block's histogram of the next `width` bits of codes.
    __device__ __forceinline__ void count_bins(Shared &s, int level, int width, int shift) const {
        u32 bin_last = (1u << width) - 1;
        __syncthreads();
        for (u32 b = threadIdx.x; b < 2 * BINS; b += THREADS) s.bins[0][b] = 0;
        __syncthreads();
#pragma unroll 2
        for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
            float l = slice.values[i];
            u64 code = code_of(l, best, inverse) >> shift;
            if (code >> width != prefix || !counts(l, i)) continue;
            u32 bin = (u32)code & bin_last;
            if (WEIGH) {
                u32 w = weight(l, best, inverse);
                if (w & 0xffff) atomicAdd(&s.bins[0][bin], w & 0xffff);
                if (w >> 16) atomicAdd(&s.bins[1][bin], w >> 16);
            } else if (level > 0 || bin != bin_last) {
                // The last bin of level 0 holds nearly everything when the temperature is low; it is what remains.
                atomicAdd(&s.bins[0][bin], 1);
            }
        }
        __syncthreads();
    }
    // Over all blocks: {elements up to the prefix (high half) and of it, smallest and largest rest of those}; `ahead`: the first of these of the
    // blocks before.
    __device__ __forceinline__ void count_prefix(Group &g, int shift, u64 (&v)[3], u64 &ahead) const {
        u64 counted = 0, low = ALL, high = 0;
        for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
            float l = slice.values[i];
            u64 code = code_of(l, best, inverse), top = code >> shift;
            if (top > prefix || !counts(l, i)) continue;
            counted += 1ull << 32;
            if (top == prefix) counted += 1, low = min(low, code & 0xffffffffu), high = max(high, code & 0xffffffffu);
        }
        v[0] = counted, v[1] = low, v[2] = high;
        block_all<SUM, MIN, MAX>(v, g.s.part);
        g.exchange(v);
        v[0] = got_all<SUM>(g.s.got[0], g.blocks), ahead = got_all<SUM>(g.s.got[0], g.block);
        v[1] = got_all<MIN>(g.s.got[1], g.blocks), v[2] = got_all<MAX>(g.s.got[2], g.blocks);
    }
    // Among `n` listed elements; with `whole` those ahead of the prefix are listed too.
    __device__ __forceinline__ u64 find_listed(Shared &s, u32 n, bool whole) const {
        if (threadIdx.x == 0) s.picked = ALL;
        __syncthreads();
        if (threadIdx.x < n) {
            u64 own = s.list.item[threadIdx.x], sum = whole ? 0 : before, step = WEIGH ? s.list.weight[threadIdx.x] : 1;
            for (u32 j = 0; j < n; j++)
                if (s.list.item[j] <= own) sum += WEIGH ? s.list.weight[j] : 1;
            if (sum >= target && sum - step < target) s.picked = own;
        }
        __syncthreads();
        return s.picked;
    }
    // Among equals of rank `rank`, in the order of their ids, which is that of blocks and threads. `ahead`: equals of the blocks before.
    __device__ __forceinline__ u64 find_equal(Group &g, u64 rank, u32 ahead) const {
        Shared &s = g.s;
        u64 step = WEIGH ? max(weight(of_rank((u32)rank), best, inverse), 1u) : 1, need = (target - before + step - 1) / step;
        u32 from, to, mine = 0;
        slice.run(from, to);
        for (u32 i = from; i < to; i++) {
            u64 e = element(slice.values[i], slice.first + i);
            mine += e >> 32 == rank && e <= kept;
        }
        u64 total, first = ahead + block_before(mine, s.part[0], total);
        if (threadIdx.x == 0) s.picked = 0;
        __syncthreads();
        if (first < need && first + mine >= need) {
            for (u32 i = from; i < to; i++) {
                u64 e = element(slice.values[i], slice.first + i);
                if (e >> 32 == rank && e <= kept && ++first == need) s.picked = e;
            }
        }
        __syncthreads();
        u64 picked[1] = {s.picked};
        g.exchange(picked);
        return got_all<MAX>(s.got[0], g.blocks);
    }
};

// A cut, and what its group goes on from.
struct Found {
    Cut cut;
    Turn next;
};

// One copy for all who look for a cut, and the group by value: the compiler took half as long again for a copy in each, and by reference the
// group would lie in memory elsewhere too.
template <bool WEIGH> __device__ __noinline__ Found find_cut(Group g, Slice slice, float best, float inverse, u64 kept, u32 k, float top_p) {
    Shared &s = g.s;
    Search<WEIGH> search = {slice, best, inverse, kept, 0, 0, k};
    // What is ahead of the critical bin is listed too, if the list has room for all that is kept.
    bool whole = !WEIGH && k <= LIST_MAX;
    for (int level = 0;; level++) {
        int width = level == LEVEL_LAST ? 2 : LEVEL_BITS, shift = level == LEVEL_LAST ? 0 : CODE_BITS - LEVEL_BITS * (level + 1);
        search.count_bins(s, level, width, shift);
        critical_bin(g, search.before, search.target, level == 0 ? top_p : 1.0f, (1u << width) - 1);
        search.prefix = search.prefix << width | s.crit;
        search.before = s.before;
        // Surely too many to list: no need to count them. (A bin's largest weight is that of its upper edge.)
        if (level == 0) {
            u64 each = WEIGH ? __float2uint_ru(exp_scaled(-(21.5f / BINS) * s.crit, 30)) + 256 : 1;
            if (s.in_bin > each * LIST_MAX) continue;
        }
        u64 v[3], ahead;
        search.count_prefix(g, shift, v, ahead);
        u32 n = whole ? (u32)(v[0] >> 32) : (u32)v[0];
        if (n <= LIST_MAX) {
            u64 prefix = search.prefix;
            list(g, slice, best, inverse, n, whole ? (u32)(ahead >> 32) : (u32)ahead, [&](float l, u64 e) {
                u64 top = code_of(l, best, inverse) >> shift;
                return (whole ? top <= prefix : top == prefix) && e <= kept;
            });
            return {{search.find_listed(s, n, whole), whole ? n : 0}, {g.epoch, g.turn}};
        }
        if (v[1] != v[2] && level < LEVEL_LAST) continue;
        return {{search.find_equal(g, v[1], (u32)ahead), 0}, {g.epoch, g.turn}};
    }
}

// The first element, by rank, at which the number of elements reaches `k` (WEIGH false), or their weights reach `top_p` of all of
// them (WEIGH true). Only elements up to `kept` count.
template <bool WEIGH> __device__ __forceinline__ Cut select(Group &g, const Slice &slice, float best, float inverse, u64 kept, u32 k, float top_p) {
    Found found = find_cut<WEIGH>(g, slice, best, inverse, kept, k, top_p);
    g.go_on(found.next);
    return found.cut;
}
