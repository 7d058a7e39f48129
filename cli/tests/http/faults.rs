//! What goes wrong on machines: processes that die, clocks that jump, disks that are full, clients by the thousand.
//! Nothing may hang, every client gets an answer, an error or an end, and afterwards the accounts balance.

use crate::support::client::{bytes, connect};
use crate::support::server::golden;
use crate::support::*;
use chimere::clock::Clock;
use chimere::engram::{Store, TableName};
use chimere::text::{Fingerprint, Tokenizer};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// The program with its log in a file, killed with the value.
struct Victim {
    child: Child,
    addr: SocketAddr,
    log: tempfile::NamedTempFile,
}

impl Victim {
    /// `limits` is what the shell says before it becomes the program.
    fn start(limits: &str, args: &[&str]) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let script = format!("{limits}\nexec \"$@\" 2> {}", log.path().display());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_chimere"), "serve", "--model"]).arg(golden());
        command.args(["--port", "0", "--threads", "2", "--model-name", "golden"]).args(args);
        command.env_remove("CHIMERE_MODEL").env("CUDA_VISIBLE_DEVICES", "").stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let mut addr = None;
        eventually("it is ready", || {
            let said = std::fs::read_to_string(log.path()).unwrap();
            let line = said.lines().find_map(|line| line.strip_prefix("ready in ")?.split_once("http://"));
            addr = line.map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap());
            addr.is_some()
        });
        Self { child, addr: addr.unwrap(), log }
    }

    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap().success()
        );
    }

    /// Lifts a limit that its shell set, as an operator makes room on a disk.
    fn may_write_files_of_any_size(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:"]).status().unwrap().success());
    }

    fn metric(&self, series: &str) -> f64 {
        let text = get(self.addr, "/metrics").text().to_owned();
        let all = text
            .lines()
            .filter(|line| line.starts_with(series))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        all.sum()
    }

    /// Bytes of memory that are in use.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn endless() -> Value {
    json!({"prompt": "Once", "max_tokens": 100_000, "temperature": 0, "ignore_eos": true, "stream": true})
}

#[test]
fn clients_of_a_process_that_is_killed_see_an_end_that_is_not_the_proper_one() {
    let victim = Victim::start("", &["--max-seqs", "4"]);
    let mut socket = connect(victim.addr);
    socket.write_all(&bytes("POST", COMPLETIONS, &[], endless().to_string().as_bytes())).unwrap();
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    victim.signal("KILL");
    let mut rest = Vec::new();
    // An end or a reset, but within the client's patience.
    let ended = reader.read_to_end(&mut rest);
    assert!(!matches!(&ended, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock), "{ended:?}");
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.contains("[DONE]") && !rest.ends_with("0\r\n\r\n"), "{rest}");
}

#[test]
fn a_log_that_cannot_grow_any_more_costs_the_log_and_nothing_else() {
    // Blocks of 512 bytes; what is said at the start fits.
    let mut victim = Victim::start("ulimit -f 12", &["--max-seqs", "4"]);
    let body = json!({"prompt": "Once", "max_tokens": 1, "temperature": 0});
    for _ in 0..60 {
        assert_eq!(post(victim.addr, COMPLETIONS, &body).status, 200);
    }
    let written = std::fs::metadata(victim.log.path()).unwrap().len();
    assert_eq!(written, 12 * 512, "the log is as large as it may be");
    assert!(victim.metric("chimere_log_lost_total") > 0.0, "what it does not hold is counted");
    victim.signal("TERM");
    assert_eq!(victim.child.wait().unwrap().code(), Some(0));
}

/// Writes one thing after the other until one is refused or enough are taken; gives how many were taken, and the
/// refusal.
fn until_refused(count: usize, write: impl Fn(usize) -> client::Reply) -> (usize, Option<client::Reply>) {
    let refused = (0..count).find_map(|taken| Some((taken, write(taken))).filter(|(_, reply)| reply.status != 200));
    refused.map_or((count, None), |(taken, reply)| (taken, Some(reply)))
}

