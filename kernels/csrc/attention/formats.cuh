// How keys and values are kept: a struct a format. Each says how many bytes a page takes, how a warp stores one vector, what a lane reads of a
// page for a matrix instruction, and how a page becomes the one that f16 would be. attention.cu says where values lie in a page.
#pragma once
#include "attention/head.cuh"

// V's scales are multiplied into the weights, in f16: this keeps small ones out of the subnormals, and the sum is divided by it.
#define V_LIFT 256.0f
#define V_LIFT_F16X2 0x5c005c00u
#define V_SCALE_MAX 240.0f
// An f16 for each block of 32 dims and token.
#define SCALE_BYTES (D / 32 * PAGE * 2)

// The largest over the 16 lanes that share a block of 32 dims.
__device__ __forceinline__ float half_warp_max(float v) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
    return v;
}
// Codes are for the scale as it is stored.
__device__ __forceinline__ int q8_code(float v, float d) { return d == 0.0f ? 0 : max(-127, min(127, __float2int_rn(__fdiv_rn(v, d)))); }

// Whether the 16 lanes that share a block of 32 dims have numbers alone: what is none has no largest value, so the scale says it.
__device__ __forceinline__ bool all_numbers(float2 v) {
    bool number = v.x == v.x && v.y == v.y;
    return (__ballot_sync(~0u, !number) >> (lane_id() & 16) & 0xffff) == 0;
}
// By one lane of these 16: the scale of block `block` and a token, behind a page's codes.
__device__ __forceinline__ void store_scale(u8 *scales, int block, int token, u32 scale, bool numbers) {
    if (lane_id() % 16 == 0) *(u16 *)(scales + (block * PAGE + token) * 2) = numbers ? (u16)scale : 0x7e00;
}
// All bits where token 8t + 2i (low half) and the next (high half) of the page are at most `last`.
__device__ __forceinline__ uint4 token_mask(int last) {
    int first = lane_id() % 4 * 8;
    u32 m[4];
#pragma unroll
    for (int i = 0; i < 4; i++) m[i] = (first + 2 * i <= last ? 0xffffu : 0) | (first + 2 * i + 1 <= last ? 0xffff0000u : 0);
    return make_uint4(m[0], m[1], m[2], m[3]);
}

// ---- Keys ----
//
//   store(h, page, token)    writes a key; `page` is this head's part of the page, `token` the place in it
//   add_scores(...)          adds 32 dims of q, `low` and `high` of rows g and g + 8, times a tile of 8 tokens to a lane's scores
//   expand(from, thread, put) of formats with scales: a page in f16, by N_THREADS threads: put(block, token, t, dims 8t.. of the block)

struct KeysF16 {
    static constexpr bool F16 = true;
    static constexpr int BYTES = D * PAGE * 2;

    static __device__ __forceinline__ void store(const Head &h, u8 *page, int token) {
        int lane = lane_id();
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            *(u32 *)(page + ((2 * i + lane / 16) * PAGE + token) * 64 + lane % 16 * 4) = pack_f16(within_f16(h.v[i].x), within_f16(h.v[i].y));
    }
    static __device__ __forceinline__ void add_scores(float (&score)[4], uint4 low, uint4 high, const u8 *keys, int block, int tile) {
        int lane = lane_id(), g = lane / 4, t = lane % 4, token = g / 2 * 8 + tile * 2 + g % 2;
        uint4 k = *(const uint4 *)(keys + (block * PAGE + token) * 64 + t * 16);
        mma_eight(score, low, high, k.x, k.y, k.z, k.w);
    }
};

struct KeysQ8 {
    static constexpr bool F16 = false;
    static constexpr int CODES = D * PAGE, BYTES = CODES + SCALE_BYTES;

