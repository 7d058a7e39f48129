//! Which model to serve when nobody says: the usual places, in order.

use chimere_engine::model::find_file;
use std::path::{Path, PathBuf};

/// The model file or directory, or an error that names every place looked at.
///
/// `asked` is `--model`, `env` is `$CHIMERE_MODEL`, `exe` is this program's own path. What a directory stands for,
/// the engine says, so that every command takes the same file.
pub fn model(asked: Option<&Path>, env: Option<&Path>, exe: Option<&Path>) -> Result<PathBuf, String> {
    let named = [(asked, "--model"), (env, "$CHIMERE_MODEL")];
    if let Some((Some(path), what)) =
        named.into_iter().find(|(path, _)| path.is_some_and(|p| !p.as_os_str().is_empty()))
    {
        return if path.exists() {
            file_of(path)
        } else {
            Err(format!("{what} names {}, which does not exist", path.display()))
        };
    }
    let here = PathBuf::from("models/nano");
    let shared = exe.and_then(Path::parent).map(|dir| dir.join("../share/chimere/nano"));
    let places = [Some(here), shared].into_iter().flatten().collect::<Vec<_>>();
    if let Some(found) = places.iter().find(|p| p.exists()) {
        return file_of(found);
    }
    let looked = places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
    Err(format!(
        "no model: --model is not given, $CHIMERE_MODEL is not set, and none of these exists: {looked}. Name a \
         model, or start it in the project's folder, which has a small one"
    ))
}

fn file_of(path: &Path) -> Result<PathBuf, String> {
    let found = find_file(path).map_err(|e| e.to_string())?;
    let says_something = ["config.json", "adapter_config.json"].iter().any(|file| found.join(file).exists());
    if found.is_dir() && !says_something {
        return Err(format!("{} holds neither a .gguf model nor a config.json", path.display()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, write};

    #[test]
    fn a_directory_with_one_gguf_stands_for_it_also_when_split() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("README.md"), "").unwrap();
        write(dir.path().join("m-00001-of-00002.gguf"), "").unwrap();
        write(dir.path().join("m-00002-of-00002.gguf"), "").unwrap();
        assert_eq!(model(Some(dir.path()), None, None), Ok(dir.path().join("m-00001-of-00002.gguf")));
        write(dir.path().join("other.gguf"), "").unwrap();
        assert!(model(Some(dir.path()), None, None).unwrap_err().contains("m-00001-of-00002.gguf, other.gguf"));
    }

    #[test]
    fn the_flag_comes_before_the_environment_and_both_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.gguf");
        write(&file, "").unwrap();
        let gone = dir.path().join("gone.gguf");
        assert_eq!(model(Some(&file), Some(&gone), None), Ok(file.clone()));
        assert_eq!(model(None, Some(&file), None), Ok(file));
        assert!(model(Some(&gone), None, None).unwrap_err().contains("--model names"));
        assert!(model(None, Some(&gone), None).unwrap_err().contains("$CHIMERE_MODEL names"));
    }

    #[test]
    fn a_hugging_face_directory_stays_a_directory_and_an_empty_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(model(Some(dir.path()), None, None).unwrap_err().contains("neither"));
        write(dir.path().join("config.json"), "{}").unwrap();
        assert_eq!(model(Some(dir.path()), None, None), Ok(dir.path().to_path_buf()));
        write(dir.path().join("model.safetensors"), "").unwrap();
        write(dir.path().join("mmproj-F16.gguf"), "").unwrap();
        assert_eq!(model(Some(dir.path()), None, None), Ok(dir.path().to_path_buf()), "a projector is no model");
        write(dir.path().join("m.gguf"), "").unwrap();
        assert_eq!(model(Some(dir.path()), None, None), Ok(dir.path().join("m.gguf")));
    }

    #[test]
    fn without_any_model_every_place_is_named() {
        let dir = tempfile::tempdir().unwrap();
        create_dir(dir.path().join("bin")).unwrap();
        let exe = dir.path().join("bin/chimere");
        // Tests run in the crate's directory, which has no models/nano.
        let err = model(None, None, Some(&exe)).unwrap_err();
        for place in ["--model", "$CHIMERE_MODEL", "models/nano", "share/chimere/nano"] {
            assert!(err.contains(place), "{err}");
        }
        std::fs::create_dir_all(dir.path().join("share/chimere/nano")).unwrap();
        write(dir.path().join("share/chimere/nano/nano.gguf"), "").unwrap();
        assert!(model(None, None, Some(&exe)).unwrap().ends_with("nano.gguf"));
    }
}
