//! Files on the disk: written whole or not at all, replaced under readers.

use super::*;
use std::io::Write;
use std::path::Path;

fn image(next: TokenId) -> Image {
    build(&[&[1, 2, next]], &options(1, 2, 100)).unwrap()
}

fn next(table: &Table) -> TokenId {
    table.find(&Context::new(&[1, 2]), 2).unwrap().iter().next().unwrap().0
}

fn names(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_reader_keeps_the_table_it_opened_when_another_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.engr");
    publish(&path, |out| image(10).write(out)).unwrap();
    let live = Latest::new(Table::open(&path).unwrap());
    let request = live.snapshot();
    publish(&path, |out| image(20).write(out)).unwrap();
    live.replace(Table::open(&path).unwrap());
    assert_eq!((next(&request), next(&live.snapshot())), (10, 20));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(next(&live.snapshot()), 20, "a removed table serves whoever has it");
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("facts.engr");
    publish(&path, |out| image(10).write(out)).unwrap();
    let error = publish(&path, |out| {
        out.write_all(&image(20).to_bytes()[..100])?;
        Err(std::io::Error::other("no room"))
    });
    assert!(error.unwrap_err().to_string().ends_with("facts.engr: no room"));
    assert_eq!(next(&Table::open(&path).unwrap()), 10);
    assert_eq!(names(dir.path()), ["facts.engr"]);
}

#[test]
fn readers_see_one_whole_table_or_the_other_while_they_are_replaced() {
    let live = Latest::new(Table::in_memory(&image(10)));
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| (0..2_000).map(|_| next(&live.snapshot())).collect::<Vec<_>>())).collect();
        for i in 0..200 {
            live.replace(Table::in_memory(&image(10 + i % 2)));
        }
        let seen: Vec<_> = readers.into_iter().flat_map(|r| r.join().unwrap()).collect();
        assert!(seen.iter().all(|n| [10, 11].contains(n)));
    });
}

#[test]
fn a_file_and_the_same_bytes_in_memory_answer_alike() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.engr");
    let text: Vec<TokenId> = (0..2_000u32).map(|i| (i * 7919 + i * i) % 61).collect();
    let image = build(&[&text], &options(1, 8, 100)).unwrap();
    publish(&path, |out| image.write(out)).unwrap();
    let (read, owned) = (Arc::new(Table::open(&path).unwrap()), Arc::new(Table::in_memory(&image)));
    assert_eq!(read.stats(), owned.stats());
    for end in 8..text.len() {
        assert_eq!(predict(&[&read], &text[..end], 1), predict(&[&owned], &text[..end], 1));
    }
}

#[test]
fn a_table_goes_on_answering_when_its_file_is_overwritten_or_cut_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.engr");
    let text: Vec<TokenId> = (0..20_000u32).map(|i| (i * 7919 + i * i) % 61).collect();
    publish(&path, |out| build(&[&text], &options(1, 8, 100)).unwrap().write(out)).unwrap();
    let table = Arc::new(Table::open(&path).unwrap());
    let answers = || (8..text.len()).step_by(97).map(|end| predict(&[&table], &text[..end], 1)).collect::<Vec<_>>();
    let before = answers();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    (&file).write_all(&[0xff; 4096]).unwrap();
    assert!(answers() == before);
    file.set_len(0).unwrap();
    assert!(answers() == before);
    assert!(Table::open(&path).unwrap_err().to_string().contains("a file of 0 bytes"));
}

#[test]
#[cfg(unix)]
fn a_table_s_file_is_its_owner_s_alone_and_another_kind_of_file_is_no_table() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.engr");
    publish(&path, |out| image(10).write(out)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let fifo = dir.path().join("fifo.engr");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(Table::open(&fifo).unwrap_err().to_string().ends_with("fifo.engr: wanted a regular file, got a FIFO"));
}
