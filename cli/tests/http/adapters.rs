//! Adapters beside the model, over a socket: names, equal answers in company, adapters that come and go.

use crate::support::client::{Reply, refused};
use crate::support::{Options, Server, get, keys, post, request};
use chimere::adapters::AdapterSettings;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A directory with two adapters of the golden model: `poet`, and `clerk`, whose factor is another.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_adapter(&dir.path().join("poet"), 8.0);
    write_adapter(&dir.path().join("clerk"), -8.0);
    dir
}

/// The golden adapter with another factor.
fn write_adapter(own: &Path, alpha: f64) {
    let golden = golden_adapter();
    std::fs::create_dir(own).unwrap();
    std::fs::copy(golden.join("adapter_model.safetensors"), own.join("adapter_model.safetensors")).unwrap();
    let text = std::fs::read(golden.join("adapter_config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    config["lora_alpha"] = json!(alpha);
    config["alpha_pattern"] = json!({});
    std::fs::write(own.join("adapter_config.json"), config.to_string()).unwrap();
}

fn golden_adapter() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/adapters/moe")
}

fn server(dir: &Path) -> Server {
    Server::start(Options { real: true, adapters: Some(dir.into()), ..Options::default() })
}

/// The tokens that a model says behind a prompt longer than a chunk of the prefix cache.
fn said(server: &Server, model: &str) -> (String, Value) {
    let prompt = "a b c d e f g h ".repeat(12);
    let body = json!({"model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    let reply = post(server.addr, "/v1/completions", &body).json();
    (reply["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned(), reply["model"].clone())
}

#[test]
fn each_name_answers_for_itself_one_after_the_other_and_at_once() {
    let dir = directory();
    let server = server(dir.path());
    let alone: Vec<_> = ["tiny", "poet", "clerk"].map(|name| said(&server, name)).to_vec();
    assert_eq!(alone.iter().map(|(_, model)| model.as_str().unwrap()).collect::<Vec<_>>(), ["tiny", "poet", "clerk"]);
    assert!(alone[0].0 != alone[1].0 && alone[1].0 != alone[2].0 && alone[0].0 != alone[2].0, "{alone:?}");
    // What one has left in the prefix cache is of no other.
    for (at, name) in [(1, "poet"), (0, "tiny"), (1, "tiny:poet"), (2, "clerk"), (0, "gpt-tiny")] {
        assert_eq!(said(&server, name).0, alone[at].0, "{name}");
    }
    std::thread::scope(|scope| {
        let (alone, server) = (&alone, &server);
        for round in 0..12 {
            let name = ["tiny", "poet", "clerk"][round % 3];
            scope.spawn(move || assert_eq!(said(server, name).0, alone[round % 3].0, "{name} in company"));
        }
    });
}

#[test]
fn models_name_the_parent_and_every_dialect_of_text_takes_an_adapter() {
    let dir = directory();
    let server = server(dir.path());
    let list = get(server.addr, "/v1/models").json();
    let entries = list["data"].as_array().unwrap();
    let names: Vec<_> = entries.iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny", "gpt-tiny", "clerk", "poet"]);
    assert_eq!((&entries[2]["parent"], &entries[0]["parent"]), (&json!("tiny"), &Value::Null));
    assert_eq!(get(server.addr, "/v1/models/poet").json()["parent"], "tiny");
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 4})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 4})),
        ("/v1/responses", json!({"input": "hi", "max_output_tokens": 16})),
        ("/completion", json!({"prompt": "hi", "n_predict": 4})),
        ("/api/chat", json!({"messages": messages, "stream": false, "options": {"num_predict": 4}})),
        ("/api/generate", json!({"prompt": "hi", "raw": true, "stream": false, "options": {"num_predict": 4}})),
        ("/tokenize", json!({"prompt": "hi"})),
    ] {
        let mut body = body;
        body["model"] = json!("poet");
        let reply = post(server.addr, path, &body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
    let error = refused(
        post(server.addr, "/v1/embeddings", &json!({"model": "poet", "input": "a"})),
        400,
        "unsupported_parameter",
    );
    assert!(error["message"].as_str().unwrap().contains("`poet` is an adapter"), "{error}");
    refused(
        post(server.addr, "/v1/completions", &json!({"model": "tiny:nobody", "prompt": "a"})),
        404,
        "model_not_found",
    );
}

#[test]
fn an_administrator_loads_and_unloads_adapters_while_the_service_runs() {
    let dir = directory();
    std::fs::rename(dir.path().join("clerk"), dir.path().join(".clerk")).unwrap();
    let server = server(dir.path());
    std::fs::rename(dir.path().join(".clerk"), dir.path().join("clerk")).unwrap();
    let call = |what: &str, body: Value| post(server.addr, &format!("/v1/{what}_lora_adapter"), &body);
    refused(call("load", json!({"lora_name": "nobody"})), 404, "adapter_not_found");
    assert_eq!(call("load", json!({"lora_name": "../clerk"})).status, 400);
    assert_eq!(call("load", json!({"lora_name": "tiny", "lora_path": "clerk"})).status, 400);
    assert_eq!(call("load", json!({"lora_path": "clerk"})).status, 400);
    let before = said(&server, "poet").0;
    let path = dir.path().join("clerk");
    let loaded = call("load", json!({"lora_name": "scribe", "lora_path": path.to_str().unwrap()}));
    assert_eq!((loaded.status, loaded.text()), (200, "Success: LoRA adapter 'scribe' added successfully."));
    assert_eq!(call("load", json!({"lora_name": "scribe", "lora_path": "clerk"})).status, 400);
    assert_ne!(said(&server, "scribe").0, before);
    assert_eq!(call("unload", json!({"lora_name": "scribe"})).status, 200);
    refused(call("unload", json!({"lora_name": "scribe"})), 404, "adapter_not_found");
    let gone = json!({"model": "scribe", "prompt": "a"});
    refused(post(server.addr, "/v1/completions", &gone), 404, "model_not_found");
    assert_eq!(said(&server, "poet").0, before);
}

#[test]
fn others_than_administrators_load_nothing() {
    let dir = directory();
    let options = Options { real: true, adapters: Some(dir.path().into()), keys: keys("one"), ..Options::default() };
    let server = Server::start(options);
    let body = json!({"lora_name": "again", "lora_path": "poet"}).to_string();
    let auth = [("authorization", "Bearer one"), ("content-type", "application/json")];
    for path in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] {
        assert_eq!(request(server.addr, "POST", path, &auth, body.as_bytes()).status, 403, "{path}");
    }
}

