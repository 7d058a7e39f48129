//! Files and vector stores over HTTP: a file on its way from its form to a passage, what is no file, what belongs to
//! somebody else, and what a crash leaves.

use crate::support::client::{done, refused};
use crate::support::*;
use chimere::http::auth::AcceptedKeys;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

const FILES: &str = "/v1/files";
const STORES: &str = "/v1/vector_stores";
const BOUNDARY: &str = "a-line-between";

pub(crate) fn start(dir: &Path, keys: AcceptedKeys) -> Server {
    Server::start(Options { documents: Some(dir.to_owned()), keys, ..Options::default() })
}

/// A form with a purpose and a file.
fn form(filename: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nassistants\r\n--{BOUNDARY}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\nContent-Type: text/plain\r\n\r\n"
    );
    [head.as_bytes(), bytes, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat()
}

/// Somebody who speaks to a service, with a key if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a>(pub(crate) SocketAddr, pub(crate) Option<&'a str>);

impl Client<'_> {
    fn send(self, method: &str, path: &str, kind: &str, body: &[u8]) -> Reply {
        let bearer = self.1.map(|key| format!("Bearer {key}"));
        let mut headers = vec![("Content-Type", kind)];
        headers.extend(bearer.iter().map(|value| ("Authorization", value.as_str())));
        request(self.0, method, path, &headers, body)
    }

    pub(crate) fn json(self, method: &str, path: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, "application/json", body.as_bytes())
    }

    pub(crate) fn get(self, path: &str) -> Value {
        done(self.json("GET", path, &Value::Null))
    }

    pub(crate) fn post(self, path: &str, body: &Value) -> Value {
        done(self.json("POST", path, body))
    }

    fn form(self, body: &[u8]) -> Reply {
        self.send("POST", FILES, &format!("multipart/form-data; boundary={BOUNDARY}"), body)
    }

    pub(crate) fn upload(self, filename: &str, bytes: &[u8]) -> String {
        done(self.form(&form(filename, bytes)))["id"].as_str().unwrap().to_owned()
    }

    /// A new store with a file, once its file is searchable or given up; and the file as the store has it.
    pub(crate) fn store_of(self, filename: &str, bytes: &[u8]) -> (String, Value) {
        let file = self.upload(filename, bytes);
        let store = self.post(STORES, &json!({"name": "ours", "file_ids": [file]}))["id"].as_str().unwrap().to_owned();
        let file = self.settled(&store, &file);
        (store, file)
    }

    pub(crate) fn settled(self, store: &str, file: &str) -> Value {
        let path = format!("{STORES}/{store}/files/{file}");
        eventually("the file is read", || self.get(&path)["status"] != "in_progress");
        self.get(&path)
    }

    fn search(self, store: &str, body: &Value) -> Vec<Value> {
        self.post(&format!("{STORES}/{store}/search"), body)["data"].as_array().unwrap().clone()
    }
}

fn text_of(found: &Value) -> &str {
    found["content"][0]["text"].as_str().unwrap()
}

/// Files in the directories of bytes and texts.
fn kept(dir: &Path) -> usize {
    ["bytes", "texts", "arriving"].iter().map(|name| std::fs::read_dir(dir.join(name)).unwrap().count()).sum()
}

const PORTS: &str =
    "# Ports\n\nKelm has an old port.\n\n## Tides\n\nHigh water is at noon in Kelm.\n\n# Songs\n\nDosh has a song.";

