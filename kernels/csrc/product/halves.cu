// out[c][r] = factor * norm(c) * sum_k w[r][k] x[c][k] in f16, of few columns, with the bits that wide/warpgroup.cu gives many
//
// w: [ROWS, COLS] in one of weights/layout.cuh's layouts; activations: int8 rows (common/int8_rows.cuh), up to COLUMNS: 1 or whole octets, of
// which a block makes f16 as rows/halves.cu does; norm(c): row_factor of NORM_BLOCKS squares a row, 1 if that is 0.
//
// A tile is 16 outputs, a block has WT tiles and WK warps a tile. Warp i of a tile goes through the units [i, i + 1) * UNITS / WK in order, 16
// inputs at a time, with one set of sums in f32; then the warps' sums are added, the first one's first. The instruction of a warp adds 16
// products to a sum as that of a warpgroup does (docs/measurements/equal-bytes.md), and weights are expanded by the same code (weights/halves.cuh).
//
// Bound: the bytes of w. Weights are read before the kernel before has ended: DEPTH units a warp.
//
// -D: ROWS, COLS, CODES, SCALES, LEVELS0..3, ROW_FACTORS and WITH_GRID (the layout), COLUMNS, NORM_BLOCKS, WK, WT, DEPTH, REGISTERS (at most, a thread),
// COLUMN_BYTES (of the dynamic part of shared memory), PLANES (1, which int8_rows.cuh asks for), LORA: whether adapters add to the sums
// (common/lora.cuh).
#include "arguments.cuh"
#include "rows/half_rows.cuh"
#include "weights/layout.cuh"

using W = Weights<CODES, SCALES, COLS, LEVELS0, LEVELS1, LEVELS2, LEVELS3, ROW_FACTORS>;
#include "weights/halves.cuh"
#if LORA
#include "common/lora.cuh"
#endif

#define TILES ((ROWS + 15) / 16)
#define WARPS (WT * WK)
#define THREADS (WARPS * WARP)
#define RESIDENT (65536 / REGISTERS / THREADS > 0 ? 65536 / REGISTERS / THREADS : 1)
#define OCTETS ((COLUMNS + 7) / 8)

// Columns in shared memory: of a block of 32 inputs, 64 bytes, lane t of a row's four finds what two instructions take of it in 16 bytes
// that lie together. Columns begin at different banks, so that the lanes of two columns that read one do not meet.
#define BLOCK_BYTES 64
#define COLUMN_STRIDE (COLS * 2 + 128)
__device__ __forceinline__ u32 column_at(u32 c) { return COLUMNS == 1 ? 0 : c * COLUMN_STRIDE + c % 2 * 64 + c / 2 % 4 * 16; }
static_assert(COLUMN_BYTES >= (COLUMNS == 1 ? COLS * 2 : COLUMNS * COLUMN_STRIDE), "the launcher knows how much");

// Warps that make a row f16 together; each finds the row's scale by itself.
#define TEAM_WARPS (COLUMNS == 1 ? WARPS : 1)
#define TEAM (TEAM_WARPS * WARP)
// Quads t and t + 4 of its blocks that a thread has, and how many come at a time.
#define QUADS ((COLS / 8 + TEAM - 1) / TEAM)
#define AT_ONCE (QUADS < 4 ? QUADS : 4)

// Of a row, what a thread makes f16 at a time.
struct RowPart {
    uint2 codes[AT_ONCE];
    float scales[AT_ONCE];

    __device__ __forceinline__ static u32 number(int base, int i) { return (base + i) * TEAM + threadIdx.x % TEAM; }
    __device__ __forceinline__ void read(const Arguments &args, u32 row, int base) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const u32 at = number(base, i);
            if (at >= COLS / 8) continue;
            codes[i] = *(const uint2 *)(args.codes + (u64)row * COLS + at * 8);
            scales[i] = args.meta[(u64)row * (COLS / 32) + at / 4].x;
        }
    }
    __device__ __forceinline__ void write(u8 *column, int base, float down) const {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const u32 at = number(base, i);
            if (at >= COLS / 8) continue;
            const float scale = scales[i] * down;
            const uint2 v = codes[i];
            *(uint4 *)(column + at * 16) = make_uint4(half_pair(v.x, 0, scale), half_pair(v.x, 1, scale), half_pair(v.y, 0, scale), half_pair(v.y, 1, scale));
        }
    }
};

// Largest scale of a row's blocks, as rows/halves.cu finds it. None is below 0, and what is no number is passed over, so that they have the
// order of their bits.
__device__ __forceinline__ float largest_scale(const float2 *meta) {
    float top = 0;
#pragma unroll
    for (int i = 0; i < (COLS / 32 + WARP - 1) / WARP; i++) {
        const int block = i * WARP + threadIdx.x % WARP;
        if (block < COLS / 32) top = fmaxf(top, meta[block].x);
    }
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top)));
}

// What a column's products are multiplied by: for what its row was, and for its norm.
struct Factors {
    float up[COLUMNS], norm[COLUMNS];

    // As in wide/columns.cuh.
    __device__ __forceinline__ float of(const Arguments &args, int c) const { return args.factor * (__fmul_rn(up[c], norm[c]) * (1 / WEIGHT_FACTOR)); }
};

// A row as f16 to shared memory.
__device__ __forceinline__ void put_row(u8 *columns, Factors &factors, const Arguments &args, u32 row) {
    RowPart first;
    first.read(args, row, 0);
    const HalfScale scale = half_scale(largest_scale(args.meta + (u64)row * (COLS / 32)));
    u8 *column = columns + column_at(row);
    first.write(column, 0, scale.down);
#pragma unroll 1
    for (int base = AT_ONCE; base < QUADS; base += AT_ONCE) {
        RowPart more;
        more.read(args, row, base), more.write(column, base, scale.down);
    }
    if (threadIdx.x % TEAM == 0) factors.up[row] = scale.up;
}

