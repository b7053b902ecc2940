//! The protocol is right in all states at small bounds, and wrong without any of its rules.

use model::{Bounds, Broken, Change, Checked, Model, Protocol, State, Step, check};

const SMALL: Bounds =
    Bounds { voters: 3, losses: 1, openings: 2, writes: 1, wipes: 0, drops: 0, leases: false, change: None };

fn is_right(bounds: Bounds) -> Checked {
    bounds.sound().expect("the bounds make sense");
    let checked = check(&Protocol { bounds, broken: None }, usize::MAX);
    assert!(checked.complete && checked.wrong.is_none(), "{bounds:?}: {:#?}", checked.wrong);
    println!("{} states, {} steps deep: {bounds:?}", checked.states, checked.depth);
    checked
}

/// A check with this rule broken fails like this.
fn is_wrong(rule: Broken, bounds: Bounds, how: &str) {
    bounds.sound().expect("the bounds make sense");
    let checked = check(&Protocol { bounds, broken: Some(rule) }, usize::MAX);
    let (why, steps) = checked.wrong.unwrap_or_else(|| panic!("{rule:?}: {} states are right", checked.states));
    assert!(why.starts_with(how), "{rule:?}: {why}");
    assert_eq!(steps.len(), checked.depth, "the way is shown from its beginning to its end");
}

#[test]
fn two_openings_are_right() {
    is_right(SMALL);
    is_right(Bounds { writes: 2, ..SMALL });
    is_right(Bounds { leases: true, ..SMALL });
    is_right(Bounds { wipes: 1, drops: 1, ..SMALL });
    is_right(Bounds { voters: 4, ..SMALL });
}

/// Some seconds: the crate is optimised in all profiles.
#[test]
fn more_openings_voters_and_losses_are_right() {
    is_right(Bounds { openings: 3, ..SMALL });
    is_right(Bounds { wipes: 2, ..SMALL });
    is_right(Bounds { voters: 4, wipes: 1, ..SMALL });
    is_right(Bounds { leases: true, wipes: 1, ..SMALL });
    is_right(Bounds { openings: 3, writes: 0, wipes: 1, ..SMALL });
    is_right(Bounds { voters: 5, losses: 2, ..SMALL });
}

const ADDS: Bounds = Bounds { change: Some(Change::Add), ..SMALL };
const REMOVES: Bounds = Bounds { voters: 4, change: Some(Change::Remove), ..SMALL };
const REPLACES: Bounds = Bounds { change: Some(Change::Replace), ..SMALL };

/// A holder changes the label, and another opening begins at any moment of that.
#[test]
fn changes_of_the_voters_are_right() {
    is_right(ADDS);
    is_right(REMOVES);
    is_right(REPLACES);
}

#[test]
fn a_new_label_needs_voters_of_the_one_before() {
    is_wrong(Broken::Label, ADDS, "(a)");
    is_wrong(Broken::Label, REPLACES, "(a)");
}

/// Who finds a new label that was never used does not know what an opening without it has done.
#[test]
fn a_label_that_may_not_be_in_effect_needs_claims_of_both() {
    is_wrong(Broken::Joint, REMOVES, "(a)");
    is_wrong(Broken::Joint, REPLACES, "(a)");
}

#[test]
fn labels_must_be_read_once_more_after_the_claims() {
    is_wrong(Broken::Reread, ADDS, "(a)");
    is_wrong(Broken::Reread, REPLACES, "(a)");
}

#[test]
fn a_voter_that_leaves_must_be_no_mirror() {
    is_wrong(Broken::Leave, REMOVES, "(a)");
}

#[test]
fn a_lease_must_count_at_the_voters_of_both_labels() {
    is_wrong(Broken::BothLeases, Bounds { leases: true, ..REMOVES }, "(c)");
}

#[test]
fn a_voter_must_look_at_the_epoch_of_what_it_gets() {
    is_wrong(Broken::Fence, SMALL, "(a)");
}

#[test]
fn an_opening_needs_all_voters_but_m() {
    is_wrong(Broken::Quorum, SMALL, "(a)");
}

#[test]
fn a_transaction_needs_one_mirror_more_than_m() {
    is_wrong(Broken::Durable, SMALL, "(a)");
}

#[test]
fn a_new_mirror_must_have_the_whole_state() {
    is_wrong(Broken::Recruit, SMALL, "(a)");
}

#[test]
fn epochs_need_ids() {
    is_wrong(Broken::Ids, SMALL, "(a)");
}

#[test]
fn the_longest_journal_may_be_of_another_history() {
    is_wrong(Broken::Lineage, Bounds { writes: 2, ..SMALL }, "(a)");
}

#[test]
fn a_lease_must_have_run_out() {
    is_wrong(Broken::Lease, Bounds { leases: true, ..SMALL }, "(c)");
}

#[test]
fn the_claim_that_is_replaced_must_be_read_with_its_replacement() {
    is_wrong(Broken::ClaimRead, SMALL, "(a)");
}

#[test]
fn a_voter_that_has_lost_everything_must_not_count() {
    is_wrong(Broken::Blank, Bounds { wipes: 1, ..SMALL }, "(a)");
}

#[test]
fn a_blank_voter_must_have_all_before_it_counts() {
    is_wrong(Broken::Whole, Bounds { wipes: 1, ..SMALL }, "(a)");
}

#[test]
fn a_claim_that_was_lost_with_a_voter_must_not_matter_before_it_counts() {
    is_wrong(Broken::Fresh, Bounds { wipes: 1, ..SMALL }, "(a)");
}

#[test]
fn a_mirror_must_not_be_claimed_once_more() {
    is_wrong(Broken::Renewal, Bounds { wipes: 1, ..SMALL }, "(a)");
}

/// All that the openings may write can be answered: the model does not stop before. With a change
/// of the label, a server answers that uses the new one.
struct Reaches(Protocol, usize);

impl Model for Reaches {
    type State = State;
    type Step = Step;

    fn first(&self) -> State {
        self.0.first()
    }

    fn steps(&self, state: &State, each: &mut dyn FnMut(Step, State)) {
        self.0.steps(state, each);
    }

    fn canonical(&self, state: &State) -> State {
        self.0.canonical(state)
    }

    fn wrong(&self, state: &State) -> Option<String> {
        let changed = self.0.bounds.change.is_none() || state.is_changed();
        (changed && state.answered() == self.1).then(|| "all is answered".into())
    }
}

#[test]
fn all_that_is_written_can_be_answered() {
    let more = [Bounds { writes: 2, ..SMALL }, Bounds { leases: true, wipes: 1, ..SMALL }];
    for bounds in more.into_iter().chain([ADDS, REMOVES, REPLACES]) {
        let all = usize::from(bounds.openings * bounds.writes);
        let reaches = |number| check(&Reaches(Protocol { bounds, broken: None }, number), usize::MAX).wrong.is_some();
        assert!(reaches(all) && !reaches(all + 1), "{bounds:?}");
    }
}
