//! A deterministic backend. What it says stands in the prompt: `SAY[hello]` and `SAY{hello}` give hello and an end id,
//! `LOOP[ab]` gives abab... without end; after `UNSURE` it is sure of nothing, and after `OVERFLOW` its numbers are
//! none. How fast it is, and where it breaks, a test says.

use chimere::device::Built;
use chimere::text::Tokenizer;
use chimere_engine::backend::{Backend, BackendError, BackendInfo, EarlyRules, Pending, Progress};
use chimere_engine::constraint::{Constraint, StepRules};
use chimere_engine::ids::{SeqId, StepId, TokenId};
use chimere_engine::step::{
    Certainty, Piece, PieceTokens, PooledUnit, RowReport, Sample, Score, StepOutcome, StepPlan, StepTiming,
    TokenLogprobs,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What goes wrong, at a step of this number (0 is the first of the warm-up).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    LaunchFails,
    LaunchPanics,
    /// As on a CPU, where the launch computes the step.
    LaunchNeverReturns,
    StepFails,
    StepPanics,
    StepNeverEnds,
    /// As a kernel whose wait never ends; where no GPU computes, the step fails.
    Traps,
}

/// Bound of the wait that ends in a trap, in ticks of 67 ms.
const TRAP_TICKS: u32 = 3;

/// The test's end of a fake backend.
#[derive(Clone)]
pub struct Fake(Arc<Shared>);

struct Shared {
    tokenizer: Arc<Tokenizer>,
    end_id: TokenId,
    step_us: AtomicU64,
    trouble: Mutex<Option<Trouble>>,
    gate: Mutex<Gate>,
    changed: Condvar,
    plans: Mutex<Vec<StepPlan>>,
}

/// What steps pass to finish.
#[derive(Default)]
struct Gate {
    /// Steps that may still pass; `None` for any number.
    allowed: Option<u64>,
    /// Steps that have passed.
    passed: usize,
}

impl Fake {
    pub fn new(tokenizer: Arc<Tokenizer>, end_id: TokenId) -> Self {
        Self(Arc::new(Shared {
            tokenizer,
            end_id,
            step_us: AtomicU64::new(0),
            trouble: Mutex::default(),
            gate: Mutex::default(),
            changed: Condvar::new(),
            plans: Mutex::default(),
        }))
    }

    /// Each step takes this long.
    pub fn step_time(&self, time: Duration) {
        self.0.step_us.store(time.as_micros() as u64, Ordering::SeqCst);
    }

    /// The next step to be launched breaks like this.
    pub fn trouble(&self, trouble: Trouble) {
        *self.0.trouble.lock().unwrap() = Some(trouble);
    }

    /// From now on only `steps` more finish, until more are allowed.
    pub fn allow(&self, steps: u64) {
        self.0.gate.lock().unwrap().allowed = Some(steps);
        self.0.changed.notify_all();
    }

    /// All steps finish again.
    pub fn allow_all(&self) {
        self.0.gate.lock().unwrap().allowed = None;
        self.0.changed.notify_all();
    }

    /// This many steps were launched and none of them may finish.
    pub fn hangs(&self, steps: u32) -> bool {
        let gate = self.0.gate.lock().unwrap();
        gate.allowed == Some(0) && self.launched() == gate.passed + steps as usize
    }

    /// Everything that was launched so far.
    pub fn plans(&self) -> Vec<StepPlan> {
        self.0.plans.lock().unwrap().clone()
    }

    /// How many steps were launched so far.
    pub fn launched(&self) -> usize {
        self.0.plans.lock().unwrap().len()
    }

    /// All prompts that were read so far, one after the other, control tokens written out.
    pub fn was_told(&self) -> String {
        let plans = self.plans();
        let pieces = plans.iter().flat_map(|plan| &plan.pieces);
        let known = pieces.filter_map(|piece| match &piece.tokens {
            PieceTokens::Known(tokens) => Some(tokens.iter().copied()),
            _ => None,
        });
        self.0.tokenizer.decode(&known.flatten().collect::<Vec<_>>(), true)
    }