// All rows, and their norms by those warps first that have no row to make. A barrier must follow. Rows that are missing stay as they are: what
// comes of them is not stored.
__device__ __forceinline__ void put_rows(u8 *columns, Factors &factors, const Arguments &args) {
    const int warp = threadIdx.x / WARP;
#pragma unroll 1
    for (int row = warp / TEAM_WARPS; row < args.count; row += WARPS / TEAM_WARPS) put_row(columns, factors, args, row);
#pragma unroll 1
    for (int row = WARPS - 1 - warp; row < args.count; row += WARPS) {
        float norm = 1.0f;
        if constexpr (NORM_BLOCKS > 0) norm = row_factor<NORM_BLOCKS>(args.squares + row * NORM_BLOCKS, args.eps);
        if (threadIdx.x % WARP == 0) factors.norm[row] = norm;
    }
}

// One unit times all columns. `columns`: of the unit, where the lane reads.
__device__ __forceinline__ void multiply_unit(float (&acc)[OCTETS][4], const W::Unit &w, const u8 *columns, const u32 *grid) {
#pragma unroll
    for (int b = 0; b < 4; b++) {
        HalfCodes codes;
        HalfScales scales;
        Fragment first, second;
        codes.set(w, b, grid), scales.set(w, b);
        first.set<0>(codes, scales), second.set<1>(codes, scales);
#pragma unroll
        for (int n = 0; n < OCTETS; n++) {
            const uint4 x = *(const uint4 *)(columns + n * 8 * COLUMN_STRIDE + b * BLOCK_BYTES);
            mma_f16(acc[n], first.a[0], first.a[1], first.a[2], first.a[3], x.x, x.y);
            mma_f16(acc[n], second.a[0], second.a[1], second.a[2], second.a[3], x.z, x.w);
        }
    }
}

// A warp's units, the first DEPTH of them in registers.
struct Share {
    W::Unit ahead[DEPTH];
    const u8 *tile;
    int begin, end;

    // Reads weights only.
    __device__ __forceinline__ Share(const u8 *of_tile, int part) : tile(of_tile), begin(part * W::UNITS / WK), end((part + 1) * W::UNITS / WK) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (begin + d < end) W::load(ahead[d], tile, begin + d);
    }
    __device__ __forceinline__ void multiply(float (&acc)[OCTETS][4], const u8 *columns, const u32 *grid) {
#pragma unroll 1
        for (int base = begin; base < end; base += DEPTH) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                const int unit = base + d;
                if (unit >= end) break;
                multiply_unit(acc, ahead[d], columns + unit * (4 * BLOCK_BYTES), grid);
                if (unit + DEPTH < end) W::load(ahead[d], tile, unit + DEPTH);
            }
        }
    }
};

// A warp's sums, [COLUMNS][16]: a lane has rows g and g + 8 of columns 2t and 2t + 1.
__device__ __forceinline__ void put_sums(float *sums, const Thread &me, const float (&acc)[OCTETS][4]) {
#pragma unroll
    for (int n = 0; n < OCTETS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int c = n * 8 + 2 * me.t + i % 2;
            if (c < COLUMNS) sums[c * 16 + me.g + i / 2 * 8] = acc[n][i];
        }
}

// All outputs of the block. `sums`: [WT][WK][COLUMNS][16].
__device__ __forceinline__ void finish(const Arguments &args, const float *sums, const Factors &factors) {
    for (int i = threadIdx.x; i < WT * args.count * 16; i += THREADS) {
        const int r = i % 16, c = i / 16 % args.count, wt = i / 16 / args.count, row = (blockIdx.x * WT + wt) * 16 + r;
        const float *of_tile = sums + wt * WK * (COLUMNS * 16) + c * 16 + r;
        float sum = WK == 1 ? of_tile[0] : 0.0f;
#pragma unroll
        for (int k = 0; k < WK; k++)
            if (WK > 1) sum += of_tile[k * (COLUMNS * 16)];
        if (row >= ROWS) continue;
        sum = W::times_factor(sum, W::factor_of(args.weights + (u64)(row / 16) * W::TILE_BYTES, r) * WEIGHT_FACTOR);
        sum *= factors.of(args, c);
#if LORA
        sum = LoraRow(args.lora, c).add(row, sum);
#endif
        args.out[(u64)c * args.stride + row] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) half_product(const Arguments args) {
    extern __shared__ __align__(16) u8 columns[];
    __shared__ float sums[WARPS * COLUMNS * 16];
    __shared__ Factors factors;
    __shared__ u32 grid[WITH_GRID ? GRID_WORDS : 1];
    let_next_start();
    const Thread me = this_thread();
    // A tile past the last one repeats it; its outputs are not stored.
    Share share(args.weights + (u64)min((int)blockIdx.x * WT + me.warp / WK, TILES - 1) * W::TILE_BYTES, me.warp % WK);
    fetch_grid(grid);
#if LORA
    const int first = threadIdx.x, first_row = (blockIdx.x * WT + first / 16 / args.count) * 16 + first % 16;
    if (first < WT * args.count * 16 && first_row < ROWS) lora_ahead(args.lora, first / 16 % args.count, first_row);
#endif
    wait_for_inputs();

    put_rows(columns, factors, args);
    __syncthreads();
    float acc[OCTETS][4] = {};
    share.multiply(acc, columns + column_at(me.g) + me.t * 16, grid);
    put_sums(sums + me.warp * (COLUMNS * 16), me, acc);
    __syncthreads();
    finish(args, sums, factors);
}
