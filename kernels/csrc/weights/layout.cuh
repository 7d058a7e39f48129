// How quantised matrices are read and multiplied: the device's side of layout.rs, which says how they lie in memory.
//
// A tile is 16 output rows, a unit 128 inputs of a tile, a block 32 of them. Lane (g, t) = (lane / 4, lane % 4) holds the quads t
// and t + 4 of each block of rows g and g + 8. A block's sum is an exact integer i; then, in f32, with d and sum those of the
// activations (quantize_block) and s, m those of the weights:
//   scale only        t = i * s                      acc = fma(t, d, acc)
//   with a minimum    the same, and behind a unit's four blocks acc = fma(-dmin, sum over blocks of m * (d * sum), acc)
//   a scale per half  t = fma(i1, s1, i0 * s0)       the same
//   16 bits           t = fma(i_high, 256, i_low) * s  the same
//   8-bit floats      t = i * s, where i is the sum that two matrix instructions in f16 leave, of 16 products each
//   4-bit floats      t = i, likewise, of weights that have been multiplied with their scales, which is exact
// A matrix whose rows have factors of their own multiplies finished sums with them: (sum over all inputs) * row, then what the reader's
// epilogue multiplies with.
// so that whoever multiplies gives the same bits, in whatever shape of tiles. A second plane of activations is a block like the first,
// which follows it with the same weights.
#pragma once
#include "common/int8_rows.cuh"

// Units in shared memory begin at multiples of this. A line of memory that comes to lie across two lines there is asked for twice: nothing
// on the card, but over the bus (PLACED) up to 1.75 times the bytes.
#if PLACED
#define STAGED_AT 128
#else
#define STAGED_AT 16
#endif

enum Codes { BYTE, NIBBLE, TABLE, FIVE, SIX, WORD, GRID, SIGNED_FIVE, E4M3, ZEROED, E2M1 };
enum Scales { S_F16, S_BF16, S_MIN, S_BYTE, S_HALVES, S_NIBBLE, S_E4M3, S_EIGHTS, S_ZERO };

// Words of shared memory that hold the grid, where a layout has one.
#define GRID_WORDS 512
#if WITH_GRID
#include "weights/iq3_s_grid.cuh"
// Called by all threads of a block; a barrier must follow before it is read. Reads nothing that another kernel writes.
__device__ __forceinline__ void fetch_grid(u32 *grid) {
    for (int i = threadIdx.x; i < GRID_WORDS; i += blockDim.x) grid[i] = __ldg(IQ3_S_GRID + i);
}
#else
__device__ __forceinline__ void fetch_grid(u32 *) {}
#endif

__device__ __forceinline__ u32 word(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ __forceinline__ u32 word(uint2 v, int i) { return i == 0 ? v.x : v.y; }
// Byte i of a word, signed, if all bytes have been offset by 128.
__device__ __forceinline__ float byte_at(u32 offset, int i) { return __uint_as_float(__byte_perm(offset, MAGIC_BITS, 0x7650 | i)) - (MAGIC + 128); }
__device__ __forceinline__ float exact(int sum) { return __int_as_float(sum) - MAGIC; }

// A number, and what it leaves of itself, for a matrix instruction that ignores of both what exceeds eleven bits.
__device__ __forceinline__ float2 in_two(float x) { return make_float2(x, x - __uint_as_float(__float_as_uint(x) & 0xffffe000)); }

// d * sum of the planes of a block, whose {d, sum} lie `stride` apart.
__device__ __forceinline__ float scaled_sum(const float2 *meta, int stride) {
    float x = meta[0].x * meta[0].y;
    return PLANES > 1 ? __fmaf_rn(meta[stride].x, meta[stride].y, x) : x;
}

// As moves of halves, which instructions that read such a pair do themselves.
__device__ __forceinline__ u32 low_twice(u32 two) {
    u32 r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(r) : "r"(two));
    return r;
}
__device__ __forceinline__ u32 high_twice(u32 two) {
    u32 r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(r) : "r"(two));
    return r;
}

