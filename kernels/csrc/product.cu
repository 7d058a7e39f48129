// y[c][r] = sum_k w[r][k] x[c][k]     w: [ROWS, COLS] in blocks of 32 codes with scales, x: int8 rows (common.cuh), y: f32
//
// A tile is 16 output rows, a unit 128 inputs of a tile. WK warps share a tile: warp i takes the units [i, i + 1) * UNITS / WK, in
// order, and their sums are added in the order of the warps. So an output does not depend on how many columns stand beside it.
// WT tiles a block. Bound: the bytes of w, read once for every 8 * NT columns.
//
// Within a block of 32, lane (g, t) holds the quads t and t + 4 of rows g and g + 8 (see layout.rs, which packs).
// A block's sum is an exact integer; then, in f32, with d and sum those of the activations:
//   scale only        t = i * s                  acc = fma(t, d, acc)
//   with a minimum    t = fma(i, s, -(m * sum))  the same
//   a scale per half  t = fma(i1, s1, i0 * s0)   the same
//
// -D: ROWS, COLS, CODES (0 byte, 1 nibble, 2 table, 3 five bits, 4 six bits), SCALES (0 f16, 1 bf16, 2 minimum and byte,
// 3 byte, 4 a byte each half), LEVELS0..3 (of a table), WK, WT, DEPTH (units that a warp reads
// ahead).
#include "common.cuh"

#define UNITS (COLS / 128)
#define TILES ((ROWS + 15) / 16)
#define THREADS (WK * WT * WARP)
// Blocks that fit on a multiprocessor with 128 registers a thread. With fewer registers the units read ahead spill: twice as slow.
#define RESIDENT (512 / THREADS > 0 ? 512 / THREADS : 1)
#define BYTE 0
#define NIBBLE 1
#define TABLE 2
#define FIVE 3
#define SIX 4
#define S_F16 0
#define S_BF16 1
#define S_MIN 2
#define S_BYTE 3
#define S_HALVES 4

#if CODES == BYTE
#define CODE_VECTORS 4
#else
#define CODE_VECTORS 2
#endif
#if CODES == FIVE
#define PLANE_BYTES 256
#elif CODES == SIX
#define PLANE_BYTES 512
#else
#define PLANE_BYTES 0
#endif
#if SCALES == S_BYTE
#define SCALE_BYTES 64
#else
#define SCALE_BYTES 128
#endif
#if SCALES == S_MIN
#define GROUP_BYTES 64
#elif SCALES == S_BYTE || SCALES == S_HALVES
#define GROUP_BYTES 32
#else
#define GROUP_BYTES 0
#endif

#define PLANES_AT (UNITS * CODE_VECTORS * 512)
#define SCALES_AT (PLANES_AT + UNITS * PLANE_BYTES)
#define GROUPS_AT (SCALES_AT + UNITS * SCALE_BYTES)
#define TILE_BYTES ((GROUPS_AT + (UNITS + 1) / 2 * GROUP_BYTES + 127) / 128 * 128)

// 1.5 * 2^23 as bits: an integer sum that starts there is, read as a float, that number plus the sum.
#define MAGIC_BITS 0x4b400000
#define MAGIC 12582912.0f

struct Unit {
    uint4 codes[CODE_VECTORS];
#if CODES == FIVE
    uint2 plane;
#elif CODES == SIX
    uint4 plane;
#endif
#if SCALES == S_BYTE
    uint2 scales;
#else
    uint4 scales;
#endif
#if SCALES == S_MIN
    uint2 group;
#elif GROUP_BYTES > 0
    u32 group;
#endif
};

__device__ __forceinline__ void load(Unit &w, const u8 *tile, int unit) {
    int lane = threadIdx.x % WARP, g = lane / 4;
#pragma unroll
    for (int v = 0; v < CODE_VECTORS; v++) w.codes[v] = stream16(tile + (unit * CODE_VECTORS + v) * 512 + lane * 16);
#if CODES == FIVE
    w.plane = stream8(tile + PLANES_AT + unit * PLANE_BYTES + lane * 8);
#elif CODES == SIX
    w.plane = stream16(tile + PLANES_AT + unit * PLANE_BYTES + lane * 16);
#endif
    const u8 *scales = tile + SCALES_AT + unit * SCALE_BYTES;
#if SCALES == S_BYTE
    w.scales = __ldg((const uint2 *)(scales + g * 8));
#else
    w.scales = __ldg((const uint4 *)(scales + g * 16));
#endif
#if SCALES == S_MIN
    w.group = __ldg((const uint2 *)(tile + GROUPS_AT + unit / 2 * GROUP_BYTES + g * 8));
#elif GROUP_BYTES > 0
    w.group = __ldg((const u32 *)(tile + GROUPS_AT + unit / 2 * GROUP_BYTES + g * 4));
#endif
}

