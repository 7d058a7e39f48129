//! Values of msgpack, as far as events need them.

/// Writes values one behind the other. A list or a map begins with its length, and its values follow.
#[derive(Debug, Default)]
pub(super) struct Packer(Vec<u8>);

impl Packer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn nil(&mut self) {
        self.0.push(0xc0);
    }

    pub(super) fn float(&mut self, value: f64) {
        self.0.push(0xcb);
        self.0.extend(value.to_be_bytes());
    }

    pub(super) fn integer(&mut self, value: u64) {
        match value {
            0..=0x7f => self.0.push(value as u8),
            0x80..=0xff => self.0.extend([0xcc, value as u8]),
            0x100..=0xffff => self.tagged(0xcd, &(value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.tagged(0xce, &(value as u32).to_be_bytes()),
            _ => self.tagged(0xcf, &value.to_be_bytes()),
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        match text.len() {
            len @ 0..=31 => self.0.push(0xa0 | len as u8),
            len => self.tagged(0xdb, &(len as u32).to_be_bytes()),
        }
        self.0.extend(text.as_bytes());
    }

    pub(super) fn list(&mut self, len: usize) {
        match len {
            0..=15 => self.0.push(0x90 | len as u8),
            _ => self.tagged(0xdd, &(len as u32).to_be_bytes()),
        }
    }

    /// A map of at most 15 entries, each a key and a value.
    pub(super) fn map(&mut self, entries: usize) {
        assert!(entries <= 15, "an event has few keys");
        self.0.push(0x80 | entries as u8);
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(write: impl FnOnce(&mut Packer)) -> Vec<u8> {
        let mut packer = Packer::default();
        write(&mut packer);
        packer.into_bytes()
    }

    #[test]
    fn values_take_the_bytes_that_the_format_gives_them() {
        assert_eq!(packed(|p| p.integer(127)), [0x7f]);
        assert_eq!(packed(|p| p.integer(200)), [0xcc, 200]);
        assert_eq!(packed(|p| p.integer(0x1234)), [0xcd, 0x12, 0x34]);
        assert_eq!(packed(|p| p.integer(0x1_0000)), [0xce, 0, 1, 0, 0]);
        assert_eq!(packed(|p| p.integer(u64::MAX)), [0xcf, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(packed(|p| p.text("ab")), [0xa2, b'a', b'b']);
        assert_eq!(packed(|p| p.text(&"x".repeat(32)))[..5], [0xdb, 0, 0, 0, 32]);
        assert_eq!(packed(|p| p.list(3)), [0x93]);
        assert_eq!(packed(|p| p.list(16)), [0xdd, 0, 0, 0, 16]);
        assert_eq!(packed(|p| p.map(2)), [0x82]);
        assert_eq!(packed(Packer::nil), [0xc0]);
        assert_eq!(packed(|p| p.float(1.0))[..3], [0xcb, 0x3f, 0xf0]);
    }
}
