// mamba2_scan: the state, chunk after chunk, and the outputs before the gate.
//
// A warp has 16 of a head's values with their states, transposed, as accumulators: what one product leaves is the left operand of the
// next with no move, so warps share loads and nothing else. A chunk comes to shared memory in two halves, C, M and decays, then B, which pass
// through `args.stages` places; so wide states fit where there is little of it.
#pragma once
#include "mamba2/chunk.cuh"
#if __CUDA_ARCH__ >= 900
#include "common/mbarrier.cuh"
#endif

#define SCAN_WARPS (P < 64 ? P / 16 : 4)
#define SCAN_THREADS (SCAN_WARPS * WARP)
#define SCAN_PARTS (P / (SCAN_WARPS * 16))
#define KEYS_BYTES (KEYS_ELEMENTS * 2)
#define MATS_BYTES (MATS_ELEMENTS * 2)
#define SUMS_BYTES (C * 8)
#define PLACE_BYTES (KEYS_BYTES + MATS_BYTES + SUMS_BYTES)
#define STAGES_MAX 4

// Halves of chunks on their way: half 2c has C, M and the decays of chunk c, half 2c + 1 its B.
struct Halves {
    const u8 *keys, *mats, *sums;
    u32 shared_at, arrived_at;
    int stages, count;

    __device__ __forceinline__ u32 place_of(int half) const { return shared_at + half % stages * PLACE_BYTES; }
    __device__ __forceinline__ const u8 *keys_of(int half) const { return keys + ((u64)(half / 2) * G * 2 + half % 2) * KEYS_BYTES; }
    __device__ __forceinline__ const u8 *mats_of(int half) const { return mats + (u64)(half / 2) * H * MATS_BYTES; }
    __device__ __forceinline__ const u8 *sums_of(int half) const { return sums + (u64)(half / 2) * H * SUMS_BYTES; }
#if __CUDA_ARCH__ >= 900
    // One thread asks for a half, and everyone waits at the barrier of its place.
    __device__ __forceinline__ void begin() const {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES_MAX; i++) barrier_make(arrived_at + 8 * i, 1);
            barriers_made();
        }
        __syncthreads();
    }
    __device__ __forceinline__ void fetch(int half) const {
        if (threadIdx.x != 0 || half >= count) return;
        const u32 to = place_of(half), done = arrived_at + half % stages * 8;
        const bool first = half % 2 == 0;
        barrier_arrive_for(done, first ? PLACE_BYTES : KEYS_BYTES);
        copy_bulk(to, keys_of(half), KEYS_BYTES, done);
        if (first) copy_bulk(to + KEYS_BYTES, mats_of(half), MATS_BYTES, done), copy_bulk(to + KEYS_BYTES + MATS_BYTES, sums_of(half), SUMS_BYTES, done);
    }
    // Ends when the half's copies are there, which thread 0 asked for in an earlier turn or ahead of the first. By all threads, for every half; a
    // place's next half is asked for behind the barrier in `release`.
    __device__ __forceinline__ void wait_for(int half) const { barrier_wait<MAMBA2_HALF>(arrived_at + half % stages * 8, half / stages & 1); }
#else
    __device__ __forceinline__ void begin() const {}
    // Each half is a group, also one that is not there: so many groups later it is done.
    __device__ __forceinline__ void fetch(int half) const {
        if (half < count) {
            const u32 to = place_of(half);
            copy(to, keys_of(half), KEYS_BYTES);
            if (half % 2 == 0) copy(to + KEYS_BYTES, mats_of(half), MATS_BYTES), copy(to + KEYS_BYTES + MATS_BYTES, sums_of(half), SUMS_BYTES);
        }
        copies_end();
    }
    __device__ __forceinline__ void wait_for(int) const {
        if (stages == 1) copies_wait<0>();
        else if (stages == 2) copies_wait<1>();
        else copies_wait<STAGES_MAX - 1>();
        __syncthreads();
    }
    __device__ __forceinline__ void copy(u32 to, const u8 *from, u32 bytes) const {
#pragma unroll 8
        for (u32 i = threadIdx.x * 16; i < bytes; i += SCAN_THREADS * 16) copy16(to + i, from + i);
    }
