//! A batch of changes as vLLM's publisher writes one: a time, events, and no rank. There are two forms of an event in
//! the field: maps with a type, and lists in which the place says what a value is.

use super::msgpack::Packer;
use chimere_engine::CHUNK_TOKENS;
use chimere_engine::scheduler::{CacheTier, PrefixChange, StoredUnit};
use serde::{Deserialize, Serialize};

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventEncoding {
    /// A map with the key `type`, as vLLM 0.33 and SGLang write it.
    #[default]
    Map,
    /// A list that begins with its name, as vLLM wrote it until the middle of 2026.
    Array,
}

/// Changes that belong together, and when they were made.
#[derive(Debug)]
pub(super) struct EventBatch {
    /// When they were made, in seconds since 1970.
    pub(super) at: f64,
    /// Whatever was told before counts no longer.
    pub(super) cleared: bool,
    pub(super) changes: Vec<PrefixChange>,
}

/// A batch in msgpack.
pub(super) fn packed(batch: &EventBatch, encoding: EventEncoding) -> Vec<u8> {
    let mut packer = Packer::default();
    packer.list(3);
    packer.float(batch.at);
    packer.list(batch.changes.len() + usize::from(batch.cleared));
    if batch.cleared {
        KvEvent { name: "AllBlocksCleared", fields: Vec::new() }.write(&mut packer, encoding);
    }
    batch.changes.iter().for_each(|change| event(change).write(&mut packer, encoding));
    packer.nil();
    packer.into_bytes()
}

/// An event of this name, with its fields in the order that the lists have.
struct KvEvent<'a> {
    name: &'static str,
    fields: Vec<(&'static str, Field<'a>)>,
}

enum Field<'a> {
    Nil,
    Integer(u64),
    Text(&'static str),
    Hashes(Vec<u64>),
    Tokens(&'a [StoredUnit]),
}

fn event(change: &PrefixChange) -> KvEvent<'_> {
    match change {
        PrefixChange::Stored { tier, parent, units } => KvEvent {
            name: "BlockStored",
            fields: vec![
                ("block_hashes", Field::Hashes(units.iter().map(|unit| unit.hash).collect())),
                ("parent_block_hash", parent.map_or(Field::Nil, Field::Integer)),
                ("token_ids", Field::Tokens(units)),
                ("block_size", Field::Integer(CHUNK_TOKENS.into())),
                ("lora_id", Field::Nil),
                ("medium", Field::Text(medium(*tier))),
                ("lora_name", Field::Nil),
            ],
        },
        PrefixChange::Removed { tier, units } => KvEvent {
            name: "BlockRemoved",
            fields: vec![("block_hashes", Field::Hashes(units.clone())), ("medium", Field::Text(medium(*tier)))],
        },
    }
}

/// vLLM's word for a tier: whatever computes is a GPU to routers.
fn medium(tier: CacheTier) -> &'static str {
    match tier {
        CacheTier::Device => "GPU",
        CacheTier::Host => "CPU",
    }
}

impl KvEvent<'_> {
    fn write(&self, packer: &mut Packer, encoding: EventEncoding) {
        match encoding {
            EventEncoding::Map => {
                packer.map(self.fields.len() + 1);
                packer.text("type");
            }
            EventEncoding::Array => packer.list(self.fields.len() + 1),
        }
        packer.text(self.name);
        for (name, field) in &self.fields {
            if encoding == EventEncoding::Map {
                packer.text(name);
            }
            field.write(packer);
        }
    }
}

impl Field<'_> {
    fn write(&self, packer: &mut Packer) {
        match self {
            Self::Nil => packer.nil(),
            Self::Integer(value) => packer.integer(*value),
            Self::Text(text) => packer.text(text),
            Self::Hashes(hashes) => {
                packer.list(hashes.len());
                hashes.iter().for_each(|hash| packer.integer(*hash));
            }
            Self::Tokens(units) => {
                packer.list(units.iter().map(|unit| unit.tokens.len()).sum());
                units.iter().flat_map(|unit| &unit.tokens).for_each(|id| packer.integer((*id).into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_map_with_its_type_or_a_list_that_begins_with_it() {
        let changes = vec![PrefixChange::Removed { tier: CacheTier::Host, units: vec![7] }];
        let batch = EventBatch { at: 1.0, cleared: true, changes };
        let head = [&[0x93, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x92][..]].concat();
        let text = |text: &str| [&[0xa0 | text.len() as u8][..], text.as_bytes()].concat();
        let map = [
            head.clone(),
            [vec![0x81], text("type"), text("AllBlocksCleared")].concat(),
            [vec![0x83], text("type"), text("BlockRemoved"), text("block_hashes"), vec![0x91, 7]].concat(),
            [text("medium"), text("CPU"), vec![0xc0]].concat(),
        ];
        assert_eq!(packed(&batch, EventEncoding::Map), map.concat());
        let list = [
            head,
            [vec![0x91], text("AllBlocksCleared")].concat(),
            [vec![0x93], text("BlockRemoved"), vec![0x91, 7], text("CPU"), vec![0xc0]].concat(),
        ];
        assert_eq!(packed(&batch, EventEncoding::Array), list.concat());
    }
}
