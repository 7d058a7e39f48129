// Many tokens of the gated delta rule at once: the mixer of a GDN layer for pieces of several sequences. Four kernels:
//
//   gdn_conv    q, k, v = convolution, SiLU, norms; q and k as two bf16 each, high and low part (16 bits of precision)
//   gdn_chunk   for every chunk of 64 tokens and head: G = running sum of log decays, D_ij = exp(G_i - G_j) for j <= i,
//               A = strictly lower (diag(beta) K K^T * D), T = (I + A)^-1 diag(beta), P = Q K^T * D; the ring
//   gdn_scan    chunk after chunk: R = V - diag(e^G) K S, Delta = T R, O = diag(e^G) Q S + P Delta,
//               S = e^(G_63) S + (diag(e^(G_63 - G)) K)^T Delta
//   gdn_finish  y = o / sqrt(mean(o^2) + eps) * w * silu(z) and its int8 form
//
// Products run on tensor cores as high * high + high * low + low * high of bf16 parts, which is good to 2^-16; sums, D, the inverse
// and S are f32. In gdn_scan a warp owns 16 columns of S, transposed, as accumulators: what one product leaves is the left operand of the next with
// no move, so warps never wait for each other but for the loads. Bound: its 11 * 64 * 64 * 128 * 3 multiply-adds a chunk and head.
//
// pieces: int4 {slot, start, first row, rows}: rows `first row`.. are positions `start`.. of the sequence in `slot`; start is a
// multiple of 64, so that chunks lie where they always do and bytes do not depend on how a prompt was cut. Ascending by first row,
// not overlapping. slot < 0 or rows = 0: no piece. Chunk c of piece p has number first_row / 64 + p + c: distinct, and below
// rows / 64 + pieces. A chunk that the piece does not fill is as one whose missing tokens have k = q = v = beta = g = 0.
//
// x, state, tail as in gdn_decode.cu. Scratch: keys [chunks][HK][q, k][high, low][64][K] bf16, mats [chunks][HV][T, P][high, low][64][64] bf16,
// sums [chunks][HV][64] f32, values [rows][HV * V] f32: v, then o in its place. In bf16 matrices, 16-byte groups of row i stand
// at their number xor i % 8, so that ldmatrix meets no bank twice. Of T and P, 16 x 16 blocks above the diagonal are not written nor read.
//
// -D: K, V (64 or 128), HK, HV, X_STRIDE, GROUPED (1: key head h / (HV / HK), 0: h % HK), SCAN_WARPS, PLANES.
#include "common/int8_rows.cuh"
#include "arguments.cuh"

#define C 64
#define CHANNELS (2 * HK * K + HV * V)
#define Z_AT CHANNELS
#define GATES_AT (Z_AT + HV * V)
#define SHARING (HV / HK)
#define THREADS 128
#define KEYS_ELEMENTS (4 * C * K) // q and k of a chunk and key head
#define MATS_ELEMENTS (4 * C * C) // T and P of a chunk and value head

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(__expf(x)); }

// Two values as bf16, the first one low in the word; what is left of them likewise.
struct Split {
    u32 high, low;
};
__device__ __forceinline__ u32 bf16_pair(float first, float second) {
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
}
__device__ __forceinline__ Split split(float first, float second) {
    u32 high = bf16_pair(first, second);
    return {high, bf16_pair(first - low_bf16(high), second - high_bf16(high))};
}

// Left operand of a product: 16 rows, 16 of the inner dimension.
struct Left {
    u32 high[4], low[4];
};
// What two neighbouring accumulator tiles hold, as left operand.
__device__ __forceinline__ Left left_of(const float (&a)[4], const float (&b)[4]) {
    Left l;
    Split s0 = split(a[0], a[1]), s1 = split(a[2], a[3]), s2 = split(b[0], b[1]), s3 = split(b[2], b[3]);
    l.high[0] = s0.high, l.high[1] = s1.high, l.high[2] = s2.high, l.high[3] = s3.high;
    l.low[0] = s0.low, l.low[1] = s1.low, l.low[2] = s2.low, l.low[3] = s3.low;
    return l;
}