/// Teaches a table one text after the other.
fn teach(addr: SocketAddr, count: usize) -> (usize, Option<client::Reply>) {
    // Of some size, and each different, so that the store has to grow.
    let texts = |n: usize| json!({"texts": [format!("the {n}th of many texts, ").repeat(100)], "quality": 1});
    until_refused(count, |n| {
        let reply = post(addr, "/v1/engram/tables/own/learn", &texts(n));
        assert!(reply.status != 200 || reply.json()["accepted"] == true, "{}", reply.text());
        reply
    })
}

/// Adds one item after the other to a collection, each of some size.
fn collect(addr: SocketAddr, count: usize) -> (usize, Option<client::Reply>) {
    let items = |n: usize| json!({"items": [{"text": format!("item number {n}"), "answer": "yes ".repeat(4_000)}]});
    until_refused(count, |n| post(addr, "/v1/engram/collections/own/add", &items(n)))
}

/// A directory for tables and collections, and the flags of a service that uses it. It goes with the first value.
fn stores() -> (tempfile::TempDir, PathBuf, [String; 4]) {
    let dir = tempfile::tempdir().unwrap();
    let (stores, config) = (dir.path().join("tables"), dir.path().join("chimere.toml"));
    std::fs::create_dir(&stores).unwrap();
    std::fs::write(&config, format!("[engram]\ndirectory = {stores:?}\n")).unwrap();
    (dir, stores, ["--config", config.to_str().unwrap(), "--max-seqs", "4"].map(str::to_owned))
}

/// The shell's words for a file that may not grow, in blocks of 512 bytes. Whoever is limited may lift the limit.
fn no_larger_than(file: &Path) -> String {
    format!("ulimit -S -f {}", std::fs::metadata(file).unwrap().len().div_ceil(512))
}

/// Fills a store that may not grow, three times over, while others go on; how much it took.
fn fill(victim: &Victim, write: fn(SocketAddr, usize) -> (usize, Option<client::Reply>)) -> usize {
    let body = json!({"prompt": "Once", "max_tokens": 3, "temperature": 0, "ignore_eos": true});
    let fill_once = || {
        let (taken, refused) = write(victim.addr, 1000);
        let refused = refused.expect("a store that may not grow is full at last");
        assert_eq!(refused.status, 507, "{}", refused.text());
        let error = &refused.json()["error"];
        assert_eq!(error["code"], "disk_full");
        assert!(error["message"].as_str().unwrap().contains("no room: File too large"), "{error}");
        assert_eq!(post(victim.addr, COMPLETIONS, &body).json()["usage"]["completion_tokens"], 3, "the others go on");
        taken
    };
    (0..3).map(|_| fill_once()).sum()
}

#[test]
fn a_disk_that_is_full_refuses_what_tables_are_taught_and_keeps_all_that_was() {
    let (_dir, tables, args) = stores();
    let args = args.each_ref().map(String::as_str);
    let victim = Victim::start("", &args);
    let mut taught = teach(victim.addr, 3).0;
    drop(victim);
    let mut victim = Victim::start(&no_larger_than(&tables.join("store.redb")), &args);
    taught += fill(&victim, teach);
    assert_eq!(get(victim.addr, "/v1/engram/tables").status, 200);
    victim.signal("TERM");
    assert_eq!(victim.child.wait().unwrap().code(), Some(0));
    let model = chimere_engine::model::load(&golden()).unwrap();
    let ids = Fingerprint::of(&Tokenizer::new(&model.text.tokenizer).unwrap());
    let store = Store::new(tables, ids);
    let name = TableName::new("own").unwrap();
    assert_eq!(store.writes(&name).unwrap(), taught, "what was acknowledged, and nothing else");
    drop(store);
    // With room again it goes on.
    let victim = Victim::start("", &args);
    assert_eq!(teach(victim.addr, 3).0, 3);
    let known = || get(victim.addr, "/v1/engram/tables/own").status == 200;
    eventually("the table can be used", known);
}

