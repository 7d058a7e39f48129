// sums[u] = sum over the rows of unit u of x[row] * factor(row) * w
//
// What the head reads before it is rounded to int8: the residual stream after the final norm; factor: row_factor (common/int8_rows.cuh) of the
// row's squares. units[u]: first row, and how many, 1 to UNIT. Rows are added one after another in fp32, a column by one thread: no sum
// depends on the grid, nor on the units beside it. Who lists units cuts them at absolute positions, so a prompt's are the same however it is
// cut into steps. Bound: 4 * COLS bytes a row, and as many a unit.
//
// x: [rows, COLS] f32, squares: [rows, COLS / 32], w: [COLS], sums: [units, COLS].
//
// -D: COLS (a multiple of 32), UNIT.
#include "common/int8_rows.cuh"
#include "arguments.cuh"

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS) pool(const Arguments args) {
    __shared__ float factors[UNIT];
    let_next_start();
    int column = blockIdx.y * THREADS + threadIdx.x;
    float weight = column < COLS ? __ldg(args.weight + column) : 0.0f;
    wait_for_inputs();
    int2 unit = args.units[blockIdx.x];
    for (int row = threadIdx.x / WARP; row < unit.y; row += THREADS / WARP) {
        float factor = row_factor<COLS / 32>(args.squares + (u64)(unit.x + row) * (COLS / 32), args.eps);
        if (threadIdx.x % WARP == 0) factors[row] = factor;
    }
    __syncthreads();
    if (column >= COLS) return;
    const float *from = args.x + (u64)unit.x * COLS + column;
    float sum = 0;
    // Eight loads under way at a time.
#pragma unroll 8
    for (int row = 0; row < unit.y; row++)
        sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(from[(u64)row * COLS], factors[row]), weight));
    args.sums[(u64)blockIdx.x * COLS + column] = sum;
}