/// What a key is told at a path.
fn with_key(server: &Server, key: &str, method: &str, path: &str, body: &Value) -> Reply {
    let auth = format!("Bearer {key}");
    let headers = [("authorization", auth.as_str()), ("content-type", "application/json")];
    request(server.addr, method, path, &headers, body.to_string().as_bytes())
}

#[test]
fn nine_keys_with_nine_adapters_over_eight_slots_all_get_their_own_answers() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..9).map(|n| format!("a{n}")).collect();
    names.iter().enumerate().for_each(|(n, name)| write_adapter(&dir.path().join(name), 4.0 + n as f64));
    let lines: String = (0..9).map(|n| format!("key{n}\n")).collect();
    let options = Options { keys: keys(&lines), real: true, adapters: Some(dir.path().into()), ..Options::default() };
    let server = Server::start(options);
    let said = |n: usize| {
        let body =
            json!({"model": names[n], "prompt": "a b c d", "max_tokens": 200, "temperature": 0, "ignore_eos": true});
        let reply = with_key(&server, &format!("key{n}"), "POST", "/v1/completions", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let alone: Vec<_> = (0..9).map(said).collect();
    std::thread::scope(|scope| {
        for n in 0..9 {
            let (alone, said) = (&alone, &said);
            scope.spawn(move || (0..2).for_each(|_| assert_eq!(said(n), alone[n], "a{n} among nine")));
        }
    });
}

#[test]
fn an_adapter_of_some_keys_does_not_exist_for_the_others() {
    let dir = directory();
    let hash = chimere::http::auth::hashed("ours");
    let access = format!("[adapters.poet]\nkeys = [\"{}\"]\n", hash.trim_start_matches("sha256:"));
    std::fs::write(dir.path().join("access.toml"), access).unwrap();
    let keys = keys("ours\ntheirs\nroot scope=admin\n");
    let server = Server::start(Options { keys, real: true, adapters: Some(dir.path().into()), ..Options::default() });
    let names = |key: &str, path: &str, field: &str| {
        let list = with_key(&server, key, "GET", path, &json!(null)).json();
        let entries = if field == "id" { &list["data"] } else { &list };
        entries.as_array().unwrap().iter().map(|m| m[field].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("ours", "/v1/models", "id"), ["tiny", "gpt-tiny", "clerk", "poet"]);
    assert_eq!(names("theirs", "/v1/models", "id"), ["tiny", "gpt-tiny", "clerk"]);
    assert_eq!(names("root", "/lora-adapters", "name"), ["clerk", "poet"]);
    assert_eq!(names("theirs", "/lora-adapters", "name"), ["clerk"]);
    for (path, field) in [
        ("/v1/completions", "prompt"),
        ("/v1/responses", "input"),
        ("/completion", "prompt"),
        ("/tokenize", "prompt"),
        ("/api/generate", "prompt"),
        ("/v1/embeddings", "input"),
    ] {
        let mut body = json!({"model": "tiny:poet"});
        body[field] = json!("hi");
        let theirs = with_key(&server, "theirs", "POST", path, &body);
        assert_eq!(theirs.status, 404, "{path}: {}", theirs.text());
        body["model"] = json!("nobody");
        let nobody = with_key(&server, "theirs", "POST", path, &body);
        let named = theirs.text().replace("tiny:poet", "nobody");
        assert_eq!(named, nobody.text(), "{path}: as an adapter that does not exist");
    }
    assert_eq!(with_key(&server, "theirs", "GET", "/v1/models/poet", &json!(null)).status, 404);
    assert_eq!(with_key(&server, "ours", "GET", "/v1/models/poet", &json!(null)).status, 200);
    let body = json!({"model": "poet", "prompt": "hi", "max_tokens": 2});
    assert_eq!(with_key(&server, "ours", "POST", "/v1/completions", &body).status, 200);
}

#[test]
fn a_scale_changes_the_answer_and_at_zero_it_is_the_models_own() {
    let dir = directory();
    let server = server(dir.path());
    let said = |model: &str, scale: Value| {
        let prompt = "a b c d e f g h ".repeat(12);
        let mut body =
            json!({"model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true});
        if !scale.is_null() {
            body["scale"] = scale;
        }
        let reply = post(server.addr, "/v1/completions", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let (plain, whole, base) = (said("poet", json!(1)), said("poet", Value::Null), said("tiny", Value::Null));
    assert_eq!(plain, whole);
    // One after the other, so that what each leaves in the prefix cache would show in the next.
    for (scale, want) in [(0.0, &base), (1.0, &whole), (0.0, &base)] {
        assert_eq!(&said("poet", json!(scale)), want, "at {scale}");
    }
    assert_ne!(said("poet", json!(4)), whole);
    for (model, scale) in [("poet", json!(4.5)), ("poet", json!(-1)), ("poet", json!("1")), ("tiny", json!(1))] {
        let body = json!({"model": model, "prompt": "a", "scale": scale});
        let reply = post(server.addr, "/v1/completions", &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("scale")), "{body}");
    }
    let chat = json!({"model": "tiny", "scale": 1, "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(post(server.addr, "/v1/chat/completions", &chat).status, 400);
}

#[test]
fn llama_s_numbers_choose_one_adapter_for_a_request_or_for_all_that_name_none() {
    let dir = directory();
    let server = server(dir.path());
    let listed = |at: usize| get(server.addr, "/lora-adapters").json()[at]["scale"].clone();
    let said = |more: Value| {
        let mut body = json!({"prompt": "a b c d", "n_predict": 12, "temperature": 0, "ignore_eos": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = post(server.addr, "/completion", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["content"].as_str().unwrap().to_owned()
    };
    let (base, clerk, poet) = (said(json!({})), said(json!({"model": "clerk"})), said(json!({"model": "poet"})));
    assert_eq!(said(json!({"lora": [{"id": 0, "scale": 1.0}]})), clerk);
    assert_eq!(said(json!({"lora": [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 1.0}]})), poet);
    assert_eq!(said(json!({"lora": [{"id": 1}]})), base, "without a scale it does not act");
    for (lora, why) in [
        (json!([{"id": 0, "scale": 1}, {"id": 1, "scale": 1}]), "`clerk` and `poet`"),
        (json!([{"id": 7, "scale": 1}]), "`lora[0].id` is no adapter's number, got 7"),
        (json!([{"scale": 1}]), "lora[0].id"),
        (json!([{"id": 0, "scale": 9}]), "lora[0].scale"),
    ] {
        let reply = post(server.addr, "/completion", &json!({"prompt": "a", "lora": lora}));
        assert!(reply.status == 400 && reply.text().contains(why), "{}", reply.text());
    }
    let apply = |entries: Value| post(server.addr, "/lora-adapters", &entries);
    assert_eq!(apply(json!([{"id": 1, "scale": 1.0}])).json(), json!({"success": true}));
    assert_eq!((listed(0), listed(1)), (json!(0.0), json!(1.0)));
    assert_eq!(
        (said(json!({})), said(json!({"lora": []})), said(json!({"model": "clerk"}))),
        (poet, base.clone(), clerk)
    );
    assert_eq!(apply(json!([])).status, 200);
    assert_eq!(said(json!({})), base);
    assert_eq!(apply(json!({"id": 0})).status, 400);
}

#[test]
fn an_adapter_that_changes_nothing_or_too_much_is_refused_and_its_name_stays_free() {
    let dir = directory();
    let server = server(dir.path());
    for (name, alpha, why) in [("idle", 0.0, "has no effect"), ("mad", 1e30, "refused")] {
        write_adapter(&dir.path().join(name), alpha);
        let reply = post(server.addr, "/v1/load_lora_adapter", &json!({"lora_name": "new", "lora_path": name}));
        assert!(reply.status == 400 && reply.text().contains(why), "{name}: {}", reply.text());
        assert!(reply.text().contains("lora_path"), "{}", reply.text());
    }
    let loaded = post(server.addr, "/v1/load_lora_adapter", &json!({"lora_name": "new", "lora_path": "poet"}));
    assert_eq!(loaded.status, 200, "{}", loaded.text());
}

#[test]
fn an_adapter_that_diverges_too_far_is_refused_with_the_figure_and_the_limit() {
    let dir = directory();
    std::fs::rename(dir.path().join("poet"), dir.path().join(".poet")).unwrap();
    std::fs::rename(dir.path().join("clerk"), dir.path().join(".clerk")).unwrap();
    let adapter_settings = AdapterSettings { kl_max: 1e-6, ..AdapterSettings::default() };
    let adapters = Some(dir.path().into());
    let server = Server::start(Options { real: true, adapters, adapter_settings, ..Options::default() });
    std::fs::rename(dir.path().join(".poet"), dir.path().join("poet")).unwrap();
    let reply = post(server.addr, "/v1/load_lora_adapter", &json!({"lora_name": "poet"}));
    let error = &reply.json()["error"];
    assert_eq!((reply.status, &error["param"]), (400, &json!("lora_path")), "{}", reply.text());
    let message = error["message"].as_str().unwrap();
    let nats = message.split_once(" nats").and_then(|(before, _)| before.rsplit(' ').next()?.parse::<f64>().ok());
    assert!(nats.is_some_and(|nats| nats > 0.0), "{message}");
    assert!(message.contains("at most 0.000001 (adapters.kl_max)") && message.contains("\"poet\""), "{message}");
    refused(post(server.addr, "/v1/completions", &json!({"model": "poet", "prompt": "a"})), 404, "model_not_found");
}

#[test]
fn a_service_is_not_ready_before_its_adapters_are_judged() {
    let dir = directory();
    assert_eq!(get(server(dir.path()).addr, "/ready").status, 200);
    let adapter_settings = AdapterSettings { kl_max: 1e-6, ..AdapterSettings::default() };
    let adapters = Some(dir.path().into());
    let options = Options { real: true, adapters, adapter_settings, ..Options::default() };
    let (server, warm) = Server::start_to_judge(options);
    let why = warm.unwrap_err();
    assert!(why.contains("adapters.directory: \"clerk\" is refused") && why.contains("adapters.kl_max"), "{why}");
    let reply = get(server.addr, "/ready");
    assert_eq!((reply.status, reply.json()), (503, json!({"status": "starting"})));
}