#endif
    // Everyone is done with `half`: its place is the next one's.
    __device__ __forceinline__ void release(int half) const {
        __syncthreads();
        fetch(half + stages);
    }
};

// 16 of a head's values of a chunk: a lane has those of its rows (g and g + 8) and of tokens 8n + 2t and the next, its first of which are at
// `in` and `out`, with `left` tokens from there on.
struct Values {
    const float *in;
    float *out;
    int left;

    template <class Each> __device__ __forceinline__ void each(const Each &f) const {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) f(n, i, 8 * n + i % 2, i / 2 * 8);
    }
    __device__ __forceinline__ void read(float (&x)[8][4]) const {
        each([&](int n, int i, int token, int p) { x[n][i] = token < left ? in[token * CHANNELS + p] : 0.0f; });
    }
    __device__ __forceinline__ void write(const float (&y)[8][4]) const {
        each([&](int n, int i, int token, int p) {
            if (token < left) out[token * VALUES + p] = y[n][i];
        });
    }
};

// y = (C h)^T, columns are tokens. h^T: tile n has columns 8n.. of N.
__device__ __forceinline__ void read_state(float (&y)[8][4], const float (&h)[N / 8][4], u32 c_at, const Lanes &lanes) {
#pragma unroll
    for (int step = 0; step < N / 16; step++) {
        const Left l = left_of(h[2 * step], h[2 * step + 1]);
        const u32 from = c_at + place<WIDE>(lanes.row, 16 * step + 8 * lanes.col) * 2;
        auto at = [&](int np) { return right_at<C * WIDE * 2>(from + np * (16 * WIDE * 2)); };
        // A wide state leaves no registers for four at once.
        if constexpr (N <= 128) {
            const Right a = at(0), b = at(1), c = at(2), d = at(3);
            multiply(l, y[0], y[1], a, y[2], y[3], b, y[4], y[5], c, y[6], y[7], d);
        } else {
#pragma unroll
            for (int np = 0; np < 4; np += 2) {
                const Right a = at(np), b = at(np + 1);
                multiply(y[2 * np], y[2 * np + 1], l, a, y[2 * np + 2], y[2 * np + 3], l, b);
            }
        }
    }
}

// h = decay h + x B, of x that has step sizes and decays in it. What a chunk adds is summed by itself: tensor cores cut off, f32 adds round.
__device__ __forceinline__ void add_chunk(float (&h)[N / 8][4], const Left (&x)[4], float decay, u32 b_at, const Lanes &lanes) {
#pragma unroll
    for (int np = 0; np < N / 16; np += 2) {
        float added[4][4] = {};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            const u32 from = b_at + step * (16 * WIDE * 2);
            const Right a = turned_right_at<C * WIDE * 2>(from + place<WIDE>(lanes.turned_row, 16 * np + 8 * lanes.turned_col) * 2);
            const Right b = turned_right_at<C * WIDE * 2>(from + place<WIDE>(lanes.turned_row, 16 * np + 16 + 8 * lanes.turned_col) * 2);
            multiply(added[0], added[1], x[step], a, added[2], added[3], x[step], b);
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) h[2 * np + n][i] = __fmaf_rn(decay, h[2 * np + n][i], added[n][i]);
    }
}

// What a lane has of h^T, at `at` of its head and its first row.
__device__ __forceinline__ void load_state(float (&h)[N / 8][4], const float *at, int t) {
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int low = 0; low < 2; low++) {
            const float2 two = *(const float2 *)(at + low * 8 * N + 8 * n + 2 * t);
            h[n][2 * low] = two.x, h[n][2 * low + 1] = two.y;
        }
}
__device__ __forceinline__ void store_state(const float (&h)[N / 8][4], float *at, int t) {
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int low = 0; low < 2; low++) *(float2 *)(at + low * 8 * N + 8 * n + 2 * t) = make_float2(h[n][2 * low], h[n][2 * low + 1]);
}