__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Right operand of a product: 16 of the inner dimension, two tiles of 8 columns.
struct Right {
    u32 high[4], low[4];
};
// c0, c1 += l * r, small terms first.
__device__ __forceinline__ void multiply(float (&c0)[4], float (&c1)[4], const Left &l, const Right &r) {
    mma(c0, l.low, r.high[0], r.high[1]), mma(c1, l.low, r.high[2], r.high[3]);
    mma(c0, l.high, r.low[0], r.low[1]), mma(c1, l.high, r.low[2], r.low[3]);
    mma(c0, l.high, r.high[0], r.high[1]), mma(c1, l.high, r.high[2], r.high[3]);
}
// Two such products in turns: an instruction waits for the fourth before it, not for the second. This is what a lone warp's speed
// hangs on.
__device__ __forceinline__ void multiply(float (&c0)[4], float (&c1)[4], const Left &l, const Right &r, float (&d0)[4], float (&d1)[4],
                                         const Left &m, const Right &s) {
    mma(c0, l.low, r.high[0], r.high[1]), mma(c1, l.low, r.high[2], r.high[3]);
    mma(d0, m.low, s.high[0], s.high[1]), mma(d1, m.low, s.high[2], s.high[3]);
    mma(c0, l.high, r.low[0], r.low[1]), mma(c1, l.high, r.low[2], r.low[3]);
    mma(d0, m.high, s.low[0], s.low[1]), mma(d1, m.high, s.low[2], s.low[3]);
    mma(c0, l.high, r.high[0], r.high[1]), mma(c1, l.high, r.high[2], r.high[3]);
    mma(d0, m.high, s.high[0], s.high[1]), mma(d1, m.high, s.high[2], s.high[3]);
}

__device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
// Both parts of a right operand, the low one LOW bytes on.
template <int LOW> __device__ __forceinline__ Right right_at(u32 at) {
    Right r;
    ldmatrix(r.high, at), ldmatrix(r.low, at + LOW);
    return r;
}
template <int LOW> __device__ __forceinline__ Right turned_right_at(u32 at) {
    Right r;
    ldmatrix_trans(r.high, at), ldmatrix_trans(r.low, at + LOW);
    return r;
}

// Where element (row, col) of a matrix with rows of LENGTH lies.
template <int LENGTH> __device__ __forceinline__ int place(int row, int col) {
    return row * LENGTH + ((col / 8 ^ (row & 7)) * 8) + col % 8;
}

struct Chunk {
    int slot, start, first_row, rows; // of the piece
    int index;                        // within the piece
    int filled;                       // tokens, 0: no chunk
    __device__ __forceinline__ u64 row(int token) const { return (u64)first_row + index * C + token; }
};
// The chunk with number `number`.
__device__ __forceinline__ Chunk find_chunk(const int4 *pieces, int count, int number) {
    int found = -1, lane = threadIdx.x % WARP;
    for (int base = 0; base < count; base += WARP) {
        int p = base + lane;
        u32 votes = __ballot_sync(~0u, p < count && pieces[p < count ? p : 0].z / C + p <= number);
        if (!votes) break;
        found = base + 31 - __clz(votes);
    }
    Chunk c = {-1, 0, 0, 0, 0, 0};
    if (found < 0) return c;
    int4 p = pieces[found];
    c.slot = p.x, c.start = p.y, c.first_row = p.z, c.rows = p.w, c.index = number - (p.z / C + found);
    if (c.slot >= 0) c.filled = max(0, min(C, c.rows - c.index * C));
    return c;
}

// ---------------------------------------------------------------------------------------------------------------- gdn_conv

