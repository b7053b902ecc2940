use super::files::Whose;
use super::removals::{MAX_KEPT_FILES, MAX_REMOVED_FILES};
use super::*;
use crate::REMOVED_AT_A_TIME;

const LEASE: Duration = Duration::from_secs(30);

fn begin(table: &mut Table, reclaimed: Option<SessionId>, name: &str, now: Instant) -> (SessionId, bool) {
    table.begin(reclaimed, name, true, now).expect("a number that was given out")
}

#[test]
fn only_numbers_that_were_given_out_are_taken_up() {
    let now = Instant::now();
    let mut table = Table::new(LEASE, SessionId(7));
    for never in [0, 7, 8, u64::MAX - 1, u64::MAX] {
        assert_eq!(table.begin(Some(SessionId(never)), "x", true, now), None, "{never}");
    }
    assert_eq!(table.begin(None, "a", true, now), Some((SessionId(7), true)), "the counter is as it was");
    assert_eq!(table.begin(Some(SessionId(7)), "a", true, now), Some((SessionId(7), true)));
    let mut last = Table::new(LEASE, SessionId(u64::MAX));
    assert_eq!(last.begin(None, "a", true, now), None);
}

#[test]
fn a_member_has_no_more_than_its_share_however_many_sessions_it_has() {
    let now = Instant::now();
    let mut table = Table::new(LEASE, SessionId(1));
    let mut sessions = Vec::new();
    while table.admits("a") {
        let (session, _) = begin(&mut table, None, "x", now);
        table.belongs(session, "a");
        sessions.push(session);
    }
    assert_eq!(sessions.len(), MAX_MEMBER_SESSIONS);
    assert!(table.admits("b") && table.admits(""));
    table.end(sessions.pop().unwrap());
    assert!(table.admits("a"));
    // Files that are open.
    let (first, second, last) = (sessions[0], sessions[1], *sessions.last().unwrap());
    let other = begin(&mut table, None, "x", now).0;
    table.belongs(other, "b");
    let client = table.clients.get_mut(&first).unwrap();
    client.open = (0..MAX_MEMBER_FILES as u64).map(|ino| (Ino(ino), (1, 0))).collect();
    for session in [last, other] {
        (0..3 * MIN_SESSION_FILES as u64).for_each(|ino| _ = table.open(session, Ino(ino), 0));
    }
    let open = |session: SessionId| table.clients[&session].open.len();
    assert_eq!(
        (open(last), open(other)),
        (MIN_SESSION_FILES, 3 * MIN_SESSION_FILES),
        "another member has its own share"
    );
    table.clients.get_mut(&first).unwrap().open.clear();
    (0..3 * MIN_SESSION_FILES as u64).for_each(|ino| _ = table.open(last, Ino(ino), 1));
    assert_eq!(table.clients[&last].files(), 6 * MIN_SESSION_FILES);
    let first = sessions[2];
    // Chunk sets.
    assert!(table.may_hold_more(first));
    table.hold(first, (0..MAX_SETS as u64).map(SetId));
    assert!(!table.may_hold_more(first) && table.may_hold_more(second));
    for (at, &session) in sessions[1..MAX_MEMBER_SETS / MAX_SETS].iter().enumerate() {
        table.hold(session, ((at * MAX_SETS) as u64..((at + 1) * MAX_SETS) as u64).map(SetId));
    }
    assert!(!table.may_hold_more(last) && table.may_hold_more(other));
}

#[test]
fn a_session_that_is_silent_for_too_long_is_overdue_and_leaves_what_it_had() {
    let start = Instant::now();
    let mut table = Table::new(LEASE, SessionId(7));
    let (a, b) = (begin(&mut table, None, "a", start).0, begin(&mut table, None, "b", start).0);
    assert_eq!((a, b), (SessionId(7), SessionId(8)));
    assert!(table.overdue(start + 2 * LEASE).is_empty(), "who is not let in yet is not silent");
    [a, b].iter().for_each(|&session| table.let_in(session, start));
    table.hold(a, [1, 2].map(SetId));
    table.open(a, Ino(50), 1);
    table.open(b, Ino(50), 0);
    table.open(a, Ino(51), 0);
    assert!(table.hear(b, start + LEASE));
    assert!(table.overdue(start + LEASE).is_empty());
    assert_eq!(table.overdue(start + LEASE + Duration::from_millis(1)), [a]);
    assert_eq!(table.end(a), Left { name: "a".into(), sets: vec![SetId(1), SetId(2)], closed: vec![Ino(51)] });
    assert!(!table.hear(a, start) && !table.is_held(SetId(1)));
    assert_eq!(table.end(b).closed, [Ino(50)]);
}

