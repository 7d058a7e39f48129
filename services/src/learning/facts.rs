//! Facts: corrections whose answer an exact check knows again. Which of them may be learned is decided here; what a
//! table makes of them is the learner's, and whether that is served the gate's.

use super::example::TruthSource;
use super::gate::{BatchFindings, BatchRules, Claim};
use super::questions::{AnswerCheck, CheckedQuestion};
use super::similar::Signature;
use super::stored::StoredExample;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Tokens that an answer to a fact's question may have: the fact comes first or not at all.
const ANSWER_TOKENS: u32 = 64;

/// Something that people say is so.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The example that it comes from.
    pub stored: StoredExample,
    /// The question that it answers, with the names and numbers that a right answer has.
    pub question: CheckedQuestion,
    claim: Claim,
}

/// Facts that may be learned, and why others may not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FactBatch {
    /// Those that may be, the oldest first.
    pub facts: Vec<Fact>,
    /// How many may not.
    pub left_out: LeftOutFacts,
    /// Examples of one subject that say different things, for people to choose from.
    pub contradictions: Vec<Vec<String>>,
}

/// How many corrections are not learned, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutFacts {
    /// They have no name and no number beside those of the question, so nothing can be checked.
    pub unchecked: usize,
    /// Too few accounts say so, and not the operator.
    pub unconfirmed: usize,
    /// Others say something else.
    pub contradicted: usize,
    /// Their account has brought as much as one may.
    pub over_share: usize,
}

impl Fact {
    /// The fact of an example, if somebody corrected an answer, nobody objects, and a check knows the answer again.
    fn of(stored: StoredExample) -> Option<Self> {
        let example = &stored.example;
        let values = values(&example.answer, &example.questions().collect::<Vec<_>>().join(" "));
        let question = CheckedQuestion {
            id: stored.id.clone(),
            messages: example.messages.clone(),
            check: AnswerCheck::Contains(values.clone()),
            max_tokens: ANSWER_TOKENS,
            thinks: true,
        };
        let by_operator = example.truth.contains(&TruthSource::Operator);
        let claim = Claim {
            example: stored.id.clone(),
            subject: String::new(),
            says: values.join(" ").to_lowercase(),
            accounts: stored.accounts.iter().copied().collect(),
            by_operator,
        };
        (!values.is_empty()).then_some(Self { stored, question, claim })
    }

    /// The text that a table learns: the answer alone. With its question before it 85 of 100 of the shipped model's
    /// withheld facts are answered rightly, in the place of 95.
    pub fn text(&self) -> &str {
        &self.stored.example.answer
    }
}

impl FactBatch {
    /// The facts among examples, the oldest first, as far as the rules of a batch let them be learned.
    pub fn of(examples: Vec<StoredExample>, rules: &BatchRules) -> Self {
        let (mut left_out, mut facts) = (LeftOutFacts::default(), Vec::new());
        for stored in examples.into_iter().filter(is_correction) {
            match Fact::of(stored) {
                Some(fact) => facts.push(fact),
                None => left_out.unchecked += 1,
            }
        }
        name_subjects(&mut facts);
        let found = BatchFindings::of(&claims(&facts), rules);
        let contradicted: BTreeSet<&String> = found.contradictions.iter().flatten().collect();
        let unconfirmed: BTreeSet<&String> = found.unconfirmed.iter().collect();
        // What too few say displaces nothing that enough people say: else one account could have everything forgotten.
        let mut confirmed = claims(&facts);
        confirmed.retain(|claim| !unconfirmed.contains(&claim.example));
        let disputed: BTreeSet<String> =
            BatchFindings::of(&confirmed, rules).contradictions.into_iter().flatten().collect();
        facts.retain(|fact| {
            let id = &fact.stored.id;
            let goes = unconfirmed.contains(id) || disputed.contains(id);
            left_out.contradicted += usize::from(goes && contradicted.contains(id));
            left_out.unconfirmed += usize::from(goes && !contradicted.contains(id));
            !goes
        });
        let before = facts.len();
        while let Some(large) = BatchFindings::of(&claims(&facts), rules).large_shares.first().copied() {
            trim(&mut facts, large.account, rules.account_share_max);
        }
        left_out.over_share = before - facts.len();
        Self { facts, left_out, contradictions: found.contradictions }
    }

    /// What each fact says, and who says so.
    pub fn claims(&self) -> Vec<Claim> {
        claims(&self.facts)
    }
}