template <int VEC> __device__ __forceinline__ void load(float (&v)[VEC], const float *p) {
    if (VEC == 4) {
        float4 f = *(const float4 *)p;
        v[0] = f.x, v[1] = f.y, v[2 % VEC] = f.z, v[3 % VEC] = f.w;
    } else {
        float2 f = *(const float2 *)p;
        v[0] = f.x, v[1] = f.y;
    }
}

#define ROWS_A_WARP (C / (THREADS / WARP))
#define ROWS_AHEAD 8

// One head's channels of a chunk: a warp takes 16 tokens, a lane DIM / 32 channels. WHAT: 0 q, 1 k, 2 v.
template <int DIM, int WHAT>
__device__ __forceinline__ void convolve(const Chunk &chunk, int ch, const float *x, const float *tail, const float *taps, u16 *high,
                                         u16 *low, float *values) {
    constexpr int VEC = DIM / WARP;
    int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * ROWS_A_WARP, at = lane * VEC;
    ch += at;
    float4 w[VEC];
    float past[3][VEC], in[ROWS_AHEAD][VEC];
#pragma unroll
    for (int i = 0; i < VEC; i++) w[i] = __ldg((const float4 *)(taps + (ch + i) * 4));
#pragma unroll
    for (int p = 0; p < 3; p++) {
        int t = chunk.index * C + first - 3 + p;
        if (first - 3 + p < chunk.filled)
            load<VEC>(past[p], t >= 0 ? x + ((u64)chunk.first_row + t) * X_STRIDE + ch : tail + ((chunk.start + t) & 3) * CHANNELS + ch);
    }
    for (int begin = first; begin < first + ROWS_A_WARP; begin += ROWS_AHEAD) {
#pragma unroll
        for (int n = 0; n < ROWS_AHEAD; n++)
            if (begin + n < chunk.filled) load<VEC>(in[n], x + chunk.row(begin + n) * X_STRIDE + ch);
#pragma unroll
        for (int n = 0; n < ROWS_AHEAD; n++) {
            int t = begin + n;
            float y[VEC], sum = 0;
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                float c = __fmul_rn(past[0][i], w[i].x);
                c = __fmaf_rn(past[1][i], w[i].y, c);
                c = __fmaf_rn(past[2][i], w[i].z, c);
                c = __fmaf_rn(in[n][i], w[i].w, c);
                past[0][i] = past[1][i], past[1][i] = past[2][i], past[2][i] = in[n][i];
                y[i] = t < chunk.filled ? silu(c) : 0;
                sum = __fmaf_rn(y[i], y[i], sum);
            }
            if (WHAT == 2) {
                float *to = values + chunk.row(t) * (HV * V) + at;
                if (t >= chunk.filled) continue;
                if (VEC == 4) *(float4 *)to = make_float4(y[0], y[1], y[2 % VEC], y[3 % VEC]);
                else *(float2 *)to = make_float2(y[0], y[1]);
            } else {
                float scale = __frcp_rn(__fsqrt_rn(warp_sum(sum) + 1e-6f)) * (WHAT == 0 ? __frcp_rn(__fsqrt_rn((float)DIM)) : 1.0f);
                int to = place<DIM>(t, at);
                Split a = split(y[0] * scale, y[1] * scale), b = split(y[2 % VEC] * scale, y[3 % VEC] * scale);
                if (VEC == 4) *(uint2 *)(high + to) = make_uint2(a.high, b.high), *(uint2 *)(low + to) = make_uint2(a.low, b.low);
                else *(u32 *)(high + to) = a.high, *(u32 *)(low + to) = a.low;
            }
        }
    }
}

