//! Every encoding against bytes and values made by another implementation.

use crate::support::{Driver, Golden, config, golden_dir, relative_rms};
use chimere_engine::format::blocks::{SplitMix, decode_row, encode_row};
use chimere_engine::format::{BlockType, Gguf, Tensor};
use chimere_engine::model::{self, Model, load_gguf};
use chimere_engine::quantize::{self, Importance, Output, Threads};
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

/// Random blocks whose f16 factor is a power of two that makes values of the usual size.
fn blocks(ty: BlockType, shape: &[usize]) -> Tensor {
    let mut rng = SplitMix::new(21, ty as u64);
    let count = shape.iter().product::<usize>() / ty.elements();
    let mut bytes: Vec<u8> = (0..count * ty.bytes()).map(|_| rng.next_u64() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.bytes()) {
        // 2^-11 for entries of 8 to 43, 2^-7 for those of -1 to 1, which lies in the top of four words of scales.
        match ty {
            BlockType::Iq1M => [49, 51, 53, 55].into_iter().zip([0, 0, 0, 2]).for_each(|(at, top)| {
                block[at] = block[at] & 15 | top << 4;
            }),
            BlockType::Iq1S => block[..2].copy_from_slice(&0x2000u16.to_le_bytes()),
            _ => block[..2].copy_from_slice(&0x1000u16.to_le_bytes()),
        }
    }
    Tensor::owned(NAME.into(), ty, shape.to_vec(), bytes).unwrap()
}

const NAME: &str = "blk.0.ffn_up_exps.weight";

#[test]
fn files_of_two_bits_and_fewer_load_and_compute_what_their_values_say() {
    let source = Gguf::open(&golden_dir("quant").join("model.gguf")).unwrap();
    let ids = Golden::of("quant").ids("input_ids");
    let (dir, importance) = (tempfile::tempdir().unwrap(), Importance::default());
    let logits = |model: &Model, exact| Driver::recording(model, &config(exact, 2)).prompt(&ids, ids.len());
    for name in ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"] {
        let tensor = blocks(named(name), &source.tensor(NAME).unwrap().shape);
        let floats = tensor.decode().into_iter().flat_map(f32::to_le_bytes).collect();
        let floats = Tensor::owned(NAME.into(), BlockType::F32, tensor.shape.clone(), floats).unwrap();
        let (path, with) = (dir.path().join(name), source.with([tensor]));
        let (types, dropped, keys, dropped_keys) = Default::default();
        let output =
            Output { source: &with, types, dropped, keys, dropped_keys, importance: &importance, encoder: &Threads };
        quantize::write(&path, &output, |_, _| ()).unwrap();
        let model = model::load(&path).unwrap();
        let want = logits(&load_gguf(&source.with([floats])).unwrap(), true);
        assert!(logits(&model, true) == want, "{name}");
        let error = relative_rms(&logits(&model, false), &want);
        assert!(error < 6e-2, "{name}: relative error {error:e}");
    }
}
