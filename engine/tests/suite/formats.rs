//! Checkpoint formats of few bits against what their makers' programs read, and mutations of their directories: none
//! loads with other logits.

use crate::support::directory::{Directory, StoredTensors};
use crate::support::{Driver, Golden, Random, config, data_dir, deviation, golden_dir, max_abs, relative_rms};
use chimere_engine::backend::cpu::matmul::PackedMatrix;
use chimere_engine::backend::cuda::matrix_bytes;
use chimere_engine::format::{BlockType, Tensor};
use chimere_engine::model::{Model, Op};
use chimere_engine::step::Form;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// Every directory of `golden/formats`, and the encoding that its experts have here.
const FORMATS: [(&str, BlockType); 9] = [
    // Its squares are cut short.
    ("fp8-block", BlockType::F32),
    ("fp8-channel", BlockType::F8E4m3),
    ("fp8-tensor", BlockType::F8E4m3),
    ("nvfp4-modelopt", BlockType::Nvfp4),
    ("nvfp4-ct", BlockType::Nvfp4),
    ("mxfp4-ct", BlockType::Mxfp4),
    ("awq", BlockType::U4G128),
    ("gptq", BlockType::U4G128),
    ("int4-ct", BlockType::U4G128),
];
/// Of the standard deviation of the logits.
const LOGITS: f32 = 2e-4;
/// Mutations of each directory.
const MUTATIONS: u64 = 200;

/// Of all of them.
const TOKENIZER: &str = "formats/tokenizer.json";

fn directory(format: &str) -> Directory {
    Directory::of(&format!("formats/{format}"))
}

fn golden(format: &str) -> Golden {
    Golden::read(&golden_dir("formats").join(format).join("golden.safetensors"))
}

/// Logits of the prompt's last positions, as many as the golden file has.
fn logits(format: &str, model: &Model, exact: bool) -> Vec<f32> {
    let golden = golden(format);
    let (ids, (shape, _)) = (golden.ids("input_ids"), golden.array("logits"));
    let all = Driver::recording(model, &config(exact, 2)).run(Form::Chunked, 0, &ids).logits;
    all[all.len() - shape[0] * shape[1]..].to_vec()
}

#[test]
fn directories_of_every_format_are_exact() {
    for (format, encoding) in FORMATS {
        let model = directory(format).load(TOKENIZER).unwrap_or_else(|e| panic!("{format}: {e}"));
        let Op::Moe(moe) = &model.weights.layers[0][1].op else { panic!("experts") };
        assert_eq!(moe.experts.up.ty, encoding, "{format}");
        let golden = golden(format);
        let want = golden.array("logits").1;
        let bound = LOGITS * deviation(&want);
        let error = max_abs(&logits(format, &model, true), &want);
        println!("{format}: logits off by {error:e}, {:e} of their deviation", error / deviation(&want));
        assert!(error < bound, "{format}: logits off by {error:e}, bound {bound:e}");
        let (shape, want) = golden.array("decode_logits");
        let ids = golden.ids("input_ids");
        let mut driver = Driver::recording(&model, &config(true, 2));
        driver.run(Form::Chunked, 0, &ids);
        for (n, id) in golden.ids("decode_ids").iter().enumerate() {
            let got = driver.run(Form::Recurrent, ids.len() + n, &[*id]).logits;
            let error = max_abs(&got, &want[n * shape[1]..][..shape[1]]);
            assert!(error < bound, "{format}: logits of decoded token {n} off by {error:e}, bound {bound:e}");
        }
    }
}

#[test]
fn the_default_path_of_every_format_stays_within_its_tolerance() {
    for (format, _) in FORMATS {
        let model = directory(format).load(TOKENIZER).unwrap();
        let error = relative_rms(&logits(format, &model, false), &golden(format).array("logits").1);
        println!("{format}: relative error {error:e}");
        assert!(error < 6e-2, "{format}: relative error {error:e}");
    }
}

