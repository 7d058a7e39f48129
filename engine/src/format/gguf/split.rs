//! Sets of split files: `NAME-00001-of-0000N.gguf`, metadata in the first part, tensors spread over all.

use super::Gguf;
use crate::format::{LoadError, Problem};
use std::path::{Path, PathBuf};

/// The paths of the whole set that `path` is a part of; `None` if its name is not that of a part.
pub(super) fn parts(path: &Path) -> Result<Option<Vec<PathBuf>>, LoadError> {
    let Some((stem, number, count)) = path.file_name().and_then(|n| n.to_str()).and_then(part_name) else {
        return Ok(None);
    };
    if number == 0 || number > count {
        let problem = Problem::container("part number in the file's name", format_args!("1 to {count}"), number);
        return Err(problem.in_file(path));
    }
    Ok(Some((1..=count).map(|i| path.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf"))).collect()))
}

/// What the files of one model have in common: a part's `NAME` and count, another file's whole name.
pub(crate) fn set_name(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    part_name(&name).map_or_else(|| name.to_string(), |(stem, _, count)| format!("{stem}-of-{count:05}"))
}

/// `NAME-00002-of-00003.gguf` is `("NAME", 2, 3)`.
fn part_name(name: &str) -> Option<(&str, u32, u32)> {
    let digits = |s: &str| (s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok()).flatten();
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    Some((stem, digits(number)?, digits(count)?))
}

/// A file without a part's name must not be one of several.
pub(super) fn check_whole(file: &Gguf) -> Result<(), Problem> {
    match file.meta().u64("split.count").map_err(|e| e.problem)? {
        None | Some(0 | 1) => Ok(()),
        Some(n) => Err(Problem::key("split.count", "1, as the name is not `NAME-00001-of-0000N.gguf`", n)),
    }
}

/// One file of all parts, which are in order.
pub(super) fn join(parts: Vec<Gguf>) -> Result<Gguf, LoadError> {
    let count = parts.len() as u64;
    for (i, part) in parts.iter().enumerate() {
        expect(part, "split.no", i as u64)?;
        expect(part, "split.count", count)?;
    }
    let mut parts = parts.into_iter();
    let mut whole = parts.next().expect("a set has at least one part");
    for part in parts {
        let path = part.path;
        whole.files.extend(part.files);
        whole.order.extend(part.order);
        for (name, tensor) in part.tensors {
            if whole.tensors.insert(name.clone(), tensor).is_some() {
                return Err(Problem::tensor(name, "one tensor of this name in all parts", "two").in_file(&path));
            }
        }
    }
    match whole.meta.u64("split.tensors.count")? {
        Some(n) if n != whole.tensors.len() as u64 => Err(whole.meta.error(Problem::key(
            "split.tensors.count",
            format_args!("{} as the parts have", whole.tensors.len()),
            n,
        ))),
        _ => Ok(whole),
    }
}

fn expect(part: &Gguf, key: &str, want: u64) -> Result<(), LoadError> {
    let got = part.meta.need_u64(key)?;
    if got == want {
        Ok(())
    } else {
        Err(part.meta.error(Problem::key(key, format_args!("{want} by the file's name"), got)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_names_the_whole_set() {
        let set = parts(Path::new("/m/a-b-00002-of-00003.gguf")).unwrap().unwrap();
        assert_eq!(set[0], Path::new("/m/a-b-00001-of-00003.gguf"));
        assert_eq!(set[2], Path::new("/m/a-b-00003-of-00003.gguf"));
        assert_eq!(set.len(), 3);
        assert!(parts(Path::new("/m/a-2-of-3.gguf")).unwrap().is_none());
        assert!(parts(Path::new("/m/model.gguf")).unwrap().is_none());
    }

    #[test]
    fn a_part_beyond_its_set_is_refused() {
        let e = parts(Path::new("a-00004-of-00003.gguf")).unwrap_err();
        assert_eq!(e.to_string(), "a-00004-of-00003.gguf: part number in the file's name: wanted 1 to 3, got 4");
    }
}
