// Chooses a token from each row of logits: the token of the definition (reference::sampler), bit for bit.
//
//   w = round(exp((l - best) / temperature) * 2^30): integers, so sums of them are exact in any order and over any blocks.
//
// A group of blocks has a row: each keeps its slice of the logits in shared memory, applies the row's edits there, and the slices
// are not read from global memory again. What the blocks must know of each other goes through exchanges (`Group`). Groups take
// rows in turn, so the grid is no larger than what is resident at once; without that, the exchanges would wait forever.
//
// Bound: 4 * VOCAB bytes a row, read once. Greedy: one exchange; a plain draw: two. Filters find the last element that they keep
// by histograms of a code that orders elements by rank (20 bits of the scaled distance to the best, then the logit's own 32), until
// at most LIST_MAX elements can be it; those are listed in every block. A top-k that fits in the list is finished from it.
//
// A row with sparse edits is drawn from twice, before them and after them, with the same random bits: its result has both tokens. A
// row without any pays a comparison for them.
//
// logits: [*, VOCAB] f32, 16-byte aligned. history: [slots][VOCAB] u16, bit 15 in the prompt, low bits how often generated.
// lists: words of bias and mixture (id, f32 bits), end ids, mask bits. Scratch: zeros at first, and left so that any later launch may follow.
//
// -D: VOCAB (a multiple of 4).
#include "common/base.cuh"
#include "arguments.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)
#define SLICE_MAX 8192
#define BLOCKS_MAX 128
#define WORDS_MAX 3
#define LIST_MAX 128
#define TOP_MAX 20
#define BINS 1024
#define EACH_BINS (BINS / THREADS)

// By a row's code: 5 levels of 10 bits, then one of 2.
#define CODE_BITS 52
#define LEVEL_BITS 10
#define LEVEL_LAST 5

#define ALL (~0ull)
#define TEMPERATURE_MIN 1e-5f
#define WEIGHT_ONE (1u << 30)

// What the unedited logits say, at temperature 1.
struct Raw {
    float best;
    u64 total;
};

// Whose token a draw gives: the row's, of a row that is drawn from once; the one without the sparse edits; the one with them.
enum Draw { ONLY, PLAIN, EDITED };

struct __align__(16) Shared {
    float values[SLICE_MAX];
    union {
        u32 bins[2][BINS];
        struct {
            u64 item[LIST_MAX];
            u32 weight[LIST_MAX];
        } list;
    };
    u64 got[WORDS_MAX][BLOCKS_MAX];
    u64 part[WORDS_MAX][WARPS];
    u64 before, in_bin, bits, picked;
    u32 crit, listed;
    // Of the row; here because they are asked for at its end alone, and registers are few.
    Raw raw;
    u64 top;
    Draw which;
    u32 at;
    SampleParams row;
};

// ---- exchanges ----

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
template <int N> __device__ __forceinline__ void take(const u64 *from, u32 stride, u32 tag, u32 (&value)[N]) {
    u64 word[N];
    bool here;
    do {
#pragma unroll
        for (int i = 0; i < N; i++) asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word[i]) : "l"(from + i * stride) : "memory");
        here = true;
#pragma unroll
        for (int i = 0; i < N; i++) here = here && (u32)(word[i] >> 32) == tag;
    } while (!here);
#pragma unroll
    for (int i = 0; i < N; i++) value[i] = (u32)word[i];
}

struct Nothing {
    __device__ __forceinline__ void operator()() const {}
};

