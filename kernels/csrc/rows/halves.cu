// Int8 rows (common/int8_rows.cuh) as f16 for wide/warpgroup.cu: y = x 2^-e, where e is such that the largest block of a row has values up
// to 2^14 to 2^15. Beside it stands what its products are multiplied by: 2^e, times row_factor of the row's NORM_BLOCKS `squares` where
// those are not 0. Four warps a row, or one.
//
// They lie as its matrix instruction wants them in shared memory: of 64 inputs at a time all rows, 128 bytes each, whose pieces of 16
// bytes change places by the row's number (the 128-byte swizzle). Within each 16 inputs the order is that of wide/halves.cuh.
//
// -D COLS, NORM_BLOCKS.
#include "arguments.cuh"
#include "common/int8_rows.cuh"

#define THREADS 128
#define BLOCKS (COLS / 32)
// Threads of a row: a short one's are a warp.
#define TEAM (COLS >= 1024 ? THREADS : WARP)

// Largest scale of the row's blocks. What is no number is passed over: its codes become none either.
__device__ __forceinline__ float largest_scale(const float2 *meta) {
    __shared__ float of_warp[THREADS / WARP];
    float top = 0;
    for (int i = threadIdx.x % TEAM; i < BLOCKS; i += TEAM) top = fmaxf(top, meta[i].x);
    top = warp_max(top);
    if constexpr (TEAM > WARP) {
        if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = top;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < THREADS / WARP; i++) top = fmaxf(top, of_warp[i]);
    }
    return top;
}

__device__ __forceinline__ float code(u32 word, int i) { return (float)(i8)(word >> 8 * i & 255); }

// Eight values of a row, in the order of wide/halves.cuh: of each quad of a half block the first and third, or the second and fourth.
struct Eight {
    u32 quads[4];
    float scale;

    __device__ __forceinline__ void read(const Arguments &args, u64 row, int c) {
        const u32 *codes = (const u32 *)(args.codes + row * COLS) + c / 4 * 8 + c / 2 % 2;
        scale = args.meta[row * BLOCKS + c / 4].x;
#pragma unroll
        for (int t = 0; t < 4; t++) quads[t] = codes[2 * t];
    }
    __device__ __forceinline__ void write(const Arguments &args, u64 row, int c, float down) const {
        const int odd = c % 2;
        const float factor = scale * down;
        u32 out[4];
#pragma unroll
        for (int t = 0; t < 4; t++) out[t] = pack_f16(code(quads[t], odd) * factor, code(quads[t], odd + 2) * factor);
        const u64 at = ((u64)(u32)(c / 8) * args.rows + row) * 64 + ((c ^ (int)row) & 7) * 8;
        *(uint4 *)(args.halves + at) = make_uint4(out[0], out[1], out[2], out[3]);
    }
};

// What a thread has of a row; all of it comes beside the scales that decide on e, where that is little.
#define EACH ((COLS / 8 + TEAM - 1) / TEAM)
#define AHEAD (EACH <= 4 ? EACH : 0)

extern "C" __global__ void __launch_bounds__(THREADS) halves(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    const int of_row = threadIdx.x % TEAM;
    const u64 row = (u64)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    if (row >= args.rows) return;
    Eight ahead[AHEAD + 1];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (of_row + i * TEAM < COLS / 8) ahead[i].read(args, row, of_row + i * TEAM);
    float norm = 1.0f;
    if constexpr (NORM_BLOCKS > 0)
        if (of_row < WARP) norm = row_factor<NORM_BLOCKS>(args.squares + row * NORM_BLOCKS, args.eps);
    const float top = largest_scale(args.meta + row * BLOCKS) * 127.0f;
    // Exponents of f32: that of the largest value, of 2^-e and of 2^e. Scales of int8 blocks are 0 or above 1e-32.
    const int exponent = top > 0 ? (int)(__float_as_uint(top) >> 23) : 127 + 14;
    const float down = __uint_as_float((u32)(2 * 127 + 14 - exponent) << 23);
    if (of_row == 0) args.scales[row] = __fmul_rn(__uint_as_float((u32)(exponent - 14) << 23), norm);
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (of_row + i * TEAM < COLS / 8) ahead[i].write(args, row, of_row + i * TEAM, down);
#pragma unroll 2
    for (int c = of_row; AHEAD == 0 && c < COLS / 8; c += TEAM) {
        Eight v;
        v.read(args, row, c), v.write(args, row, c, down);
    }
}