#[test]
fn a_file_is_taken_shown_given_back_searched_and_removed_with_all_that_was_made_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let client = Client(server.addr, None);
    let (store, member) = client.store_of("../ports.md", PORTS.as_bytes());
    let file = member["id"].as_str().unwrap();
    assert_eq!(
        (&member["status"], &member["chunks"], &member["last_error"]),
        (&json!("completed"), &json!(3), &Value::Null)
    );
    let shown = client.get(&format!("{FILES}/{file}"));
    assert_eq!(
        (&shown["filename"], &shown["bytes"], &shown["object"], &shown["purpose"]),
        (&json!("../ports.md"), &json!(PORTS.len()), &json!("file"), &json!("assistants"))
    );
    assert_eq!(client.get(FILES)["data"][0], shown);
    let content = client.json("GET", &format!("{FILES}/{file}/content"), &Value::Null);
    assert_eq!(
        (content.body.as_slice(), content.header("content-type")),
        (PORTS.as_bytes(), Some("application/octet-stream"))
    );
    let found = client.search(&store, &json!({"query": "When is high water?"}));
    assert_eq!(
        (text_of(&found[0]), &found[0]["headings"]),
        ("## Tides\n\nHigh water is at noon in Kelm.", &json!(["Ports", "Tides"]))
    );
    assert_eq!((&found[0]["score"], &found[0]["filename"]), (&json!(1.0), &json!("../ports.md")));
    let parsed = client.get(&format!("{STORES}/{store}/files/{file}/content"));
    let parsed: Vec<&str> =
        parsed["data"].as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
    let place = |end: &str| found[0][end].as_u64().unwrap() as usize;
    assert_eq!(
        &parsed.join("\n\n")[place("start")..place("end")],
        text_of(&found[0]),
        "a passage is a slice of the text"
    );
    let described = client.get(&format!("{STORES}/{store}"));
    assert_eq!((&described["file_counts"]["completed"], &described["status"]), (&json!(1), &json!("completed")));
    drop(server);
    let server = start(dir.path(), AcceptedKeys::Open);
    let client = Client(server.addr, None);
    assert_eq!(client.search(&store, &json!({"query": "When is high water?"})), found, "the same after a restart");
    assert_eq!(kept(dir.path()), 3, "the bytes, the text and its outline");
    assert_eq!(done(client.json("DELETE", &format!("{FILES}/{file}"), &Value::Null))["deleted"], true);
    assert_eq!((client.search(&store, &json!({"query": "water"})), kept(dir.path())), (vec![], 0));
    assert_eq!(client.get(&format!("{STORES}/{store}/files"))["data"], json!([]));
    refused(client.json("GET", &format!("{FILES}/{file}"), &Value::Null), 404, "file_not_found");
    done(client.json("DELETE", &format!("{STORES}/{store}"), &Value::Null));
    refused(client.json("GET", &format!("{STORES}/{store}"), &Value::Null), 404, "vector_store_not_found");
}

#[test]
fn the_same_bytes_are_kept_and_read_once_and_stay_until_the_last_file_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let client = Client(server.addr, None);
    let (store, first) = client.store_of("a.md", PORTS.as_bytes());
    let (other, second) = client.store_of("b.md", PORTS.as_bytes());
    assert_eq!(kept(dir.path()), 3);
    done(client.json("DELETE", &format!("{FILES}/{}", first["id"].as_str().unwrap()), &Value::Null));
    assert_eq!((client.search(&store, &json!({"query": "Kelm"})).len(), kept(dir.path())), (0, 3));
    let found = client.search(&other, &json!({"query": "Kelm"}));
    assert_eq!((&found[0]["filename"], &found[0]["file_id"]), (&json!("b.md"), &second["id"]));
}

