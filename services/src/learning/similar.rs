//! Examples that say nearly the same: MinHash over runs of three words (Broder, 1997), found by bands of the signature.

/// Words of a run.
const RUN: usize = 3;
/// Values of a signature, and those of a band: two texts of similarity `s` share a band with probability
/// `1 - (1 - s^4)^32`, which is over 0.99 at 0.7.
const VALUES: usize = 128;
const BAND: usize = 4;
/// The least estimated similarity (Jaccard's) of texts that say nearly the same.
const LEAST: f64 = 0.8;

/// What of a text is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature([u32; VALUES]);

impl Signature {
    /// Of some texts, one behind the other. Capitals, marks and space between words do not count.
    pub(super) fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let words: Vec<String> = texts.flat_map(words).collect();
        let mut values = [u32::MAX; VALUES];
        let runs = words.windows(RUN.min(words.len()).max(1));
        for run in runs {
            let base = hash(run);
            for (i, value) in values.iter_mut().enumerate() {
                *value = (*value).min(mixed(base, i as u64));
            }
        }
        Self(values)
    }

    /// From bytes that [`Signature::bytes`] made.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let values = words.iter().map(|word| u32::from_le_bytes(*word)).collect::<Vec<_>>();
        (rest.is_empty()).then_some(())?;
        Some(Self(values.try_into().ok()?))
    }

    /// As it is stored.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// A hash of each band, with its place: texts that say nearly the same share one.
    pub(super) fn bands(&self) -> impl Iterator<Item = u64> + '_ {
        self.0
            .chunks_exact(BAND)
            .enumerate()
            .map(|(at, band)| band.iter().fold(at as u64, |sum, value| splitmix(sum ^ u64::from(*value))))
    }

    /// Whether both texts say nearly the same.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let alike = self.0.iter().zip(&other.0).filter(|(a, b)| a == b).count();
        alike as f64 >= LEAST * VALUES as f64
    }
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// FNV-1a, which is the same on every machine and in every version.
fn hash(run: &[String]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in run.iter().flat_map(|word| word.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

fn mixed(base: u64, i: u64) -> u32 {
    (splitmix(base ^ splitmix(i)) >> 32) as u32
}

/// One step of SplitMix64 (Steele, Lea and Flood, 2014).
fn splitmix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Signature {
        Signature::of(std::iter::once(text))
    }

    fn text(words: std::ops::Range<usize>) -> String {
        words.map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn texts_with_few_other_words_are_near_and_others_are_not() {
        let one = of(&text(0..100));
        let (few, many) = (of(&text(0..96)), of(&text(0..60)));
        assert!(one.is_near(&few) && !one.is_near(&many) && !one.is_near(&of(&text(200..300))));
        assert!(one.bands().any(|band| few.bands().any(|other| band == other)));
        assert!(of("The port, of KELM!").is_near(&of("the port of  Kelm")));
        assert!(!of("a").is_near(&of("b")) && of("a").is_near(&of("A")));
    }

    #[test]
    fn a_signature_comes_back_from_its_bytes() {
        let one = of("where is the port of kelm");
        assert_eq!(Signature::read(&one.bytes()), Some(one.clone()));
        assert_eq!(Signature::read(&one.bytes()[1..]), None);
    }
}
