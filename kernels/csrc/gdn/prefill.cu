// Many tokens of the gated delta rule at once: the mixer of a GDN layer for pieces of several sequences. Three kernels:
//
//   gdn_chunk   q, k, v = convolution, SiLU, norms; q and k as two bf16 each, high and low part (16 bits of precision);
//               for every chunk of 64 tokens and head: G = running sum of log decays, D_ij = exp(G_i - G_j) for j <= i,
//               A = strictly lower (diag(beta) K K^T * D), T = (I + A)^-1 diag(beta), P = Q K^T * D
//   gdn_scan    chunk after chunk: R = V - diag(e^G) K S, Delta = T R, O = diag(e^G) Q S + P Delta,
//               S = e^(G_63) S + (diag(e^(G_63 - G)) K)^T Delta
//   gdn_finish  y = o / sqrt(mean(o^2) + eps) * w * silu(z) and its int8 form; the ring
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
// exports: by number of a chunk, where the state and the ring after it are kept too, as if it were a slot, or below 0; only of chunks that
// their piece fills. Null: nowhere.
//
// x, state, tail as in gdn_decode.cu, but x of one plane in f16. Scratch: keys [chunks][HK][q, k][high, low][64][K] bf16, mats [chunks][HV][T, P][high, low][64][64] bf16,
// sums [chunks][HV][64] f32, values [rows][HV * V] f32: v, then o in its place. In bf16 matrices, 16-byte groups of row i stand
// at their number xor i % 8, so that ldmatrix meets no bank twice. Of T and P, 16 x 16 blocks above the diagonal are not written nor read.
//
// PAIRED: chips with clusters and 227 KB of shared memory for a block, where two warps of gdn_scan share K.
//
// -D: K, V (64 or 128), HK, HV, X_STRIDE, GROUPED (1: key head h / (HV / HK), 0: h % HK), SCAN_WARPS, PLANES.
#define PAIRED (__CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
#define C 64
#define CHANNELS (2 * HK * K + HV * V)
#define Z_AT CHANNELS
#define GATES_AT (Z_AT + HV * V)
#define SHARING (HV / HK)
#define THREADS 128
#define KEYS_ELEMENTS (4 * C * K) // q and k of a chunk and key head
#define MATS_ELEMENTS (4 * C * C) // T and P of a chunk and value head

#include "gdn/chunk.cuh"
#include "gdn/scan.cuh"
#include "gdn/pairs.cuh"
#include "gdn/finish.cuh"