#[test]
fn a_key_sees_neither_files_nor_stores_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), keys("sk-a\nsk-b\n"));
    let (a, b) = (Client(server.addr, Some("sk-a")), Client(server.addr, Some("sk-b")));
    let (store, file) = a.store_of("ports.md", PORTS.as_bytes());
    let file = file["id"].as_str().unwrap();
    assert_eq!((b.get(FILES)["data"].clone(), b.get(STORES)["data"].clone()), (json!([]), json!([])));
    for path in [format!("{FILES}/{file}"), format!("{FILES}/{file}/content")] {
        refused(b.json("GET", &path, &Value::Null), 404, "file_not_found");
    }
    refused(b.json("DELETE", &format!("{FILES}/{file}"), &Value::Null), 404, "file_not_found");
    for (method, path, body) in [
        ("GET", "", Value::Null),
        ("POST", "", json!({"name": "mine"})),
        ("DELETE", "", Value::Null),
        ("GET", "/files", Value::Null),
        ("GET", &*format!("/files/{file}/content"), Value::Null),
        ("POST", "/files", json!({"file_id": file})),
        ("POST", "/search", json!({"query": "Kelm"})),
        ("POST", "/file_batches", json!({"file_ids": [file]})),
    ] {
        refused(b.json(method, &format!("{STORES}/{store}{path}"), &body), 404, "vector_store_not_found");
    }
    let own = b.post(STORES, &json!({}))["id"].as_str().unwrap().to_owned();
    refused(b.json("POST", &format!("{STORES}/{own}/files"), &json!({"file_id": file})), 404, "file_not_found");
    refused(b.json("POST", STORES, &json!({"file_ids": [file]})), 404, "file_not_found");
    assert_eq!(a.search(&store, &json!({"query": "Kelm"})).len(), 2);
}

#[test]
fn files_of_a_batch_are_filtered_by_their_attributes_and_fused_over_queries() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let client = Client(server.addr, None);
    let ids: Vec<String> = (0..4)
        .map(|i| client.upload(&format!("{i}.txt"), format!("The port of town {i} is old.").as_bytes()))
        .collect();
    let store = client.post(STORES, &json!({"name": "towns"}))["id"].as_str().unwrap().to_owned();
    let files: Vec<Value> =
        ids.iter().enumerate().map(|(i, id)| json!({"file_id": id, "attributes": {"year": 2020 + i}})).collect();
    let batch = client.post(&format!("{STORES}/{store}/file_batches"), &json!({"files": files}));
    let path = format!("{STORES}/{store}/file_batches/{}", batch["id"].as_str().unwrap());
    eventually("the batch", || client.get(&path)["status"] == "completed");
    assert_eq!(client.get(&path)["file_counts"]["completed"], 4);
    let listed = |query: &str| {
        let list = client.get(&format!("{path}/files?{query}"));
        let ids: Vec<String> =
            list["data"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap().into()).collect();
        (ids, list["has_more"] == true)
    };
    assert_eq!(listed("order=asc&limit=3"), (ids[..3].to_vec(), true));
    assert_eq!(listed(&format!("order=asc&after={}", ids[2])), (ids[3..].to_vec(), false));
    assert_eq!(listed("filter=failed"), (vec![], false));
    let years = |filters: Value| {
        let found = client.search(&store, &json!({"query": "port", "filters": filters}));
        let mut years: Vec<i64> = found.iter().map(|f| f["attributes"]["year"].as_f64().unwrap() as i64).collect();
        years.sort_unstable();
        years
    };
    assert_eq!(years(json!({"type": "gt", "key": "year", "value": 2021})), [2022, 2023]);
    assert_eq!(years(json!({"type": "in", "key": "year", "value": [2020, 2023]})), [2020, 2023]);
    client.post(&format!("{STORES}/{store}/files/{}", ids[0]), &json!({"attributes": {"year": 1999}}));
    assert_eq!(years(json!({"type": "lt", "key": "year", "value": 2000})), [1999]);
    let fused = client.search(&store, &json!({"query": ["town 2", "port 2"], "max_num_results": 2}));
    assert_eq!((fused.len(), text_of(&fused[0])), (2, "The port of town 2 is old."));
    let best = client.search(&store, &json!({"query": "town 2", "ranking_options": {"score_threshold": 0.99}}));
    assert_eq!(best.len(), 1);
    done(client.json("DELETE", &format!("{STORES}/{store}/files/{}", ids[2]), &Value::Null));
    assert_ne!(text_of(&client.search(&store, &json!({"query": "town 2"}))[0]), "The port of town 2 is old.");
    assert_eq!(client.get(FILES)["data"].as_array().unwrap().len(), 4, "files stay the account's");
}

