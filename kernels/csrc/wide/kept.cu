// y[c][r] = sum_k w[r][k] x[c][k] of listed columns, as warpgroup.cu and with its bits, for matrices of few inputs, as experts' down.
//
// There a block of 256 rows has its few units multiplied before what it began with is paid. Here a block keeps its up to C = 128 columns,
// all inputs of them, in shared memory, goes through TURNS blocks of 256 rows, and brings the next one's weights while one is multiplied;
// sums go from registers to memory. Columns are read once for all those rows.
//
// Bounds: as of warpgroup.cu, but of columns 2 COLS bytes once for 256 TURNS rows.
// -D: ROWS (a multiple of 256 TURNS), COLS, the layout's (weights.cuh), LISTED, TURNS, STAGES, EPILOGUE (PLAIN), NORM_BLOCKS, PLACED.
#define KEPT_COLUMNS 1
#define GROUPS 4
#define TW 1
#define C8 16
#include "wide/warpgroups.cuh"
// Fewer columns are done by as many instructions for as few as this.
#define STEP (C / 4)
#include "wide/columns.cuh"
#include "wide/listed.cuh"
#include "wide/expand.cuh"

static_assert(EPILOGUE == PLAIN && ROWS % (R * TURNS) == 0, "whole blocks of rows, whose sums are what is wanted");
// Stages that are on their way while one is in use.
#define AHEAD (STAGES - 1)
#define STEPS (TURNS * W::UNITS)

// An 8 x 8 matrix of f16, as `mma` fragments hold it, with rows and columns exchanged.
__device__ __forceinline__ u32 transposed(u32 two) {
    u32 out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(two));
    return out;
}

// What all of a block's warps know.
struct Kept {
    const Arguments &args;
    const Lists &lists;
    const u8 *matrix;
    u32 columns, stages;
    int tile0, left;
    const u32 *grid;
    WeightCopies weights;

    // Asks for the weights of step `step`, where there is one.
    __device__ __forceinline__ void ask(int step) {
        if (step < STEPS) {
            if (step % W::UNITS == 0) weights.set(matrix, tile0 + step / W::UNITS * BT);
            weights.copy(stages + step % STAGES * STAGE_BYTES, step % W::UNITS);
        }
        copies_end();
    }
    // A warp's 16 rows from `row` on of the first N columns: of eight at a time a lane gets rows 2t and 2t + 1 of column g, and those 8 rows on.
    template <int N> __device__ __forceinline__ void store(const float (&acc)[N / 2], int row) const {
        const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            const float f0 = lists.factor[i * 8 + 2 * t], f1 = lists.factor[i * 8 + 2 * t + 1];
            const float *v = acc + i * 4;
            if (args.half_out) {
                const u32 first = transposed(pack_f16(v[0] * f0, v[1] * f1)), second = transposed(pack_f16(v[2] * f0, v[3] * f1));
                const u64 at = (u64)(u32)lists.out_row[i * 8 + g] * args.out_stride + row + 2 * t;
                if (i * 8 + g < left) put_two((u16 *)args.out + at, first), put_two((u16 *)args.out + at + 8, second);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int c = i * 8 + 2 * t + j % 2;
                    if (c < left) args.out[(u64)(u32)lists.out_row[c] * args.out_stride + row + g + j / 2 * 8] = v[j] * (j % 2 == 0 ? f0 : f1);
                }
            }
        }
    }
    __device__ __forceinline__ void put_two(u16 *to, u32 two) const {
        if (args.aligned) *(u32 *)to = two;
        else to[0] = (u16)two, to[1] = (u16)(two >> 16);
    }
    template <int N> __device__ __forceinline__ void run() {
        Fragment fragments[FRAGMENTS];
#pragma unroll 1
        for (int turn = 0; turn < TURNS; turn++) {
            float acc[1][N / 2];
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[0][i] = 0;
#pragma unroll 1
            for (int unit = 0; unit < W::UNITS; unit++) {
                const int step = turn * W::UNITS + unit;
                copies_wait<AHEAD - 1>();
                shared_for_matrices();
                // The step's weights are there, and all warps have read those of the one before.
                __syncthreads();
                ask(step + AHEAD);
                multiply_unit<N>(acc, fragments, columns + unit * (C * 256), stages + step % STAGES * STAGE_BYTES, [] {}, grid);
            }
            matrices_wait<0>();
            store<N>(acc[0], (tile0 + turn * BT + tile_of(0)) * 16);
        }
    }
    // The same for as few columns as there are, in steps of STEP.
    template <int N> __device__ __forceinline__ void run_left() {
        if constexpr (N > STEP) {
            if (left <= N - STEP) return run_left<N - STEP>();
        }
        run<N>();
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) kept(const Arguments args) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 *grid = (u32 *)(shared + GRID_AT);
    Lists lists(shared);
    fetch_grid(grid);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const Thread me = {(int)threadIdx.x, warp, lane, lane / 4, lane % 4};
    const Work work = find_work(args, lists.in_row);
    let_next_start();
    for (int base = work.base; base < work.end; base += C) {
        const int left = min(work.end - base, C);
        const u32 columns = shared_address(shared);
        Kept kept = {args, lists, matrix_of(args, work.matrix), columns, columns + STAGES_AT, (int)blockIdx.x * BT * TURNS, left, grid};
        if (args.early) wait_for_inputs();
        lists.put_rows(args, work, base);
        __syncthreads();
        HalfCopies halves;
        halves.set(lists.in_row);
#pragma unroll 1
        for (int unit = 0; unit < W::UNITS; unit++) halves.copy(args, kept.columns + unit * (C * 256), unit, (left + STEP - 1) / STEP * STEP);
#pragma unroll
        for (int step = 0; step < AHEAD; step++) kept.ask(step);
        lists.put_factors(me, args);
        __syncthreads();
        kept.run_left<C>();
        // The next columns overwrite what was just read.
        copies_wait<0>();
        __syncthreads();
    }
    ends_behind_inputs(args);
}