    static __device__ __forceinline__ void store(Head h, u8 *page, int token) {
        int lane = lane_id();
        hadamard_head(h);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            float2 v = h.v[i];
            u32 scale = pack_f16(half_warp_max(fmaxf(fabsf(v.x), fabsf(v.y))) * (1.0f / 127.0f), 0);
            float d = low_half(scale);
            u32 two = (q8_code(v.x, d) & 0xff) | (q8_code(v.y, d) & 0xff) << 8;
            *(u16 *)(page + ((i * PAGE + token) * 4 + lane % 16 / 4) * 16 + lane / 16 * 8 + lane % 4 * 2) = (u16)two;
            store_scale(page + CODES, 2 * i + lane / 16, token, scale, all_numbers(v));
        }
    }
    static __device__ __forceinline__ void add_scores(float (&score)[4], uint4 low, uint4 high, const u8 *keys, int block, int tile) {
        int lane = lane_id(), g = lane / 4, t = lane % 4, token = g / 2 * 8 + tile * 2 + g % 2;
        uint2 codes = *(const uint2 *)(keys + (block / 2 * PAGE + token) * 64 + t * 16 + block % 2 * 8);
        u32 scales = *(const u32 *)(keys + CODES + block * 64 + t * 16 + tile * 4), k[4];
        q8_to_f16(codes.x, k[0], k[1]);
        q8_to_f16(codes.y, k[2], k[3]);
        float c[4] = {}, s0 = low_half(scales), s1 = high_half(scales);
        mma_eight(c, low, high, k[0], k[1], k[2], k[3]);
        score[0] = __fmaf_rn(c[0], s0, score[0]), score[1] = __fmaf_rn(c[1], s1, score[1]);
        if (GQ > 8) score[2] = __fmaf_rn(c[2], s0, score[2]), score[3] = __fmaf_rn(c[3], s1, score[3]);
    }
    template <int N_THREADS, class Put> static __device__ __forceinline__ void expand(const u8 *from, int thread, const Put &put) {
#pragma unroll 2
        for (int n = thread; n < CODES / 16; n += N_THREADS) {
            uint4 codes = *(const uint4 *)(from + n * 16);
            int t = n % 4, token = n / 4 % PAGE, pair = n / 4 / PAGE;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 d = *(const u16 *)(from + CODES + ((2 * pair + half) * PAGE + token) * 2), k[4];
                d |= d << 16;
                q8_to_f16(half ? codes.z : codes.x, k[0], k[1]);
                q8_to_f16(half ? codes.w : codes.y, k[2], k[3]);
                put(2 * pair + half, token, t, make_uint4(mul_f16x2(k[0], d), mul_f16x2(k[1], d), mul_f16x2(k[2], d), mul_f16x2(k[3], d)));
            }
        }
    }
};

// ---- Values ----
//
//   store, expand            as of keys; put(dim, t, tokens 8t..)
//   LIFT                     what outputs are divided by
//   take_scales(...)         multiplies a page's scales of `unit` (16 dims) into the weights; with `masked`, of tokens up to `last` alone: a
//                            weight of zero does not make up for what is no number in a place not written yet
//   add(...)                 adds a page's values of a unit, times the weights, to a lane's outputs; `masked` likewise

struct ValuesF16 {
    static constexpr bool F16 = true;
    static constexpr int BYTES = D * PAGE * 2;
    static constexpr float LIFT = 1.0f;

    static __device__ __forceinline__ void store(const Head &h, u8 *page, int token) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            int d = 64 * i + 2 * lane_id();
            u32 two = pack_f16(within_f16(h.v[i].x), within_f16(h.v[i].y));
            *(u16 *)(page + (d * PAGE + token) * 2) = (u16)two;
            *(u16 *)(page + ((d + 1) * PAGE + token) * 2) = (u16)(two >> 16);
        }
    }
    static __device__ __forceinline__ void take_scales(uint4 &, uint4 &, const u8 *, int, bool, int) {}
    static __device__ __forceinline__ void add(float (&o)[2][4], uint4 low, uint4 high, const u8 *values, int unit, bool masks, int last) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 v = *(const uint4 *)(values + (unit * 16 + half * 8) * 64 + lane_id() * 16);
            if (masks) v = masked(v, token_mask(last));
            mma_eight(o[half], low, high, v.x, v.y, v.z, v.w);
        }
    }
};

// What values with scales have in common: `FORMAT` has CODES, the codes of a lane (Codes) and how half of them become f16 (half_of).
template <class FORMAT> struct ScaledValues {
    static constexpr bool F16 = false;
    static constexpr float LIFT = V_LIFT;

    static __device__ __forceinline__ void take_scales(uint4 &low, uint4 &high, const u8 *values, int unit, bool masks, int last) {
        uint4 d = *(const uint4 *)(values + FORMAT::CODES + unit / 2 * 64 + lane_id() % 4 * 16);
        if (masks) d = masked(d, token_mask(last));
        d.x = mul_f16x2(d.x, V_LIFT_F16X2), d.y = mul_f16x2(d.y, V_LIFT_F16X2);
        d.z = mul_f16x2(d.z, V_LIFT_F16X2), d.w = mul_f16x2(d.w, V_LIFT_F16X2);
        low = make_uint4(mul_f16x2(low.x, d.x), mul_f16x2(low.y, d.y), mul_f16x2(low.z, d.z), mul_f16x2(low.w, d.w));
        if (GQ > 8) high = make_uint4(mul_f16x2(high.x, d.x), mul_f16x2(high.y, d.y), mul_f16x2(high.z, d.z), mul_f16x2(high.w, d.w));
    }
    static __device__ __forceinline__ void add(float (&o)[2][4], uint4 low, uint4 high, const u8 *values, int unit, bool, int) {
        using Codes = typename FORMAT::Codes;
        Codes v = *(const Codes *)(values + (unit * WARP + lane_id()) * sizeof(Codes));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 b[4];
            FORMAT::half_of(v, half, b);
            mma_eight(o[half], low, high, b[0], b[1], b[2], b[3]);
        }
    }
    template <int N_THREADS, class Put> static __device__ __forceinline__ void expand(const u8 *from, int thread, const Put &put) {
        using Codes = typename FORMAT::Codes;
#pragma unroll 2
        for (int n = thread; n < D / 16 * WARP; n += N_THREADS) {
            int t = n % 4, g = n / 4 % 8, unit = n / WARP;
            uint4 d = *(const uint4 *)(from + FORMAT::CODES + unit / 2 * 64 + t * 16);
            Codes codes = *(const Codes *)(from + n * sizeof(Codes));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 v[4];
                FORMAT::half_of(codes, half, v);
                put(unit * 16 + half * 8 + g, t, make_uint4(mul_f16x2(v[0], d.x), mul_f16x2(v[1], d.y), mul_f16x2(v[2], d.z), mul_f16x2(v[3], d.w)));
            }
        }
    }
};

