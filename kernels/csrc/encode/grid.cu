// Blocks of 256 values, magnitudes four at a time from a book of N entries, signs apart: IQ3_S and IQ3_XXS. 8 groups of 32, whose scales
// are odd multiples (1 to 31) of one factor.
//
// A block has 8 warps, and each a quad of the group that is looked at: `2 sum w x g` and `sum w g^2` of its quad with every entry lie in
// its part of shared memory, and every lane has scales of its own, for which it looks for the least `s gg - 2 xg` over the book.
// Bound: these three operations a scale, an entry and a quad, of which there are 72 + 64 + 16 rounds scales.
//
// -D: TYPE (of the numbers below), N, TOP (the largest magnitude), BYTES of an encoded block.
#include "arguments.cuh"
#include "encode/values.cuh"

#define VALUES 256
#define GROUPS 8
#define QUADS 64
#define WARPS 8
#define THREADS (WARPS * WARP)
#define MULTIPLES 16
#define MULTIPLE_MAX 31.0f
// As the definition has them.
#define SCALES 72
#define SCALE_MIN 0.5f
#define SCALE_MAX 1.5f
#define FACTORS 192
#define SHARE_MIN 0.55f
#define SHARE_MAX 1.25f
#define TRIED 4
#define ROUNDS 4
enum { IQ3_S, IQ3_XXS };
// What the stored factor is multiplied with beside the odd number.
#define UNIT (TYPE == IQ3_S ? 1.0f : 0.25f)

// The multiples of the groups at a factor, of which the odd number is 2 l + 1.
struct Scaled {
    u32 bits;
    f32 d, error;
    int multiples[GROUPS];

    __device__ __forceinline__ f32 scale(int group) const { return d * odd(group); }
    __device__ __forceinline__ f32 odd(int group) const { return float(2 * multiples[group] + 1); }
};

struct Memory {
    float2 products[WARPS][N]; // 2 xg, gg
    Block<VALUES> block;       // without the signs that are stored
    u32 book[N];
    float least[2][WARPS][SCALES], errors[GROUPS][SCALES];
    f32 first[GROUPS], step[GROUPS], steps_per_scale[GROUPS];
    float sums[FACTORS];
    f32 factors[TRIED];
    float best_of[TRIED][GROUPS];
    Scaled tried[TRIED], best;
    int entries[QUADS];
    f32 terms[2][QUADS];
    u8 signs[VALUES / 8];
    bool some;
};

__device__ __forceinline__ float2 product(const Memory &memory, int quad, int entry) {
    u32 g4 = memory.book[entry];
    f32 xg = 0.0f, gg = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        f32 x = memory.block.x[quad * 4 + j], w = memory.block.w[quad * 4 + j], g = plain_byte_at(g4, j);
        xg += f32(2.0f) * w * x * g;
        gg += w * (g * g);
    }
    return make_float2(xg.v, gg.v);
}

__device__ __forceinline__ float least(float best, float2 of, f32 s) { return fminf(best, (s * of.y - of.x).v); }

// Errors but for `sum w x^2` of all groups at COUNT scales each: errors[g][i] at scale_of(g, i). By all threads.
template <int COUNT, class S> __device__ __forceinline__ void find_errors(Memory &memory, S scale_of) {
    constexpr int REST = COUNT % (2 * WARP), PARTS = REST ? WARP / REST : 1, FULL = COUNT - REST;
    static_assert(FULL <= 2 * WARP, "a lane has two scales, and a part of one");
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float2 *mine = memory.products[warp];
#pragma unroll 1
    for (int g = 0; g < GROUPS; g++) {
        for (int k = lane; k < N; k += WARP) mine[k] = product(memory, g * WARPS + warp, k);
        __syncwarp();
        float *out = memory.least[g % 2][warp];
        const float4 *two = (const float4 *)mine;
        if (FULL) {
            f32 s0 = scale_of(g, lane), s1 = scale_of(g, lane + WARP);
            float best0 = INFINITE, best1 = INFINITE;
#pragma unroll 8
            for (int p = 0; p < N / 2; p++) {
                float4 e = two[p];
                best0 = least(least(best0, make_float2(e.x, e.y), s0), make_float2(e.z, e.w), s0);
                best1 = least(least(best1, make_float2(e.x, e.y), s1), make_float2(e.z, e.w), s1);
            }
            out[lane] = best0, out[lane + WARP] = best1;
        }
        if (REST) {
            int i = FULL + lane % max(REST, 1);
            f32 s = scale_of(g, i);
            float best = INFINITE;
#pragma unroll 8
            for (int p = lane / max(REST, 1); p < N / 2; p += PARTS) {
                float4 e = two[p];
                best = least(least(best, make_float2(e.x, e.y), s), make_float2(e.z, e.w), s);
            }
            for (int step = max(REST, 1); step < WARP; step *= 2) best = fminf(best, __shfl_xor_sync(~0u, best, step));
            out[i] = best;
        }
        // The next group has places of its own, and the one after it comes behind the next barrier.
        __syncthreads();
        for (int i = threadIdx.x; i < COUNT; i += THREADS) {
            f32 sum = 0.0f;
            for (int q = 0; q < WARPS; q++) sum += memory.least[g % 2][q][i];
            memory.errors[g][i] = (scale_of(g, i) * sum).v;
        }
    }
    __syncthreads();
}