// Four 8-bit floats (E4M3) as f16: the first two, then the others.
__device__ __forceinline__ uint2 halves_of_e4m3(u32 four) {
    uint2 two;
#if __CUDA_ARCH__ >= 890
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}" : "=r"(two.x), "=r"(two.y) : "r"(four));
#else
    // Sign, exponent and mantissa where f16 has them are 1 / 256 of the number: f16's exponents begin 8 lower.
    auto moved = [](u32 v) { return mul_f16x2(v & 0x80008000u | v >> 1 & 0x3f803f80u, 0x5c005c00u); };
    two.x = moved(__byte_perm(four, 0, 0x1404)), two.y = moved(__byte_perm(four, 0, 0x3424));
#endif
    return two;
}
// Two quads of 4-bit floats (E2M1), packed for this, as f16: of quad HALF the first and third, then the second and fourth, as everywhere where
// floats are multiplied. Each is 2^-14 of itself, because exponent and mantissa stand where f16 has its lowest exponents.
template <int HALF> __device__ __forceinline__ uint2 halves_of_e2m1(u32 two) {
    const u32 quad = HALF == 0 ? two : two >> 3 & 0x0e0e0e0eu | two << 7 & 0x80808080u;
    return make_uint2(quad & 0x8e008e00u, quad << 8 & 0x8e008e00u);
}
// A quad of signed bytes as f16, likewise.
__device__ __forceinline__ uint2 halves_of_bytes(u32 four) {
    const u32 offset = four ^ 0x80808080u;
    return make_uint2(sub_f16x2(__byte_perm(offset, 0x64646464u, 0x4240), 0x64806480u), sub_f16x2(__byte_perm(offset, 0x64646464u, 0x4341), 0x64806480u));
}

