//! The work on one file: which of its tensors are quantised as a group, which have a settled type, and how many bytes
//! the groups may take together.

use super::card::CardTarget;
use super::{Mtp, QuantizeArgs, RoundingMethod, Scheme, Target, failed};
use crate::CliError;
use crate::figures::bytes_text;
use chimere_engine::format::gguf::MetaValue;
use chimere_engine::format::{BlockType, Gguf};
use chimere_engine::model::Model;
use chimere_engine::quantize::{
    Encoder, Group, Importance, MENU, MatrixRole, Output, encoded_bytes, fitting, groups, kept_because,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The draft head's type where a scheme chooses the others: nothing that is measured depends on it.
const DRAFT_TYPE: BlockType = BlockType::Q4K;

/// The tensors of a file by what becomes of them, before anything was measured.
pub(super) struct QuantizeJob<'a> {
    pub(super) args: &'a QuantizeArgs,
    pub(super) source: &'a Gguf,
    pub(super) encoder: &'a dyn Encoder,
    /// Groups that a scheme chooses types for.
    pub(super) groups: Vec<Group>,
    /// Types that are settled: by rules, and the draft head's.
    settled: HashMap<String, BlockType>,
    /// Matrices of the draft head.
    drafts: HashSet<String>,
    dropped: Vec<String>,
    keys: Vec<(String, MetaValue)>,
    /// The card that the weights have to fit on, where that is the target, with the room for groups beside the other
    /// tensors.
    card: Option<(CardTarget, u64)>,
}

impl<'a> QuantizeJob<'a> {
    pub(super) fn new(
        args: &'a QuantizeArgs,
        (source, encoder): (&'a Gguf, &'a dyn Encoder),
        model: &Model,
    ) -> Result<Self, CliError> {
        let main = model.config.layers.len();
        let mut job = Self {
            args,
            source,
            encoder,
            groups: groups(source, main),
            settled: HashMap::new(),
            drafts: HashSet::new(),
            dropped: vec![],
            keys: vec![],
            card: None,
        };
        job.check_rules()?;
        job.settle_rules();
        let drafts: Vec<Group> = job.groups.extract_if(.., |g| g.role == MatrixRole::Draft).collect();
        job.drafts = drafts.iter().flat_map(|g| &g.tensors).cloned().collect();
        match args.mtp {
            Mtp::Keep => {}
            Mtp::Drop => job.drop_draft(main)?,
            Mtp::Quantise => {
                let ty = if let Scheme::Uniform(ty) = args.scheme { ty } else { DRAFT_TYPE };
                drafts.iter().flat_map(|g| &g.tensors).for_each(|name| job.settle(name, ty));
            }
        }
        if job.groups.is_empty() && job.settled.is_empty() {
            return Err(failed(format!("{}: no tensor in it is one to quantise", source.path().display())));
        }
        job.plan_card(model)?;
        Ok(job)
    }

    fn plan_card(&mut self, model: &Model) -> Result<(), CliError> {
        let Some(Target::Card(bytes)) = self.args.target else { return Ok(()) };
        let card = CardTarget::new(bytes, (self.args.context, self.args.seqs), model);
        // Everything is planned once with some types, so that what is in no group is counted as the planner does.
        let none = Importance::default();
        let all = card.weights_of(&self.output(&vec![DRAFT_TYPE; self.groups.len()], &none), &self.args.out)?;
        let of_groups: u64 = self.groups.iter().map(|g| card.bytes(self.source, g, DRAFT_TYPE)).sum();
        let room = card.room(model)?.saturating_sub(all.saturating_sub(of_groups));
        self.card = Some((card, room));
        Ok(())
    }

    /// Bytes of the weights on the card, as the planner counts them; an error where they do not fit.
    pub(super) fn check_card(&self, output: &Output<'_>, model: &Model) -> Result<Option<u64>, CliError> {
        let Some((card, _)) = &self.card else { return Ok(None) };
        let (takes, room) = (card.weights_of(output, &self.args.out)?, card.room(model)?);
        if takes > room {
            let (takes, room) = (bytes_text(takes), bytes_text(room));
            return Err(failed(format!("the chosen types take {takes} on the card, which has {room} for them")));
        }
        Ok(Some(takes))
    }

    /// Bytes that a type of a group takes of the target: on the card, or else in the file.
    pub(super) fn bytes(&self, group: &Group, ty: BlockType) -> u64 {
        match &self.card {
            Some((card, _)) => card.bytes(self.source, group, ty),
            None => group.bytes(self.source, ty),
        }
    }