// The factors for which the groups' errors at the nearest scales that are known promise most.
__device__ __forceinline__ void find_factors(Memory &memory) {
    int t = threadIdx.x;
    if (t < GROUPS) {
        f32 whole = abs_of(extreme_of(memory.block.x + t * 32, 32)) / float(TOP);
        f32 step = whole * (f32(SCALE_MAX) - SCALE_MIN) / float(SCALES - 1);
        memory.first[t] = whole * SCALE_MIN, memory.step[t] = step;
        memory.steps_per_scale[t] = step > 0.0f ? f32(1.0f) / step : f32(0.0f);
    }
    __syncthreads();
    find_errors<SCALES>(memory, [&](int g, int i) { return memory.first[g] + memory.step[g] * float(i); });
    f32 d = (f32(SHARE_MIN) + (f32(SHARE_MAX) - SHARE_MIN) * float(t) / float(FACTORS - 1)) / (f32(float(TOP)) * MULTIPLE_MAX), sum = 0.0f;
    if (t < FACTORS) {
        for (int g = 0; g < GROUPS; g++) {
            float best = INFINITE;
            for (int l = 0; l < MULTIPLES; l++) {
                f32 i = within((d * float(2 * l + 1) - memory.first[g]) * memory.steps_per_scale[g] + 0.5f, 0.0f, float(SCALES - 1));
                best = fminf(best, memory.errors[g][(int)i.v]);
            }
            sum += best;
        }
        memory.sums[t] = sum.v;
    }
    __syncthreads();
    if (t < FACTORS) {
        int before = 0;
        for (int i = 0; i < FACTORS; i++) before += memory.sums[i] < sum.v || (memory.sums[i] == sum.v && i < t);
        if (before < TRIED) memory.factors[before] = d;
    }
    __syncthreads();
}

// The best of all multiples at each of T factors.
template <int T> __device__ __forceinline__ void search(Memory &memory) {
    int t = threadIdx.x;
    if (t < T) {
        Factor factor = memory.block.factor(memory.factors[t] / UNIT);
        memory.tried[t].bits = factor.bits, memory.tried[t].d = factor.d * UNIT;
    }
    __syncthreads();
    find_errors<MULTIPLES * T>(memory, [&](int g, int i) { return memory.tried[i / MULTIPLES].d * float(2 * (i % MULTIPLES) + 1); });
    if (t < T * GROUPS) {
        int g = t % GROUPS, f = t / GROUPS, best = 0;
        const float *errors = memory.errors[g] + f * MULTIPLES;
        for (int l = 1; l < MULTIPLES; l++)
            if (errors[l] < errors[best]) best = l;
        memory.tried[f].multiples[g] = best, memory.best_of[f][g] = errors[best];
    }
    __syncthreads();
    if (t < T) {
        f32 sum = 0.0f;
        for (int g = 0; g < GROUPS; g++) sum += memory.best_of[t][g];
        memory.tried[t].error = sum;
    }
    __syncthreads();
}

