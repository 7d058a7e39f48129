//! What gateways ask of one service among several: its load, the ids of prompts, ids for ids, and which prompts it
//! keeps.

use crate::support::client::refused;
use crate::support::*;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

const GENERATE: &str = "/inference/v1/generate";
/// More than two units of 64 tokens.
const LONG: &str = "\
    Wool and salt go to the first pier, timber to the second, grain to the third, and everything else to the \
    fourth. Ships that come after the evening bell wait outside until the morning, and pay for it. The harbour \
    is closed when the wind is strong. The clerk has a book with the name of each ship, the day on which it \
    came, and what it carried. Nobody reads the book but the clerk, who never guesses and says so when a ship is \
    not in it. The evening bell rings when the sun is behind the mill, in summer later than in winter, and the \
    pilots go home then. A ship that has salt and wool at once pays for both piers, which has happened twice \
    since the clerk has had the book.";

fn ok(reply: Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn generate(program: &Program, ids: &Value, sampling: Value) -> Value {
    ok(post(program.addr, GENERATE, &json!({"token_ids": ids, "sampling_params": sampling})))
}

#[test]
fn a_router_reads_how_much_there_is_to_do_and_what_a_worker_is() {
    let server = Server::start(Options { slots: 1, ..Options::default() });
    server.fake.allow(5);
    let body = with(ask("LOOP[x ]"), json!({"stream": true, "max_tokens": 50}));
    let _running = [(); 2].map(|()| Stream::open(server.addr, "/v1/chat/completions", &body));
    server.wait_for_standstill();
    let loads = || ok(get(server.addr, "/v1/loads?include=core,disagg,queues,memory"));
    eventually("one runs and one waits", || {
        let load = loads()["loads"][0].clone();
        (load["num_running_reqs"].as_u64(), load["num_waiting_reqs"].as_u64()) == (Some(1), Some(1))
    });
    let all = loads();
    let load = &all["loads"][0];
    assert_eq!((all["dp_rank_count"].as_u64(), load["max_running_requests"].as_u64()), (Some(1), Some(1)));
    assert_eq!(load["queues"]["waiting"], 1, "{load}");
    assert!(load["num_waiting_uncached_tokens"].as_u64().unwrap() > 0, "{load}");
    assert!(load["token_usage"].as_f64().unwrap() > 0.0 && load["utilization"].as_f64().unwrap() == 1.0, "{load}");
    assert_eq!(load["memory"]["token_capacity"], load["max_total_num_tokens"]);
    assert!(ok(get(server.addr, "/v1/loads"))["loads"][0].get("queues").is_none(), "what nobody asked for");
    let wrong = get(server.addr, "/v1/loads?include=nothing");
    assert_eq!((wrong.status, wrong.json()["error"]["param"].as_str()), (400, Some("include")), "{}", wrong.text());
    assert_eq!(ok(get(server.addr, "/is_sleeping")), json!({"is_sleeping": false}));
    let info = ok(get(server.addr, "/server_info"));
    assert_eq!((info["served_model_name"].as_str(), info["page_size"].as_u64()), (Some("tiny"), Some(32)));
    server.fake.allow_all();
}

#[test]
fn only_an_administrator_flushes_the_cache() {
    let server = Server::start(Options { keys: keys("user\nroot scope=admin"), ..Options::default() });
    let flush =
        |key: &str| request(server.addr, "POST", "/flush_cache", &[("Authorization", &format!("Bearer {key}"))], b"");
    refused(flush("user"), 403, "admin_required");
    assert_eq!(ok(flush("root"))["flushed"], 0, "this backend keeps nothing");
}

#[test]
fn ids_come_out_as_another_endpoint_gives_them_whole_and_streamed() {
    let program = Program::shipped(&[]);
    let rendered = ok(post(program.addr, "/v1/completions/render", &json!({"prompt": [LONG, "Once upon"]})));
    let ids = &rendered[1]["token_ids"];
    assert_eq!(rendered.as_array().unwrap().len(), 2);
    let tokens = ok(post(program.addr, "/tokenize", &json!({"prompt": LONG})));
    assert_eq!(rendered[0]["token_ids"], tokens["tokens"]);

    let sampling = json!({"temperature": 0.9, "seed": 7, "max_tokens": 24, "ignore_eos": true, "logprobs": 2});
    let whole = generate(&program, ids, sampling.clone());
    let told = &whole["choices"][0]["token_ids"];
    let same = json!({"prompt": ids, "temperature": 0.9, "seed": 7, "max_tokens": 24, "ignore_eos": true});
    let text = ok(post(program.addr, "/v1/completions", &same))["choices"][0]["text"].clone();
    assert_eq!(ok(post(program.addr, "/detokenize", &json!({"tokens": told})))["prompt"], text);
    let llama = with(same, json!({"return_tokens": true}));
    assert_eq!(ok(post(program.addr, "/completion", &llama))["tokens"], *told);
    assert_eq!(
        (whole["usage"]["completion_tokens"].as_u64(), &whole["choices"][0]["finish_reason"]),
        (Some(24), &json!("length"))
    );
    let scores = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!((scores.len(), scores[0]["top_logprobs"].as_array().unwrap().len()), (24, 2));
    assert_eq!(scores[3]["token"], format!("token_id:{}", told[3]));

    let body = json!({"token_ids": ids, "sampling_params": sampling, "stream": true, "request_id": "mine",
        "stream_options": {"include_usage": true}});
    let chunks = Stream::open(program.addr, GENERATE, &body).chunks();
    assert!(chunks.iter().all(|chunk| chunk["request_id"] == "mine"), "{chunks:?}");
    let choices = chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
    let streamed: Vec<&Value> = choices.flat_map(|choice| choice["token_ids"].as_array().unwrap()).collect();
    assert_eq!(streamed, told.as_array().unwrap().iter().collect::<Vec<_>>());
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 24);
}

