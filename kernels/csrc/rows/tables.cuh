// How token tables are encoded: a struct an encoding, with the values and bytes of a block and how four neighbouring values of a row are read.
// Products and sums are rounded one by one, as the definition's are (reference::table_row).
#pragma once
#include "common/base.cuh"

__device__ __forceinline__ float half_at(const u8 *p) { return f16_to_f32(*(const u16 *)p); }

// Six-bit scale and minimum of group g of 8.
__device__ __forceinline__ void scale_min(const u8 *s, int g, float &scale, float &min) {
    int sc = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    int mn = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    scale = (float)sc, min = (float)mn;
}

//   VALUES, BYTES   of a block
//   decode          values `first` to `first` + 3 of the row at `row`, `first` a multiple of four

struct TableF32 {
    static constexpr int VALUES = 1, BYTES = 4;

    static __device__ __forceinline__ float4 decode(const u8 *row, int first) { return *(const float4 *)(row + first * 4); }
};

struct TableF16 {
    static constexpr int VALUES = 1, BYTES = 2;

    static __device__ __forceinline__ float4 decode(const u8 *row, int first) {
        float v[4];
        for (int i = 0; i < 4; i++) v[i] = half_at(row + (first + i) * 2);
        return make_float4(v[0], v[1], v[2], v[3]);
    }
};

struct TableBf16 {
    static constexpr int VALUES = 1, BYTES = 2;

    static __device__ __forceinline__ float4 decode(const u8 *row, int first) {
        float v[4];
        for (int i = 0; i < 4; i++) v[i] = __uint_as_float((u32) * (const u16 *)(row + (first + i) * 2) << 16);
        return make_float4(v[0], v[1], v[2], v[3]);
    }
};

struct TableQ8_0 {
    static constexpr int VALUES = 32, BYTES = 34;

    static __device__ __forceinline__ float4 decode(const u8 *row, int first) {
        const u8 *b = row + first / VALUES * BYTES;
        float d = half_at(b), v[4];
        for (int i = 0; i < 4; i++) v[i] = __fmul_rn(d, (float)(i8)b[2 + first % 32 + i]);
        return make_float4(v[0], v[1], v[2], v[3]);
    }
};

struct TableQ4_0 {
    static constexpr int VALUES = 32, BYTES = 18;

    static __device__ __forceinline__ float4 decode(const u8 *row, int first) {
        const u8 *b = row + first / VALUES * BYTES;
        float d = half_at(b), v[4];
        for (int i = 0; i < 4; i++) {
            int code = b[2 + first % 16 + i] >> (first % 32 / 16 * 4) & 15;
            v[i] = __fmul_rn(d, (float)(code - 8));
        }
        return make_float4(v[0], v[1], v[2], v[3]);
    }
};

// Four bits, and with FIVE a fifth, which lie ahead of them.
template <bool FIVE> struct TableK {
    static constexpr int VALUES = 256, BYTES = FIVE ? 176 : 144;

    static __device__ __forceinline__ float4 decode(const u8 *row, int first) {
        const u8 *b = row + first / VALUES * BYTES, *codes = b + (FIVE ? 48 : 16);
        int g = first % 256 / 32, l = first % 32;
        float sc, mn, v[4];
        scale_min(b + 4, g, sc, mn);
        float scale = __fmul_rn(half_at(b), sc), min = __fmul_rn(half_at(b + 2), mn);
        for (int i = 0; i < 4; i++) {
            int code = codes[32 * (g / 2) + l + i] >> (g % 2 * 4) & 15;
            if constexpr (FIVE) code |= (b[16 + l + i] >> g & 1) << 4;
            v[i] = __fsub_rn(__fmul_rn(scale, (float)code), min);
        }
        return make_float4(v[0], v[1], v[2], v[3]);
    }
};

struct TableQ6_K {
    static constexpr int VALUES = 256, BYTES = 210;

    static __device__ __forceinline__ float4 decode(const u8 *row, int first) {
        const u8 *b = row + first / VALUES * BYTES;
        int e = first % 256, n = e / 128, r = e % 128 / 32, l = e % 32;
        float scale = __fmul_rn(half_at(b + 208), (float)(i8)b[192 + 8 * n + 2 * r + l / 16]), v[4];
        for (int i = 0; i < 4; i++) {
            int low = b[64 * n + 32 * (r & 1) + l + i] >> (r / 2 * 4) & 15;
            int high = b[128 + 32 * n + l + i] >> (2 * r) & 3;
            v[i] = __fmul_rn(scale, (float)((low | high << 4) - 32));
        }
        return make_float4(v[0], v[1], v[2], v[3]);
    }
};

template <int ENCODED> struct TableOf;
template <> struct TableOf<0> : TableF32 {};
template <> struct TableOf<1> : TableF16 {};
template <> struct TableOf<2> : TableBf16 {};
template <> struct TableOf<3> : TableQ8_0 {};
template <> struct TableOf<4> : TableQ4_0 {};
template <> struct TableOf<5> : TableK<false> {};
template <> struct TableOf<6> : TableK<true> {};
template <> struct TableOf<7> : TableQ6_K {};

// The widest word that every row of so many bytes starts at.
template <int BYTES, bool BY16 = BYTES % 16 == 0, bool BY4 = BYTES % 4 == 0> struct WordOf {
    using Word = u16;
};
template <int BYTES> struct WordOf<BYTES, true, true> {
    using Word = uint4;
};
template <int BYTES> struct WordOf<BYTES, false, true> {
    using Word = u32;
};
