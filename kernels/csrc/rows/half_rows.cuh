// Rows of f16 for wide/warpgroup.cu, made of int8 ones (common/int8_rows.cuh): y = x 2^-e, where e is such that the largest block of a row has
// values up to 2^14 to 2^15; products of a row are multiplied by 2^e.
//
// They lie as its matrix instruction wants them in shared memory: of 64 inputs at a time all rows, 128 bytes each, whose pieces of 16
// bytes change places by the row's number (the 128-byte swizzle). Within each 16 inputs the order is that of weights/halves.cuh.
#pragma once
#include "common/int8_rows.cuh"

// 2^-e and 2^e.
struct HalfScale {
    float down, up;
};
// Of a row whose blocks have this scale at most.
__device__ __forceinline__ HalfScale half_scale(float scale) {
    float top = scale * 127.0f;
    // Exponents of f32: that of the largest value, of 2^-e and of 2^e. Scales of int8 blocks are 0 or above 1e-32.
    int exponent = top > 0 ? (int)(__float_as_uint(top) >> 23) : 127 + 14;
    return {__uint_as_float((u32)(2 * 127 + 14 - exponent) << 23), __uint_as_float((u32)(exponent - 14) << 23)};
}

// Where piece `c` of a row's, eight values, begins. `rows`: of all.
__device__ __forceinline__ u64 half_place(u32 c, u64 row, u64 rows) { return (c / 8 * rows + row) * 64 + ((c ^ (u32)row) & 7) * 8; }

// Of a quad of codes, which lie in a word, the first and third (`odd` 0) or the second and fourth. A conversion of integers would go through a
// much slower unit.
__device__ __forceinline__ u32 half_pair(u32 quad, int odd, float scale) {
    auto code = [&](int i) { return __uint_as_float(__byte_perm(quad ^ 0x80808080u, MAGIC_BITS, 0x7650 | i)) - (MAGIC + 128); };
    return pack_f16(code(odd) * scale, code(odd + 2) * scale);
}

#ifdef HIDDEN_FACTOR
// Rows that one launch makes for the product behind it and for nobody else have no scale of their own: y = x / HIDDEN_FACTOR, a power of
// two, by which all products of such rows are multiplied.
__device__ __forceinline__ u32 hidden_pair(float a, float b) { return pack_f16(a * (1.0f / HIDDEN_FACTOR), b * (1.0f / HIDDEN_FACTOR)); }

// By four lanes 32 values of row `row` of `rows`, from value `first` on: lane t's are 4t.. (`a`) and 16 + 4t.. (`b`).
__device__ __forceinline__ void put_hidden_quads(u16 *halves, u64 row, u64 rows, u32 first, float4 a, float4 b) {
    const u32 t = threadIdx.x % 4, piece = first / 8;
    auto put = [&](u32 piece, u32 two) { *(u32 *)(halves + half_place(piece, row, rows) + 2 * t) = two; };
    put(piece, hidden_pair(a.x, a.z)), put(piece + 1, hidden_pair(a.y, a.w));
    put(piece + 2, hidden_pair(b.x, b.z)), put(piece + 3, hidden_pair(b.y, b.w));
}

// By four lanes eight values from `first` on: lane t's are 2t and 2t + 1. Those with even numbers lie beside one another, and the others.
// Every lane of the warp calls it; only those with `store` write.
__device__ __forceinline__ void put_hidden_octet(u16 *halves, u64 row, u64 rows, u32 first, u32 two, bool store) {
    const u32 t = threadIdx.x % 4, other = __shfl_xor_sync(~0u, two, 1);
    const u32 alike = t % 2 == 0 ? __byte_perm(two, other, 0x5410) : __byte_perm(other, two, 0x7632);
    if (store) *(u32 *)(halves + half_place(first / 16 * 2 + t % 2, row, rows) + first % 16 / 2 + t / 2 * 2) = alike;
}
#endif