// The blocks of a row. Every block of a group takes part in every exchange, so all branches around exchanges depend on the row's
// parameters and on what was exchanged before.
struct Group {
    u64 *scratch;
    Shared &s;
    u32 blocks, block, epoch, turn;

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

// ---- reductions; every thread gets the result ----

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

// ---- the definition's arithmetic ----

#define LOWEST __int_as_float(0xff800000)
#define FINITE 3.402823466e38f

__device__ __forceinline__ float numbers(float l) { return l != l ? LOWEST : l; }

// reference::ln of a normal positive number.
__device__ __forceinline__ float ln(float x) {
    const u32 sqrt_half = 0x3f3504f3u;
    u32 bits = __float_as_uint(x) + (0x3f800000u - sqrt_half);
    float n = (float)((int)(bits >> 23) - 127), f = __fsub_rn(__uint_as_float((bits & 0x7fffffu) + sqrt_half), 1.0f);
    float z = __fmul_rn(f, f), p = 7.0376836e-2f;
    p = __fmaf_rn(p, f, -1.151461e-1f);
    p = __fmaf_rn(p, f, 1.16769987e-1f);
    p = __fmaf_rn(p, f, -1.2420141e-1f);
    p = __fmaf_rn(p, f, 1.4249323e-1f);
    p = __fmaf_rn(p, f, -1.6668057e-1f);
    p = __fmaf_rn(p, f, 2.0000714e-1f);
    p = __fmaf_rn(p, f, -2.4999994e-1f);
    p = __fmaf_rn(p, f, 3.333333e-1f);
    float y = __fmaf_rn(n, -2.1219444e-4f, __fmul_rn(p, __fmul_rn(f, z)));
    y = __fmaf_rn(z, -0.5f, y);
    return __fmaf_rn(n, 0.6933594f, __fadd_rn(f, y));
}

// Mixture::mixed of reference::sampler; `sum` is e^(LSE - best).
__device__ __forceinline__ float mixed(float l, float best, float sum, float weight) {
    float table = __fmul_rn(weight, sum);
    // Also where it is no number.
    if (l == LOWEST || !(table >= 1.17549435e-38f)) return l;
    return __fadd_rn(best, ln(__fadd_rn(exp_defined(__fsub_rn(l, best)), fminf(table, 1.70141173e38f))));
}

__device__ __forceinline__ float scaled_distance(float l, float best, float inverse) {
    return __fmul_rn(__fsub_rn(l, best), inverse);
}

// Below -21.49 a weight rounds to 0.
__device__ __forceinline__ u32 weight(float l, float best, float inverse) {
    float x = scaled_distance(l, best, inverse);
    u32 w = __float2uint_rn(exp_scaled(fmaxf(x, -22.0f), 30));
    return x < -22.0f ? 0 : w;
}

// Smaller for larger logits, the same for both zeros.
__device__ __forceinline__ u32 rank_of(float l) {
    u32 bits = __float_as_uint(__fadd_rn(l, 0.0f));
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}
__device__ __forceinline__ float of_rank(u32 r) { return __uint_as_float(r & 0x80000000u ? r : ~(r | 0x80000000u)); }
__device__ __forceinline__ u64 element(float l, u32 id) { return (u64)rank_of(l) << 32 | id; }

// Orders as `rank_of` does. The first bits are the scaled distance in steps of 21.5 / 2^20: both roundings keep the order.
__device__ __forceinline__ u64 code_of(float l, float best, float inverse) {
    float steps = __fmul_rn(-scaled_distance(l, best, inverse), 1048576.0f / 21.5f);
    return (u64)min(__float2uint_rz(steps), 0xfffffu) << 32 | rank_of(l);
}

__device__ __forceinline__ u64 draw(u64 seed, u32 index, u32 choice) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32), c0 = index, c1 = choice, c2 = 0, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 a = (u64)c0 * 0xD2511F53u, b = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(b >> 32) ^ c1 ^ k0, c1 = (u32)b, c2 = (u32)(a >> 32) ^ c3 ^ k1, c3 = (u32)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (u64)c1 << 32 | c0;
}

__device__ __forceinline__ u64 top_p_target(float top_p, u64 total) {
    return max(__double2ull_ru(__dmul_rn((double)top_p, (double)total)), 1ull);
}

__device__ __forceinline__ float penalised(float l, const SampleParams &p, bool in_prompt, u32 count) {
    if (in_prompt || count > 0) l = l > 0.0f ? __fdiv_rn(l, p.repetition_penalty) : __fmul_rn(l, p.repetition_penalty);
    if (count > 0) l = __fsub_rn(l, __fadd_rn(__fmul_rn((float)count, p.frequency_penalty), p.presence_penalty));
    return l;
}

// ---- a row ----

struct Slice {
    float *values;
    u32 first, count;

    // Threads have runs of consecutive elements, of odd length so that they read different banks.
    __device__ __forceinline__ void run(u32 &from, u32 &to) const {
        u32 each = (count + THREADS - 1) / THREADS | 1;
        from = min(threadIdx.x * each, count), to = min(from + each, count);
    }
};