/// The paths of all values below `value` that are no objects.
fn leaves(value: &Value, path: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            members.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{}", key.replace('/', "~1")), all));
        }
        _ => all.push(path.to_owned()),
    }
}

/// Another value of this kind.
fn other(value: &Value, random: &mut Random) -> Value {
    match value {
        Value::Bool(flag) => Value::Bool(!flag),
        Value::Number(n) => Value::from(n.as_i64().unwrap_or(1) * [2, 4][random.below(2) as usize] + 1),
        Value::String(word) => match random.below(3) {
            0 => Value::from(format!("{word}x")),
            1 => Value::Null,
            _ => Value::from("int8"),
        },
        Value::Array(all) if !all.is_empty() && random.below(2) == 0 => Value::Array(Vec::new()),
        _ => Value::from("something else"),
    }
}

/// Changes one thing; what a message has to name one of.
fn mutate(directory: &mut Directory, random: &mut Random) -> Vec<String> {
    let names: Vec<String> = directory.tensors.keys().cloned().collect();
    let name = names[random.below(names.len() as u64) as usize].clone();
    let module = name.rsplit_once('.').unwrap().0.to_owned();
    match random.below(4) {
        0 => {
            directory.tensors.remove(&name);
        }
        1 => {
            let tensor = directory.tensors.remove(&name).unwrap();
            directory.tensors.insert(format!("{name}_"), tensor);
        }
        2 => {
            let ends = ["bias", "weight_zero_point", "weight_scale_3", "pre_quant_scale", "weight_g_idx", "scales"];
            let (tensor, end) = (directory.tensors[&name].clone(), ends[random.below(6) as usize]);
            directory.tensors.entry(format!("{module}.{end}")).or_insert(tensor);
        }
        _ => {
            let mut paths = Vec::new();
            leaves(&directory.config["quantization_config"], "/quantization_config", &mut paths);
            let path = &paths[random.below(paths.len() as u64) as usize];
            let value = directory.config.pointer_mut(path).unwrap();
            *value = other(value, random);
            return vec!["quantization_config".into(), "compression_config".into()];
        }
    }
    // Without an embedding nobody knows the prefix of its name.
    let own = module.rsplit_once('.').map_or(module.clone(), |(_, own)| own.to_owned());
    vec![module, own]
}

#[test]
fn mutated_directories_are_refused_by_name_or_compute_the_same() {
    for (format, _) in FORMATS {
        let whole = logits(format, &directory(format).load(TOKENIZER).unwrap(), true);
        let (mut random, mut refused) = (Random(55), 0);
        for n in 0..MUTATIONS {
            let mut directory = directory(format);
            let names = mutate(&mut directory, &mut random);
            match directory.load(TOKENIZER) {
                Err(e) => {
                    refused += 1;
                    let named = names.iter().any(|name| e.contains(name.as_str()));
                    assert!(named, "{format}, mutation {n}: {names:?} is not named in: {e}");
                }
                Ok(model) => assert!(logits(format, &model, true) == whole, "{format}, mutation {n}: {names:?}"),
            }
        }
        println!("{format}: {refused} of {MUTATIONS} refused");
        assert!(refused > MUTATIONS / 3, "{format}: {refused} of {MUTATIONS} refused");
    }
}

/// The nearest 8-bit float to a number from -448 to 448, and its value.
fn nearest_e4m3(x: f32) -> (u8, f32) {
    let value = |code: u8| {
        let (exponent, fraction) = (i32::from(code >> 3), f32::from(code & 7));
        if exponent == 0 { fraction * 2f32.powi(-9) } else { (8.0 + fraction) * 2f32.powi(exponent - 10) }
    };
    let code = (0..0x7fu8).min_by(|a, b| (value(*a) - x.abs()).abs().total_cmp(&(value(*b) - x.abs()).abs())).unwrap();
    if x < 0.0 { (code | 0x80, -value(code)) } else { (code, value(code)) }
}

