//! Files that somebody changes while they are loaded or served: the load fails with a word, and what is served does not
//! change.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere")]

mod support;

use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
use chimere_engine::model::{self, Model};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A copy of a model that can be harmed, by format.
fn copies() -> Vec<(tempfile::TempDir, PathBuf, PathBuf)> {
    let gguf = tempfile::tempdir().unwrap();
    let weights = gguf.path().join("model.gguf");
    std::fs::copy(support::golden_dir("moe").join("model.gguf"), &weights).unwrap();
    let hugging_face = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(support::golden_dir("moe").join(file), hugging_face.path().join(file)).unwrap();
    }
    let (directory, shard) = (hugging_face.path().to_owned(), hugging_face.path().join("model.safetensors"));
    vec![(gguf, weights.clone(), weights), (hugging_face, directory, shard)]
}

fn write_to(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn backend(model: &Model) -> CpuBackend {
    let config = CpuConfig {
        threads: 2,
        slots: 1,
        pages: 3,
        checkpoints: 0,
        kv_type: KvType::F16,
        exact: false,
        step_rows_max: 64,
        context: 96,
        drafts: 0,
        draft_head: false,
    };
    CpuBackend::new(model, &config, &mut |_| {}).unwrap()
}

#[test]
fn a_model_that_is_cut_while_it_is_loaded_is_refused_and_nobody_dies() {
    for (_dir, path, weights) in copies() {
        for left in [0, 4096] {
            let model = model::load(&path).unwrap();
            let whole = std::fs::read(&weights).unwrap();
            write_to(&weights).set_len(left).unwrap();
            drop(backend(&model));
            let error = model.files.check().unwrap_err().to_string();
            assert!(error.contains("the file was changed while it was read"), "{error}");
            std::fs::write(&weights, whole).unwrap();
        }
        drop(model::load(&path).unwrap());
    }
}

#[test]
fn a_model_that_is_written_to_while_it_is_loaded_is_refused() {
    for (_dir, path, weights) in copies() {
        let model = model::load(&path).unwrap();
        model.files.check().unwrap();
        let later = std::fs::metadata(&weights).unwrap().modified().unwrap() + std::time::Duration::from_millis(5);
        let mut file = write_to(&weights);
        file.write_all(b"GGUF").unwrap();
        file.set_modified(later).unwrap();
        assert!(model.files.check().is_err());
    }
}

#[test]
fn a_model_that_another_takes_the_place_of_by_its_name_is_loaded_to_its_end() {
    let (dir, path, weights) = copies().swap_remove(0);
    let model = model::load(&path).unwrap();
    let other = dir.path().join("other");
    std::fs::write(&other, "another model").unwrap();
    std::fs::rename(other, weights).unwrap();
    drop(backend(&model));
    model.files.check().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn what_serves_has_let_go_of_the_model_s_file() {
    for (dir, path, _) in copies() {
        let model = model::load(&path).unwrap();
        let _backend = backend(&model);
        drop(model);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains(dir.path().to_str().unwrap()), "{maps}");
    }
}

#[test]
#[cfg(unix)]
fn a_model_that_is_no_regular_file_is_refused_by_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("model.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in [fifo.as_path(), dir.path(), Path::new("/dev/zero")] {
        let error = model::load(path).err().unwrap().to_string();
        assert!(error.contains("wanted a regular file, got a"), "{error}");
    }
}
