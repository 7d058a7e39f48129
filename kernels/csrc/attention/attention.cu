// Full attention of a step's rows over a paged cache, up to the int8 rows of the out-projection.
//
//   q, k = rope(rms_norm(x_q) * w_q), rope(rms_norm(x_k) * w_k)      v = x_v
//   o = softmax(scale q k^T) v over positions 0..=p of the row's sequence      out = o * sigmoid(gate)
// Norms, rotation and gates may be absent.
//
// x: [rows, X_STRIDE] f32, or of prompts with half_x f16, a row is D of q, then D of gate, if there are gates, for each query head; k of the
// key-value heads; v of the key-value heads.
// A page is 32 positions; page of position p of slot s: page_table[s][p / 32]. slots[row] < 0: no row.
//
// Caches, [pages][HKV] of these, so that what a lane wants of one page for a matrix instruction is 16 neighbouring bytes, a warp's
// loads are whole lines, and a page copied to shared memory as it is has no bank conflicts:
//   K f16  [D / 32][32 tokens][32 dims]
//   K q8   [D / 64][32 tokens][4 t][2 blocks of 32 dims][dims 8t to 8t + 7 of the block] codes, then [D / 32][32 tokens] f16 scales
//   V f16  [D][32 tokens]
//   V q8   [D / 16][8 g][4 t][dim g, g + 8][tokens 8t to 8t + 7] codes, then [D / 32][32 tokens] f16 scales
//   V q4   [D / 16][8 g][4 t][tokens 8t to 8t + 7] bytes, the low nibble dim g and the high one dim g + 8, then scales as q8
// A quantised K is rotated by the orthonormal Hadamard matrix first, and so is q; the products are the same, outliers are spread.
//
// Matrix instructions: the rows of A are query heads (and tokens, in prefill) of one key-value head. Inner indices are permuted so
// that lane t owns 8 neighbours, in q and k the same: step one takes 0 1 | 2 3 of them, step two 4 5 | 6 7. Column n of the i-th
// tile of scores is token 8 (n / 2) + 2i + n % 2 of the page, so that a lane's scores are tokens 8t to 8t + 7, which is what the
// second product wants of it.
//
// -D: D, GQ (query heads of a key-value head), HKV, ROTARY, GATED, NORMED, X_STRIDE, OUT_STRIDE, K_TYPE (0 f16, 1 q8), V_TYPE (0 f16, 1 q8, 2 q4),
// DRAFTS (drafted rows that may stand behind a decode row), ROUND (pages, of decode), WARPS (of a decode block), RESIDENT (decode blocks of a
// multiprocessor), DECODE_BYTES (their shared memory), PLANES (of the outputs).
#define PAGE 32
#define HEADS (GQ * HKV)
#define PAIRS (D / 64)

#include "attention/decode.cuh"
#include "attention/write.cuh"
#if __CUDA_ARCH__ == 900
#include "attention/warpgroups.cuh"
#else
#include "attention/prefill.cuh"
#endif