// The smallest (rank, id) over the block's elements, as `element`.
struct Best {
    float l = LOWEST;
    u32 id = 0xffffffffu;
    // Ids come in ascending order.
    __device__ __forceinline__ void see(float v, u32 at) {
        if (v > l || id == 0xffffffffu) l = v, id = at;
    }
};

// The row's best element; `s.bits` become those of its draw.
__device__ u64 best_of_row(Group &g, Best best, const SampleParams &p) {
    u64 v[1] = {block_all<MIN>(best.id == 0xffffffffu ? ALL : element(best.l, best.id), g.s.part[0])};
    g.exchange<1>(v, [&] { g.s.bits = draw(p.seed, p.output_index, p.choice); });
    return got_all<MIN>(g.s.got[0], g.blocks);
}

__device__ Best load(const float *row, const Slice &slice) {
    Best best;
    const float4 *from = (const float4 *)(row + slice.first);
#pragma unroll 4
    for (u32 i = threadIdx.x; i < slice.count / 4; i += THREADS) {
        float4 v = __ldcg(from + i);
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
    if (p.hold_ends) {
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

// The first element, by rank, at which the number of elements reaches `k` (WEIGH false), or their weights reach `top_p` of all of
// them (WEIGH true). Only elements up to `kept` count.
template <bool WEIGH> __device__ Cut select(Group &g, const Slice &slice, float best, float inverse, u64 kept, u32 k, float top_p) {
    Shared &s = g.s;
    u64 prefix = 0, before = 0, target = k;
    // What is ahead of the critical bin is listed too, if the list has room for all that is kept.
    bool whole = !WEIGH && k <= LIST_MAX;
    for (int level = 0;; level++) {
        int width = level == LEVEL_LAST ? 2 : LEVEL_BITS, shift = level == LEVEL_LAST ? 0 : CODE_BITS - LEVEL_BITS * (level + 1);
        u32 bin_last = (1u << width) - 1;
        __syncthreads();
        for (u32 b = threadIdx.x; b < 2 * BINS; b += THREADS) s.bins[0][b] = 0;
        __syncthreads();
#pragma unroll 2
        for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
            float l = slice.values[i];
            u64 code = code_of(l, best, inverse) >> shift;
            if (code >> width != prefix || (kept != ALL && element(l, slice.first + i) > kept)) continue;
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
        critical_bin(g, before, target, level == 0 ? top_p : 1.0f, bin_last);
        prefix = prefix << width | s.crit;
        before = s.before;
        // Surely too many to list: no need to count them. (A bin's largest weight is that of its upper edge.)
        if (level == 0) {
            u64 each = WEIGH ? __float2uint_ru(exp_scaled(-(21.5f / BINS) * s.crit, 30)) + 256 : 1;
            if (s.in_bin > each * LIST_MAX) continue;
        }

        u64 counts = 0, low = ALL, high = 0; // counts: up to and in the critical bin
        for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
            float l = slice.values[i];
            u64 code = code_of(l, best, inverse), top = code >> shift;
            if (top > prefix || (kept != ALL && element(l, slice.first + i) > kept)) continue;
            counts += 1ull << 32;
            if (top == prefix) counts += 1, low = min(low, code & 0xffffffffu), high = max(high, code & 0xffffffffu);
        }
        u64 v[3] = {counts, low, high};
        block_all<SUM, MIN, MAX>(v, s.part);
        g.exchange(v);
        u64 all = got_all<SUM>(s.got[0], g.blocks), ahead = got_all<SUM>(s.got[0], g.block);
        low = got_all<MIN>(s.got[1], g.blocks), high = got_all<MAX>(s.got[2], g.blocks);
        u32 n = whole ? (u32)(all >> 32) : (u32)all;
        if (n <= LIST_MAX) {
            list(g, slice, best, inverse, n, whole ? (u32)(ahead >> 32) : (u32)ahead, [&](float l, u64 e) {
                u64 top = code_of(l, best, inverse) >> shift;
                return (whole ? top <= prefix : top == prefix) && e <= kept;
            });
            if (threadIdx.x == 0) s.picked = ALL;
            __syncthreads();
            if (threadIdx.x < n) {
                u64 own = s.list.item[threadIdx.x], sum = whole ? 0 : before, step = WEIGH ? s.list.weight[threadIdx.x] : 1;
                for (u32 j = 0; j < n; j++)
                    if (s.list.item[j] <= own) sum += WEIGH ? s.list.weight[j] : 1;
                if (sum >= target && sum - step < target) s.picked = own;
            }
            __syncthreads();
            return {s.picked, whole ? n : 0};
        }
        if (low != high && level < LEVEL_LAST) continue;

        // Equals, in the order of their ids, which is that of blocks and threads.
        u64 step = WEIGH ? max(weight(of_rank((u32)low), best, inverse), 1u) : 1, need = (target - before + step - 1) / step;
        u32 from, to, mine = 0;
        slice.run(from, to);
        for (u32 i = from; i < to; i++) {
            u64 e = element(slice.values[i], slice.first + i);
            mine += e >> 32 == low && e <= kept;
        }
        u64 total, first = (u32)ahead + block_before(mine, s.part[0], total);
        if (threadIdx.x == 0) s.picked = 0;
        __syncthreads();
        if (first < need && first + mine >= need) {
            for (u32 i = from; i < to; i++) {
                u64 e = element(slice.values[i], slice.first + i);
                if (e >> 32 == low && e <= kept && ++first == need) s.picked = e;
            }
        }
        __syncthreads();
        u64 picked[1] = {s.picked};
        g.exchange(picked);
        return {got_all<MAX>(s.got[0], g.blocks), 0};
    }
}

__device__ __forceinline__ float logprob(const Raw &raw, float l) {
    if (l == LOWEST || raw.total == 0) return LOWEST;
    return (float)((double)l - (double)raw.best - log((double)raw.total * (1.0 / WEIGHT_ONE)));
}

__device__ void report(Group &g, const Slice &slice, float best, const SampleParams &p, SampleResult *results) {
    Shared &s = g.s;
    SampleResult *out = results + s.at;
    // Entropy from sums in units of 2^-40: integers too, so that it does not depend on how a row is shared.
    u64 sums[3] = {0, 0, 0};
    for (u32 i = threadIdx.x; i < slice.count; i += THREADS) {
        sums[0] += weight(slice.values[i], best, 1.0f);
        if (p.certainty) {
            float x = fmaxf(scaled_distance(slice.values[i], best, 1.0f), -40.0f), e = exp_scaled(x, 40);
            sums[1] += __float2ull_rn(e), sums[2] += __float2ull_rn(__fmul_rn(e, -x));
        }
    }
    block_all<SUM, SUM, SUM>(sums, s.part);
    g.exchange(sums);
#pragma unroll
    for (int k = 0; k < 3; k++) sums[k] = got_all<SUM>(s.got[k], g.blocks);
    Raw raw = {best, sums[0]};
    if (threadIdx.x == 0) s.raw = raw;
    if (p.certainty && g.block == 0 && threadIdx.x == 0) {
        double sum = (double)sums[1] * 0x1p-40, weighted = (double)sums[2] * 0x1p-40;
        out->entropy = (float)(log(sum) + weighted / sum), out->top_prob = (float)(1.0 / sum);
    }
    u32 n = (u32)min(p.logprobs, TOP_MAX);
    if (p.logprobs <= 0) return;
    Cut cut = select<false>(g, slice, best, 1.0f, ALL, n, 1.0f);
    if (cut.listed == 0) {
        // Too many equals at its end to be listed with it.
        u64 counts = 0;
        for (u32 i = threadIdx.x; i < slice.count; i += THREADS) counts += element(slice.values[i], slice.first + i) <= cut.last;
        u64 v[1] = {block_all<SUM>(counts, s.part[0])};
        g.exchange(v);
        u32 ahead = (u32)got_all<SUM>(s.got[0], g.block);
        list(g, slice, best, 1.0f, n, ahead, [&](float, u64 e) { return e <= cut.last; });
        cut.listed = n;
    }
    if (g.block == 0 && threadIdx.x < cut.listed) {
        u64 own = s.list.item[threadIdx.x];
        u32 rank = 0;
        for (u32 j = 0; j < cut.listed; j++) rank += s.list.item[j] < own;
        if (rank < n) out->top_ids[rank] = (int)(u32)own, out->top_logprobs[rank] = logprob(raw, of_rank((u32)(own >> 32)));
    }
}

// One thread of the group calls this.
__device__ __noinline__ void emit(const Arguments &args, const SampleParams &p, const Shared &s, u32 token) {
    SampleResult *out = args.results + s.at;
    Draw which = s.which;
    if (which != EDITED) out->plain = (int)token;
    if (which == PLAIN) return;
    out->token = (int)token;
    if (p.slot >= 0) args.sampled[p.slot] = (int)token;
    if (p.logprobs >= 0) out->logprob = token < VOCAB ? logprob(s.raw, numbers(__ldcg(args.logits + (u64)p.row * VOCAB + token))) : LOWEST;
}

// A draw from the first `k` of the listed elements. Block 0 alone; the list stays as it is.
__device__ void draw_from_list(const Arguments &args, const SampleParams &p, Group &g, u32 n, u32 wmin) {
    Shared &s = g.s;
    u32 tid = threadIdx.x, rank = 0, w = 0;
    u64 own = ALL, ahead = 0;
    if (tid < n) {
        own = s.list.item[tid], w = s.list.weight[tid];
        for (u32 j = 0; j < n; j++)
            if (s.list.item[j] <= own) rank++, ahead += s.list.weight[j];
        ahead -= w;
        if (rank > p.top_k) w = 0;
    }
    u64 total = block_all<SUM>(w, s.part[0]);
    // Kept as long as what is ahead does not reach the target.
    if (p.top_p < 1.0f && ahead >= top_p_target(p.top_p, total)) w = 0;
    if (w < wmin) w = 0;
    if (tid < n) s.list.weight[tid] = w;
    total = block_all<SUM>(w, s.part[0]);
    u64 target = __umul64hi(s.bits, total), sum = 0;
    for (u32 j = 0; j < n; j++)
        if ((u32)s.list.item[j] <= (u32)own) sum += s.list.weight[j];
    if (tid < n && sum > target && sum - w <= target) emit(args, p, s, (u32)own);
}

// Temperature, filters and the draw itself. `top`: the row's best element.
__device__ void choose(const Arguments &args, const SampleParams &p, Group &g, const Slice &slice, u64 top) {
    Shared &s = g.s;
    float best = of_rank((u32)(top >> 32));
    if (p.temperature < TEMPERATURE_MIN || !(fabsf(best) <= FINITE) || p.top_k == 1) {
        if (g.block == 0 && threadIdx.x == 0) emit(args, p, s, (u32)top);
        return;
    }
    float inverse = __fdiv_rn(1.0f, p.temperature);
    u32 wmin = min(__double2uint_ru(__dmul_rn((double)p.min_p, (double)WEIGHT_ONE)), WEIGHT_ONE);
    u64 kept = ALL;
    if (p.top_k > 0 && p.top_k < VOCAB) {
        Cut cut = select<false>(g, slice, best, inverse, ALL, p.top_k, 1.0f);
        if (cut.listed > 0) {
            if (g.block == 0) draw_from_list(args, p, g, cut.listed, wmin);
            return;
        }
        kept = cut.last;
    }
    if (p.top_p < 1.0f) kept = select<true>(g, slice, best, inverse, kept, 0, p.top_p).last;

    u32 from, to;
    slice.run(from, to);
    auto weigh = [&](u32 i) {
        u32 w = weight(slice.values[i], best, inverse);
        return w < wmin || (kept != ALL && element(slice.values[i], slice.first + i) > kept) ? 0u : w;
    };
    u64 sum = 0, total;
    __syncthreads();
#pragma unroll 4
    for (u32 i = from; i < to; i++) sum += weigh(i);
    u64 before = block_before(sum, s.part[0], total);
    u64 v[1] = {total};
    g.exchange(v);
    total = got_all<SUM>(s.got[0], g.blocks);
    before += got_all<SUM>(s.got[0], g.block);
    u64 target = __umul64hi(s.bits, total);
    u32 mine = __ballot_sync(~0u, target >= before && target - before < sum);
    if (mine == 0) return;
    // One thread of the row has the target in its run; its warp looks through it.
    int lane = threadIdx.x % WARP, owner = __ffs(mine) - 1;
    before = __shfl_sync(~0u, before, owner);
    from = __shfl_sync(~0u, from, owner), to = __shfl_sync(~0u, to, owner);
    for (u32 at = from; at < to; at += WARP) {
        u64 upto = at + lane < to ? weigh(at + lane) : 0;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            u64 other = __shfl_up_sync(~0u, upto, step);
            if (lane >= step) upto += other;
        }
        u32 past = __ballot_sync(~0u, before + upto > target);
        if (past) {
            if (lane == __ffs(past) - 1) emit(args, p, s, slice.first + at + lane);
            return;
        }
        before += __shfl_sync(~0u, upto, WARP - 1);
    }
}

__device__ void sample_row(const Arguments &args, const SampleParams &p, Group &g, const Slice &slice) {
    Shared &s = g.s;
    bool leads = g.block == 0 && threadIdx.x == 0, reports = p.logprobs >= 0 || p.certainty;
    if (threadIdx.x == 0) s.which = p.forced < 0 && (p.edits > 0 || p.mixes > 0) ? PLAIN : ONLY;
    if (p.forced >= 0 && !reports) {
        if (leads) emit(args, p, s, (u32)p.forced);
        return;
    }
    bool penalties = p.history >= 0 && (p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f);
    bool edits = p.biases > 0 || (p.hold_ends && p.ends > 0) || p.mask_at >= 0 || penalties;
    Best own = load(args.logits + (u64)p.row * VOCAB, slice);
    u64 top = 0;
    if (reports || !edits) top = best_of_row(g, own, p);
    if (reports) report(g, slice, of_rank((u32)(top >> 32)), p, args.results);
    if (p.forced >= 0) {
        if (leads) emit(args, p, s, (u32)p.forced);
        return;
    }
    if (edits) top = best_of_row(g, edit(args, p, slice, penalties), p);
    if (threadIdx.x == 0) s.top = top;
    // One place for both draws: the code is long, and most of it runs once a row.
#pragma unroll 1
    for (;;) {
        choose(args, p, g, slice, top);
        if (s.which != PLAIN) return;
        top = edit_sparsely(args, p, g, slice);
    }
}

// Grid: (blocks of a group, groups), all resident at once.
extern "C" __global__ void __launch_bounds__(THREADS, 4) sampler(const __grid_constant__ Arguments args) {
    __shared__ Shared s;
    // All of us are running when the next kernel starts early, so it cannot take a place that one of us waits for.
    let_next_start();
    wait_for_inputs();
    u64 *scratch = args.scratch + (u64)blockIdx.y * GROUP_WORDS;
    u64 state = __ldcg(scratch);
    Group g = {scratch, s, gridDim.x, blockIdx.x, (u32)state, (u32)(state >> 32)};
    u32 first = min(g.block * (u32)args.slice, (u32)VOCAB);
    Slice slice = {s.values, first, min((u32)args.slice, (u32)VOCAB - first)};
    for (u32 r = blockIdx.y; r < (u32)args.rows; r += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == THREADS - 1) s.at = r;
        if (threadIdx.x < sizeof(SampleParams) / 4) ((u32 *)&s.row)[threadIdx.x] = __ldcg((const u32 *)(args.params + r) + threadIdx.x);
        __syncthreads();
        // The group's next row comes into the cache meanwhile.
        u32 line = threadIdx.x * 32;
        if (r + gridDim.y < (u32)args.rows && line < slice.count) {
            int next = __ldcg(&args.params[r + gridDim.y].row);
            if (next >= 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(args.logits + (u64)next * VOCAB + slice.first + line));
        }
        if (s.row.row >= 0) sample_row(args, s.row, g, slice);
    }
    // The others read it before the first exchange, and without one it is the same.
    if (g.block == 0 && threadIdx.x == 0) *scratch = (u64)g.turn << 32 | g.epoch;
    if (args.tally && blockIdx.x + blockIdx.y == 0 && threadIdx.x == 0) args.results[args.rows].token = (int)atomicExch(args.tally, 0);
}