#[test]
fn an_id_that_ends_is_among_those_that_are_told_and_named_if_the_request_named_it() {
    let program = Program::shipped(&[]);
    let chat = ask("What is 17 + 25?");
    let rendered = ok(post(program.addr, "/v1/chat/completions/render", &chat));
    let reply = generate(&program, &rendered["token_ids"], json!({"temperature": 0}));
    let choice = &reply["choices"][0];
    assert_eq!((choice["finish_reason"].as_str(), &choice["stop_reason"]), (Some("stop"), &Value::Null), "{reply}");
    let ids = choice["token_ids"].as_array().unwrap();
    assert_eq!(reply["usage"]["completion_tokens"].as_u64(), Some(ids.len() as u64));
    let answered = ok(post(program.addr, "/v1/chat/completions", &with(chat, json!({"temperature": 0}))));
    assert_eq!(answered["usage"]["prompt_tokens"], reply["usage"]["prompt_tokens"]);
    assert_eq!(answered["usage"]["completion_tokens"], reply["usage"]["completion_tokens"]);
    let text = ok(post(program.addr, "/detokenize", &json!({"tokens": ids[..ids.len() - 1]})))["prompt"].clone();
    assert_eq!(answered["choices"][0]["message"]["content"], text);
    let stops = generate(&program, &rendered["token_ids"], json!({"temperature": 0, "stop_token_ids": [ids[0]]}));
    assert_eq!((&stops["choices"][0]["token_ids"], &stops["choices"][0]["stop_reason"]), (&json!([ids[0]]), &ids[0]));
    let two = generate(&program, &rendered["token_ids"], json!({"n": 2, "temperature": 1, "seed": 3, "max_tokens": 4}));
    assert_eq!(two["choices"].as_array().unwrap().len(), 2);
}