struct ValuesQ8 : ScaledValues<ValuesQ8> {
    static constexpr int CODES = D * PAGE, BYTES = CODES + SCALE_BYTES;
    using Codes = uint4;

    static __device__ __forceinline__ void half_of(uint4 codes, int half, u32 (&v)[4]) {
        q8_to_f16(half ? codes.z : codes.x, v[0], v[1]);
        q8_to_f16(half ? codes.w : codes.y, v[2], v[3]);
    }
    static __device__ __forceinline__ void store(const Head &h, u8 *page, int token) {
        int lane = lane_id();
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            float2 v = h.v[i];
            int d = 64 * i + 2 * lane;
            bool numbers = all_numbers(v);
            u32 scale = pack_f16(fminf(half_warp_max(fmaxf(fabsf(v.x), fabsf(v.y))) * (1.0f / 127.0f), V_SCALE_MAX), 0);
            float s = low_half(scale);
            u8 *at = page + ((d / 16 * 8 + d % 8) * 4 + token / 8) * 16 + d / 8 % 2 * 8 + token % 8;
            at[0] = (u8)q8_code(v.x, s), at[64] = (u8)q8_code(v.y, s);
            store_scale(page + CODES, 2 * i + lane / 16, token, scale, numbers);
        }
    }
};

struct ValuesQ4 : ScaledValues<ValuesQ4> {
    static constexpr int CODES = D * PAGE / 2, BYTES = CODES + SCALE_BYTES;
    using Codes = uint2;

    static __device__ __forceinline__ void half_of(uint2 codes, int half, u32 (&v)[4]) {
        q4_to_f16(codes.x >> 4 * half, v[0], v[1]);
        q4_to_f16(codes.y >> 4 * half, v[2], v[3]);
    }
    static __device__ __forceinline__ void store(const Head &h, u8 *page, int token) {
        int lane = lane_id();
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            float2 v = h.v[i];
            int d = 64 * i + 2 * lane;
            bool numbers = all_numbers(v);
            // The value of the largest magnitude is code 0, as in Q4_0.
            float top = half_warp_max(fmaxf(v.x, v.y)), bottom = half_warp_max(fmaxf(-v.x, -v.y));
            float most = bottom > top ? bottom : -top;
            u32 scale = pack_f16(fmaxf(fminf(most * 0.125f, V_SCALE_MAX), -V_SCALE_MAX), 0);
            float s = low_half(scale);
            int x = s == 0.0f ? 8 : max(0, min(15, __float2int_rn(__fdiv_rn(v.x, s)) + 8));
            int y = s == 0.0f ? 8 : max(0, min(15, __float2int_rn(__fdiv_rn(v.y, s)) + 8));
            u32 other = __shfl_xor_sync(~0u, x | y << 4, 4);
            u8 *at = page + ((d / 16 * 8 + d % 8) * 4 + token / 8) * 8 + token % 8;
            if (lane % 8 < 4) at[0] = (u8)(x | (other & 15) << 4), at[32] = (u8)(y | (other >> 4) << 4);
            store_scale(page + CODES, 2 * i + lane / 16, token, scale, numbers);
        }
    }
};

// ---- Those of this program ----

template <int TYPE> struct KeysOf {
    using Format = KeysQ8;
};
template <> struct KeysOf<0> {
    using Format = KeysF16;
};
template <int TYPE> struct ValuesOf {
    using Format = ValuesQ4;
};
template <> struct ValuesOf<0> {
    using Format = ValuesF16;
};
template <> struct ValuesOf<1> {
    using Format = ValuesQ8;
};
using Keys = KeysOf<K_TYPE>::Format;
using Values = ValuesOf<V_TYPE>::Format;

// A page of a format with scales to f16, by N_THREADS threads.
template <class FORMAT, int N_THREADS, class Put> __device__ __forceinline__ void expand_page(const u8 *from, int thread, const Put &put) {
    if constexpr (!FORMAT::F16) FORMAT::template expand<N_THREADS>(from, thread, put);
}

// Queries carry the softmax's scale, and that of its base 2; they are turned as keys are.
__device__ __forceinline__ void finish_query(Head &h, float scale) {
    if constexpr (!Keys::F16) hadamard_head(h);
    scale_head(h, scale);
}