#[test]
fn a_session_can_be_taken_up_after_the_server_forgot_it() {
    let start = Instant::now();
    let mut table = Table::new(LEASE, SessionId(21));
    assert_eq!(begin(&mut table, Some(SessionId(20)), "a", start), (SessionId(20), true));
    // Its requests wait until it is admitted, even if the answer to its begin got lost.
    assert!(!table.hear(SessionId(20), start));
    table.let_in(SessionId(20), start);
    assert!(table.hear(SessionId(20), start));
    assert_eq!(begin(&mut table, Some(SessionId(20)), "a", start), (SessionId(20), true));
    table.complete_reclaim(SessionId(20));
    assert_eq!(begin(&mut table, Some(SessionId(20)), "a", start), (SessionId(20), false));
    assert_eq!(begin(&mut table, None, "b", start), (SessionId(21), true));
    table.let_in(SessionId(21), start);
    assert_eq!(begin(&mut table, Some(SessionId(21)), "b", start), (SessionId(21), false));
}

/// A joining client waits for a client with the exclusive lease, until that one has confirmed
/// and the caches in its kernel have expired, or until its lease is over.
#[test]
fn who_joins_waits_for_those_who_believe_to_be_alone() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut table = Table::new(LEASE, SessionId(91));
    let a = begin(&mut table, None, "a", start).0;
    assert_eq!(table.tell_of_others(a, at(100)), 0);
    let b = begin(&mut table, None, "b", at(200)).0;
    let exclusive_end = at(100) + EXCLUSIVE_LEASE + KERNEL_VALID_FOR;
    assert_eq!(table.unaware_of(b, at(200)), Some((exclusive_end, vec![a])));
    // A third client waits for the same.
    let c = begin(&mut table, None, "c", at(210)).0;
    assert_eq!(table.unaware_of(c, at(210)), Some((exclusive_end, vec![a])));
    // The answer may not have arrived yet: that is certain only at its next request.
    assert_eq!(table.tell_of_others(a, at(215)), 2);
    assert_eq!(table.unaware_of(b, at(215)), Some((exclusive_end, vec![a])));
    assert_eq!(table.tell_of_others(a, at(220)), 2);
    let heard = at(220) + KERNEL_VALID_FOR;
    assert_eq!(table.unaware_of(b, at(220)), Some((heard, vec![a])));
    assert_eq!(table.unaware_of(b, heard), None);
    // Repeating the answer does not extend the time.
    assert_eq!(table.tell_of_others(a, at(300)), 2);
    assert_eq!(table.unaware_of(b, heard), None);
    // A session that may have an exclusive lease from the earlier server.
    let d = begin(&mut table, Some(SessionId(90)), "d", at(5000)).0;
    assert_eq!(table.unaware_of(a, at(5000)), Some((at(5000) + EXCLUSIVE_LEASE + KERNEL_VALID_FOR, vec![d])));
}

#[test]
fn writers_are_asked_until_they_answer() {
    let start = Instant::now();
    let mut table = Table::new(LEASE, SessionId(1));
    let (a, b) = (begin(&mut table, None, "a", start).0, begin(&mut table, None, "b", start).0);
    table.open(a, Ino(9), 1);
    assert_eq!(table.writers(b, Ino(9), Whose::All), [a]);
    assert_eq!((table.writers(b, Ino(9), Whose::Closed), table.writers(a, Ino(9), Whose::All)), (vec![], vec![]));
    let (first, second) = (table.ask(a, Ino(9)), table.ask(a, Ino(9)));
    assert!(table.is_asked(Ino(9), &first) && table.is_asked(Ino(9), &second));
    // A report without a question is no answer: the client may still write. The answer to the
    // first question does not answer the second.
    table.clean(a, &[(Ino(9), 1)]);
    assert!(table.is_asked(Ino(9), &first));
    table.answer(a, Ino(9), 0, first.number);
    assert!(!table.is_asked(Ino(9), &first) && table.is_asked(Ino(9), &second));
    table.answer(a, Ino(9), 0, second.number);
    assert!(!table.is_asked(Ino(9), &second));
    [first, second].iter().for_each(|question| table.asked(Ino(9), question));
    // A late answer does not answer the current question.
    let third = table.ask(a, Ino(9));
    table.answer(a, Ino(9), 0, second.number);
    assert!(table.is_asked(Ino(9), &third));
    // The file is still open for writing: there may be more.
    assert_eq!(table.writers(b, Ino(9), Whose::All), [a]);
    assert!(table.close(a, Ino(9), 1));
    assert_eq!(table.writers(b, Ino(9), Whose::Closed), [a]);
    assert!(table.is_asked(Ino(9), &third));
    table.clean(a, &[(Ino(9), 1)]);
    assert!(table.writers(b, Ino(9), Whose::All).is_empty());
    assert!(!table.is_asked(Ino(9), &third), "nothing is uncommitted");
}