#[test]
fn a_parameter_that_is_not_known_or_not_for_ids_is_refused_by_its_path() {
    let server = Server::start(Options::default());
    let refused = |body: Value| {
        let reply = post(server.addr, GENERATE, &body);
        assert_eq!(reply.status, 400, "{}", reply.text());
        let error = reply.json()["error"].clone();
        (error["param"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    let named = |body: Value| {
        let (param, message) = refused(body);
        assert!(message.contains(&format!("`{param}`")), "{message}");
        param
    };
    let sampling = |params: Value| named(json!({"token_ids": [1], "sampling_params": params}));
    assert_eq!(sampling(json!({"beam_width": 3})), "sampling_params.beam_width");
    assert_eq!(sampling(json!({"temperature": 9})), "sampling_params.temperature");
    assert_eq!(sampling(json!({"stop": ["x"]})), "sampling_params.stop");
    assert_eq!(sampling(json!({"logprobs": 1000})), "sampling_params.logprobs");
    assert_eq!(named(json!({"sampling_params": {}})), "token_ids");
    assert_eq!(named(json!({"token_ids": [1 << 30]})), "token_ids[0]");
    assert_eq!(refused(json!({"token_ids": vec![1; 4000]})).0, "token_ids", "longer than the context");
    let neutral = json!({"stop": [], "bad_words": [], "detokenize": false, "skip_special_tokens": false, "n": 1});
    assert_eq!(post(server.addr, GENERATE, &json!({"token_ids": [1], "sampling_params": neutral})).status, 200);
}

#[test]
fn a_subscriber_hears_of_prompts_that_can_be_gone_on_from_until_they_are_flushed() {
    let [listen, replay] = [(); 2].map(|()| free_port());
    let (listen_at, replay_at) = (format!("tcp://{listen}"), format!("tcp://{replay}"));
    let mut command = program::shipped_command(&["--prefix-cache", "on"]);
    let settings = [("LISTEN", &*listen_at), ("REPLAY", &*replay_at), ("TOPIC", "kv@here@nano"), ("ENCODING", "array")];
    settings.into_iter().for_each(|(key, value)| {
        command.env(format!("CHIMERE_EVENTS__{key}"), value);
    });
    let program = Program::run(command);
    let ids = ok(post(program.addr, "/tokenize", &json!({"prompt": LONG})))["tokens"].clone();
    let units = ids.as_array().unwrap().len() as u64 / 64;
    assert!(units >= 2, "{ids}");
    let short = json!({"max_tokens": 1, "temperature": 0});
    generate(&program, &ids, short.clone());
    let again = generate(&program, &ids, short.clone());
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 64 * units);
    let flushed = ok(post(program.addr, "/flush_cache", &json!({})));
    assert!(flushed["flushed"].as_u64().unwrap() > 0 && flushed["kept"] == 0, "{flushed}");
    assert_eq!(generate(&program, &ids, short)["usage"]["prompt_tokens_details"]["cached_tokens"], 0);

    // What came before somebody subscribed is said again to who asks.
    let mut peer = Peer::connect(replay, "DEALER", &[&[], &0u64.to_be_bytes()]);
    let mut said = Vec::new();
    loop {
        let message = peer.message();
        let [_, topic, number, payload] = &message[..] else { panic!("{message:?}") };
        if payload.is_empty() {
            assert_eq!(number[..], u64::MAX.to_be_bytes());
            break;
        }
        assert_eq!(
            (&topic[..], number[..].to_vec()),
            (&b"kv@here@nano"[..], (said.len() as u64).to_be_bytes().to_vec())
        );
        said.push(payload.clone());
    }
    let told = said.concat();
    for word in ["AllBlocksCleared", "BlockStored", "BlockRemoved", "GPU"] {
        assert!(told.windows(word.len()).any(|bytes| bytes == word.as_bytes()), "{word} in {said:?}");
    }
    assert_eq!(
        told.windows(11).filter(|bytes| bytes == b"BlockStored").count(),
        2,
        "one at first, one behind the flush"
    );
}

fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A socket of ZeroMQ, written out.
struct Peer(TcpStream);

impl Peer {
    fn connect(to: SocketAddr, kind: &str, says: &[&[u8]]) -> Self {
        let mut socket = client::connect(to);
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        socket.write_all(&greeting).unwrap();
        let body = [b"\x05READY\x0bSocket-Type", &(kind.len() as u32).to_be_bytes()[..], kind.as_bytes()].concat();
        socket.write_all(&[&[4, body.len() as u8][..], &body].concat()).unwrap();
        for (i, part) in says.iter().enumerate() {
            socket.write_all(&[&[u8::from(i + 1 < says.len()), part.len() as u8][..], part].concat()).unwrap();
        }
        let mut peer = Self(socket);
        assert_eq!(peer.bytes(64)[..11], [&[0xff][..], &[0; 8], &[0x7f, 3]].concat());
        assert_eq!(peer.frame().0, 4, "READY is a command");
        peer
    }

    fn message(&mut self) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        loop {
            let (flags, part) = self.frame();
            parts.push(part);
            if flags & 1 == 0 {
                return parts;
            }
        }
    }

    fn frame(&mut self) -> (u8, Vec<u8>) {
        let flags = self.bytes(1)[0];
        let len = match flags & 2 {
            0 => self.bytes(1)[0].into(),
            _ => u64::from_be_bytes(self.bytes(8).try_into().unwrap()) as usize,
        };
        (flags, self.bytes(len))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
}
