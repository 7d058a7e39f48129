// gdn_scan: the state, chunk after chunk, and the outputs; where PAIRED, gdn/pairs.cuh has it.
#pragma once
#include "arguments.cuh"
#include "gdn/products.cuh"

#if __CUDA_ARCH__ >= 900
#include "common/mbarrier.cuh"
#endif

#define SCAN_THREADS (SCAN_WARPS * WARP)
#define SCAN_COLS (SCAN_WARPS * 16)
#define TILES (V / SCAN_COLS)
#define KEYS_BYTES (KEYS_ELEMENTS * 2)
#define MATS_BYTES (MATS_ELEMENTS * 2)
#define STAGE_BYTES (KEYS_BYTES + MATS_BYTES + C * 4)

// Where a block's chunks come from, and the places of shared memory that they pass through.
struct Source {
    const u8 *keys, *mats;
    const float *sums;
    u32 shared_at, arrived_at;
    int stages;

    __device__ __forceinline__ u32 place_of(int chunk) const { return shared_at + chunk % stages * STAGE_BYTES; }
#if __CUDA_ARCH__ >= 900
    // One thread asks for a chunk in three copies, and everyone waits at the barrier of its place.
    __device__ __forceinline__ void begin(u64 (&arrived)[2]) {
        arrived_at = shared_address(arrived);
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2; i++) barrier_make(arrived_at + 8 * i, 1);
            barriers_made();
        }
        __syncthreads();
    }
    __device__ __forceinline__ void fetch(int chunk) const {
        if (threadIdx.x != 0) return;
        u32 to = place_of(chunk), done = arrived_at + chunk % stages * 8;
        barrier_arrive_for(done, STAGE_BYTES);
        copy_bulk(to, keys + (u64)chunk * HK * KEYS_BYTES, KEYS_BYTES, done);
        copy_bulk(to + KEYS_BYTES, mats + (u64)chunk * HV * MATS_BYTES, MATS_BYTES, done);
        copy_bulk(to + KEYS_BYTES + MATS_BYTES, sums + (u64)chunk * HV * C, C * 4, done);
    }
    // Ends when the chunk's copies are there, which thread 0 asked for before it came here. By all threads, for every chunk; a place's next chunk is
    // asked for behind a barrier of the block that follows this wait.
    __device__ __forceinline__ void wait_for(int chunk, bool) const { barrier_wait<SCAN_CHUNK>(arrived_at + chunk % stages * 8, chunk / stages & 1); }
#else
    __device__ __forceinline__ void begin(u64 (&)[2]) {}
    __device__ __forceinline__ void fetch(int chunk) const {
        int tid = threadIdx.x;
        u32 to = place_of(chunk);
        const u8 *k = keys + (u64)chunk * HK * KEYS_BYTES, *m = mats + (u64)chunk * HV * MATS_BYTES;
#pragma unroll 8
        for (int i = tid * 16; i < KEYS_BYTES; i += SCAN_THREADS * 16) copy16(to + i, k + i);
#pragma unroll 8
        for (int i = tid * 16; i < MATS_BYTES; i += SCAN_THREADS * 16) copy16(to + KEYS_BYTES + i, m + i);
        if (tid < C / 4) copy16(to + KEYS_BYTES + MATS_BYTES + tid * 16, sums + (u64)chunk * HV * C + tid * 4);
        copies_end();
    }
    __device__ __forceinline__ void wait_for(int, bool next_is_coming) const {
        if (next_is_coming) copies_wait<1>();
        else copies_wait<0>();
        __syncthreads();
    }
#endif
};

// (K S)^T and (Q S)^T, columns are tokens. S^T: tile n has columns 8n.. of K.
__device__ __forceinline__ void multiply_state(float (&r)[8][4], float (&o)[8][4], const float (&s)[K / 8][4], u32 k_at, u32 q_at, const Lanes &lanes) {
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        Left l = left_of(s[2 * step], s[2 * step + 1]);
        u32 from = place<K>(lanes.row, 16 * step + 8 * lanes.col) * 2;
#pragma unroll
        for (int np = 0; np < 4; np++) {
            Right k = right_at<C * K * 2>(k_at + from + np * 16 * K * 2), q = right_at<C * K * 2>(q_at + from + np * 16 * K * 2);
            multiply(r[2 * np], r[2 * np + 1], l, k, o[2 * np], o[2 * np + 1], l, q);
        }
    }
}

// S^T = e^(G_63) S^T + (Delta scaled)^T K. What a chunk adds is summed by itself: tensor cores cut off, f32 adds round.
__device__ __forceinline__ void add_chunk(float (&s)[K / 8][4], float (&delta)[8][4], const float *sum, u32 k_at, const Lanes &lanes) {
    int t = lanes.t;
    float last = sum[C - 1], decay = __expf(last);
    Left l[4];
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) delta[n][i] *= __expf(last - sum[8 * n + 2 * t + i % 2]);
#pragma unroll
    for (int step = 0; step < 4; step++) l[step] = left_of(delta[2 * step], delta[2 * step + 1]);
