//! Which model to serve when nobody says: the usual places, in order.

use std::path::{Path, PathBuf};

/// The model file or directory, or an error that names every place looked at.
///
/// `asked` is `--model`, `env` is `$CHIMERE_MODEL`, `exe` is this program's own path. A directory that holds a single
/// `.gguf` file, or the first part of a single split one, stands for that file.
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
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let entries = std::fs::read_dir(path).map_err(|e| format!("cannot read directory {}: {e}", path.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| is_model(p)).collect();
    files.sort();
    match files.as_slice() {
        [one] => Ok(one.clone()),
        [] if path.join("config.json").exists() => Ok(path.to_path_buf()),
        [] => Err(format!("{} holds neither a .gguf file nor a config.json", path.display())),
        _ => {
            let names =
                files.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy()).collect::<Vec<_>>().join(", ");
            Err(format!("{} holds several models ({names}): name one of the files", path.display()))
        }
    }
}

/// A `.gguf` file; of a split one only the first part counts.
fn is_model(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let Some(stem) = name.strip_suffix(".gguf") else { return false };
    match stem.rsplit_once("-of-") {
        Some((front, count)) if count.len() == 5 && count.bytes().all(|b| b.is_ascii_digit()) => {
            front.ends_with("-00001")
        }
        _ => true,
    }
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