#[test]
fn what_is_no_file_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let client = Client(server.addr, None);
    let part = |name: &str, text: &str| {
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
    };
    let end = format!("--{BOUNDARY}--\r\n");
    for (body, param) in [
        (part("purpose", "assistants") + &end, "file"),
        (part("file", "a") + &end, "purpose"),
        (part("purpose", "fun") + &end, "purpose"),
        (part("expires_after[anchor]", "created_at") + &end, "expires_after[anchor]"),
        (part("file", "a") + &part("file", "b") + &end, "file"),
    ] {
        let reply = client.form(body.as_bytes());
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(param)), "{}", reply.text());
    }
    refused(client.form(b"no form at all"), 400, "invalid_form");
    refused(client.json("POST", FILES, &json!({"purpose": "assistants"})), 400, "invalid_form");
    let large = vec![b'a'; 5 << 20];
    refused(client.form(&form("large.txt", &large)), 413, "file_too_large");
    for (name, byte) in [("b.txt", b'b'), ("c.txt", b'c')] {
        client.upload(name, &vec![byte; 4 << 20]);
    }
    refused(client.form(&form("more.txt", b"d")), 409, "files_full");
    eventually("what was refused is gone", || kept(dir.path()) == 2);
    let nowhere = Server::start(Options::default());
    refused(Client(nowhere.addr, None).form(&form("a.txt", b"a")), 409, "no_directory");
    let open = Server::start(Options {
        documents: Some(dir.path().join("open")),
        keys: AcceptedKeys::OpenToAll,
        ..Options::default()
    });
    refused(Client(open.addr, None).form(&form("a.txt", b"a")), 403, "key_required");
}

/// A PDF of one page without a word.
fn empty_pdf() -> Vec<u8> {
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        "<< /Length 0 >>\nstream\n\nendstream",
    ];
    let (mut out, mut places) = ("%PDF-1.4\n".to_owned(), Vec::new());
    for (i, object) in objects.iter().enumerate() {
        places.push(out.len());
        out += &format!("{} 0 obj\n{object}\nendobj\n", i + 1);
    }
    let start = out.len();
    out += "xref\n0 5\n0000000000 65535 f \n";
    places.iter().for_each(|place| out += &format!("{place:010} 00000 n \n"));
    (out + &format!("trailer << /Size 5 /Root 1 0 R >>\nstartxref\n{start}\n%%EOF")).into_bytes()
}

/// A zip archive of one file, stored or deflated.
fn archive(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut deflated = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    deflated.write_all(bytes).unwrap();
    let data = deflated.finish().unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    let sizes = [crc.sum(), data.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat();
    let local = [
        &b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0"[..],
        &sizes,
        &(name.len() as u16).to_le_bytes(),
        b"\0\0",
        name.as_bytes(),
        &data,
    ]
    .concat();
    let central = [
        &b"PK\x01\x02\x14\0\x14\0\0\0\x08\0\0\0\0\0"[..],
        &sizes,
        &(name.len() as u16).to_le_bytes(),
        &[0; 16],
        name.as_bytes(),
    ]
    .concat();
    let end = [
        &b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..],
        &(central.len() as u32).to_le_bytes(),
        &(local.len() as u32).to_le_bytes(),
        b"\0\0",
    ]
    .concat();
    [local, central, end].concat()
}