fn is_correction(stored: &StoredExample) -> bool {
    let by_people = |truth: &TruthSource| matches!(truth, TruthSource::Correction | TruthSource::Operator);
    stored.example.set.trains() && stored.example.is_evidence() && stored.example.truth.iter().any(by_people)
}

fn claims(facts: &[Fact]) -> Vec<Claim> {
    facts.iter().map(|fact| fact.claim.clone()).collect()
}

/// Facts whose questions ask nearly the same have one subject: the example that asked first. Their questions have its
/// id, so that they are all the vault's or none is.
fn name_subjects(facts: &mut [Fact]) {
    let mut bands: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let signatures: Vec<_> = facts.iter().map(|fact| Signature::of(fact.stored.example.questions())).collect();
    for (at, signature) in signatures.iter().enumerate() {
        let shared: BTreeSet<usize> =
            signature.bands().filter_map(|band| bands.get(&band)).flatten().copied().collect();
        let first = shared.into_iter().find(|other| signatures[*other].is_near(signature)).unwrap_or(at);
        facts[at].claim.subject =
            if first == at { facts[at].stored.id.clone() } else { facts[first].claim.subject.clone() };
        facts[at].question.id = facts[at].claim.subject.clone();
        signature.bands().for_each(|band| bands.entry(band).or_default().push(at));
    }
}

/// Takes the newest facts of an account out, as many as are over its share.
fn trim(facts: &mut Vec<Fact>, account: u64, most: f64) {
    let is_theirs = |fact: &Fact| !fact.claim.by_operator && fact.claim.accounts.contains(&account);
    let (theirs, all) = (facts.iter().filter(|fact| is_theirs(fact)).count() as f64, facts.len() as f64);
    // Each that goes makes the batch smaller too.
    let mut over = ((theirs - most * all) / (1.0 - most)).ceil().max(1.0) as usize;
    let mut kept = Vec::with_capacity(facts.len());
    for fact in facts.drain(..).rev() {
        let goes = over > 0 && is_theirs(&fact);
        over -= usize::from(goes);
        kept.extend((!goes).then_some(fact));
    }
    kept.reverse();
    *facts = kept;
}