// A matrix of rows of so many inputs. L0..L3: levels of a table, four bytes each. OWN_FACTORS: whether each row has a factor of its own.
template <int CODE, int SCALE, int INPUTS, u32 L0 = 0, u32 L1 = 0, u32 L2 = 0, u32 L3 = 0, bool OWN_FACTORS = false> struct Weights {
    static constexpr int UNITS = INPUTS / 128;
    static constexpr bool HAS_MINIMA = SCALE == S_MIN;
    // Whether each half of a block has a scale of its own.
    static constexpr bool OF_HALVES = SCALE == S_HALVES || SCALE == S_E4M3;
    static constexpr bool HAS_FACTORS = OWN_FACTORS;
    // Whether codes are floats, which are multiplied in f16; and whether with their scales already.
    static constexpr bool IN_FLOATS = CODE == E4M3 || CODE == E2M1, SCALED = CODE == E2M1;
    static_assert(SCALED == (SCALE == S_E4M3), "scales of 4-bit floats are multiplied into them");
    // Of a unit; vectors are 16 bytes a lane.
    static constexpr int VECTORS = CODE == WORD ? 8 : CODE == BYTE || CODE == E4M3 ? 4 : CODE == GRID ? 1 : 2;
    static constexpr int CODE_BYTES = VECTORS * 512;
    static constexpr int PLANE_BYTES = CODE == FIVE || CODE == SIGNED_FIVE ? 256 : CODE == SIX ? 512 : CODE == GRID ? 320 : 0;
    static constexpr int SCALE_BYTES = SCALE == S_EIGHTS ? 16 : SCALE == S_NIBBLE ? 32 : SCALE == S_BYTE || SCALE == S_ZERO ? 64 : 128;
    // Of two units.
    static constexpr int GROUP_BYTES = SCALE == S_MIN ? 64 : SCALE == S_BYTE || SCALE == S_NIBBLE || SCALE == S_HALVES ? 32 : 0;

    static constexpr int PLANES_AT = UNITS * CODE_BYTES;
    static constexpr int SCALES_AT = PLANES_AT + UNITS * PLANE_BYTES;
    static constexpr int GROUPS_AT = SCALES_AT + UNITS * SCALE_BYTES;
    // Of the tile's 16 rows, f32.
    static constexpr int FACTORS_AT = (GROUPS_AT + (UNITS + 1) / 2 * GROUP_BYTES + 63) / 64 * 64;
    static constexpr int TILE_BYTES = FACTORS_AT + (HAS_FACTORS ? 64 : 0);

    // Of a unit that is staged in shared memory: codes, plane, scales and the group that it shares with its neighbour.
    static constexpr int REST_BYTES = PLANE_BYTES + SCALE_BYTES + GROUP_BYTES;
    static constexpr int STAGED_BYTES = (CODE_BYTES + REST_BYTES + STAGED_AT - 1) / STAGED_AT * STAGED_AT;

    // What rows `row` to `row` + 3 of a tile are multiplied with, `row` a multiple of 4; and row `row`.
    static __device__ __forceinline__ float4 factors_of(const u8 *tile, int row) {
        if constexpr (HAS_FACTORS) return __ldg((const float4 *)(tile + FACTORS_AT + row * 4));
        else return make_float4(1, 1, 1, 1);
    }
    static __device__ __forceinline__ float factor_of(const u8 *tile, int row) {
        if constexpr (HAS_FACTORS) return __ldg((const float *)(tile + FACTORS_AT) + row);
        else return 1;
    }
    // Finished sums times the factors of their rows, where they have some.
    static __device__ __forceinline__ float times_factor(float sum, float factor) {
        if constexpr (HAS_FACTORS) return __fmul_rn(sum, factor);
        else return sum;
    }
    // By one warp: a tile's factors to where it lies in another place.
    static __device__ __forceinline__ void put_factors(u8 *to, const u8 *tile) {
        if constexpr (HAS_FACTORS)
            if (threadIdx.x % WARP < 4) put16(to + FACTORS_AT + threadIdx.x % WARP * 16, __ldg((const uint4 *)(tile + FACTORS_AT) + threadIdx.x % WARP));
    }

    // Of one lane. Members that a layout does not have are never touched, so they cost nothing.
    struct Unit {
        uint4 codes[VECTORS];
        uint4 plane;
        u32 high; // of a grid: bit 8 of each index
        uint4 scales;
        uint2 group;
    };

    static __device__ __forceinline__ void load(Unit &w, const u8 *tile, int unit) {
        int lane = threadIdx.x % WARP, g = lane / 4;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) w.codes[v] = stream16(tile + (unit * VECTORS + v) * 512 + lane * 16);
        const u8 *planes = tile + PLANES_AT + unit * PLANE_BYTES;
        if constexpr (CODE == SIX) w.plane = stream16(planes + lane * 16);
        if constexpr (CODE == FIVE || CODE == SIGNED_FIVE || CODE == GRID) {
            uint2 two = stream8(planes + lane * 8);
            w.plane = make_uint4(two.x, two.y, 0, 0);
        }
        if constexpr (CODE == GRID) w.high = ahead2(planes + 256 + lane * 2);
        const u8 *scales = tile + SCALES_AT + unit * SCALE_BYTES;
        if constexpr (SCALE == S_NIBBLE) {
            w.scales.x = ahead4(scales + g * 4);
        } else if constexpr (SCALE == S_BYTE || SCALE == S_ZERO || SCALE == S_EIGHTS) {
            uint2 two = ahead8(scales + (SCALE == S_EIGHTS ? 0 : g * 8));
            w.scales = make_uint4(two.x, two.y, 0, 0);
        } else {
            w.scales = ahead16(scales + g * 16);
        }
        const u8 *groups = tile + GROUPS_AT + unit / 2 * GROUP_BYTES;
        if constexpr (SCALE == S_MIN) w.group = ahead8(groups + g * 8);
        else if constexpr (GROUP_BYTES > 0) w.group.x = ahead4(groups + g * 4);
    }

    // What a lane copies of a unit beside the codes: 16 bytes of plane, scales or group each time, from where these lie in the first
    // unit, and so many bytes on for each unit, or for each two. Lanes past the last bytes copy these once more, so that there is no branch.
    struct Rest {
        static constexpr int PIECES = (REST_BYTES + 511) / 512;
        u32 to[PIECES], first[PIECES], step[PIECES], each[PIECES];

        __device__ __forceinline__ Rest() {
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                int at = min(i * 512 + (int)threadIdx.x % WARP * 16, REST_BYTES - 16), part = at < PLANE_BYTES ? 0 : at < PLANE_BYTES + SCALE_BYTES ? 1 : 2;
                first[i] = part == 0 ? PLANES_AT + at : part == 1 ? SCALES_AT + at - PLANE_BYTES : GROUPS_AT + at - PLANE_BYTES - SCALE_BYTES;
                step[i] = part == 0 ? PLANE_BYTES : part == 1 ? SCALE_BYTES : GROUP_BYTES;
                each[i] = part == 2, to[i] = CODE_BYTES + at;
            }
        }
    };
    // By a warp: asks for a unit to be copied to shared memory, past L1.
    static __device__ __forceinline__ void fetch(u32 to, const u8 *tile, int unit, const Rest &rest) {
        int lane = threadIdx.x % WARP;
        const u8 *codes = tile + ((u32)unit * CODE_BYTES + lane * 16);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) copy16_once(to + lane * 16 + v * 512, codes + v * 512);