/// A report from before the file was opened or closed again does not cover later writes, though
/// it arrives after them.
#[test]
fn what_is_overtaken_says_nothing() {
    let mut table = Table::new(LEASE, SessionId(1));
    let a = begin(&mut table, None, "a", Instant::now()).0;
    let b = begin(&mut table, None, "b", Instant::now()).0;
    table.open(a, Ino(9), 1);
    table.close(a, Ino(9), 2);
    table.clean(a, &[(Ino(9), 1)]);
    assert_eq!(table.writers(b, Ino(9), Whose::All), [a]);
    table.open(a, Ino(9), 3);
    table.close(a, Ino(9), 4);
    table.clean(a, &[(Ino(9), 2)]);
    assert_eq!(table.writers(b, Ino(9), Whose::All), [a]);
    table.clean(a, &[(Ino(9), 4)]);
    assert!(table.writers(b, Ino(9), Whose::All).is_empty());
}

#[test]
fn a_removed_file_is_kept_until_no_kernel_knows_it() {
    let start = Instant::now();
    let mut table = Table::new(LEASE, SessionId(7));
    let (a, b) = (begin(&mut table, None, "a", start).0, begin(&mut table, None, "b", start).0);
    table.set_aside(Ino(50));
    table.set_aside(Ino(51));
    let last = table.last_removal();
    assert_eq!(table.note(a, 0, &[], &[]), (last, vec![Ino(50), Ino(51)], vec![]), "told is not noted");
    assert!(table.take_settled().is_empty());
    assert_eq!(table.note(a, last, &[Ino(50)], &[]), (last, vec![], vec![]));
    assert!(table.take_settled().is_empty(), "the other one may know them");
    table.note(b, last, &[Ino(50)], &[]);
    assert_eq!(table.take_settled(), [Ino(51)]);
    assert!(table.is_open(Ino(50)) && !table.is_open(Ino(51)));
    // A client that joins later cannot know them. A client that reclaims its session may.
    let c = begin(&mut table, None, "c", start).0;
    table.set_aside(Ino(52));
    assert_eq!(table.note(c, 0, &[], &[]).1, [Ino(52)]);
    let d = begin(&mut table, Some(SessionId(6)), "d", start).0;
    [a, b, c].iter().for_each(|&session| _ = table.note(session, last + 1, &[], &[]));
    assert!(table.take_settled().is_empty());
    table.note(d, u64::MAX, &[], &[]);
    assert_eq!(table.take_settled(), [Ino(52)]);
    // A file that a kernel forgets is removed when no other client needs it. A session cannot
    // give up what another one keeps.
    assert!(table.note(c, 0, &[], &[Ino(50)]).2.is_empty());
    assert!(table.note(a, 0, &[], &[Ino(50)]).2.is_empty());
    table.open(a, Ino(50), 0);
    assert!(table.note(b, 0, &[], &[Ino(50)]).2.is_empty());
    assert!(table.close(a, Ino(50), 0));
    // An ended session keeps nothing.
    table.set_aside(Ino(53));
    table.note(d, last + 2, &[Ino(53)], &[]);
    [a, b, c].iter().for_each(|&session| _ = table.note(session, last + 2, &[], &[]));
    assert!(table.take_settled().is_empty());
    assert_eq!(table.end(d).closed, [Ino(53)]);
}

#[test]
fn a_file_that_is_being_deleted_is_not_opened() {
    let mut table = Table::new(LEASE, SessionId(7));
    let a = begin(&mut table, None, "a", Instant::now()).0;
    assert!(table.open(a, Ino(50), 0));
    let mut inos = vec![Ino(50), Ino(51)];
    table.begin_deletion(&mut inos);
    assert_eq!(inos, [Ino(51)], "the other one is open");
    assert!(!table.open(a, Ino(51), 1) && !table.is_open(Ino(51)));
    assert!(table.open(a, Ino(50), 0));
    table.end_deletion(&inos);
    assert!(table.open(a, Ino(51), 1) && table.is_open(Ino(51)), "it could not be deleted");
}

