// Weights as f16 operands of matrix instructions, from codes in registers. The includer says which: W, a matrix's Weights<...>, CODES and
// SCALES (layout.cuh).
//
// A weight is 256 w in f16: its scale times 256 rounded, times a code that is exact, rounded; with a minimum, less that rounded. 256 keeps
// the scales of trained matrices among f16's normal numbers; a weight of 256 and more becomes infinite, and so do its outputs. Where rows have
// factors of their own, which multiply sums, a weight is its scale times its code, which is exact in every such layout. Of 16 bits a weight is
// the high byte times 256 scales, plus the low byte times the scale rounded, rounded.
//
// Within each 16 inputs the values lie in the order 0 2 4 6 8 10 12 14 1 3 5 7 9 11 13 15: lane t of a row's four has codes of the inputs
// 4t to 4t + 3, and what the instruction takes of it for inputs 2t, 2t + 1, 8 + 2t and 9 + 2t are the first, third, second and fourth.
#pragma once
#include "weights/layout.cuh"

// What weights are multiplied by, whose readers take it back; and by what before they become f16.
#define WEIGHT_FACTOR 256.0f
#define RAISED_BY (W::HAS_FACTORS ? 1.0f : WEIGHT_FACTOR)

// Bits of `a` where `mask` has ones, else of `b`; and `bits` with those of `ones` the other way round. As instructions: the compiler would
// exchange them with masks and shifts until they are more.
__device__ __forceinline__ u32 selected(u32 mask, u32 a, u32 b) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r) : "r"(mask), "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 flipped(u32 bits, u32 ones) {
    u32 r;
    asm("xor.b32 %0, %1, %2;" : "=r"(r) : "r"(bits), "r"(ones));
    return r;
}
// 256 times two halves.
__device__ __forceinline__ u32 raised(u32 two) { return mul_f16x2(two, 0x5c005c00u); }

// A block's scales and minima for rows g and g + 8, each twice: of the first 16 inputs, and of the others where they have their own. Of 16 bits
// the scale of the high bytes takes the minimum's place.
struct HalfScales {
    u32 s[2][W::OF_HALVES ? 2 : 1], m[2];

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
        } else if constexpr (SCALES == S_HALVES) {
            // Factors have eight bits and a sign, one for each half block: times the scale that 256 inputs share they are rounded once.
            const u32 bytes = word(w.scales, b) ^ 0x80808080u, groups = raised(w.group.x);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 factors = sub_f16x2(__byte_perm(bytes, 0x64646464u, r == 0 ? 0x4140 : 0x4342), 0x64806480u);
                u32 two = mul_f16x2(factors, r == 0 ? low_twice(groups) : high_twice(groups));
                s[r][0] = low_twice(two), s[r][1] = high_twice(two);
            }
        } else if constexpr (SCALES == S_E4M3) {
            const uint2 two = halves_of_e4m3(word(w.scales, b));
            s[0][0] = low_twice(two.x), s[0][1] = high_twice(two.x);
            s[1][0] = low_twice(two.y), s[1][1] = high_twice(two.y);
        } else {
            W::Scale of = W::scale_of(w, b);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                s[r][0] = pack_f16(of.s[r] * RAISED_BY, of.s[r] * RAISED_BY);
                if constexpr (CODES == WORD) m[r] = pack_f16(of.s[r] * (RAISED_BY * 256), of.s[r] * (RAISED_BY * 256));
            }
        }
    }
};

// A block's codes as f16: for quad t and quad t + 4 (`half`) of rows g and g + 8 the first and third, then the second and fourth. 0x64 above
// a byte is 1024 plus that byte. Of 16 bits the high bytes, and behind them, as rows 4 and 5, the low ones.
struct HalfCodes {
    u32 codes[CODES == WORD ? 8 : 4];

    __device__ __forceinline__ void set(const W::Unit &w, int b, const u32 *grid) {
        if constexpr (CODES == NIBBLE || CODES == E2M1) {
            codes[0] = word(w.codes[b / 2], b % 2 * 2), codes[1] = word(w.codes[b / 2], b % 2 * 2 + 1);
        } else if constexpr (CODES == SIX) {
            // Codes are offset by 32. Of the plane's pairs every other is cleared, so that none lies above one that goes to bits 4 and 5.
            u32 first = word(w.codes[b / 2], b % 2 * 2), second = word(w.codes[b / 2], b % 2 * 2 + 1);
            u32 plane = flipped(word(w.plane, b), 0xaaaaaaaau);
            u32 of_first = selected(0x33333333u, plane, 0), of_second = selected(0xccccccccu, plane, 0);
            codes[0] = selected(0x0f0f0f0fu, first, of_first << 4), codes[1] = selected(0x0f0f0f0fu, second, of_second << 2);
            codes[2] = selected(0x0f0f0f0fu, first >> 4, of_first), codes[3] = selected(0x0f0f0f0fu, second >> 4, of_second >> 2);
        } else if constexpr (CODES == E4M3) {
#pragma unroll
            for (int i = 0; i < 4; i++) codes[i] = word(w.codes[b], i);
        } else {
            W::Operand of = W::expand(w, b, grid);
#pragma unroll
            for (int i = 0; i < (CODES == WORD ? 8 : 4); i++) codes[i] = CODES == FIVE ? of.a[0][i] : of.a[i / 4][i % 4] ^ 0x80808080u;
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
        } else if constexpr (CODES == E2M1) {
            const uint2 two = halves_of_e2m1<HALF>(codes[row]);
            even = two.x, odd = two.y;
        } else if constexpr (CODES == E4M3) {
            const uint2 two = halves_of_e4m3(codes[2 * HALF + row]);
            even = two.x, odd = two.y;
        } else {
            constexpr u32 ZERO = CODES == FIVE ? 0x64006400u : CODES == SIX ? 0x64206420u : 0x64806480u;
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
            u32 even, odd, scale = scales.s[r][W::OF_HALVES ? HALF : 0];
            codes.get<HALF>(r, even, odd);
            if constexpr (SCALES == S_MIN) {
                a[r] = fma_f16x2(even, scale, scales.m[r]), a[2 + r] = fma_f16x2(odd, scale, scales.m[r]);
            } else if constexpr (CODES == WORD) {
                u32 low_even, low_odd;
                codes.get<HALF>(4 + r, low_even, low_odd);
                a[r] = fma_f16x2(even, scales.m[r], mul_f16x2(low_even, scale)), a[2 + r] = fma_f16x2(odd, scales.m[r], mul_f16x2(low_odd, scale));
            } else {
                a[r] = mul_f16x2(even, scale), a[2 + r] = mul_f16x2(odd, scale);
            }
        }
    }
};