    pub fn backend(&self, info: BackendInfo) -> Box<dyn Backend> {
        Box::new(FakeBackend { info, shared: self.0.clone(), prompts: HashMap::new() })
    }
}

/// A backend that computes, and breaks where a test says so.
pub struct Breakable {
    pub inner: Built,
    pub fake: Fake,
}

impl Breakable {
    fn computes(&self) -> &dyn Backend {
        match &self.inner {
            Built::Cpu(backend) => backend,
            Built::Cuda(backend) => backend,
        }
    }

    fn computes_mut(&mut self) -> &mut dyn Backend {
        match &mut self.inner {
            Built::Cpu(backend) => backend,
            Built::Cuda(backend) => backend,
        }
    }
}

impl Backend for Breakable {
    fn info(&self) -> &BackendInfo {
        self.computes().info()
    }

    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
        let (step, shared) = (plan.id, self.fake.0.clone());
        // What it keeps of a plan is its number: nobody looks at more.
        let trouble = shared.launch(StepPlan::new(step, Vec::new()))?;
        let trouble = match (trouble, &mut self.inner) {
            (Some(Trouble::Traps), Built::Cuda(backend)) => {
                backend.trap(TRAP_TICKS).expect("the kernel is launched");
                None
            }
            (trouble, _) => trouble,
        };
        let pending = self.computes_mut().launch(plan)?;
        Ok(match trouble {
            None => pending,
            trouble => Pending::new(step, move || shared.finish(step, trouble, StepOutcome::default())),
        })
    }

    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
        self.computes_mut().constrain(rules)
    }

    fn look_for_rules(&mut self, early: Arc<EarlyRules>) {
        self.computes_mut().look_for_rules(early);
    }

    fn progress(&self) -> Progress {
        self.computes().progress()
    }
}

struct FakeBackend {
    info: BackendInfo,
    shared: Arc<Shared>,
    prompts: HashMap<SeqId, Vec<TokenId>>,
}

impl Backend for FakeBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
        let step = plan.id;
        let trouble = self.shared.launch(plan.clone())?;
        let outcome = self.compute(&plan);
        let shared = self.shared.clone();
        Ok(Pending::new(step, move || shared.finish(step, trouble, outcome)))
    }

    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
        Err(BackendError::Plan { step: rules.step, why: "no row of the fake awaits rules".into() })
    }
}

impl Shared {
    /// Keeps a plan that is launched, and breaks there if that was said. What breaks later is returned.
    fn launch(&self, plan: StepPlan) -> Result<Option<Trouble>, BackendError> {
        let step = plan.id;
        self.plans.lock().unwrap().push(plan);
        let trouble = self.trouble.lock().unwrap().take();
        match trouble {
            Some(Trouble::LaunchFails) => Err(BackendError::Device { step, why: "launch failed on purpose".into() }),
            Some(Trouble::LaunchPanics) => panic!("launch panics on purpose"),
            Some(Trouble::LaunchNeverReturns) => loop {
                std::thread::park();
            },
            trouble => Ok(trouble),
        }
    }

    fn finish(
        &self,
        step: StepId,
        trouble: Option<Trouble>,
        outcome: StepOutcome,
    ) -> Result<StepOutcome, BackendError> {
        std::thread::sleep(Duration::from_micros(self.step_us.load(Ordering::SeqCst)));
        let mut gate = self.changed.wait_while(self.gate.lock().unwrap(), |gate| gate.allowed == Some(0)).unwrap();
        gate.allowed = gate.allowed.map(|n| n - 1);
        gate.passed += 1;
        drop(gate);
        match trouble {
            Some(Trouble::StepFails | Trouble::Traps) => {
                Err(BackendError::Device { step, why: "step failed on purpose".into() })
            }
            Some(Trouble::StepPanics) => panic!("step panics on purpose"),
            Some(Trouble::StepNeverEnds) => loop {
                std::thread::park();
            },
            _ => Ok(outcome),
        }
    }