// Block (chunk, head): heads are the HK of q, the HK of k, the HV of v.
extern "C" __global__ void __launch_bounds__(THREADS) gdn_conv(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x);
    if (chunk.filled == 0) return;
    const float *tail = args.tail + (u64)chunk.slot * 4 * CHANNELS;
    int head = blockIdx.y;
    if (head >= 2 * HK) {
        int h = head - 2 * HK;
        convolve<V, 2>(chunk, 2 * HK * K + h * V, args.x, tail, args.taps, nullptr, nullptr, args.values + h * V);
        return;
    }
    u16 *to = args.keys + ((u64)blockIdx.x * HK + head % HK) * KEYS_ELEMENTS + (head < HK ? 0 : 2 * C * K);
    if (head < HK) convolve<K, 0>(chunk, head * K, args.x, tail, args.taps, to, to + C * K, nullptr);
    else convolve<K, 1>(chunk, head * K, args.x, tail, args.taps, to, to + C * K, nullptr);
}

// --------------------------------------------------------------------------------------------------------------- gdn_chunk

// Rows of the triangle are 4 banks apart from what they would share.
#define PITCH (C + 4)

struct Gates {
    float beta, g;
};
__device__ __forceinline__ Gates gates(const Chunk &chunk, int token, int h, const float *x, const float *a_log_neg, const float *dt_bias) {
    if (token >= chunk.filled) return {0, 0};
    const float *at = x + chunk.row(token) * X_STRIDE + GATES_AT + h;
    return {sigmoid(at[0] + at[2 * HV]), __ldg(a_log_neg + h) * softplus(at[HV] + at[3 * HV] + __ldg(dt_bias + h))};
}

// Column j of (I + A)^-1. `tri` has A^T strictly above its diagonal and gets the inverse on and below it, so that threads of a
// triangle write what no other reads.
__device__ __forceinline__ void invert_column(float *tri, int j) {
#pragma unroll 1
    for (int block = j / WARP * 2; block < C / 16; block++) {
        int base = block * 16;
        float r[16];
#pragma unroll
        for (int i = 0; i < 16; i++) r[i] = base + i == j ? 1.0f : 0.0f;
#pragma unroll 4
        for (int k = j / WARP * WARP; k < base; k++) {
            float x = k >= j ? tri[k * PITCH + j] : 0.0f;
#pragma unroll
            for (int i = 0; i < 16; i += 4) {
                float4 a = *(const float4 *)&tri[k * PITCH + base + i];
                r[i] = __fmaf_rn(-a.x, x, r[i]), r[i + 1] = __fmaf_rn(-a.y, x, r[i + 1]);
                r[i + 2] = __fmaf_rn(-a.z, x, r[i + 2]), r[i + 3] = __fmaf_rn(-a.w, x, r[i + 3]);
            }
        }
#pragma unroll
        for (int k = 0; k < 15; k++)
#pragma unroll
            for (int i = k + 1; i < 16; i++) r[i] = __fmaf_rn(-tri[(base + k) * PITCH + base + i], r[k], r[i]);
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (base + i >= j) tri[(base + i) * PITCH + j] = r[i];
    }
}

// Block (chunk, key head): the value heads of a key head two at a time. Warp w has tokens 16w.. as rows of both products.
extern "C" __global__ void __launch_bounds__(THREADS) gdn_chunk(const Arguments args) {
    __shared__ union {
        __align__(16) u16 k[2][C * K];
        __align__(16) float tri[2][C * PITCH];
    } both;
    __shared__ float sum[2][C], beta[2][C], half[2];
    let_next_start();
    wait_for_inputs();
    Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x);
    if (chunk.filled == 0) return;
    int kh = blockIdx.y, tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP, g = lane / 4, t = lane % 4;
    int token = tid % C, which = tid / C;
    const u16 *q_from = args.keys + ((u64)blockIdx.x * HK + kh) * KEYS_ELEMENTS, *k_from = q_from + 2 * C * K;
    u32 k_at = shared_address(both.k);
