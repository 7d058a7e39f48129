// f16 operands of a warpgroup's matrix instruction: weights from codes in registers, activations as rows/halves.cu writes them.
//
// A weight is 256 w in f16: its scale times 256 rounded, times a code that is exact, rounded; with a minimum, less that rounded. 256 keeps
// the scales of trained matrices among f16's normal numbers; a weight of 256 and more becomes infinite, and so do its outputs.
//
// Within each 16 inputs the values lie in the order 0 2 4 6 8 10 12 14 1 3 5 7 9 11 13 15: lane t of a row's four has codes of the inputs
// 4t to 4t + 3, and what the instruction takes of it for inputs 2t, 2t + 1, 8 + 2t and 9 + 2t are the first, third, second and fourth.
#pragma once
#include "wide/stages.cuh"

static_assert(CODES != WORD, "16 bits do not fit into f16");

__device__ __forceinline__ u32 low_twice(u32 two) { return __byte_perm(two, 0, 0x1010); }
__device__ __forceinline__ u32 high_twice(u32 two) { return __byte_perm(two, 0, 0x3232); }
// 256 times two halves.
__device__ __forceinline__ u32 raised(u32 two) { return mul_f16x2(two, 0x5c005c00u); }

// A block's scales and minima for rows g and g + 8, each twice: of the first 16 inputs, and of the others where they have their own.
struct HalfScales {
    u32 s[2][SCALES == S_HALVES ? 2 : 1], m[2];

    __device__ __forceinline__ void set(const W::Unit &w, int b) {
        if constexpr (SCALES == S_F16) {
            u32 two = raised(word(w.scales, b));
            s[0][0] = low_twice(two), s[1][0] = high_twice(two);
        } else if constexpr (SCALES == S_MIN) {
            // Factors have six bits: times the halves beside them they are rounded once.
            u32 bytes = word(w.scales, b);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 factors = sub_f16x2(__byte_perm(bytes, 0x64646464u, r == 0 ? 0x4140 : 0x4342), 0x64006400u);
                u32 two = mul_f16x2(factors, raised(word(w.group, r) ^ 0x80000000u));
                s[r][0] = low_twice(two), m[r] = high_twice(two);
            }
        } else {
            W::Scale of = W::scale_of(w, b);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                s[r][0] = pack_f16(of.s[r] * WEIGHT_FACTOR, of.s[r] * WEIGHT_FACTOR);
                if constexpr (SCALES == S_HALVES) s[r][1] = pack_f16(of.s1[r] * WEIGHT_FACTOR, of.s1[r] * WEIGHT_FACTOR);
            }
        }
    }
};

// A block's codes as f16: for quad t and quad t + 4 (`half`) of rows g and g + 8 the first and third, then the second and fourth. 0x64 above
// a byte is 1024 plus that byte.
struct HalfCodes {
    u32 codes[4];

    __device__ __forceinline__ void set(const W::Unit &w, int b, const u32 *grid) {
        if constexpr (CODES == NIBBLE) {
            codes[0] = word(w.codes[b / 2], b % 2 * 2), codes[1] = word(w.codes[b / 2], b % 2 * 2 + 1);
        } else {
            W::Operand of = W::expand(w, b, grid);
#pragma unroll
            for (int i = 0; i < 4; i++) codes[i] = CODES == FIVE ? of.a[0][i] : of.a[0][i] ^ 0x80808080u;
        }
    }
    template <int HALF> __device__ __forceinline__ void get(int row, u32 &even, u32 &odd) const {
        if constexpr (CODES == NIBBLE) {
            u32 all = codes[row], next = all >> 8;
            if constexpr (HALF == 0) {
                even = sub_f16x2(all & 0x000f000fu | 0x64006400u, 0x64006400u), odd = sub_f16x2(next & 0x000f000fu | 0x64006400u, 0x64006400u);
            } else {
                // 1024 + 16 q, times 1 / 16, less 64.
                even = fma_f16x2(all & 0x00f000f0u | 0x64006400u, 0x2c002c00u, 0xd400d400u);
                odd = fma_f16x2(next & 0x00f000f0u | 0x64006400u, 0x2c002c00u, 0xd400d400u);
            }
        } else {
            constexpr u32 ZERO = CODES == FIVE ? 0x64006400u : 0x64806480u;
            u32 all = codes[2 * HALF + row];
            even = sub_f16x2(__byte_perm(all, 0x64646464u, 0x4240), ZERO), odd = sub_f16x2(__byte_perm(all, 0x64646464u, 0x4341), ZERO);
        }
    }
};

// Half a block, 16 inputs for 16 rows: what an instruction takes.
struct Fragment {
    u32 a[4];

    template <int HALF> __device__ __forceinline__ void set(const HalfCodes &codes, const HalfScales &scales) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            u32 even, odd, scale = scales.s[r][SCALES == S_HALVES ? HALF : 0];
            codes.get<HALF>(r, even, odd);
            if constexpr (SCALES == S_MIN) {
                a[r] = fma_f16x2(even, scale, scales.m[r]), a[2 + r] = fma_f16x2(odd, scale, scales.m[r]);
            } else {
                a[r] = mul_f16x2(even, scale), a[2 + r] = mul_f16x2(odd, scale);
            }
        }
    }
};