#[test]
fn a_disk_that_is_full_refuses_items_of_collections_and_with_room_again_takes_them_without_a_restart() {
    let (_dir, stores, args) = stores();
    let args = args.each_ref().map(String::as_str);
    let items = |victim: &Victim| get(victim.addr, "/v1/engram/collections/own").json()["items"].clone();
    let victim = Victim::start("", &args);
    let made = request(victim.addr, "PUT", "/v1/engram/collections/own", &[], b"");
    assert_eq!(made.status, 200, "{}", made.text());
    let mut kept = collect(victim.addr, 3).0;
    drop(victim);
    let mut victim = Victim::start(&no_larger_than(&stores.join("collections.redb")), &args);
    kept += fill(&victim, collect);
    assert_eq!(items(&victim), kept);
    let found =
        post(victim.addr, "/v1/engram/collections/own/search", &json!({"query": "item number 1", "k": 1})).json();
    assert_eq!(found["data"][0]["text"], "item number 1");
    victim.may_write_files_of_any_size();
    let (more, refused) = collect(victim.addr, 3);
    assert_eq!((more, refused.map(|reply| reply.text().to_owned())), (3, None));
    kept += more;
    victim.signal("TERM");
    assert_eq!(victim.child.wait().unwrap().code(), Some(0));
    drop(victim);
    let victim = Victim::start("", &args);
    assert_eq!(items(&victim), kept, "what was acknowledged, and nothing else");
}

#[test]
fn a_clock_that_jumps_ahead_and_back_holds_nobody_up() {
    let clock = Clock::start();
    let server = Server::start(Options { slots: 2, clock: clock.clone(), ..Options::default() });
    let many = |text: &str| with(ask(text), json!({"max_tokens": 20}));
    assert_eq!(post(server.addr, CHAT, &many("LOOP[what steps take ]")).status, 200);
    let hour = 3_600_000_000;
    for jump in [hour, -2 * hour, 24 * hour, -23 * hour] {
        server.fake.allow(6);
        let body = with(many("LOOP[tick ]"), json!({"stream": true}));
        let (mut stream, mut other) = (Stream::open(server.addr, CHAT, &body), Stream::open(server.addr, CHAT, &body));
        stream.chunk();
        clock.jump(jump);
        server.fake.allow_all();
        for stream in [&mut stream, &mut other] {
            assert_eq!(stream.chunks().last().unwrap()["usage"]["completion_tokens"], 20);
        }
        // One step that seemed to take an hour does not make a minute look too short.
        let body = many("LOOP[tock ]").to_string();
        let reply = request(server.addr, "POST", CHAT, &[("x-chimere-deadline-ms", "60000")], body.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        server.wait_for_live(0);
    }
}

/// Open files that this process may have, after asking for all of them.
fn files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    if raised { maximum } else { current }.unwrap_or(u64::MAX)
}

/// Not a test of its own: what the second process of the next one runs.
#[test]
#[ignore = "the other process of a_crowd_of_idle_connections_keeps_nobody_out"]
fn hold_connections() {
    let Ok(addr) = std::env::var("CHIMERE_TEST_ADDR") else { return };
    // A few are the process's own.
    let wanted = files().saturating_sub(64).min(IDLE as u64) as usize;
    let held: Vec<_> = (0..wanted).map_while(|_| TcpStream::connect(&addr).ok()).collect();
    assert_eq!(held.len(), wanted, "of {} files", files());
    println!("holding {}", held.len());
    std::io::stdin().read_to_end(&mut Vec::new()).ok();
}

/// All that the service takes, but for those who want an answer meanwhile.
const IDLE: usize = chimere::limits::CONNECTIONS_MAX - 10;

