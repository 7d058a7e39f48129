//! Files that are cut, altered or forged: an error that says what is wrong, never a panic and never a wrong answer.

use super::*;
use proptest::prelude::*;

const VOCAB: u32 = 9;

fn small() -> Vec<u8> {
    let text: Vec<TokenId> = (0..40u32).map(|i| (i * i + i / 3) % VOCAB).collect();
    build(&[&text, &[1, 2, 3]], &options(1, 3, VOCAB)).unwrap().to_bytes()
}

/// Makes the checksums agree with the contents again, as a forger would.
pub(super) fn seal(file: &mut [u8]) {
    let u64_at = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let count = u32::from_le_bytes(file[60..64].try_into().unwrap()) as usize;
    for entry in (0..count).map(|i| 72 + 40 * i) {
        let (at, len) = (u64_at(file, entry + 8), u64_at(file, entry + 16));
        let sum = xxh64(&file[at..at + len]);
        file[entry + 24..entry + 32].copy_from_slice(&sum.to_le_bytes());
    }
    let first = u64_at(file, 72 + 8);
    let sum = xxh64(&file[24..first]);
    file[16..24].copy_from_slice(&sum.to_le_bytes());
}

/// Start of the nth section.
pub(super) fn section(file: &[u8], n: usize) -> usize {
    u64::from_le_bytes(file[72 + 40 * n + 8..][..8].try_into().unwrap()) as usize
}

#[test]
fn every_truncation_is_refused() {
    let file = small();
    for len in 0..file.len() {
        let error = Table::from_bytes(file[..len].to_vec()).expect_err("a cut file");
        assert!(!error.to_string().is_empty(), "cut at {len}");
    }
    let longer = [file.clone(), vec![0]].concat();
    assert!(Table::from_bytes(longer).unwrap_err().to_string().contains("length"));
    assert!(Table::from_bytes(file).is_ok());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let file = small();
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Table::from_bytes(flipped).is_err(), "bit {bit} of {} bytes is nobody's business", file.len());
    }
}

#[test]
fn a_refusal_names_the_file_and_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let text = Table::open(&path).unwrap_err().to_string();
        assert!(text.contains(name), "{text}");
        text
    };
    assert!(refused("empty.engr", b"").contains("0 bytes"));
    assert!(refused("zip.engr", b"PK\x03\x04 and so on").contains("not an engram table"));
    let mut newer = small();
    newer[4] = 4;
    assert!(refused("newer.engr", &newer).contains("version: wanted 2 or 3, got 4"));
    let mut altered = small();
    let records = section(&altered, 2);
    altered[records + 5] ^= 1;
    assert!(refused("altered.engr", &altered).contains("section 2: checksum"));
    let missing = Table::open(&dir.path().join("missing.engr")).unwrap_err();
    assert!(missing.to_string().contains("missing.engr"));
}

#[test]
fn a_table_for_another_tokenizer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.engr");
    std::fs::write(&path, small()).unwrap();
    assert!(Table::open_for(&path, HASH).is_ok());
    let error = Table::open_for(&path, TokenizerHash([1; 32])).unwrap_err().to_string();
    assert!(error.contains("t.engr: made for another tokenizer: wanted 0101") && error.contains("got 0707"), "{error}");
}

#[test]
fn forged_contents_with_right_checksums_are_refused() {
    let file = small();
    // The first record of order 1: u32 n, u64 total, key, (token, count), time.
    let (prior, index, record) = (section(&file, 0), section(&file, 1), section(&file, 2));
    let forge = |at: usize, bytes: &[u8]| {
        let mut forged = file.clone();
        forged[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut forged);
        Table::from_bytes(forged).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(forge(record, &u32::MAX.to_le_bytes()).contains("order 1: records: wanted whole records"));
    assert!(forge(record + 4, &0u64.to_le_bytes()).contains("at most the context's"));
    assert!(forge(record + 12, &VOCAB.to_le_bytes()).contains("ids below 9"));
    assert!(forge(record + 16, &VOCAB.to_le_bytes()).contains("ids below 9"));
    assert!(forge(record + 20, &0u32.to_le_bytes()).contains("order 1: records"));
    assert!(forge(index, &u64::MAX.to_le_bytes()).contains("order 1: index"));
    assert!(forge(prior, &[u8::MAX; 16]).contains("prior: wanted a sum below 2^64"));
    assert!(forge(60, &0u32.to_le_bytes()).contains("number of sections"));
}

#[test]
fn tables_that_claim_all_there_can_be_merge_into_one_that_can_be_read() {
    let mut file = small();
    let prior = section(&file, 0);
    file[prior..prior + 8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    seal(&mut file);
    let table = Table::from_bytes(file).unwrap();
    let merged = Table::in_memory(&merge(&[&table, &table, &table]).unwrap());
    assert_eq!((merged.prior(0), merged.prior_total()), (u64::MAX, u64::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_forgery_makes_a_lookup_panic(at in 0usize..4_096, bytes in prop::collection::vec(any::<u8>(), 1..9)) {
        let mut file = small();
        let first = section(&file, 0);
        let at = first + at % (file.len() - first - bytes.len());
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        seal(&mut file);
        // What passes must answer without a panic, for instance where only a time or a prior was altered.
        if let Ok(table) = Table::from_bytes(file).map(Arc::new) {
            for a in 0..VOCAB {
                let prediction = predict(&[&table], &[a, (a * 5) % VOCAB, (a * 7) % VOCAB], 1);
                prop_assert!(prediction.listed.iter().all(|t| t.p > 0.0 && t.p <= 1.0));
            }
        }
    }
}