#pragma unroll
    for (int np = 0; np < K / 16; np += 2) {
        float added[4][4] = {};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            u32 from = k_at + step * 16 * K * 2;
            Right a = turned_right_at<C * K * 2>(from + place<K>(lanes.turned_row, 16 * np + 8 * lanes.turned_col) * 2);
            Right b = turned_right_at<C * K * 2>(from + place<K>(lanes.turned_row, 16 * np + 16 + 8 * lanes.turned_col) * 2);
            multiply(added[0], added[1], l[step], a, added[2], added[3], l[step], b);
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[2 * np + n][i] = __fmaf_rn(decay, s[2 * np + n][i], added[n][i]);
    }
}

// Columns of a chunk's values that a warp has, in `values`: `filled` tokens of them.
struct Columns {
    float *values;
    int filled, t;

    __device__ __forceinline__ void read(float (&v)[8][4]) const {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = 8 * n + 2 * t + i % 2;
                v[n][i] = token < filled ? values[(u64)token * (HV * V) + i / 2 * 8] : 0.0f;
            }
    }
    __device__ __forceinline__ void write(const float (&o)[8][4]) const {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = 8 * n + 2 * t + i % 2;
                if (token < filled) values[(u64)token * (HV * V) + i / 2 * 8] = o[n][i];
            }
    }
};

// One chunk, which lies in shared memory at `at`: o in place of v, and the state after it.
__device__ __forceinline__ void scan_chunk(float (&s)[K / 8][4], const float (&v)[8][4], const Columns &columns, u32 at, const float *sum, const Lanes &lanes) {
    int t = lanes.t;
    u32 q_at = at, k_at = q_at + KEYS_BYTES / 2, t_at = q_at + KEYS_BYTES, p_at = t_at + MATS_BYTES / 2;
    float r[8][4] = {}, o[8][4] = {}, delta[8][4] = {};
    multiply_state(r, o, s, k_at, q_at, lanes);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float grown = __expf(sum[8 * n + 2 * t + i % 2]);
            r[n][i] = __fmaf_rn(-grown, r[n][i], v[n][i]);
            o[n][i] *= grown;
        }
    // Delta^T = R^T T^T, then O^T += Delta^T P^T.
    multiply_triangle(delta, r, t_at, lanes);
    multiply_triangle(o, delta, p_at, lanes);
    columns.write(o);
    add_chunk(s, delta, sum, k_at, lanes);
}

// What a lane has of S^T, to `at` of its head and columns.
__device__ __forceinline__ void store_state(float *at, const float (&s)[K / 8][4], int t) {
#pragma unroll
    for (int n = 0; n < K / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) at[(8 * n + 2 * t + i % 2) * V + i / 2 * 8] = s[n][i];
}

#if !PAIRED
// Block (h * TILES + tile, piece): SCAN_COLS columns of value head h. `args.stages`: chunks that shared memory holds, 1 or 2.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS) gdn_scan(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ u64 arrived[2];
    let_next_start();
    wait_for_inputs();
    int4 piece = args.pieces[blockIdx.y];
    int rows = piece.w, stages = args.stages;
    if (piece.x < 0 || rows <= 0) return;
    int h = blockIdx.x / TILES, kh = GROUPED ? h / SHARING : h % HK, chunks = (rows + C - 1) / C;
    int tid = threadIdx.x, lane = tid % WARP, g = lane / 4, t = lane % 4;
    int v0 = blockIdx.x % TILES * SCAN_COLS + tid / WARP * 16;
    u64 number = piece.z / C + blockIdx.y;
    Source source = {(const u8 *)args.keys + (number * HK + kh) * KEYS_BYTES, (const u8 *)args.mats + (number * HV + h) * MATS_BYTES,
                     args.sums + (number * HV + h) * C, shared_address(shared), 0, stages};
    source.begin(arrived);
    source.fetch(0);

    // S^T: tile n has columns 8n.. of K; element 0, 1: row v0 + g, columns 2t, 2t + 1; 2, 3: row v0 + g + 8.
    const u64 of_lane = (u64)h * K * V + v0 + g, of_slot = (u64)HV * K * V;
    float *at_state = args.state + piece.x * of_slot + of_lane;
    float s[K / 8][4];
#pragma unroll
    for (int n = 0; n < K / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = at_state[(8 * n + 2 * t + i % 2) * V + i / 2 * 8];
    Lanes lanes = {t, lane % 8 + lane / 16 * 8, lane / 8 % 2, lane % 16, lane / 16};
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        Columns columns = {args.values + ((u64)piece.z + chunk * C) * (HV * V) + h * V + v0 + g, min(C, rows - chunk * C), t};
        float v[8][4];
        columns.read(v);
        bool ahead = stages == 2 && chunk + 1 < chunks;
        if (ahead) source.fetch(chunk + 1);
        source.wait_for(chunk, ahead);
        const float *sum = (const float *)(shared + chunk % stages * STAGE_BYTES + KEYS_BYTES + MATS_BYTES);
        scan_chunk(s, v, columns, source.place_of(chunk), sum, lanes);
        if (args.exports) {
            int kept_at = args.exports[number + chunk];
            if (kept_at >= 0) store_state(args.state + kept_at * of_slot + of_lane, s, t);
        }
        __syncthreads();
        if (stages == 1 && chunk + 1 < chunks) source.fetch(chunk + 1);
    }
    store_state(at_state, s, t);
}
#endif