#[test]
fn a_bad_file_costs_that_file_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), AcceptedKeys::Open);
    let client = Client(server.addr, None);
    let document = b"<w:document><w:p><w:r><w:t>The port of Kelm</w:t></w:r></w:p></w:document>";
    let bomb = [&b"<w:document><w:p><w:r><w:t>"[..], &b"kelm ".repeat(15 << 20)].concat();
    for (name, bytes, status, code, part) in [
        ("good.docx", archive("word/document.xml", document), "completed", "", ""),
        ("bomb.docx", archive("word/document.xml", &bomb), "failed", "invalid_file", ""),
        ("empty.pdf", empty_pdf(), "failed", "unsupported_file", "no text"),
        ("broken.pdf", b"%PDF-1.7\nand nothing".to_vec(), "failed", "invalid_file", ""),
        (
            "noise.bin",
            (0..999u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect(),
            "failed",
            "unsupported_file",
            "no text",
        ),
        ("blank.txt", b" \n".to_vec(), "failed", "unsupported_file", "no text"),
        ("latin.txt", b"caf\xe9 Kelm".to_vec(), "completed", "", ""),
        ("deep.html", b"<b>".repeat(200_000).iter().copied().chain(*b"Kelm").collect(), "completed", "", ""),
    ] {
        let (store, file) = client.store_of(name, &bytes);
        assert_eq!(file["status"], status, "{name}: {file}");
        if status == "completed" {
            assert_eq!(client.search(&store, &json!({"query": "Kelm"})).len(), 1, "{name}");
        } else {
            let error = &file["last_error"];
            assert_eq!(error["code"], code, "{name}: {error}");
            assert!(error["message"].as_str().unwrap().contains(part), "{name}: {error}");
        }
        done(client.json("DELETE", &format!("{FILES}/{}", file["id"].as_str().unwrap()), &Value::Null));
    }
    assert_eq!(kept(dir.path()), 0);
}

fn program(dir: &Path) -> Program {
    let config = dir.join("config.toml");
    std::fs::write(&config, format!("[documents]\ndirectory = {:?}\n", dir.join("documents"))).unwrap();
    Program::start(&["--config", config.to_str().unwrap()])
}

/// Kills the program itself while files come in and are read, some times. What it acknowledged is found again, each
/// file whole or not at all.
#[test]
fn a_crash_at_any_moment_loses_no_acknowledged_file_and_leaves_none_half_searchable() {
    let dir = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut store): (Vec<String>, Option<String>) = (Vec::new(), None);
    for round in 0..3u64 {
        let mut running = program(dir.path());
        let client = Client(running.addr, None);
        let store =
            store.get_or_insert_with(|| client.post(STORES, &json!({}))["id"].as_str().unwrap().to_owned()).clone();
        let files = client.get(&format!("{STORES}/{store}/files?limit=100"));
        let there = |id: &String| files["data"].as_array().unwrap().iter().any(|file| file["id"] == *id);
        assert!(acknowledged.iter().all(there), "round {round}: {acknowledged:?} of {files}");
        for n in 0..6 {
            let text = format!("# Part p{round}n{n}\n\n{}", "The port of Kelm is old. ".repeat(200));
            let file = client.upload(&format!("{round}-{n}.md"), text.as_bytes());
            client.post(&format!("{STORES}/{store}/files"), &json!({"file_id": file}));
            acknowledged.push(file);
        }
        // In the middle of whatever it is doing, which differs from round to round.
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
        let mut half = TcpStream::connect(running.addr).unwrap();
        half.write_all(b"POST /v1/files HTTP/1.1\r\nContent-Length: 99\r\n\r\n--").unwrap();
        running.kill();
    }
    let running = program(dir.path());
    let (client, store) = (Client(running.addr, None), store.unwrap());
    for file in &acknowledged {
        let file = client.settled(&store, file);
        assert_eq!(file["status"], "completed", "{file}");
        assert!(file["chunks"].as_u64().unwrap() > 1);
    }
    for (i, file) in acknowledged.iter().enumerate() {
        let found =
            client.search(&store, &json!({"query": format!("Part p{}n{}", i / 6, i % 6), "max_num_results": 50}));
        assert_eq!(&found[0]["file_id"], file, "{found:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path().join("documents/arriving")).unwrap().count(), 0);
}

#[test]
fn a_second_service_on_one_directory_says_why_it_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let _first = program(dir.path());
    let config = dir.path().join("config.toml");
    let mut second = program::command(&["--config", config.to_str().unwrap()]).spawn().unwrap();
    let mut said = String::new();
    second.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!second.wait().unwrap().success());
    assert!(said.contains("documents.directory: ") && said.contains("is another service's"), "{said}");
}