/// A preset's directory twice: its matrices as 8-bit floats with a power of two for each row, and the same values in
/// bf16.
fn in_eight_bits(preset: &str) -> [Directory; 2] {
    let dir = golden_dir(preset);
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    let config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
    let mut both = [0, 1].map(|_| Directory { tensors: StoredTensors::new(), config: config.clone() });
    let weights = serde_json::json!({ "num_bits": 8, "type": "float", "strategy": "channel" });
    both[0].config["quantization_config"] = serde_json::json!({
        "quant_method": "compressed-tensors",
        "config_groups": { "group_0": { "targets": ["Linear"], "weights": weights } },
    });
    for (name, t) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let shape = t.shape().to_vec();
        let matrix = t.dtype() == Dtype::BF16
            && shape.len() == 2
            && shape[0] > 1
            && name.ends_with(".weight")
            && !name.contains("embed");
        if !matrix {
            both.iter_mut()
                .for_each(|d| drop(d.tensors.insert(name.clone(), (t.dtype(), shape.clone(), t.data().to_vec()))));
            continue;
        }
        let value = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
        let (mut codes, mut scales, mut rounded) = (Vec::new(), Vec::new(), Vec::new());
        for row in t.data().chunks_exact(2 * shape[1]) {
            let top = row.chunks_exact(2).fold(1e-6f32, |m, b| m.max(value(b).abs()));
            let scale = 2f32.powi((top / 448.0).log2().ceil() as i32);
            scales.extend(scale.to_le_bytes());
            for b in row.chunks_exact(2) {
                let (code, near) = nearest_e4m3(value(b) / scale);
                codes.push(code);
                rounded.extend(((near * scale).to_bits() >> 16).to_le_bytes()[..2].to_vec());
            }
        }
        both[0].tensors.insert(format!("{name}_scale"), (Dtype::F32, vec![shape[0], 1], scales));
        both[0].tensors.insert(name.clone(), (Dtype::F8_E4M3, shape.clone(), codes));
        both[1].tensors.insert(name, (Dtype::BF16, shape, rounded));
    }
    both
}

#[test]
fn every_family_reads_matrices_of_eight_bits() {
    for preset in crate::unread::directories() {
        let ids = Golden::of(preset).ids("input_ids");
        let [got, want] = in_eight_bits(preset).map(|directory| {
            let model = directory.load("moe/tokenizer.json").unwrap_or_else(|e| panic!("{preset}: {e}"));
            Driver::recording(&model, &config(true, 2)).run(Form::Chunked, 0, &ids[..12]).logits
        });
        assert!(got.iter().all(|x| x.is_finite()), "{preset}");
        assert!(got == want, "{preset}: off by {:e}", max_abs(&got, &want));
    }
}

/// Bits of a weight in the tables of `docs/reference/architectures.md`: in the file, on a CPU and on a GPU.
#[test]
fn the_table_of_encodings_says_what_the_code_does() {
    let page = std::fs::read_to_string(data_dir().join("docs/reference/architectures.md")).unwrap();
    const SIZE: usize = 2048;
    let bits = |bytes: u64| format!("{:.2}", bytes as f64 * 8.0 / (SIZE * SIZE) as f64);
    for ty in BlockType::all() {
        let zeros = vec![0; SIZE * ty.row_bytes(SIZE).unwrap()];
        let tensor = Tensor::owned("w".into(), ty, vec![SIZE, SIZE], zeros).unwrap();
        let cpu = bits(PackedMatrix::planned_bytes(&tensor, false));
        let gpu = bits(matrix_bytes(ty, SIZE, SIZE));
        let row = format!("| `{}` | {} | {cpu} | {gpu} |", ty.name(), bits(tensor.bytes().len() as u64));
        assert!(page.contains(&row), "the table has no row {row}");
    }
}
