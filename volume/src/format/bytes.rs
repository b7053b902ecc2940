//! Reads and writes little-endian fields in sequence. Writer and reader have the same methods, so
//! that a header is a list of fields.

/// Appends fields to a fixed buffer.
pub(super) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

/// Takes fields from bytes; the caller has checked the length.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

macro_rules! integers {
    ($($name:ident: $type:ty),+) => {
        impl Writer<'_> {
            $(pub fn $name(&mut self, value: $type) {
                self.bytes(&value.to_le_bytes());
            })+
        }
        impl Reader<'_> {
            $(pub fn $name(&mut self) -> $type {
                <$type>::from_le_bytes(self.array())
            })+
        }
    };
}

integers!(u16: u16, u32: u32, u64: u64, i64: i64);

impl<'a> Writer<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.bytes[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }

    /// Text of at most `width` bytes in a field of `width` bytes: the length, the text, then
    /// zeroes.
    pub fn text(&mut self, value: &[u8], width: usize) {
        assert!(value.len() <= width);
        self.u16(value.len() as u16);
        self.bytes(value);
        self.skip(width - value.len());
    }

    pub fn skip(&mut self, count: usize) {
        self.bytes[self.at..self.at + count].fill(0);
        self.at += count;
    }

    pub fn at(&self) -> usize {
        self.at
    }
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let value = self.bytes[self.at..self.at + N].try_into().expect("N bytes");
        self.at += N;
        value
    }

    /// The text in a field of `width` bytes; None if its length exceeds that.
    pub fn text(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = usize::from(self.u16());
        let field = &self.bytes[self.at..self.at + width];
        self.at += width;
        field.get(..length)
    }
}