#pragma unroll
    for (int i = 0; i < 2 * C * K / 8 / THREADS; i++) copy16(k_at + (tid + i * THREADS) * 16, k_from + (tid + i * THREADS) * 8);
    copies_end();
    auto head = [&](int n) { return GROUPED ? kh * SHARING + n : kh + n * HK; };
    Gates mine = {0, 0};
    if (which < SHARING) mine = gates(chunk, token, head(which), args.x, args.a_log_neg, args.dt_bias);

    // What the convolution of the tokens to come wants of this piece; the one of this piece has read what was there.
    if (chunk.index * C + C >= chunk.rows) {
        float *ring = args.tail + (u64)chunk.slot * 4 * CHANNELS;
        for (int n = max(0, chunk.rows - 4); n < chunk.rows; n++)
            for (int ch = kh * THREADS + tid; ch < CHANNELS; ch += HK * THREADS)
                ring[((chunk.start + n) & 3) * CHANNELS + ch] = args.x[((u64)chunk.first_row + n) * X_STRIDE + ch];
    }
    copies_wait<0>();
    __syncthreads();

    float kk[8][4] = {}, qk[8][4] = {};
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        Left k, q;
        int row = 16 * warp + lane % 16;
        u32 at = k_at + place<K>(row, 16 * step + lane / 16 * 8) * 2;
        ldmatrix(k.high, at), ldmatrix(k.low, at + C * K * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int from = place<K>(16 * warp + g + i % 2 * 8, 16 * step + 2 * t + i / 2 * 8);
            q.high[i] = *(const u32 *)(q_from + from), q.low[i] = *(const u32 *)(q_from + C * K + from);
        }
#pragma unroll
        for (int np = 0; np < 4; np++) {
            if (np > warp) break;
            Right r = right_at<C * K * 2>(k_at + place<K>(16 * np + lane % 8 + lane / 16 * 8, 16 * step + lane / 8 % 2 * 8) * 2);
            multiply(kk[2 * np], kk[2 * np + 1], k, r, qk[2 * np], qk[2 * np + 1], q, r);
        }
    }

#pragma unroll 1
    for (int base = 0; base < SHARING; base += 2) {
        bool there = base + which < SHARING;
        // The running sum over 64 tokens: two warps, 32 each.
        float running = mine.g;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            float before = __shfl_up_sync(~0u, running, step);
            if (lane >= step) running += before;
        }
        if (tid % C == WARP - 1) half[which] = running;
        __syncthreads(); // also: the args.keys, or the triangles of the heads before, have been read
        if (token >= WARP) running += half[which];
        sum[which][token] = running, beta[which][token] = mine.beta;
        if (there) args.sums[((u64)blockIdx.x * HV + head(base + which)) * C + token] = running;
        __syncthreads();
        if (base + 2 + which < SHARING) mine = gates(chunk, token, head(base + 2 + which), args.x, args.a_log_neg, args.dt_bias);

#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (base + e >= SHARING) break;
            u16 *p = args.mats + ((u64)blockIdx.x * HV + head(base + e)) * MATS_ELEMENTS + 2 * C * C;
#pragma unroll
            for (int n = 0; n < 8; n++) {
                if (n / 2 > warp) break;
#pragma unroll
                for (int low = 0; low < 2; low++) {
                    int i = 16 * warp + g + 8 * low, j = 8 * n + 2 * t;
                    float d[2];
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        d[c] = j + c <= i ? __expf(sum[e][i] - sum[e][j + c]) : 0;
                        if (j + c < i) both.tri[e][(j + c) * PITCH + i] = beta[e][i] * kk[n][2 * low + c] * d[c];
                    }
                    Split s = split(qk[n][2 * low] * d[0], qk[n][2 * low + 1] * d[1]);
                    int to = place<C>(i, j);
                    *(u32 *)(p + to) = s.high, *(u32 *)(p + C * C + to) = s.low;
                }
            }
        }
        __syncthreads();
        if (there) invert_column(both.tri[which], token);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (base + e >= SHARING) break;
            u16 *inverse = args.mats + ((u64)blockIdx.x * HV + head(base + e)) * MATS_ELEMENTS;