__device__ __forceinline__ u32 word(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ __forceinline__ u32 word(uint2 v, int i) { return i == 0 ? v.x : v.y; }

#if CODES == TABLE
// Eight nibbles, in order, to the signed levels of two quads.
__device__ __forceinline__ void look_up(u32 nibbles, u32 &first, u32 &second) {
    u32 low = nibbles & 0x77777777u, pick = (nibbles & 0x88888888u) >> 1 | 0x32103210u;
    first = __byte_perm(__byte_perm(LEVELS0, LEVELS1, low), __byte_perm(LEVELS2, LEVELS3, low), pick);
    second = __byte_perm(__byte_perm(LEVELS0, LEVELS1, low >> 16), __byte_perm(LEVELS2, LEVELS3, low >> 16), pick >> 16);
}
#endif

// The four words of block b of the unit: rows g, g + 8 of quad t, then of quad t + 4.
__device__ __forceinline__ void expand(u32 (&a)[4], const Unit &w, int b) {
#if CODES == BYTE
    a[0] = w.codes[b].x, a[1] = w.codes[b].y, a[2] = w.codes[b].z, a[3] = w.codes[b].w;
#else
    u32 first = word(w.codes[b / 2], b % 2 * 2), second = word(w.codes[b / 2], b % 2 * 2 + 1);
#if CODES == TABLE
    look_up(first, a[0], a[2]);
    look_up(second, a[1], a[3]);
#else
    a[0] = first & 0x0f0f0f0fu, a[1] = second & 0x0f0f0f0fu;
    a[2] = first >> 4 & 0x0f0f0f0fu, a[3] = second >> 4 & 0x0f0f0f0fu;
#endif
#if CODES == FIVE
    u32 plane = word(w.plane, b / 2) >> b % 2 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] |= (plane >> i & 0x01010101u) << 4;
#elif CODES == SIX
    u32 plane = word(w.plane, b);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        // Bit 4 and the sign, which fills the byte from bit 5 on.
        u32 high = (i < 2 ? plane << (4 - 2 * i) : plane >> (2 * i - 4)) & 0x30303030u;
        a[i] |= high | (high & 0x20202020u) * 6;
    }
#endif
#endif
}

struct Scale {
    float s[2], m[2], s1[2];
};
__device__ __forceinline__ float byte_at(u32 word, int i) { return (float)(i8)(word >> 8 * i); }

// Scales of block b for rows g and g + 8.
__device__ __forceinline__ Scale scale_of(const Unit &w, int b) {
    Scale s;
#if SCALES == S_F16
    s.s[0] = low_half(word(w.scales, b)), s.s[1] = high_half(word(w.scales, b));
#elif SCALES == S_BF16
    s.s[0] = low_bf16(word(w.scales, b)), s.s[1] = high_bf16(word(w.scales, b));
#elif SCALES == S_MIN
    u32 x = word(w.scales, b);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        s.s[r] = low_half(word(w.group, r)) * byte_at(x, 2 * r);
        s.m[r] = high_half(word(w.group, r)) * byte_at(x, 2 * r + 1);
    }
#elif SCALES == S_BYTE
    u32 x = word(w.scales, b / 2) >> b % 2 * 16;
    s.s[0] = low_half(w.group) * byte_at(x, 0), s.s[1] = high_half(w.group) * byte_at(x, 1);
#else
    u32 x = word(w.scales, b);
    s.s[0] = low_half(w.group) * byte_at(x, 0), s.s1[0] = low_half(w.group) * byte_at(x, 1);
    s.s[1] = high_half(w.group) * byte_at(x, 2), s.s1[1] = high_half(w.group) * byte_at(x, 3);
#endif
    return s;
}

__device__ __forceinline__ float exact(int sum) { return __int_as_float(sum) - MAGIC; }

