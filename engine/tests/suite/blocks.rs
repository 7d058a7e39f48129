//! Every encoding against bytes and values made by another implementation.

use chimere_engine::format::BlockType;
use chimere_engine::format::blocks::{decode_row, encode_row};
use safetensors::SafeTensors;

const ALL: [&str; 24] = [
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S",
    "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4",
];

fn vectors(file: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn named(name: &str) -> BlockType {
    (0..64).filter_map(BlockType::from_gguf_id).find(|t| t.name() == name).unwrap()
}

#[test]
fn every_encoding_decodes_to_the_bits_of_the_reference() {
    let files = ["ggml_blocks", "iq_blocks", "iq_small_blocks"].map(|name| vectors(&format!("{name}.safetensors")));
    let files = files.each_ref().map(|bytes| SafeTensors::deserialize(bytes).unwrap());
    for name in ALL {
        let file = files.iter().find(|f| f.tensor(&format!("{name}.bytes")).is_ok()).unwrap();
        let want = floats(file.tensor(&format!("{name}.values")).unwrap().data());
        let mut got = vec![f32::NAN; want.len()];
        decode_row(named(name), file.tensor(&format!("{name}.bytes")).unwrap().data(), &mut got);
        let differing = got.iter().zip(&want).position(|(g, w)| g.to_bits() != w.to_bits());
        assert_eq!(differing.map(|i| (i, got[i], want[i])), None, "{name}");
    }
}

#[test]
fn q8_0_encodes_to_the_bytes_of_the_reference() {
    let file = vectors("ggml_blocks.safetensors");
    let file = SafeTensors::deserialize(&file).unwrap();
    let x = floats(file.tensor("Q8_0.encode_in").unwrap().data());
    let want = file.tensor("Q8_0.encode_out").unwrap().data().to_vec();
    let mut got = vec![0; want.len()];
    encode_row(BlockType::Q8_0, &x, &mut got);
    assert_eq!(got, want);
}
