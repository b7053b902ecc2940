//! Draws by weight from groups of targets: a draw, and a change of a weight, take time that grows
//! with the logarithm of their number. Weights are whole numbers, so that sums never drift.

/// Weights and their sums: a binary tree in an array, the root at 1, the weights at its end.
#[derive(Clone, Debug)]
struct SumTree {
    sums: Vec<u64>,
    leaves: usize,
}

impl SumTree {
    fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Self { sums: vec![0; 2 * leaves], leaves }
    }

    fn total(&self) -> u64 {
        self.sums[1]
    }

    fn weight(&self, index: usize) -> u64 {
        self.sums[self.leaves + index]
    }

    fn set(&mut self, index: usize, weight: u64) {
        let mut at = self.leaves + index;
        self.sums[at] = weight;
        while at > 1 {
            at /= 2;
            self.sums[at] = self.sums[2 * at] + self.sums[2 * at + 1];
        }
    }

    /// The weight in which the point lies when all are laid end to end, and how far in it.
    fn find(&self, mut point: u64) -> (usize, u64) {
        let mut at = 1;
        while at < self.leaves {
            at *= 2;
            // Without a branch: nobody could foresee it, and draws are most of what a set costs.
            let left = self.sums[at];
            let goes_right = point >= left;
            point -= if goes_right { left } else { 0 };
            at += usize::from(goes_right);
        }
        (at - self.leaves, point)
    }
}

/// Members in groups; a closed group takes no part in draws.
#[derive(Clone, Debug)]
pub(super) struct Lottery {
    groups: SumTree,
    weights: Vec<SumTree>,
    members: Vec<Vec<usize>>,
    /// The group of each member, and its place in there.
    places: Vec<(usize, usize)>,
    closed: Vec<bool>,
}

/// No weight is higher: the sum for all targets that can have a number is a u64.
pub(super) const MAX_WEIGHT: u64 = (1 << 48) - 1;

impl Lottery {
    /// Members with the numbers of their groups. All weights are 0.
    pub fn new(group_of: &[usize]) -> Self {
        let count = group_of.iter().max().map_or(0, |most| most + 1);
        let mut members = vec![Vec::new(); count];
        let place = |(member, &group): (usize, &usize)| {
            let list: &mut Vec<usize> = &mut members[group];
            list.push(member);
            (group, list.len() - 1)
        };
        let places = group_of.iter().enumerate().map(place).collect();
        let weights = members.iter().map(|list| SumTree::new(list.len())).collect();
        Self { groups: SumTree::new(count), weights, members, places, closed: vec![false; count] }
    }

    pub fn group(&self, member: usize) -> usize {
        self.places[member].0
    }

    pub fn weight(&self, member: usize) -> u64 {
        let (group, place) = self.places[member];
        self.weights[group].weight(place)
    }

    pub fn set_weight(&mut self, member: usize, weight: u64) {
        let (group, place) = self.places[member];
        if self.weights[group].weight(place) == weight.min(MAX_WEIGHT) {
            return;
        }
        self.weights[group].set(place, weight.min(MAX_WEIGHT));
        self.close(group, self.closed[group]);
    }

    pub fn close(&mut self, group: usize, closed: bool) {
        self.closed[group] = closed;
        self.groups.set(group, if closed { 0 } else { self.weights[group].total() });
    }

    /// A member, with a chance that is proportional to its weight; None if no weight is left.
    /// `chance` is any number.
    pub fn draw(&self, chance: u64) -> Option<usize> {
        let total = self.groups.total();
        if total == 0 {
            return None;
        }
        let point = (u128::from(chance) * u128::from(total)) >> 64;
        let (group, rest) = self.groups.find(point as u64);
        Some(self.members[group][self.weights[group].find(rest).0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every point of every small lottery: each member has as many as its weight says, in order.
    #[test]
    fn each_member_has_its_weight() {
        for count in 1..9usize {
            let mut tree = SumTree::new(count);
            (0..count).for_each(|index| tree.set(index, (index * 7 % 4) as u64));
            let found: Vec<usize> = (0..tree.total()).map(|point| tree.find(point).0).collect();
            let expected: Vec<usize> = (0..count).flat_map(|index| vec![index; index * 7 % 4]).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn draws_follow_weights_and_closed_groups_are_out() {
        let mut lottery = Lottery::new(&[0, 2, 0, 1, 2]);
        for (member, weight) in [1, 2, 3, 0, 4].into_iter().enumerate() {
            lottery.set_weight(member, weight);
        }
        let counts = |lottery: &Lottery| {
            let mut counts = [0; 5];
            (0..1000u64).for_each(|n| counts[lottery.draw(n * (u64::MAX / 1000)).unwrap()] += 1);
            counts.map(|count| (count + 5) / 10)
        };
        assert_eq!(counts(&lottery), [10, 20, 30, 0, 40]);
        lottery.close(2, true);
        assert_eq!(counts(&lottery), [25, 0, 75, 0, 0]);
        // What is changed behind a closed door counts when it opens.
        lottery.set_weight(4, 0);
        assert_eq!(counts(&lottery), [25, 0, 75, 0, 0]);
        lottery.close(2, false);
        assert_eq!(counts(&lottery).map(|count| count / 3), [17 / 3, 33 / 3, 50 / 3, 0, 0]);
        (0..5).for_each(|member| lottery.set_weight(member, 0));
        assert_eq!((lottery.draw(7), Lottery::new(&[]).draw(7)), (None, None));
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let mut lottery = Lottery::new(&vec![0; 65_536]);
        (0..65_536).for_each(|member| lottery.set_weight(member, u64::MAX - 1));
        assert_eq!((lottery.draw(0), lottery.draw(u64::MAX)), (Some(0), Some(65_535)));
    }
}
