//! XXH64 with seed 0: finds damage, several gigabytes a second. It is no defence against somebody who means harm; the
//! checks of `table/opened.rs` are.

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

/// The checksum of some bytes, as the xxHash specification 0.1.1 defines XXH64.
pub fn xxh64(bytes: &[u8]) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let start = if stripes.is_empty() { P5 } else { converge(stripes) };
    avalanche(tail(start.wrapping_add(bytes.len() as u64), rest))
}

fn converge(stripes: &[[u8; 32]]) -> u64 {
    let mut lanes = [P1.wrapping_add(P2), P2, 0, 0u64.wrapping_sub(P1)];
    for stripe in stripes {
        for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }
    let [a, b, c, d] = lanes;
    let sum =
        a.rotate_left(1).wrapping_add(b.rotate_left(7)).wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
    lanes.iter().fold(sum, |h, &lane| (h ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4))
}

fn tail(mut h: u64, rest: &[u8]) -> u64 {
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        h = (h ^ round(0, u64::from_le_bytes(*word))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        let half = u64::from(u32::from_le_bytes(*half));
        h = (h ^ half.wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
    }
    rest.iter().fold(h, |h, &byte| (h ^ u64::from(byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1))
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

fn avalanche(h: u64) -> u64 {
    let h = (h ^ (h >> 33)).wrapping_mul(P2);
    let h = (h ^ (h >> 29)).wrapping_mul(P3);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_values_come_out() {
        assert_eq!(xxh64(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc"), 0x44BC_2CF5_AD77_0999);
        assert_eq!(xxh64(b"Nobody inspects the spammish repetition"), 0xFBCE_A83C_8A37_8BF1);
    }
}