#pragma unroll
            for (int item = tid; item < C * C / 8; item += THREADS) {
                int i = item / 8, j = item % 8 * 8;
                if (j / 16 > i / 16) continue;
                u32 high[4], low[4];
#pragma unroll
                for (int c = 0; c < 8; c += 2) {
                    float first = j + c <= i ? both.tri[e][i * PITCH + j + c] * beta[e][j + c] : 0;
                    float second = j + c + 1 <= i ? both.tri[e][i * PITCH + j + c + 1] * beta[e][j + c + 1] : 0;
                    Split s = split(first, second);
                    high[c / 2] = s.high, low[c / 2] = s.low;
                }
                int to = place<C>(i, j);
                *(uint4 *)(inverse + to) = make_uint4(high[0], high[1], high[2], high[3]);
                *(uint4 *)(inverse + C * C + to) = make_uint4(low[0], low[1], low[2], low[3]);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------- gdn_scan

#if __CUDA_ARCH__ >= 900
// Contiguous memory into shared memory, counted by the barrier at `done`.
__device__ __forceinline__ void bulk_copy(u32 to, const void *from, u32 bytes, u32 done) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(done)
                 : "memory");
}
__device__ __forceinline__ void await(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(barrier), "r"(parity)
                 : "memory");
}
#endif

#define SCAN_THREADS (SCAN_WARPS * WARP)
#define SCAN_COLS (SCAN_WARPS * 16)
#define TILES (V / SCAN_COLS)
#define KEYS_BYTES (KEYS_ELEMENTS * 2)
#define MATS_BYTES (MATS_ELEMENTS * 2)
#define STAGE_BYTES (KEYS_BYTES + MATS_BYTES + C * 4)

// Block (h * TILES + tile, piece): SCAN_COLS columns of value head h. `stages`: chunks that shared memory holds, 1 or 2.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS) gdn_scan(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    let_next_start();
    wait_for_inputs();
    int4 piece = args.pieces[blockIdx.y];
    int rows = piece.w;
    if (piece.x < 0 || rows <= 0) return;
    int h = blockIdx.x / TILES, kh = GROUPED ? h / SHARING : h % HK, chunks = (rows + C - 1) / C;
    int tid = threadIdx.x, lane = tid % WARP, g = lane / 4, t = lane % 4;
    int v0 = blockIdx.x % TILES * SCAN_COLS + tid / WARP * 16;
    u64 number = piece.z / C + blockIdx.y;
    const u8 *keys_from = (const u8 *)args.keys + (number * HK + kh) * KEYS_BYTES, *mats_from = (const u8 *)args.mats + (number * HV + h) * MATS_BYTES;
    const float *sums_from = args.sums + (number * HV + h) * C;
    u32 shared_at = shared_address(shared);