    /// What a prompt asks for, as tokens, and whether it repeats.
    fn script(&self, prompt: &[TokenId]) -> (Vec<TokenId>, bool) {
        let text = self.tokenizer.decode(prompt, true);
        for (word, end, repeats) in [("SAY[", ']', false), ("SAY{", '}', false), ("LOOP[", ']', true)] {
            if let Some((_, rest)) = text.rsplit_once(word) {
                return (self.tokenizer.encode(rest.split_once(end).unwrap().0), repeats);
            }
        }
        (self.tokenizer.encode("ok"), false)
    }

    fn token(&self, prompt: &[TokenId], index: u32) -> TokenId {
        let (script, repeats) = self.script(prompt);
        let at = if repeats { index as usize % script.len() } else { index as usize };
        script.get(at).copied().unwrap_or(self.end_id)
    }

    /// None at all after a prompt with `UNSURE` in it, else all there is.
    fn certainty(&self, prompt: &[TokenId]) -> Certainty {
        let unsure = self.tokenizer.decode(prompt, true).contains("UNSURE");
        if unsure { Certainty { entropy: 5.0, top_prob: 0.1 } } else { Certainty { entropy: 0.0, top_prob: 1.0 } }
    }

    /// Made up, but the same each time: minus a tenth of the token's id modulo ten.
    fn logprobs(&self, token: TokenId, top: u8) -> TokenLogprobs {
        let of = |id: TokenId| -0.1 * (id % 10) as f32;
        TokenLogprobs { logprob: of(token), top: (0..u32::from(top)).map(|i| (i, of(i))).collect() }
    }
}

impl FakeBackend {
    fn compute(&mut self, plan: &StepPlan) -> StepOutcome {
        let mut outcome = StepOutcome {
            id: Some(plan.id),
            timing: StepTiming { forward_us: 100, sample_us: 10, guess_us: 0 },
            ..StepOutcome::default()
        };
        for piece in &plan.pieces {
            self.remember(piece);
            self.score(piece, &mut outcome.scores);
            let broken = self.is_broken(piece.seq);
            let sum = if broken { f32::NAN } else { 1.0 };
            let sum = |positions| PooledUnit { seq: piece.seq, positions, sum: vec![sum] };
            outcome.pooled.extend(piece.pooled_units().map(sum));
            for row in &piece.samples {
                let prompt = self.prompts[&piece.seq].clone();
                let constraint = Constraint::of(row.rules.clone(), self.info.vocab);
                let report = RowReport::of(row, &constraint, self.info.vocab);
                let Constraint { forced, yielded, .. } = constraint;
                let token = forced.unwrap_or_else(|| self.shared.token(&prompt, row.output_index));
                let logprobs = row.params.logprobs.map(|top| self.shared.logprobs(token, top));
                let certainty = row.params.certainty.then(|| self.shared.certainty(&prompt));
                self.prompts.insert(row.seq, prompt);
                outcome.samples.push(Sample {
                    seq: row.seq,
                    token,
                    logprobs,
                    certainty,
                    changed: None,
                    yielded,
                    report,
                    finite: !broken,
                });
            }
        }
        outcome
    }

    /// Whether the numbers of a sequence are none: after a prompt with `OVERFLOW` in it.
    fn is_broken(&self, seq: SeqId) -> bool {
        self.prompts.get(&seq).is_some_and(|prompt| self.shared.tokenizer.decode(prompt, true).contains("OVERFLOW"))
    }

    fn remember(&mut self, piece: &Piece) {
        let PieceTokens::Known(tokens) = &piece.tokens else { return };
        let prompt = self.prompts.entry(piece.seq).or_default();
        if (prompt.len() as u32) < piece.prompt_len && piece.start as usize == prompt.len() {
            prompt.extend(tokens.iter().take(piece.prompt_len as usize - prompt.len()));
        }
    }

    fn score(&self, piece: &Piece, scores: &mut Vec<Score>) {
        scores.extend(piece.scored().into_iter().map(|scored| Score {
            seq: piece.seq,
            position: scored.position,
            token: scored.token,
            logprobs: self.shared.logprobs(scored.token, scored.top),
            finite: true,
        }));
    }
}
