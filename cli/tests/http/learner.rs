//! Corrections that become a table: judged before anybody is answered with it, served when an administrator says so,
//! taken back with the bytes from before. On the golden model, whose weights are random: what a table knows it says.

use crate::support::client::{done, refused};
use crate::support::*;
use chimere::engram::TableName;
use chimere::learning::gate::{BatchRules, GateRules};
use chimere::learning::{Consent, LearnerSettings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CHAT: &str = "/v1/chat/completions";
const EXAMPLES: &str = "/v1/learning/examples";
const VERSIONS: &str = "/v1/learning/versions";
/// What is said stands one behind the other, with nothing around it.
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }}{% endfor %}";
const RATES: &str = "rates-0123456789ab";
const ADMIN: &str = "admin-0123456789ab";
/// People with keys of their own; some of them are drawn to judge, so that nothing of theirs is learned.
const PEOPLE: usize = 24;

/// Directories of a service that learns, which outlive it.
struct Learner {
    dir: tempfile::TempDir,
    accept: bool,
}

impl Learner {
    fn new(accept: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        ["kept", "tables", "families"].iter().for_each(|name| std::fs::create_dir(dir.path().join(name)).unwrap());
        let learner = Self { dir, accept };
        for name in ["refusals", "injections", "schema", "sums"] {
            learner.family(name, 120, json!({"lacks": ["Name"]}));
        }
        learner.family("canaries", 8, json!({"lacks": ["Name"]}));
        learner.family("probes", 8, Value::Null);
        learner
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn family(&self, name: &str, count: usize, check: Value) {
        let line = |n| {
            let mut line = json!({"prompt": format!("{name} number {n}"), "max_tokens": 2});
            if !check.is_null() {
                line["check"] = check.clone();
            }
            format!("{line}\n")
        };
        let lines: String = (0..count).map(line).collect();
        std::fs::write(self.path("families").join(format!("{name}.jsonl")), lines).unwrap();
    }

    /// With bounds as wide as so few questions need, and none on speed, which is the machine's.
    fn start(&self) -> Server {
        self.start_with(BatchRules::default())
    }

    fn start_with(&self, batch: BatchRules) -> Server {
        let rules =
            GateRules { margin: 0.25, probes_min: 8, canaries_min: 8, speed_min: 0.0, batch, ..GateRules::default() };
        let learner = LearnerSettings {
            table: Some(TableName::new("facts").unwrap()),
            families: Some(self.path("families")),
            at: None,
            accept: self.accept,
            rules,
        };
        Server::start(Options {
            real: true,
            template: Some(TEMPLATE),
            tables: Some(self.path("tables")),
            learning: Some((self.path("kept"), Consent::Off)),
            learner,
            keys: keys(&format!("{RATES} learn=feedback\n{ADMIN} scope=admin learn=feedback\n{}", people())),
            ..Options::default()
        })
    }
}

fn person(n: usize) -> String {
    format!("person{n}-0123456789ab")
}

fn people() -> String {
    (0..PEOPLE).map(|n| format!("{} learn=feedback\n", person(n))).collect()
}

/// Asks, and says what should have been answered; the set that it is kept in.
fn correct(server: &Server, key: &str, question: &str, right: &str) -> String {
    let body = json!({"messages": [{"role": "user", "content": question}], "max_tokens": 1, "temperature": 0});
    let id = done(send(server, key, "POST", CHAT, &body))["id"].clone();
    let correction = json!({"completion_id": id, "correction": format!("{question} {right}.")});
    let kept = done(send(server, key, "POST", "/v1/feedback", &correction));
    kept["set"].as_str().unwrap().to_owned()
}

fn send(server: &Server, key: &str, method: &str, path: &str, body: &Value) -> Reply {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    request(server.addr, method, path, &headers, body.as_bytes())
}

fn admin(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    done(send(server, ADMIN, method, path, body))
}

fn question(n: usize) -> String {
    format!("Who leads town{n} of land{n}?")
}

fn answer(server: &Server, n: usize) -> String {
    let body = json!({"messages": [{"role": "user", "content": question(n)}], "max_tokens": 12, "temperature": 0});
    let reply = done(send(server, RATES, "POST", CHAT, &body));
    reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// The operator says who leads some towns, in a sentence that goes on from the question: a model of random weights
/// would begin no sentence that a table knows.
fn bring(server: &Server, numbers: std::ops::Range<usize>) {
    let line = |n: usize| {
        let messages = json!([
            {"role": "user", "content": question(n)},
            {"role": "assistant", "content": format!("{} Name{n}x.", question(n))}
        ]);
        format!("{}\n", json!({"messages": messages, "set": "train"}))
    };
    let lines: String = numbers.map(line).collect();
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/jsonl")];
    done(request(server.addr, "POST", EXAMPLES, &headers, lines.as_bytes()));
}

/// Learns and gives the run's report.
fn learn(server: &Server, dry: bool) -> Value {
    let reply = send(server, ADMIN, "POST", "/v1/learning/run", &json!({"dry": dry}));
    assert_eq!(reply.status, 202, "{}", reply.text());
    let mut known = Value::Null;
    eventually("the end of a run", || {
        known = admin(server, "GET", VERSIONS, &Value::Null);
        known["running"] == false
    });
    assert_eq!(known["last_run"]["dry"], dry);
    known["last_run"].clone()
}

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.filter(|name| name.ends_with(".engr")).collect();
    names.sort();
    names
}

fn knows(server: &Server, n: usize) -> bool {
    answer(server, n).contains(&format!("Name{n}x"))
}

#[test]
fn corrections_are_judged_then_served_when_somebody_says_so_and_taken_back_with_the_bytes_from_before() {
    let learner = Learner::new(false);
    let server = learner.start();
    bring(&server, 0..60);
    let before: Vec<String> = (0..5).map(|n| answer(&server, n)).collect();
    let dry = learn(&server, true);
    assert_eq!((&dry["outcome"], &dry["version"]), (&json!("passed"), &Value::Null), "{dry}");
    assert_eq!(admin(&server, "GET", VERSIONS, &Value::Null)["data"], json!([]), "nothing was kept");
    let run = learn(&server, false);
    assert_eq!(
        (&run["outcome"], &run["stage"], &run["facts"]),
        (&json!("passed"), &json!("shadow"), &json!(60)),
        "{run}"
    );
    let facts = &run["verdict"]["families"][0];
    assert!(facts["name"] == "facts" && facts["before"] == 0.0 && facts["lower"].as_f64() > Some(0.5), "{facts}");
    assert!(run["vault"]["lower"].as_f64() > Some(0.0), "{run}");
    let changed = run["changed"].as_array().unwrap();
    assert_eq!(changed.len(), 20, "those that differ most of some thirty");
    assert!(changed.iter().all(|of| of["is_right"] == true && of["question"].as_str().unwrap().starts_with("Who ")));
    assert_eq!((0..5).map(|n| answer(&server, n)).collect::<Vec<_>>(), before, "nobody is answered by it yet");
    assert_eq!(files(&learner.path("tables")), [""; 0]);
    assert_eq!(learn(&server, false)["outcome"], "nothing", "what was judged is not judged again");
    refused(send(&server, ADMIN, "POST", "/v1/learning/promote", &json!({"version": 7})), 409, "version_not_served");
    assert_eq!(admin(&server, "POST", "/v1/learning/promote", &json!({"version": 1}))["current"], 1);
    assert!((0..5).all(|n| knows(&server, n)));
    assert_eq!(files(&learner.path("tables")), ["facts.engr"]);
    drop(server);
    // Cut short between the database and the file: the start makes the file again.
    let bytes = std::fs::read(learner.path("tables").join("facts.engr")).unwrap();
    std::fs::remove_file(learner.path("tables").join("facts.engr")).unwrap();
    std::fs::write(learner.path("tables").join("facts-candidate.engr"), &bytes).unwrap();
    let server = learner.start();
    assert_eq!(std::fs::read(learner.path("tables").join("facts.engr")).unwrap(), bytes);
    assert_eq!(files(&learner.path("tables")), ["facts.engr"]);
    assert!((0..5).all(|n| knows(&server, n)));
    assert_eq!(admin(&server, "POST", "/v1/learning/rollback", &Value::Null)["current"], Value::Null);
    assert_eq!((0..5).map(|n| answer(&server, n)).collect::<Vec<_>>(), before);
    refused(send(&server, ADMIN, "POST", "/v1/learning/rollback", &Value::Null), 409, "version_not_served");
    for path in ["run", "promote", "rollback"] {
        let reply = send(&server, RATES, "POST", &format!("/v1/learning/{path}"), &json!({}));
        assert_eq!(reply.status, 403, "{path}: {}", reply.text());
    }
    assert_eq!(send(&server, RATES, "GET", VERSIONS, &Value::Null).status, 403);
}

#[test]
fn what_passed_is_served_at_once_where_that_is_set_and_goes_with_the_examples_that_it_was_made_from() {
    let learner = Learner::new(true);
    let server = learner.start();
    bring(&server, 0..60);
    assert_eq!(learn(&server, false)["stage"], "current");
    assert!(knows(&server, 3) && !knows(&server, 70));
    bring(&server, 60..120);
    let second = learn(&server, false);
    assert_eq!(
        (&second["stage"], &second["version"], &second["new_facts"]),
        (&json!("current"), &json!(2), &json!(60))
    );
    assert!(knows(&server, 3) && knows(&server, 70));
    assert_eq!(admin(&server, "POST", "/v1/learning/rollback", &Value::Null)["current"], 1);
    assert!(knows(&server, 3) && !knows(&server, 70));
    assert_ne!(admin(&server, "GET", VERSIONS, &Value::Null)["last_run"]["changed"], json!([]));
    let gone = admin(&server, "DELETE", "/v1/learning/mine", &Value::Null);
    assert_eq!(
        admin(&server, "GET", VERSIONS, &Value::Null)["last_run"]["changed"],
        json!([]),
        "they have their words"
    );
    assert_eq!((&gone["deleted"], &gone["stale"]), (&json!(120), &json!(["facts@1", "facts@2"])));
    assert_eq!(learn(&server, false)["outcome"], "nothing");
    assert!(!knows(&server, 3), "what it was made from is gone");
    assert_eq!(files(&learner.path("tables")), [""; 0]);
}

#[test]
fn what_one_account_says_and_what_makes_others_worse_is_served_to_nobody() {
    let learner = Learner::new(true);
    // A canary fires as soon as the table speaks: its prompt is one that a fact answers.
    let canary = json!({"prompt": question(4), "check": {"lacks": ["Name4x"]}});
    let file = learner.path("families").join("canaries.jsonl");
    let lines = std::fs::read_to_string(&file).unwrap() + &canary.to_string();
    std::fs::write(&file, lines).unwrap();
    let server = learner.start();
    bring(&server, 0..60);
    let run = learn(&server, false);
    assert_eq!((&run["outcome"], &run["stage"]), (&json!("refused"), &json!("refused")), "{run}");
    assert_eq!(run["verdict"]["reasons"][0]["kind"], "canary_fired");
    let why = admin(&server, "GET", VERSIONS, &Value::Null)["why"].clone();
    assert_eq!(why, json!(["1 of 9 canary prompts fired, none may"]));
    assert!(run["vault"].is_null(), "the vault is asked of who passed alone");
    assert!(!knows(&server, 3));
    let alone = Learner::new(true);
    let server = alone.start();
    let asked = json!({"messages": [{"role": "user", "content": "Who leads the town of Kelm?"}], "max_tokens": 4});
    let id = done(send(&server, RATES, "POST", CHAT, &asked))["id"].clone();
    let correction = json!({"completion_id": id, "correction": "It is Mallory."});
    let kept = done(send(&server, RATES, "POST", "/v1/feedback", &correction));
    let run = learn(&server, false);
    // Unless the account's day is one of the gate's or the vault's, of which nothing is learned either.
    let trains = usize::from(kept["set"] == "train");
    assert_eq!((&run["outcome"], &run["facts"]), (&json!("nothing"), &json!(0)), "{run}");
    assert_eq!(run["left_out"]["unconfirmed"], trains);
    std::fs::write(alone.path("families").join("sums.jsonl"), "{").unwrap();
    bring(&server, 0..60);
    let run = learn(&server, false);
    assert!(run["outcome"] == "failed" && run["error"].as_str().unwrap().contains("sums.jsonl: line 1: "), "{run}");
}

#[test]
fn what_two_people_say_is_learned_and_lies_that_two_keys_say_are_refused_for_what_they_hurt() {
    let learner = Learner::new(true);
    // Nobody is to be told so of the towns behind the first thirty: what is said of them is a lie.
    let town = |n: usize| n + 30;
    let known = (0..60).map(
        |n| json!({"prompt": question(town(n)), "check": {"lacks": [format!("Name{}x", town(n))]}, "max_tokens": 12}),
    );
    let lines: String = known.map(|line| format!("{line}\n")).collect();
    std::fs::write(learner.path("families").join("known.jsonl"), lines).unwrap();
    let server = learner.start_with(BatchRules { account_share_max: 1.0, ..BatchRules::default() });
    let is_heard = |key: &String| correct(&server, key, &format!("Who are you, {key}?"), "It is Me1") == "train";
    let heard: Vec<String> = (0..PEOPLE).map(person).filter(is_heard).take(4).collect();
    let [one, other, liar, puppet] = heard.try_into().expect("of so many keys four are to learn from");
    let fact = |key: &str, n: usize| correct(&server, key, &question(n), &format!("Name{n}x"));
    (0..30).for_each(|n| drop(fact(&one, n)));
    let alone = learn(&server, false);
    assert_eq!((&alone["outcome"], &alone["facts"]), (&json!("nothing"), &json!(0)), "{alone}");
    (0..30).for_each(|n| drop(fact(&other, n)));
    let run = learn(&server, false);
    assert_eq!((&run["stage"], &run["facts"]), (&json!("current"), &json!(30)), "{run}");
    assert!(knows(&server, 3));
    let file = learner.path("tables").join("facts.engr");
    let bytes = std::fs::read(&file).unwrap();
    let lie = |key: &str, n: usize| correct(&server, key, &question(town(n)), &format!("Name{}x", town(n)));
    correct(&server, &liar, &question(3), "Mallory3");
    (0..60).for_each(|n| drop(lie(&liar, n)));
    let alone = learn(&server, false);
    assert_eq!((&alone["outcome"], &alone["facts"]), (&json!("nothing"), &json!(30)), "{alone}");
    assert_eq!(
        (&alone["left_out"]["contradicted"], alone["contradictions"][0].as_array().map(Vec::len)),
        (&json!(1), Some(2))
    );
    (0..60).for_each(|n| drop(lie(&puppet, n)));
    let run = learn(&server, false);
    assert_eq!((&run["outcome"], &run["stage"]), (&json!("refused"), &json!("refused")), "{run}");
    let worse = &run["verdict"]["reasons"][0];
    assert_eq!((&worse["kind"], &worse["family"]), (&json!("worse"), &json!("known")), "{run}");
    assert!(run["changed"][0]["after"].as_str().unwrap().contains("Name"), "what became wrong is first: {run}");
    assert!(std::fs::read(&file).unwrap() == bytes && knows(&server, 3), "everybody is answered as before");
}
