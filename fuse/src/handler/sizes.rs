//! Short reads of pages, in mounts that others share.
//!
//! When another client truncates a file, the kernel gets less than it asked for: it fills its pages
//! with zeroes, and moves the end of the file to where the read ended (`fuse_short_read`). It does
//! not move the end if it learned any size of the file since it asked, not even from another short
//! read; then programs see zeroes that nobody wrote. So such a read is refused the first time. For
//! a read-ahead that has no effect but that the kernel asks once more, for one page at a time, when
//! a program needs it. That question is answered, unless the kernel may have learned a size since.
//! The program's thread moves the end when it gets the processor, so other read-aheads that are
//! still on their way stay refused after that, unless they end in the same place.
//!
//! When the file grows again, the kernel knows the new size before it drops the page with the old
//! end and the zeroes behind it: so it is made to drop it before it gets the answer.

use std::ops::Range;

/// The largest pages that kernels have. A kernel asks for whole pages, of which the last one has
/// the end of the file.
pub(super) const MAX_PAGE_BYTES: u64 = 65_536;
/// How many refused reads of a file are remembered: more than a read-ahead has on its way.
const MAX_REFUSED: usize = 64;

/// Where the kernel believes the end of a file to be.
#[derive(Default)]
pub(super) struct Size {
    /// The least and the most that it may be. A kernel that was told nothing has no pages.
    believed: Option<(u64, u64)>,
    /// Answers with a size that the kernel gets, and the least and the most that they say; and how
    /// many of them are being written to it, which waits for nothing.
    answers: u32,
    arriving: u32,
    coming: Option<(u64, u64)>,
    /// Where the last short read ended that was answered since the kernel was told a size. The
    /// kernel moves the end to there, soon.
    moved: Option<u64>,
    /// What the kernel will ask for again; it learned no size since.
    refused: Vec<Range<u64>>,
}

impl Size {
    /// An answer that says the size begins: it reaches the kernel before [`Size::told`].
    pub fn telling(&mut self, size: u64) {
        self.answers += 1;
        let (least, most) = self.coming.unwrap_or((size, size));
        self.coming = Some((least.min(size), most.max(size)));
        self.refused.clear();
    }

    /// The answer is written to the kernel now, which may ask for pages before [`Size::told`].
    pub fn arrives(&mut self) {
        self.arriving += 1;
    }

    /// Whether an answer may have reached the kernel of which nobody has said so.
    pub fn is_arriving(&self) -> bool {
        self.arriving > 0
    }

    /// The answer has reached the kernel, which drops its pages if the size is another one.
    pub fn told(&mut self) {
        self.answers = self.answers.saturating_sub(1);
        self.arriving = self.arriving.saturating_sub(1);
        if self.answers == 0 {
            self.believed = self.coming.take().or(self.believed);
        }
        self.moved = None;
        self.refused.clear();
    }

    /// The kernel knows that the file reaches as far as it wrote.
    pub fn wrote(&mut self, end: u64) {
        self.believed = self.believed.map(|(least, most)| (least.max(end), most.max(end)));
        self.moved = None;
        self.refused.clear();
    }

    /// How many reads were refused since the kernel learned a size.
    #[cfg(test)]
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Where the kernel may believe the end to be, if a file of `size` bytes has grown since.
    pub fn grows(&self, size: u64) -> Option<u64> {
        self.believed.map(|(least, _)| least).filter(|&least| least < size)
    }