#pragma unroll
        for (int i = 0; i < Rest::PIECES; i++) copy16_once(to + rest.to[i], tile + (rest.first[i] + ((u32)unit >> rest.each[i]) * rest.step[i]));
    }
    // By a warp: writes a unit that `fetch` copied to shared memory where it lies in another tile.
    static __device__ __forceinline__ void put(u8 *tile, int unit, const u8 *from, const Rest &rest) {
        int lane = threadIdx.x % WARP;
        from += lane * 16;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) put16(tile + (unit * VECTORS + v) * 512 + lane * 16, *(const uint4 *)(from + v * 512));
#pragma unroll
        for (int i = 0; i < Rest::PIECES; i++)
            if (i * 512 + lane * 16 < REST_BYTES)
                put16(tile + rest.first[i] + (unit >> rest.each[i]) * rest.step[i], *(const uint4 *)(from + CODE_BYTES + i * 512));
    }
    // Loads from what `fetch` copied, as `load` does from a tile: what `expand` wants, and what `scale_of` does.
    static __device__ __forceinline__ void load_codes(Unit &w, const u8 *from) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) w.codes[v] = *(const uint4 *)(from + v * 512 + lane * 16);
        const u8 *planes = from + CODE_BYTES;
        if constexpr (CODE == SIX) w.plane = *(const uint4 *)(planes + lane * 16);
        if constexpr (CODE == FIVE || CODE == SIGNED_FIVE || CODE == GRID) {
            uint2 two = *(const uint2 *)(planes + lane * 8);
            w.plane = make_uint4(two.x, two.y, 0, 0);
        }
        if constexpr (CODE == GRID) w.high = *(const u16 *)(planes + 256 + lane * 2);
    }
    static __device__ __forceinline__ void load_scales(Unit &w, const u8 *from) {
        int g = threadIdx.x % WARP / 4;
        const u8 *scales = from + CODE_BYTES + PLANE_BYTES;
        if constexpr (SCALE == S_NIBBLE) {
            w.scales.x = *(const u32 *)(scales + g * 4);
        } else if constexpr (SCALE == S_BYTE || SCALE == S_ZERO || SCALE == S_EIGHTS) {
            uint2 two = *(const uint2 *)(scales + (SCALE == S_EIGHTS ? 0 : g * 8));
            w.scales = make_uint4(two.x, two.y, 0, 0);
        } else {
            w.scales = *(const uint4 *)(scales + g * 16);
        }
        load_group(w, from);
    }
    static __device__ __forceinline__ void load_group(Unit &w, const u8 *from) {
        int g = threadIdx.x % WARP / 4;
        const u8 *groups = from + CODE_BYTES + PLANE_BYTES + SCALE_BYTES;
        if constexpr (SCALE == S_MIN) w.group = *(const uint2 *)(groups + g * 8);
        else if constexpr (GROUP_BYTES > 0) w.group.x = *(const u32 *)(groups + g * 4);
    }
    // Of the first two blocks alone, or, for lanes (g, 2) and (g, 3), of the last two, so that `scale_of` finds them as blocks 0 and 1.
    static __device__ __forceinline__ void load_half_of_scales(Unit &w, const u8 *from) {
        // All blocks have these, or weights are multiplied with them.
        if constexpr (SCALE == S_ZERO || SCALE == S_EIGHTS || SCALED) return load_scales(w, from);
        int g = threadIdx.x % WARP / 4, half = threadIdx.x % 4 / 2;
        const u8 *scales = from + CODE_BYTES + PLANE_BYTES;
        if constexpr (SCALE == S_NIBBLE) {
            w.scales.x = *(const u16 *)(scales + g * 4 + half * 2);
        } else if constexpr (SCALE == S_BYTE) {
            w.scales.x = *(const u32 *)(scales + g * 8 + half * 4);
        } else {
            uint2 two = *(const uint2 *)(scales + g * 16 + half * 8);
            w.scales.x = two.x, w.scales.y = two.y;
        }
        load_group(w, from);
    }

    // Eight nibbles, in order, to the signed levels of two quads.
    static __device__ __forceinline__ void look_up(u32 nibbles, u32 &first, u32 &second) {
        u32 low = nibbles & 0x77777777u, pick = (nibbles & 0x88888888u) >> 1 | 0x32103210u;
        first = __byte_perm(__byte_perm(L0, L1, low), __byte_perm(L2, L3, low), pick);
        second = __byte_perm(__byte_perm(L0, L1, low >> 16), __byte_perm(L2, L3, low >> 16), pick >> 16);
    }

    // A block as a matrix instruction takes it: rows g, g + 8 of quad t, then of quad t + 4; of 16 bits, the high and the low bytes; of
    // floats, as f16, the first and third of each quad, then the second and fourth, whose bytes lie in this order.
    struct Operand {
        u32 a[CODE == WORD || IN_FLOATS ? 2 : 1][4];
    };

    // Block b of the unit. `grid`: of `fetch_grid`, or null where there is none.
    static __device__ __forceinline__ Operand expand(const Unit &w, int b, const u32 *grid) {
        Operand o;
        u32(&a)[4] = o.a[0];
        if constexpr (CODE == BYTE || CODE == WORD) {
#pragma unroll
            for (int p = 0; p < VECTORS / 4; p++)
#pragma unroll
                for (int i = 0; i < 4; i++) o.a[p][i] = word(w.codes[p * 4 + b], i);
        } else if constexpr (CODE == E4M3) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint2 two = halves_of_e4m3(word(w.codes[b], i));
                o.a[0][i] = two.x, o.a[1][i] = two.y;
            }
        } else if constexpr (CODE == E2M1) {
            const uint2 scales = halves_of_e4m3(word(w.scales, b));
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const u32 codes = word(w.codes[b / 2], b % 2 * 2 + r), scale = r == 0 ? scales.x : scales.y;
                const uint2 first = halves_of_e2m1<0>(codes), second = halves_of_e2m1<1>(codes);
                o.a[0][r] = mul_f16x2(first.x, low_twice(scale)), o.a[1][r] = mul_f16x2(first.y, low_twice(scale));
                o.a[0][2 + r] = mul_f16x2(second.x, high_twice(scale)), o.a[1][2 + r] = mul_f16x2(second.y, high_twice(scale));
            }
        } else if constexpr (CODE == GRID) {
            u32 low = word(w.codes[0], b), signs = word(w.plane, b / 2) >> b % 2 * 4, high = w.high >> b * 4;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 magnitudes = grid[(low >> 8 * i & 255) | (high >> i & 1) << 8];
                // -m is ~m + 1; magnitudes are not zero, so that no byte carries into the next.
                u32 minus = signs >> i & 0x01010101u;
                a[i] = (magnitudes ^ minus * 255) + minus;
            }
        } else {
            u32 first = word(w.codes[b / 2], b % 2 * 2), second = word(w.codes[b / 2], b % 2 * 2 + 1);
            if constexpr (CODE == TABLE) {
                look_up(first, a[0], a[2]);
                look_up(second, a[1], a[3]);
            } else {
                a[0] = first & 0x0f0f0f0fu, a[1] = second & 0x0f0f0f0fu;
                a[2] = first >> 4 & 0x0f0f0f0fu, a[3] = second >> 4 & 0x0f0f0f0fu;
            }
            if constexpr (CODE == ZEROED) {
                // Less the zero point of the row, with 128 more meanwhile, so that no byte borrows from the next.
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 zero = (i % 2 == 0 ? w.scales.x : w.scales.y) >> 16;
                    a[i] = (a[i] | 0x80808080u) - zero * 0x01010101u ^ 0x80808080u;
                }
            }
            if constexpr (CODE == FIVE) {
                u32 plane = word(w.plane, b / 2) >> b % 2 * 4;
#pragma unroll
                for (int i = 0; i < 4; i++) a[i] |= (plane >> i & 0x01010101u) << 4;
            }
            if constexpr (CODE == SIGNED_FIVE) {
                u32 plane = word(w.plane, b / 2) >> b % 2 * 4;
                // The sign, which fills the byte from bit 4 on.
#pragma unroll
                for (int i = 0; i < 4; i++) a[i] |= (plane >> i & 0x01010101u) * 0xf0;
            }
            if constexpr (CODE == SIX) {
                u32 plane = word(w.plane, b);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    // Bit 4 and the sign, which fills the byte from bit 5 on.
                    u32 high = (i < 2 ? plane << (4 - 2 * i) : plane >> (2 * i - 4)) & 0x30303030u;
                    a[i] |= high | (high & 0x20202020u) * 6;
                }
            }
        }
        return o;
    }

    struct Scale {
        float s[2], s1[2];
    };

    // Scales of block b for rows g and g + 8.
    static __device__ __forceinline__ Scale scale_of(const Unit &w, int b) {
        Scale s;
        if constexpr (SCALE == S_F16) {
            s.s[0] = low_half(word(w.scales, b)), s.s[1] = high_half(word(w.scales, b));
        } else if constexpr (SCALE == S_BF16) {
            s.s[0] = low_bf16(word(w.scales, b)), s.s[1] = high_bf16(word(w.scales, b));
        } else if constexpr (SCALE == S_MIN) {
            u32 x = word(w.scales, b);
            s.s[0] = low_half(w.group.x) * plain_byte_at(x, 0), s.s[1] = low_half(w.group.y) * plain_byte_at(x, 2);
        } else if constexpr (SCALE == S_BYTE) {
            u32 x = word(w.scales, b / 2) ^ 0x80808080u;
            s.s[0] = low_half(w.group.x) * byte_at(x, b % 2 * 2), s.s[1] = high_half(w.group.x) * byte_at(x, b % 2 * 2 + 1);
        } else if constexpr (SCALE == S_NIBBLE) {
            // 1 + 2 n of the nibbles of byte b: row g's is the low one.
            u32 x = w.scales.x >> b * 8;
            s.s[0] = low_half(w.group.x) * exact(MAGIC_BITS | (int)(x << 1 & 30) | 1);
            s.s[1] = high_half(w.group.x) * exact(MAGIC_BITS | (int)(x >> 3 & 30) | 1);
        } else if constexpr (SCALE == S_EIGHTS) {
            s.s[0] = __uint_as_float(w.scales.x), s.s[1] = __uint_as_float(w.scales.y);
        } else if constexpr (SCALE == S_ZERO) {
            s.s[0] = low_half(w.scales.x), s.s[1] = low_half(w.scales.y);
        } else if constexpr (SCALED) {
            s.s[0] = s.s[1] = 1;
        } else {
            u32 x = word(w.scales, b) ^ 0x80808080u;
            s.s[0] = low_half(w.group.x) * byte_at(x, 0), s.s1[0] = low_half(w.group.x) * byte_at(x, 1);
            s.s[1] = high_half(w.group.x) * byte_at(x, 2), s.s1[1] = high_half(w.group.x) * byte_at(x, 3);
        }
        return s;
    }

    // The scales of row g + 8 where `second` says so, in the place of row g's.
    static __device__ __forceinline__ Unit row_of(const Unit &w, bool second) {
        constexpr int BITS = SCALE == S_NIBBLE ? 4 : SCALE == S_BYTE ? 8 : 16;
        Unit of = w;
        if constexpr (SCALE == S_EIGHTS || SCALE == S_ZERO) {
            of.scales.x = second ? w.scales.y : w.scales.x;
            return of;
        }
        of.scales.x = second ? w.scales.x >> BITS : w.scales.x, of.scales.y = second ? w.scales.y >> BITS : w.scales.y;
        of.scales.z = second ? w.scales.z >> BITS : w.scales.z, of.scales.w = second ? w.scales.w >> BITS : w.scales.w;
        of.group.x = !second ? w.group.x : SCALE == S_MIN ? w.group.y : w.group.x >> 16;
        return of;
    }

    // A unit's minima are a product of their own, of the four blocks' factors and d * sum over the planes: a factor has six bits, and
    // d * sum is, nearly to f32's own precision, the sum of two numbers of eleven. Of lane (g, t): those of block t for rows g and g + 8.
    struct Minima {
        u32 m[2];
        float group[2];
    };
    // `own`: the scales of block t.
    static __device__ __forceinline__ Minima minima_of(u32 own, uint2 group) {
        return {{__float_as_uint(plain_byte_at(own, 1)), __float_as_uint(plain_byte_at(own, 3))}, {-high_half(group.x), -high_half(group.y)}};
    }
    // Of a unit that `load` or `load_scales` read.
    static __device__ __forceinline__ Minima minima_of(const Unit &w) {
        int t = threadIdx.x % 4;
        u32 first = t & 1 ? w.scales.y : w.scales.x, last = t & 1 ? w.scales.w : w.scales.z;
        return minima_of(t & 2 ? last : first, w.group);
    }
    // What they come to, for columns as those of `sums_of`. `x`: d * sum of block t of column g, in two.
    static __device__ __forceinline__ void minima_sums(float (&sum)[4], const Minima &of, float2 x) {
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] = 0;
        const u32 a[4] = {of.m[0], of.m[1], of.m[0], of.m[1]}, b[2] = {__float_as_uint(x.x), __float_as_uint(x.y)};
        mma_tf32(sum, a, b);
    }
    // Taken away from `acc`. EACH as below.
    template <int EACH = 1> static __device__ __forceinline__ void subtract(float (&acc)[4], const Minima &of, float2 x) {
        float sum[4];
        minima_sums(sum, of, x);
#pragma unroll
        for (int i = 0; i < 4; i += EACH) acc[i] = __fmaf_rn(of.group[i / 2], sum[i], acc[i]);
    }

    // One block of 32 inputs times 8 columns, as integers that start at FROM, MAGIC_BITS or 0: rows g, g, g + 8, g + 8 of columns 2t,
    // 2t + 1, 2t, 2t + 1. `x`: quads t and t + 4 of column g.
    struct Sums {
        int c[4], c1[4]; // the second: of a half block, or of low bytes. Where codes are floats the first are the bits of floats
    };
    static __device__ __forceinline__ void float_sums(float (&c)[4], const Operand &o, uint4 halves) {
        c[0] = c[1] = c[2] = c[3] = 0;
        mma_f16(c, o.a[0][0], o.a[0][1], o.a[1][0], o.a[1][1], halves.x, halves.y);
        mma_f16(c, o.a[0][2], o.a[0][3], o.a[1][2], o.a[1][3], halves.z, halves.w);
    }
    // Quads t and t + 4 as f16.
    static __device__ __forceinline__ uint4 halves_of(uint2 x) {
        const uint2 first = halves_of_bytes(x.x), second = halves_of_bytes(x.y);
        return make_uint4(first.x, first.y, second.x, second.y);
    }
    // Where codes are floats, of activations that are f16 already.
    template <int FROM = MAGIC_BITS> static __device__ __forceinline__ Sums sums_of(const Operand &o, uint4 halves) {
        Sums s;
        float c[4];
        float_sums(c, o, halves);
#pragma unroll
        for (int i = 0; i < 4; i++) s.c[i] = __float_as_int(c[i]);
        return s;
    }
    template <int FROM = MAGIC_BITS> static __device__ __forceinline__ Sums sums_of(const Operand &o, uint2 x) {
        Sums s;
        if constexpr (IN_FLOATS) {
            s = sums_of(o, halves_of(x));
        } else if constexpr (OF_HALVES) {
            mma_k16<FROM>(s.c, o.a[0][0], o.a[0][1], x.x);
            mma_k16<FROM>(s.c1, o.a[0][2], o.a[0][3], x.y);
        } else {
            mma_k32<FROM>(s.c, o.a[0], x);
            if constexpr (CODE == WORD) mma_k32<FROM>(s.c1, o.a[1], x);
        }
        return s;
    }
    // Adds a product to `acc` in floats: sum i, of row g if r is 0, else g + 8. `meta`: {d, sum} of the column.
    template <int FROM = MAGIC_BITS>
    static __device__ __forceinline__ float add(float acc, const Sums &sums, int i, const Scale &s, int r, float2 meta) {
        auto of = [](int sum) { return IN_FLOATS ? __int_as_float(sum) : FROM == 0 ? __int2float_rn(sum) : exact(sum); };
        float t;
        if constexpr (SCALED) t = of(sums.c[i]);
        else if constexpr (OF_HALVES) t = __fmaf_rn(of(sums.c1[i]), s.s1[r], __fmul_rn(of(sums.c[i]), s.s[r]));
        else if constexpr (CODE == WORD) t = __fmul_rn(__fmaf_rn(of(sums.c[i]), 256.0f, of(sums.c1[i])), s.s[r]);
        else t = __fmul_rn(of(sums.c[i]), s.s[r]);
        return __fmaf_rn(t, meta.x, acc);
    }
    // Both. `meta`: of columns 2t and 2t + 1. EACH 2: column 2t only, acc[1] and acc[3] stay as they are.
    // `x`: codes, or where the matrix has floats f16.
    template <int EACH = 1, typename X>
    static __device__ __forceinline__ void multiply(float (&acc)[4], const Operand &o, const Scale &s, X x, const float2 (&meta)[2]) {
        Sums sums = sums_of(o, x);
#pragma unroll
        for (int i = 0; i < 4; i += EACH) acc[i] = add(acc[i], sums, i, s, i / 2, meta[i % 2]);
    }
};