// The first entry that is best for each quad; and the factor for which these are best.
__device__ __forceinline__ void find_entries(Memory &memory) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int g = 0; g < GROUPS; g++) {
        int quad = g * WARPS + warp, at = lane;
        f32 s = memory.best.scale(g);
        float best = INFINITE;
        for (int k = lane; k < N; k += WARP) {
            float2 of = product(memory, quad, k);
            float v = (s * of.y - of.x).v;
            if (v < best) best = v, at = k;
        }
        for (int step = 16; step > 0; step /= 2) {
            float other = __shfl_xor_sync(~0u, best, step);
            int other_at = __shfl_xor_sync(~0u, at, step);
            if (other < best || (other == best && other_at < at)) best = other, at = other_at;
        }
        float2 of = product(memory, quad, at);
        f32 odd = memory.best.odd(g);
        if (lane == 0) memory.entries[quad] = at, memory.terms[0][quad] = odd * of.x * 0.5f, memory.terms[1][quad] = odd * odd * of.y;
    }
    __syncthreads();
}
__device__ __forceinline__ f32 fitted(const Memory &memory) {
    f32 xa = 0.0f, aa = 0.0f;
    for (int i = 0; i < QUADS; i++) xa += memory.terms[0][i], aa += memory.terms[1][i];
    return aa > 0.0f ? xa / aa : memory.best.d;
}

// Takes the signs off: where they come in even numbers among eight values, the value that weighs least gets the other one if need be.
__device__ __forceinline__ void take_signs(Memory &memory) {
    int t = threadIdx.x;
    if (t < VALUES / 8) {
        float *x = memory.block.x + t * 8, *w = memory.block.w + t * 8;
        u32 signs = 0;
        int least = 0;
        for (int i = 0; i < 8; i++) signs |= (x[i] < 0.0f) << i;
        for (int i = 1; i < 8; i++)
            if (f32(w[i]) * x[i] * x[i] < f32(w[least]) * x[least] * x[least]) least = i;
        for (int i = 0; i < 8; i++) x[i] = fabsf(x[i]);
        if (TYPE == IQ3_XXS && __popc(signs) % 2 == 1) signs ^= 1u << least, x[least] = -x[least];
        memory.signs[t] = (u8)signs;
    }
    __syncthreads();
}

__device__ __forceinline__ void encode(Memory &memory) {
    int t = threadIdx.x;
    take_signs(memory);
    find_factors(memory);
    search<TRIED>(memory);
    if (t == 0) {
        memory.best = memory.tried[0];
        for (int i = 1; i < TRIED; i++)
            if (memory.tried[i].error < memory.best.error) memory.best = memory.tried[i];
    }
    __syncthreads();
    find_entries(memory);
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++) {
        if (t == 0) memory.factors[0] = fitted(memory);
        __syncthreads();
        search<1>(memory);
        if (memory.tried[0].error >= memory.best.error) break;
        __syncthreads();
        if (t == 0) memory.best = memory.tried[0];
        __syncthreads();
        find_entries(memory);
    }
}

__device__ __forceinline__ u8 byte_of(const Memory &memory, int at) {
    const int *l = memory.best.multiples;
    if (at < 2) return (u8)(memory.best.bits >> 8 * at);
    if (at < 66) return (u8)memory.entries[at - 2];
    if constexpr (TYPE == IQ3_XXS) {
        int g = (at - 66) / 4;
        const u8 *s = memory.signs + g * 4;
        u32 word = (u32)l[g] << 28 | (s[0] & 127u) | (s[1] & 127u) << 7 | (s[2] & 127u) << 14 | (s[3] & 127u) << 21;
        return (u8)(word >> (at - 66) % 4 * 8);
    } else {
        if (at >= 106) return l[(at - 106) * 2] | l[(at - 106) * 2 + 1] << 4;
        if (at >= 74) return memory.signs[at - 74];
        u8 byte = 0;
        for (int i = 0; i < 8; i++) byte |= memory.entries[(at - 66) * 8 + i] >> 8 << i;
        return byte;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) encode_rows(const Arguments args) {
    __shared__ __align__(16) Memory memory;
    let_next_start();
    wait_for_inputs();
    u64 block = blockIdx.x;
    for (int i = threadIdx.x; i < N; i += THREADS) memory.book[i] = args.book[i];
    if (threadIdx.x < WARP) {
        bool some = memory.block.read(args.x + block * VALUES, weights_of<VALUES>(args, block));
        if (threadIdx.x == 0) memory.some = some;
    }
    __syncthreads();
    if (memory.some) encode(memory);
    for (int i = threadIdx.x; i < BYTES; i += THREADS) args.out[block * BYTES + i] = memory.some ? byte_of(memory, i) : 0;
}