#if __CUDA_ARCH__ >= 900
    // One thread asks for a chunk in three copies, and everyone waits at the barrier of its place.
    __shared__ u64 arrived[2];
    u32 arrived_at = shared_address(arrived);
    if (tid == 0) {
        for (int i = 0; i < 2; i++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(arrived_at + 8 * i) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    auto fetch = [&](int chunk) {
        if (tid != 0) return;
        u32 to = shared_at + chunk % args.stages * STAGE_BYTES, done = arrived_at + chunk % args.stages * 8;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(done), "r"(STAGE_BYTES) : "memory");
        bulk_copy(to, keys_from + (u64)chunk * HK * KEYS_BYTES, KEYS_BYTES, done);
        bulk_copy(to + KEYS_BYTES, mats_from + (u64)chunk * HV * MATS_BYTES, MATS_BYTES, done);
        bulk_copy(to + KEYS_BYTES + MATS_BYTES, sums_from + (u64)chunk * HV * C, C * 4, done);
    };
    auto wait_for = [&](int chunk, bool) { await(arrived_at + chunk % args.stages * 8, chunk / args.stages & 1); };
#else
    auto fetch = [&](int chunk) {
        u32 to = shared_at + chunk % args.stages * STAGE_BYTES;
        const u8 *k = keys_from + (u64)chunk * HK * KEYS_BYTES, *m = mats_from + (u64)chunk * HV * MATS_BYTES;
#pragma unroll 8
        for (int i = tid * 16; i < KEYS_BYTES; i += SCAN_THREADS * 16) copy16(to + i, k + i);
#pragma unroll 8
        for (int i = tid * 16; i < MATS_BYTES; i += SCAN_THREADS * 16) copy16(to + KEYS_BYTES + i, m + i);
        if (tid < C / 4) copy16(to + KEYS_BYTES + MATS_BYTES + tid * 16, sums_from + (u64)chunk * HV * C + tid * 4);
        copies_end();
    };
    auto wait_for = [&](int, bool next_is_coming) {
        if (next_is_coming) copies_wait<1>();
        else copies_wait<0>();
        __syncthreads();
    };
#endif
    fetch(0);

    // S^T: tile n has columns 8n.. of K; element 0, 1: row v0 + g, columns 2t, 2t + 1; 2, 3: row v0 + g + 8.
    float *at_state = args.state + ((u64)piece.x * HV + h) * K * V + v0 + g;
    float s[K / 8][4];
#pragma unroll
    for (int n = 0; n < K / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = at_state[(8 * n + 2 * t + i % 2) * V + i / 2 * 8];

    // Lanes' rows of right operands: as they are, and for those that ldmatrix turns.
    int row = lane % 8 + lane / 16 * 8, col = lane / 8 % 2, turned_row = lane % 16, turned_col = lane / 16;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        int filled = min(C, rows - chunk * C);
        float *at_values = args.values + ((u64)piece.z + chunk * C) * (HV * V) + h * V + v0 + g;
        float r[8][4] = {}, o[8][4] = {}, v[8][4];
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = 8 * n + 2 * t + i % 2;
                v[n][i] = token < filled ? at_values[(u64)token * (HV * V) + i / 2 * 8] : 0.0f;
            }
        bool ahead = args.stages == 2 && chunk + 1 < chunks;
        if (ahead) fetch(chunk + 1);
        wait_for(chunk, ahead);
        u32 q_at = shared_at + chunk % args.stages * STAGE_BYTES, k_at = q_at + KEYS_BYTES / 2, t_at = q_at + KEYS_BYTES, p_at = t_at + MATS_BYTES / 2;
        const float *sum = (const float *)(shared + chunk % args.stages * STAGE_BYTES + KEYS_BYTES + MATS_BYTES);

        // (K S)^T and (Q S)^T, columns are tokens.
#pragma unroll
        for (int step = 0; step < K / 16; step++) {
            Left l = left_of(s[2 * step], s[2 * step + 1]);
            u32 from = place<K>(row, 16 * step + 8 * col) * 2;
#pragma unroll
            for (int np = 0; np < 4; np++) {
                Right k = right_at<C * K * 2>(k_at + from + np * 16 * K * 2), q = right_at<C * K * 2>(q_at + from + np * 16 * K * 2);
                multiply(r[2 * np], r[2 * np + 1], l, k, o[2 * np], o[2 * np + 1], l, q);
            }
        }
        float delta[8][4] = {};
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float grown = __expf(sum[8 * n + 2 * t + i % 2]);
                r[n][i] = __fmaf_rn(-grown, r[n][i], v[n][i]);
                o[n][i] *= grown;
            }
        // Delta^T = R^T T^T, then O^T += Delta^T P^T; T and P are lower triangles.
#pragma unroll
        for (int step = 0; step < C / 16; step++) {
            Left l = left_of(r[2 * step], r[2 * step + 1]);
            u32 from = t_at + place<C>(row, 16 * step + 8 * col) * 2;
#pragma unroll
            for (int np = step; np < 4; np += 2) {
                Right a = right_at<C * C * 2>(from + np * 16 * C * 2);
                if (np == 3) {
                    multiply(delta[6], delta[7], l, a);
                } else {
                    Right b = right_at<C * C * 2>(from + (np + 1) * 16 * C * 2);
                    multiply(delta[2 * np], delta[2 * np + 1], l, a, delta[2 * np + 2], delta[2 * np + 3], l, b);
                }
            }
        }