#[test]
fn a_crowd_of_idle_connections_keeps_nobody_out() {
    // As behind a proxy: one address of its own would be kept to its share.
    let victim = Victim::start("export CHIMERE_SERVER__TRUSTED_PROXIES=127.0.0.1", &["--max-seqs", "4"]);
    let mut crowd = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::hold_connections", "--ignored", "--nocapture"])
        .env("CHIMERE_TEST_ADDR", victim.addr.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(crowd.stdout.take().unwrap()).lines().map(Result::unwrap);
    let held: usize =
        said.find_map(|line| line.split("holding ").nth(1).map(|n| n.parse().unwrap())).expect("it holds some");
    eprintln!("{held} idle connections of {IDLE}: a process may have {} files open here", files());
    assert!(held >= 500, "only {held} connections could be opened");
    let open = || std::fs::read_dir(format!("/proc/{}/fd", victim.child.id())).unwrap().count();
    eventually("the service has them all", || open() > held);
    let body = json!({"prompt": "Once", "max_tokens": 5, "temperature": 0, "ignore_eos": true});
    let answer = post(victim.addr, COMPLETIONS, &body);
    assert_eq!(answer.json()["usage"]["completion_tokens"], 5, "{}", answer.text());
    // Only now: a connection that is open takes its memory when its worker comes to it, before those that came later.
    let before = victim.resident();
    drop(crowd.stdin.take());
    assert!(crowd.wait().unwrap().success());
    eventually("their files are closed", || open() < 200);
    assert_eq!(post(victim.addr, COMPLETIONS, &body).json()["choices"], answer.json()["choices"]);
    assert!(victim.resident() < before + (64 << 20));
}

/// Sends many requests at once, half of whose clients leave, and gives how many were answered, refused, and left.
fn burst(addr: SocketAddr, count: usize) -> (usize, usize, usize) {
    let body = json!({"prompt": "Once upon", "max_tokens": 4, "temperature": 0, "ignore_eos": true}).to_string();
    let request = bytes("POST", COMPLETIONS, &[], body.as_bytes());
    let mut sockets: Vec<_> = (0..count).map(|_| connect(addr)).collect();
    sockets.iter_mut().for_each(|socket| socket.write_all(&request).unwrap());
    let (mut answered, mut refused, mut left) = (0, 0, 0);
    for (i, socket) in sockets.into_iter().enumerate() {
        if i % 4 == 3 {
            left += 1;
            continue; // closed unread
        }
        let reply = client::read_reply(socket);
        match reply.status {
            200 => answered += 1,
            429 => {
                assert!(reply.header("retry-after-ms").is_some());
                refused += 1;
            }
            other => panic!("{other}: {}", reply.text()),
        }
    }
    (answered, refused, left)
}

#[test]
fn a_burst_of_two_thousand_is_answered_or_refused_and_leaves_nothing_behind() {
    let victim = Victim::start("", &["--max-seqs", "64"]);
    let (mut answered, mut refused, mut left) = (0, 0, 0);
    let mut resident = Vec::new();
    let (mut sent, mut settled) = (0, false);
    for count in [2_000, 500, 500, 500, 500, 500] {
        let now = burst(victim.addr, count);
        sent += count;
        (answered, refused, left) = (answered + now.0, refused + now.1, left + now.2);
        eventually("nothing runs or waits", || {
            victim.metric("chimere_requests_running") + victim.metric("chimere_requests_waiting ") == 0.0
        });
        resident.push(victim.resident());
        // What an allocator keeps grows with the first bursts, and again with one of which more ran at a time, as
        // happens on a busy machine; what leaks grows with each.
        settled = matches!(resident[..], [_, .., before, last] if last < before + (32 << 20));
        if settled {
            break;
        }
    }
    assert_eq!(answered + refused + left, sent);
    assert!(answered > 0, "some were answered");
    let ended = || victim.metric("chimere_requests_total");
    // Those who left may have been answered, refused or cancelled before; nobody is counted twice or forgotten.
    eventually("the accounts balance", || {
        ended() + victim.metric("chimere_rejected_total") >= (answered + refused) as f64
    });
    let all = ended() + victim.metric("chimere_rejected_total");
    assert!(
        (answered + refused) as f64 <= all && all <= sent as f64,
        "{answered} answered, {refused} refused, {left} left: {all} counted"
    );
    assert_eq!(victim.metric("chimere_kv_pages{state=\"used\"}"), 0.0);
    assert_eq!(victim.metric("chimere_state_slots{state=\"used\"}"), 0.0);
    // Exactly: whatever was taken has ended, once.
    let taken = victim.metric("chimere_requests_started_total");
    eventually("who left has ended too", || ended() == taken);
    assert_eq!(victim.metric("chimere_requests_started_total"), taken);
    eprintln!("resident {resident:?}, {answered} answered, {refused} refused, {left} left, {all} counted");
    assert!(settled, "memory returns: {resident:?}");
    assert!(Path::new(&format!("/proc/{}", victim.child.id())).exists());
    assert_eq!(post(victim.addr, COMPLETIONS, &json!({"prompt": "Once", "max_tokens": 2})).status, 200);
}