    /// Tensors whose values are rounded together.
    pub(super) fn correlated(&self) -> HashSet<String> {
        match self.args.rounding() {
            RoundingMethod::Nearest => HashSet::new(),
            RoundingMethod::Correlated => {
                self.groups.iter().flat_map(|g| &g.tensors).chain(self.settled.keys()).cloned().collect()
            }
        }
    }

    fn settle(&mut self, name: &str, ty: BlockType) {
        let cols = self.source.tensor(name).expect("it is one of the file's").cols();
        let ty = fitting(ty, cols).expect("groups have only rows of whole blocks of 32");
        self.settled.insert(name.to_owned(), ty);
    }

    /// Refuses a rule without effect: a user who misspells a name would get another file than the one asked for.
    fn check_rules(&self) -> Result<(), CliError> {
        for rule in &self.args.tensor_type {
            if self.groups.iter().flat_map(|g| &g.tensors).any(|name| rule.names.is_match(name)) {
                continue;
            }
            let kept = self.source.tensors_in_order().find(|t| rule.names.is_match(&t.name));
            let got = match kept {
                Some(t) => format!("which matches only tensors that are kept: {} ({})", t.name, kept_because(t)),
                None => "which matches none".to_owned(),
            };
            let names = rule.names.as_str();
            let wanted = "wanted a pattern that matches a matrix of the source";
            return Err(CliError::Usage(format!("--tensor-type: {wanted}, got `{names}`, {got}")));
        }
        Ok(())
    }

    /// The tensors of the written file that no group has, by reason and type.
    pub(super) fn others(&self) -> Vec<OtherTensors> {
        let grouped: HashSet<&String> = self.groups.iter().flat_map(|g| &g.tensors).collect();
        let dropped: HashSet<&String> = self.dropped.iter().collect();
        let mut all: BTreeMap<(&str, &str), OtherTensors> = BTreeMap::new();
        for t in self.source.tensors_in_order() {
            if grouped.contains(&t.name) || dropped.contains(&t.name) {
                continue;
            }
            let (ty, why) = match self.settled.get(&t.name) {
                Some(ty) if self.args.tensor_type.iter().any(|rule| rule.names.is_match(&t.name)) => {
                    (*ty, "--tensor-type")
                }
                Some(ty) => (*ty, "draft head"),
                None if self.drafts.contains(&t.name) => (t.ty, "draft head, kept by --mtp keep"),
                None => (t.ty, kept_because(t)),
            };
            let empty = || OtherTensors { why: why.to_owned(), ty, tensors: 0, bytes: 0, weights: 0 };
            let of = all.entry((why, ty.name())).or_insert_with(empty);
            of.tensors += 1;
            of.bytes += encoded_bytes(t, ty);
            of.weights += t.shape.iter().product::<usize>() as u64;
        }
        all.into_values().collect()
    }

    /// Tensors that a rule names leave their groups.
    fn settle_rules(&mut self) {
        let named = |name: &String| self.args.tensor_type.iter().find(|r| r.names.is_match(name)).map(|r| r.ty);
        let hits: Vec<(String, BlockType)> = self
            .groups
            .iter()
            .flat_map(|g| &g.tensors)
            .filter_map(|name| named(name).map(|ty| (name.clone(), ty)))
            .collect();
        for (name, ty) in &hits {
            self.settle(name, *ty);
        }
        for group in &mut self.groups {
            group.tensors.retain(|name| !hits.iter().any(|h| h.0 == *name));
            let weights =
                |name: &String| self.source.tensor(name).map_or(0, |t| t.shape.iter().product::<usize>() as u64);
            group.weights = group.tensors.iter().map(weights).sum();
        }
        self.groups.retain(|g| !g.tensors.is_empty());
    }

    /// The layers from `main` on go, and the keys that count them say so.
    fn drop_draft(&mut self, main: usize) -> Result<(), CliError> {
        let meta = self.source.meta();
        let architecture = meta.need_str("general.architecture").map_err(failed)?;
        let is_draft = |name: &str| {
            let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
            layer.is_some_and(|layer| layer >= main)
        };
        self.dropped = self.source.tensors().map(|t| t.name.clone()).filter(|name| is_draft(name)).collect();
        let (count, nextn) = (format!("{architecture}.block_count"), format!("{architecture}.nextn_predict_layers"));
        let all = meta.need_u64(&count).map_err(failed)?;
        let own = format!("{architecture}.");
        for key in meta.keys().filter(|key| key.starts_with(&own)) {
            if matches!(meta.integers(key), Ok(Some(list)) if all > 4 && list.len() as u64 == all) {
                let why = format!("key `{key}` has an entry a layer, which cannot be passed on without the draft head");
                return Err(failed(format!("--mtp drop: {why}")));
            }
        }
        self.keys = vec![(count, MetaValue::U32(main as u32)), (nextn, MetaValue::U32(0))];
        Ok(())
    }