// The first half of a chunk, in shared memory at `at`: outputs, and what the second half adds to the state and leaves of it.
__device__ __forceinline__ float put_outputs(const Thread &me, const float (&h)[N / 8][4], Left (&left)[4], const Values &values, float d, u32 at,
                                             const float2 *sums, const Lanes &lanes) {
    float x[8][4], y[8][4] = {};
    values.read(x);
    read_state(y, h, at, lanes);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float4 two = *(const float4 *)(sums + 8 * n + 2 * me.t);
#pragma unroll
        for (int i = 0; i < 4; i++) y[n][i] = __fmul_rn(i % 2 ? two.z : two.x, y[n][i]);
    }
    multiply_triangle(y, x, at + KEYS_BYTES, lanes);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float4 two = *(const float4 *)(sums + 8 * n + 2 * me.t);
#pragma unroll
        for (int i = 0; i < 4; i++) y[n][i] = __fmaf_rn(d, x[n][i], y[n][i]), x[n][i] = __fmul_rn(i % 2 ? two.w : two.y, x[n][i]);
    }
    values.write(y);
#pragma unroll
    for (int step = 0; step < 4; step++) left[step] = left_of(x[2 * step], x[2 * step + 1]);
    return sums[C - 1].x;
}

// Block (head and part, piece).
extern "C" __global__ void __launch_bounds__(SCAN_THREADS) mamba2_scan(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ u64 arrived[STAGES_MAX];
    let_next_start();
    wait_for_inputs();
    const int4 piece = args.pieces[blockIdx.y];
    const int rows = piece.w, chunks = (rows + C - 1) / C;
    if (piece.x < 0 || rows <= 0) return;
    const Thread me = this_thread();
    const int head = blockIdx.x / SCAN_PARTS, first = (blockIdx.x % SCAN_PARTS * SCAN_WARPS + me.warp) * 16;
    const u64 number = piece.z / C + blockIdx.y;
    const Halves halves = {(const u8 *)args.keys + (number * G + head / SHARING) * (2 * KEYS_BYTES),
                           (const u8 *)args.mats + (number * H + head) * MATS_BYTES,
                           (const u8 *)args.sums + (number * H + head) * SUMS_BYTES,
                           shared_address(shared),
                           shared_address(arrived),
                           args.stages,
                           2 * chunks};
    halves.begin();
    for (int half = 0; half < args.stages; half++) halves.fetch(half);

    const u64 of_lane = ((u64)head * P + first + me.g) * N, of_slot = (u64)H * P * N;
    const float d = __ldg(args.d + head);
    const Lanes lanes = {me.t, me.lane % 8 + me.lane / 16 * 8, me.lane / 8 % 2, me.lane % 16, me.lane / 16};
    float h[N / 8][4];
    load_state(h, args.state + piece.x * of_slot + of_lane, me.t);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        const u64 row = (u64)piece.z + chunk * C + 2 * me.t;
        const int column = head * P + first + me.g;
        const Values values = {args.convolved + row * CHANNELS + column, args.values + row * VALUES + column, rows - chunk * C - 2 * me.t};
        const int half = 2 * chunk;
        halves.wait_for(half);
        const float2 *sums = (const float2 *)(shared + half % args.stages * PLACE_BYTES + KEYS_BYTES + MATS_BYTES);
        Left left[4];
        const float decay = put_outputs(me, h, left, values, d, halves.place_of(half), sums, lanes);
        halves.release(half);
        halves.wait_for(half + 1);
        add_chunk(h, left, decay, halves.place_of(half + 1), lanes);
        const int kept_at = args.exports ? args.exports[number + chunk] : -1;
        if (kept_at >= 0) store_state(h, args.state + kept_at * of_slot + of_lane, me.t);
        halves.release(half + 1);
    }
    store_state(h, args.state + piece.x * of_slot + of_lane, me.t);
}