    /// Whether a read of the pages `asked` that gave `read` bytes may be answered. What is not
    /// answered fails.
    pub fn may_answer(&mut self, asked: Range<u64>, read: u64) -> bool {
        let end = asked.start + read;
        let most = [self.believed, self.coming].into_iter().flatten().map(|(_, most)| most).max();
        let most = most.unwrap_or_else(|| asked.end.saturating_sub(MAX_PAGE_BYTES - 1));
        if end >= most.min(asked.end) || self.moved == Some(end) {
            if end < asked.end {
                self.believed.get_or_insert((end, end));
            }
            return true;
        }
        let again = self.refused.iter().any(|range| range.contains(&asked.start));
        // A kernel that has moved the end asks for nothing behind it.
        if again && self.answers == 0 && self.moved.is_none_or(|moved| end <= moved) {
            let least = self.believed.map_or(end, |(least, _)| least.min(end));
            (self.believed, self.moved) = (Some((least, most)), Some(end));
            self.refused.clear();
            return true;
        }
        if self.refused.len() == MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push(asked);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(size: &mut Size, bytes: u64) {
        size.telling(bytes);
        size.arrives();
        size.told();
    }

    #[test]
    fn whole_reads_and_the_end_of_the_file_are_answered() {
        let mut size = Size::default();
        told(&mut size, 10_000);
        assert!(size.may_answer(0..8192, 8192));
        assert!(size.may_answer(8192..12_288, 10_000 - 8192), "the end is where the kernel believes it");
        assert!(size.may_answer(0..12_288, 10_000));
        assert!(size.may_answer(0..12_288, 11_000), "the file grew");
        let mut unknown = Size::default();
        assert!(!unknown.may_answer(0..1 << 20, 983_040), "the kernel asks for no page behind the end");
        assert!(unknown.may_answer(0..1 << 20, 983_041), "the end may be in the last page");
    }

    #[test]
    fn a_short_read_is_refused_once() {
        let mut size = Size::default();
        told(&mut size, 1 << 20);
        assert!(!size.may_answer(0..65_536, 0) && !size.may_answer(65_536..131_072, 0));
        assert!(size.may_answer(4096..8192, 100), "one page, asked for again");
        assert!(size.may_answer(4096..8192, 100), "the kernel moved the end of the file to here");
        told(&mut size, 1 << 20);
        assert!(!size.may_answer(65_536..69_632, 0), "this is another read-ahead");
    }

    /// Two short reads at a time: the kernel would move the end to where the second one ends, and
    /// then not to where the first one does.
    #[test]
    fn no_other_short_read_is_answered_beside_one() {
        let mut size = Size::default();
        told(&mut size, 3 << 20);
        let (first, second, third) = (0..1 << 20, 1 << 20..2 << 20, 2 << 20..3 << 20);
        assert!(!size.may_answer(first, 0));
        assert!(size.may_answer(0..4096, 0), "a program needs the first page");
        assert!(!size.may_answer(second, 0), "the kernel may not have moved the end yet");
        assert!(!size.may_answer(third, 0));
        assert!(!size.may_answer(1 << 20..(1 << 20) + 4096, 0), "another program's, asked before that");
        assert!(size.may_answer(0..4096, 0), "it ends in the same place");
        assert_eq!(size.grows(1), Some(0), "the kernel has zeroes behind the end");
        told(&mut size, 0);
        assert!(size.may_answer(0..4096, 0), "the kernel was told");
    }

    #[test]
    fn no_short_read_is_answered_when_the_kernel_may_have_learned_a_size_since() {
        for learn in [
            |size: &mut Size| told(size, 1 << 20),
            |size: &mut Size| size.wrote(2 << 20),
            |size: &mut Size| size.telling(0),
        ] {
            let mut size = Size::default();
            told(&mut size, 1 << 20);
            assert!(!size.may_answer(0..4096, 0));
            learn(&mut size);
            assert!(!size.may_answer(0..4096, 0));
        }
        let mut size = Size::default();
        size.telling(1 << 20);
        assert!(!size.may_answer(0..4096, 0) && !size.may_answer(0..4096, 0), "an answer is on its way");
        size.told();
        assert!(!size.may_answer(0..4096, 0) && size.may_answer(0..4096, 0));
    }

    #[test]
    fn a_kernel_that_learned_nothing_has_no_pages_to_drop() {
        let mut size = Size::default();
        assert_eq!(size.grows(10), None);
        told(&mut size, 10);
        assert_eq!((size.grows(10), size.grows(11)), (None, Some(10)));
        size.wrote(20);
        assert_eq!((size.grows(20), size.grows(21)), (None, Some(20)));
        let mut read = Size::default();
        assert!(read.may_answer(0..4096, 10));
        assert_eq!(read.grows(11), Some(10), "it has the page with the end");
    }

    #[test]
    fn answers_at_the_same_time_reach_the_kernel_in_any_order() {
        let mut size = Size::default();
        told(&mut size, 100);
        size.telling(5000);
        assert!(!size.may_answer(0..8192, 4200), "the kernel may know 5000 already");
        size.telling(300);
        size.told();
        size.told();
        assert_eq!(size.grows(301), Some(300));
        assert!(!size.may_answer(0..8192, 4200) && size.may_answer(0..8192, 5000));
    }

    #[test]
    fn few_refused_reads_are_remembered() {
        let mut size = Size::default();
        told(&mut size, 1 << 30);
        for page in 0..1000 {
            assert!(!size.may_answer(page * 4096..(page + 1) * 4096, 0));
        }
        assert_eq!(size.refused.len(), MAX_REFUSED);
    }
}