    /// The file with these types for the groups.
    pub(super) fn output(&self, types: &[BlockType], importance: &'a Importance) -> Output<'a> {
        let mut all = self.settled.clone();
        for (group, ty) in self.groups.iter().zip(types) {
            for name in &group.tensors {
                let cols = self.source.tensor(name).expect("a group's tensors are the file's").cols();
                all.insert(name.clone(), fitting(*ty, cols).expect("it fits"));
            }
        }
        let (dropped, keys) = (self.dropped.clone(), self.keys.clone());
        let (source, encoder) = (self.source, self.encoder);
        Output { source, types: all, dropped, keys, dropped_keys: Vec::new(), importance, encoder }
    }
}

impl QuantizeJob<'_> {
    /// Bytes that the groups may take together; an error if their smallest types take more.
    pub(super) fn budget(&self) -> Result<u64, CliError> {
        let target = self.args.target;
        let target = target.ok_or_else(|| CliError::Usage("--target: this scheme needs one".into()))?;
        let least: u64 = self.groups.iter().map(|g| smallest(self, g)).sum();
        let weights: u64 = self.groups.iter().map(|g| g.weights).sum();
        let (budget, fixed) = match target {
            Target::Bits(bits) => ((bits * weights as f64 / 8.0) as u64, 0),
            Target::File(bytes) => {
                let fixed = self.fixed_bytes()?;
                (bytes.saturating_sub(fixed), fixed)
            }
            Target::Card(_) => (self.card.as_ref().map_or(0, |(_, room)| *room), 0),
        };
        if budget >= least {
            return Ok(budget);
        }
        let (asked, smallest) = match target {
            Target::Bits(bits) => (format!("{bits}bpw"), format!("{:.3}bpw", least as f64 * 8.0 / weights as f64)),
            Target::File(bytes) => {
                (bytes_text(bytes), format!("{} ({} bytes)", bytes_text(least + fixed), least + fixed))
            }
            Target::Card(_) => {
                (format!("a card with {} for them", bytes_text(budget)), format!("{} on the card", bytes_text(least)))
            }
        };
        Err(CliError::Usage(format!(
            "--target: wanted at least {smallest}, which the smallest types take, got {asked}"
        )))
    }

    /// Bytes of the file beside the groups, with the padding that they may need.
    fn fixed_bytes(&self) -> Result<u64, CliError> {
        const PADDING: u64 = 32;
        let (none, ty) = (Importance::default(), BlockType::Q8_0);
        let all = self.output(&vec![ty; self.groups.len()], &none).bytes().map_err(failed)?;
        let groups: u64 = self.groups.iter().map(|g| g.bytes(self.source, ty)).sum();
        Ok(all - groups + PADDING * self.groups.iter().map(|g| g.tensors.len() as u64).sum::<u64>())
    }
}

/// Tensors of one type that no group has, for one reason.
pub(super) struct OtherTensors {
    /// Why their type was not chosen with those of the groups.
    pub(super) why: String,
    /// Their type in the written file.
    pub(super) ty: BlockType,
    /// How many tensors they are.
    pub(super) tensors: u64,
    /// Bytes of all of them.
    pub(super) bytes: u64,
    /// Weights in all of them.
    pub(super) weights: u64,
}

/// Types that a group may have.
pub(super) fn menu<'a>(source: &'a Gguf, group: &'a Group) -> impl Iterator<Item = BlockType> + 'a {
    let fits = move |ty: &BlockType| {
        let cols = |name: &String| source.tensor(name).expect("a group's tensors are the file's").cols();
        group.tensors.iter().all(|name| cols(name).is_multiple_of(ty.elements()))
    };
    MENU.into_iter().filter(fits)
}

/// Bytes of a group in its smallest type.
fn smallest(job: &QuantizeJob<'_>, group: &Group) -> u64 {
    menu(job.source, group).map(|ty| job.bytes(group, ty)).min().expect("groups have rows of whole blocks of 32")
}