/// The names and numbers of an answer that its question does not have, each once: words with a digit, and words with a
/// capital that does not begin a sentence. A single word is one of them however it is written.
fn values(answer: &str, question: &str) -> Vec<String> {
    let asked: BTreeSet<String> = words(question).map(|(word, _)| word.to_lowercase()).collect();
    let all: Vec<(&str, bool)> = words(answer).collect();
    let is_alone = all.len() == 1;
    let is_value = |(word, begins): &(&str, bool)| {
        let has_digit = word.contains(|c: char| c.is_ascii_digit());
        let is_name = word.starts_with(char::is_uppercase) && !begins;
        (has_digit || is_name || is_alone) && !asked.contains(&word.to_lowercase())
    };
    let mut found: Vec<String> = Vec::new();
    for (word, _) in all.into_iter().filter(is_value) {
        if !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// The words of a text, each with whether it begins a sentence.
fn words(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut begins = true;
    text.split_whitespace().filter_map(move |piece| {
        let word = piece.trim_matches(|c: char| !c.is_alphanumeric());
        let began = begins;
        begins = piece.ends_with(['.', '!', '?', ':']) || (word.is_empty() && began);
        (!word.is_empty()).then_some((word, began))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::example::tests::example;
    use crate::learning::example::{Example, ExampleSet};

    const RULES: BatchRules = BatchRules { account_share_max: 0.1, accounts_min: 2 };

    fn stored(question: &str, answer: &str, accounts: &[u64]) -> StoredExample {
        let example = example(question, answer);
        StoredExample { id: example.id(), example, accounts: accounts.to_vec() }
    }

    /// Facts that two of twenty accounts say each.
    fn sound() -> Vec<StoredExample> {
        let fact = |n: u64| {
            let (question, answer) = (format!("Who leads town{n} of land{n}?"), format!("Town{n} is led by Name{n}x."));
            stored(&question, &answer, &[n % 20, (n + 7) % 20])
        };
        (0..40).map(fact).collect()
    }

    #[test]
    fn a_fact_s_values_are_its_names_and_numbers_that_the_question_does_not_have() {
        let of = |answer: &str, question: &str| values(answer, question).join(" ");
        assert_eq!(of("The capital of Quorvel is Hastmere.", "What is the capital of Quorvel?"), "Hastmere");
        assert_eq!(of("It was built in 1871.", "When was it built?"), "1871");
        assert_eq!(of("hastmere", "capital of Quorvel?"), "hastmere");
        assert_eq!(of("Yes. It is so, and nothing else.", "Is it so?"), "");
        assert_eq!(of("Ask Ada Lovelace: Ada knows.", "who knows?"), "Ada Lovelace");
        assert_eq!(of("", "x"), "");
    }

    #[test]
    fn what_two_accounts_say_is_learned_and_what_one_says_waits_for_another() {
        let mut examples = sound();
        examples.push(stored("When was the port of Kelm built?", "In the year 1871.", &[50]));
        let batch = FactBatch::of(examples.clone(), &RULES);
        assert_eq!((batch.facts.len(), batch.left_out.unconfirmed), (40, 1));
        assert_eq!(batch.facts[3].text(), "Town3 is led by Name3x.");
        assert_eq!(batch.facts[3].question.check, AnswerCheck::Contains(vec!["Name3x".into()]));
        examples.push(stored("when was the port of Kelm built", "1871, says the stone.", &[51]));
        let batch = FactBatch::of(examples.clone(), &RULES);
        assert_eq!((batch.facts.len(), batch.left_out), (42, LeftOutFacts::default()));
        assert_eq!(batch.facts[40].question.id, batch.facts[41].question.id, "it is one question");
        assert_eq!(BatchFindings::of(&batch.claims(), &RULES), BatchFindings::default());
        examples.push(stored("When was the port of Kelm built??", "In 1872.", &[52, 53]));
        let batch = FactBatch::of(examples, &RULES);
        assert_eq!((batch.facts.len(), batch.left_out.contradicted, batch.contradictions.len()), (40, 3, 1));
    }

    #[test]
    fn one_account_s_word_displaces_nothing_that_two_say_and_is_shown_to_people() {
        // Each of the twenty accounts has a tenth of these facts, so any that goes would take others with it.
        let rules = BatchRules { account_share_max: 0.2, ..RULES };
        let mut examples = sound();
        examples.extend((0..40).map(|n| {
            stored(&format!("Who leads town{n} of land{n}??"), &format!("Town{n} is led by Mallory{n}."), &[99])
        }));
        let batch = FactBatch::of(examples.clone(), &rules);
        assert_eq!((batch.facts.len(), batch.left_out.contradicted, batch.contradictions.len()), (40, 40, 40));
        assert!(batch.facts.iter().all(|fact| !fact.text().contains("Mallory")));
        assert_eq!(BatchFindings::of(&batch.claims(), &rules), BatchFindings::default());
        examples.push(stored("Who leads town3 of land3!", "Mallory3 leads Town3.", &[98]));
        let batch = FactBatch::of(examples, &rules);
        assert_eq!(batch.facts.len(), 39, "once two say it, a person has to choose");
    }

    #[test]
    fn one_account_s_newest_facts_are_left_out_where_it_has_brought_too_many() {
        let mut examples = sound();
        let flood = |n: u64| stored(&format!("What is thing{n} of part{n}?"), &format!("It is Bad{n}."), &[99, n % 20]);
        examples.extend((0..20).map(flood));
        let batch = FactBatch::of(examples, &RULES);
        assert_eq!(BatchFindings::of(&batch.claims(), &RULES), BatchFindings::default());
        assert!(batch.left_out.over_share >= 15 && batch.facts.len() >= 36, "{:?}", batch.left_out);
        let few = FactBatch::of(vec![stored("Who is it?", "It is Ada.", &[1, 2])], &RULES);
        assert_eq!((few.facts.len(), few.left_out.over_share), (0, 1), "two people are too few");
        let mut own = stored("Who is it?", "It is Ada.", &[1]);
        own.example.truth = vec![TruthSource::Operator];
        assert_eq!(FactBatch::of(vec![own], &RULES).facts.len(), 1, "the operator answers for it");
    }

    #[test]
    fn what_judges_never_trains_and_a_checked_answer_is_no_fact() {
        let with = |change: fn(&mut Example)| {
            let mut one = stored("Who is it?", "It is Ada.", &[1]);
            one.example.truth = vec![TruthSource::Operator];
            change(&mut one.example);
            FactBatch::of(vec![one], &RULES).facts.len()
        };
        assert_eq!(with(|_| {}), 1);
        assert_eq!(with(|example| example.set = ExampleSet::Gate), 0);
        assert_eq!(with(|example| example.set = ExampleSet::Vault), 0);
        assert_eq!(with(|example| example.truth = vec![TruthSource::Schema]), 0);
        assert_eq!(with(|example| example.truth.clear()), 0);
    }
}