// One block of 32 inputs times 8 columns. `meta` holds {d, sum} of columns 2t and 2t + 1.
__device__ __forceinline__ void multiply(float (&acc)[4], const u32 (&a)[4], const Scale &s, uint2 x, const float2 (&meta)[2]) {
    int c[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
#if SCALES == S_HALVES
    int c1[4] = {MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
    mma_k16(c, a[0], a[1], x.x);
    mma_k16(c1, a[2], a[3], x.y);
#else
    mma_k32(c, a, x.x, x.y);
#endif
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int r = i / 2;
#if SCALES == S_HALVES
        float t = __fmaf_rn(exact(c1[i]), s.s1[r], __fmul_rn(exact(c[i]), s.s[r]));
#elif SCALES == S_MIN
        float t = __fmaf_rn(exact(c[i]), s.s[r], -__fmul_rn(s.m[r], meta[i % 2].y));
#else
        float t = __fmul_rn(exact(c[i]), s.s[r]);
#endif
        acc[i] = __fmaf_rn(t, meta[i % 2].x, acc[i]);
    }
}

// What one call computes. Without `slots`: columns 0..count of x with matrix 0. With them: block (., y) takes the columns of slot y.
struct Call {
    const u8 *weights;
    const i8 *codes;     // [.., COLS]
    const float2 *meta;  // [.., COLS / 32]
    float *out;          // [.., out_stride]
    const int4 *slots;   // {matrix, first, count, -}
    const int *in_rows;  // by column: row of x, with slots
    const int *out_rows; // by column: row of out, with slots
    u64 matrix_bytes;
    int count;
    int out_stride;
    float factor;
    int add; // whether to add to what is there
};

// Columns of a lane: where its codes and the {d, sum} of its two columns begin.
template <int NT> struct Lane {
    const i8 *codes[NT];
    const float2 *meta[NT][2];
};

// One unit times all columns.
template <int NT> __device__ __forceinline__ void multiply_unit(float (&acc)[NT][4], const Unit &w, const Lane<NT> &x, int unit) {
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        float4 meta[NT][2];
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) meta[n][i] = __ldg((const float4 *)(x.meta[n][i] + unit * 4 + pair * 2));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int b = pair * 2 + half;
            u32 a[4];
            expand(a, w, b);
            Scale s = scale_of(w, b);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                uint2 codes = __ldg((const uint2 *)(x.codes[n] + (unit * 4 + b) * 32));
                float2 of_block[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float4 m = meta[n][i];
                    of_block[i] = half ? make_float2(m.z, m.w) : make_float2(m.x, m.y);
                }
                multiply(acc[n], a, s, codes, of_block);
            }
        }
    }
}

template <int NT> __device__ __forceinline__ void product(const Call &call) {
    __shared__ float sums[WK * WT][NT * 8][16 + 1];
    __shared__ int out_row[NT * 8];
    let_next_start();
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
    int part = warp % WK, tile = blockIdx.x * WT + warp / WK;
    const int begin = part * UNITS / WK, end = (part + 1) * UNITS / WK;
    bool mine = tile < TILES;

    int4 slot = make_int4(0, 0, call.count, 0);
    if (call.slots) {
        // Which experts are chosen is an input, so nothing can be read ahead of it.
        wait_for_inputs();
        slot = __ldg(call.slots + blockIdx.y);
        if (slot.z == 0) return;
    }
    const u8 *weights = call.weights + slot.x * call.matrix_bytes + (u64)(mine ? tile : 0) * TILE_BYTES;
    Unit ahead[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (begin + d < end) load(ahead[d], weights, begin + d);
    if (!call.slots) wait_for_inputs();

    for (int base = 0; base < slot.z; base += NT * 8) {
        // Columns past the last one repeat it; their outputs are not stored.
        int first = slot.y + base, left = min(slot.z - base, NT * 8);
        Lane<NT> x;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int column = first + min(n * 8 + g, left - 1);
            u64 row = call.slots ? __ldg(call.in_rows + column) : column;
            x.codes[n] = call.codes + row * COLS + t * 8;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                // Row of column 2t + i, which the lanes of that group hold.
                u32 other = __shfl_sync(0xffffffffu, (u32)row, (2 * t + i) * 4);
                x.meta[n][i] = call.meta + (u64)other * (COLS / 32);
            }
        }
        if (threadIdx.x < left) out_row[threadIdx.x] = call.slots ? __ldg(call.out_rows + first + threadIdx.x) : first + threadIdx.x;
        float acc[NT][4] = {};
        for (int unit = begin; unit < end; unit += DEPTH) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                if (unit + d >= end) break;
                multiply_unit(acc, ahead[d], x, unit + d);
                if (unit + d + DEPTH < end) load(ahead[d], weights, unit + d + DEPTH);
            }
        }
        if (base + NT * 8 < slot.z) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++)
                if (begin + d < end) load(ahead[d], weights, begin + d);
        }
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[warp][n * 8 + 2 * t + i % 2][g + i / 2 * 8] = acc[n][i];
        __syncthreads();
        for (int i = threadIdx.x; i < WT * left * 16; i += THREADS) {
            int r = i % 16, c = i / 16 % left, wt = i / 16 / left, row = (blockIdx.x * WT + wt) * 16 + r;
            if (row >= ROWS) continue;
            float sum = sums[wt * WK][c][r];
#pragma unroll
            for (int k = 1; k < WK; k++) sum += sums[wt * WK + k][c][r];
            float *out = call.out + (u64)out_row[c] * call.out_stride + row;
            *out = call.add ? __fmaf_rn(sum, call.factor, *out) : sum * call.factor;
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) product_n1(const Call call) { product<1>(call); }
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) product_n2(const Call call) { product<2>(call); }
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) product_n4(const Call call) { product<4>(call); }