#pragma unroll
        for (int step = 0; step < C / 16; step++) {
            Left l = left_of(delta[2 * step], delta[2 * step + 1]);
            u32 from = p_at + place<C>(row, 16 * step + 8 * col) * 2;
#pragma unroll
            for (int np = step; np < 4; np += 2) {
                Right a = right_at<C * C * 2>(from + np * 16 * C * 2);
                if (np == 3) {
                    multiply(o[6], o[7], l, a);
                } else {
                    Right b = right_at<C * C * 2>(from + (np + 1) * 16 * C * 2);
                    multiply(o[2 * np], o[2 * np + 1], l, a, o[2 * np + 2], o[2 * np + 3], l, b);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = 8 * n + 2 * t + i % 2;
                if (token < filled) at_values[(u64)token * (HV * V) + i / 2 * 8] = o[n][i];
            }
        // S^T = e^(G_63) S^T + (Delta scaled)^T K. What a chunk adds is summed by itself: tensor cores cut off, f32 adds round.
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
                Right a = turned_right_at<C * K * 2>(from + place<K>(turned_row, 16 * np + 8 * turned_col) * 2);
                Right b = turned_right_at<C * K * 2>(from + place<K>(turned_row, 16 * np + 16 + 8 * turned_col) * 2);
                multiply(added[0], added[1], l[step], a, added[2], added[3], l[step], b);
            }
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) s[2 * np + n][i] = __fmaf_rn(decay, s[2 * np + n][i], added[n][i]);
        }
        __syncthreads();
        if (args.stages == 1 && chunk + 1 < chunks) fetch(chunk + 1);
    }
#pragma unroll
    for (int n = 0; n < K / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) at_state[(8 * n + 2 * t + i % 2) * V + i / 2 * 8] = s[n][i];
}

// -------------------------------------------------------------------------------------------------------------- gdn_finish

#define FINISH_PARTS 4
#define FINISH_ROWS (C / FINISH_PARTS / (THREADS / WARP))

// Block (FINISH_PARTS * chunk + part, value head): a warp takes FINISH_ROWS tokens.
extern "C" __global__ void __launch_bounds__(THREADS) gdn_finish(const Arguments args) {
    let_next_start();
    int lane = threadIdx.x % WARP, h = blockIdx.y, first = (blockIdx.x % FINISH_PARTS * (THREADS / WARP) + threadIdx.x / WARP) * FINISH_ROWS;
    float w[V / 32];
#pragma unroll
    for (int b = 0; b < V / 32; b++) w[b] = __ldg(args.norm + 32 * b + lane);
    wait_for_inputs();
    Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x / FINISH_PARTS);
    int end = min(first + FINISH_ROWS, chunk.filled);
#pragma unroll 4
    for (int t = first; t < end; t++) {
        u64 row = chunk.row(t), at = row * (HV * V) + h * V;
        float o[V / 32], z[V / 32], sum = 0;
#pragma unroll
        for (int b = 0; b < V / 32; b++) o[b] = args.values[at + 32 * b + lane], z[b] = args.x[row * X_STRIDE + Z_AT + h * V + 32 * b + lane];
#pragma unroll
        for (int b = 0; b < V / 32; b++) sum = __fmaf_rn(o[b], o[b], sum);
        float scale = __frcp_rn(__fsqrt_rn(__fmaf_rn(warp_sum(sum), 1.0f / V, args.eps)));
#pragma unroll
        for (int b = 0; b < V / 32; b++)
            quantize_block(o[b] * scale * w[b] * silu(z[b]), args.codes + (at + 32 * b) * PLANES, args.meta + (at / 32 + b) * PLANES);
    }
}
