//! Names of the tensor types that exist and are not read here, so that a refusal says more than a number.

use crate::format::Problem;

/// Id and name: ggml's own below 133, those of ik_llama.cpp from there on.
const OTHERS: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (9, "Q8_1"),
    (15, "Q8_K"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
    (41, "Q1_0"),
    (42, "Q2_0"),
    (133, "Q6_0 of ik_llama.cpp"),
    (134, "IQ1_BN of ik_llama.cpp"),
    (135, "IQ2_BN of ik_llama.cpp"),
    (136, "Q8_K64 of ik_llama.cpp"),
    (137, "IQ2_K of ik_llama.cpp"),
    (138, "IQ3_K of ik_llama.cpp"),
    (139, "IQ4_K of ik_llama.cpp"),
    (140, "IQ5_K of ik_llama.cpp"),
    (141, "IQ6_K of ik_llama.cpp"),
    (144, "IQ4_KS of ik_llama.cpp"),
    (145, "IQ2_KS of ik_llama.cpp"),
    (146, "IQ4_KSS of ik_llama.cpp"),
    (152, "IQ5_KS of ik_llama.cpp"),
    (153, "IQ2_KT of ik_llama.cpp"),
    (154, "IQ3_KT of ik_llama.cpp"),
    (155, "IQ4_KT of ik_llama.cpp"),
    (156, "IQ3_KS of ik_llama.cpp"),
    (157, "IQ2_KL of ik_llama.cpp"),
    (158, "IQ1_KT of ik_llama.cpp"),
];

/// The error of a tensor in an encoding that is not read.
pub(super) fn refuse(tensor: &str, id: u32) -> Problem {
    let name = OTHERS.iter().find(|t| t.0 == id).map_or("unknown", |t| t.1);
    let read = "an encoding that is read here (F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K to Q6_K IQ4_NL IQ4_XS IQ3_S IQ3_XXS IQ2_S IQ2_XS \
                IQ2_XXS IQ1_M IQ1_S MXFP4 NVFP4)";
    Problem::tensor(tensor, read, format_args!("type {id} ({name})"))
}
