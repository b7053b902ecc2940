//! A pseudo-random generator: splitmix64.

/// Numbers that depend on the seed only.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator. Different purposes of one seed have different `purpose` numbers.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ purpose.wrapping_mul(0x9e6c_63d0_876a_68ee));
        dice.next();
        dice
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in `times` calls, on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A number from a range without its end.
    pub fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// One of these.
    pub fn choose<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { Some(&all[self.below(all.len() as u64) as usize]) }
    }
}