#[test]
fn no_more_removed_files_are_kept_than_there_is_space_for() {
    let mut table = Table::new(LEASE, SessionId(1));
    let a = begin(&mut table, None, "a", Instant::now()).0;
    (0..MAX_REMOVED_FILES as u64 + 3).for_each(|ino| table.set_aside(Ino(ino)));
    assert_eq!(table.take_settled(), [0, 1, 2].map(Ino));
    let (reported, inos, _) = table.note(a, 0, &[], &[]);
    assert_eq!((inos.len(), inos[0]), (REMOVED_AT_A_TIME, Ino(3)));
    assert_eq!(table.note(a, reported, &[], &[]).1[0], Ino(3 + REMOVED_AT_A_TIME as u64));
    assert_eq!(table.take_settled().len(), REMOVED_AT_A_TIME);
    let many: Vec<Ino> = (0..2 * MAX_KEPT_FILES as u64).map(Ino).collect();
    table.note(a, 0, &many, &[]);
    assert_eq!(table.end(a).closed.len(), MAX_KEPT_FILES);
}

#[test]
fn appends_never_meet() {
    let mut table = Table::new(LEASE, SessionId(1));
    let a = begin(&mut table, None, "a", Instant::now()).0;
    table.open(a, Ino(9), 1);
    assert_eq!(table.reserve(a, Ino(9), 100, 10), Some(100));
    assert_eq!(table.reserve(a, Ino(9), 100, 10), Some(110));
    assert_eq!(table.reserve(a, Ino(9), 500, 10), Some(500));
    table.begin_cut(Ino(9));
    assert!(table.is_being_cut(Ino(9)) && !table.is_being_cut(Ino(8)));
    table.end_cut(a, Ino(9), None);
    assert_eq!((table.reserve(a, Ino(9), 0, 5), table.is_being_cut(Ino(9)), table.cuts()), (Some(510), false, 1));
    table.begin_cut(Ino(9));
    table.end_cut(a, Ino(9), Some(0));
    assert_eq!((table.reserve(a, Ino(9), 0, 5), table.cuts()), (Some(0), 2));
    assert_eq!(table.reserve(a, Ino(9), u64::MAX, 5), None);
    table.reserve(a, Ino(9), 3, 5);
    table.close(a, Ino(9), 1);
    // The appended data is not committed yet.
    assert_eq!(table.reserve(a, Ino(9), 3, 5), Some(10));
    table.clean(a, &[(Ino(9), 1)]);
    assert_eq!(table.reserve(a, Ino(9), 3, 5), Some(3));
}

/// What one client appended and has not committed gets there in the end, so nobody else may append
/// there after a truncation by another client.
#[test]
fn a_truncation_keeps_the_reservations_of_others() {
    let mut table = Table::new(LEASE, SessionId(1));
    let [a, b] = ["a", "b"].map(|name| begin(&mut table, None, name, Instant::now()).0);
    let empty = |table: &mut Table| {
        table.begin_cut(Ino(9));
        table.end_cut(b, Ino(9), Some(0));
        table.reserve(b, Ino(9), 0, 1)
    };
    [a, b].iter().for_each(|session| assert!(table.open(*session, Ino(9), 1)));
    assert_eq!(table.reserve(a, Ino(9), 100, 10), Some(100));
    assert_eq!(empty(&mut table), Some(110));
    // It was asked after the reservation, but did not commit all.
    let question = table.ask(a, Ino(9));
    table.answer(a, Ino(9), 0, question.number);
    assert_eq!(empty(&mut table), Some(111));
    // It appended once more after it was asked.
    let question = table.ask(a, Ino(9));
    assert_eq!(table.reserve(a, Ino(9), 0, 10), Some(112));
    table.answer(a, Ino(9), 1, question.number);
    assert_eq!(empty(&mut table), Some(122));
    let question = table.ask(a, Ino(9));
    table.answer(a, Ino(9), 1, question.number);
    assert_eq!(empty(&mut table), Some(0));
    // A restarted server learns of them.
    table.reclaim(a, &Held { open: vec![(Ino(9), 1, 1)], reserved: vec![(Ino(9), 50)], ..Held::default() });
    assert_eq!(empty(&mut table), Some(50));
    // What a session that ends did not commit never gets there.
    table.end(a);
    assert_eq!(empty(&mut table), Some(0));
}
