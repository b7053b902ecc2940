//! The manager: it keeps the queue of work, hands it out, and ends the job. It touches no file.
//!
//! Its memory is bounded: explorers wait while the queue is full, and directories wait in a stack
//! of which only the top is in memory.

use super::super::spill::Stack;
use crate::message::{DirectoryPair, Ended, Group, Item, Large, Message, NAME_BYTES, Walk, Work};
use crate::transport::{Broken, Crew, MANAGER, Next, Outbox, REPORTER, Rank, Role};
use plan::Ino;
use plan::schedule::{Parts, Policy, Queue, QueueLimits};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use volume::Control;

/// The settings of a manager.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How work is assigned to workers.
    pub policy: Policy,
    /// The limits of a task of small files.
    pub limits: QueueLimits,
    /// The length in bytes of a part; None: a suitable one.
    pub part_bytes: Option<u64>,
    /// The most files that may wait, apart from those that explorers deliver at once.
    pub most_objects: usize,
}

/// An entry of the queue.
enum Object {
    File(Arc<DirectoryPair>, Item),
    // Boxed, so that all entries are as short as the most frequent one.
    Open(Box<Large>),
    Part(u64, u32),
    Close(u64),
}

/// A task that a worker has.
#[allow(clippy::large_enum_variant, reason = "there are no more than workers")]
enum Doing {
    Files,
    Open(Large),
    Part(u64),
    Close(u64),
}

/// A file in parts.
struct Cut {
    large: Large,
    left: usize,
    good: bool,
}

/// The manager of a job.
pub struct Manager {
    crew: Crew,
    plan: Plan,
    control: Arc<Control>,
    walks: Stack<Walk>,
    queue: Queue<Object>,
    idle_explorers: VecDeque<Rank>,
    /// Explorers that wait until the queue has space.
    held: VecDeque<Rank>,
    idle_workers: VecDeque<Rank>,
    doing: BTreeMap<u64, (Rank, Doing)>,
    cut: BTreeMap<u64, Cut>,
    /// What files in parts that are being done have for themselves, and the files that wait for it.
    claimed: BTreeMap<Claim, Vec<Large>>,
    task: u64,
    /// The reporter knows that everything was found.
    explored: bool,
    finished: bool,
}

/// What only one file in parts may have at a time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// The content of a file with several names: the first name that is done stores it.
    Content((u64, u64)),
    /// The name that it gets. Two sources may have it.
    Target(Vec<u8>),
}

impl Claim {
    fn all_of(large: &Large) -> Vec<Self> {
        let Item { name, stat } = &large.item;
        let content = (stat.links > 1).then_some(Self::Content(stat.identity));
        content.into_iter().chain([Self::Target(large.place.target_of(name))]).collect()
    }
}

impl Manager {
    /// A manager that starts with these walks. `control` stops it: tasks that were handed out are
    /// finished, the rest is left.
    pub fn new(crew: Crew, plan: Plan, walks: Vec<Walk>, control: Arc<Control>) -> Self {
        let mut stack = Stack::default();
        // The first source is walked first.
        walks.into_iter().rev().for_each(|walk| stack.push(walk));
        Self {
            crew,
            plan,
            control,
            walks: stack,
            queue: Queue::new(plan.policy, plan.limits, crew.workers as usize),
            idle_explorers: (0..crew.explorers).map(|number| crew.explorer(number)).collect(),
            held: VecDeque::new(),
            idle_workers: VecDeque::new(),
            doing: BTreeMap::new(),
            cut: BTreeMap::new(),
            claimed: BTreeMap::new(),
            task: 0,
            explored: false,
            finished: false,
        }
    }

    fn add(&mut self, group: Group) {
        let place = Arc::new(group.place);
        for item in group.items {
            let size = item.stat.size;
            let parts = Parts::new(size, self.crew.workers as usize, self.plan.part_bytes);
            if item.stat.kind == fs::FileKind::File && parts.are_several() {
                let large =
                    Large { place: DirectoryPair::clone(&place), item, part_bytes: parts.part_bytes(), ino: Ino(0) };
                // Its place is after the parts of files that have begun, and before all work that
                // is smaller than a part.
                self.queue.push(Object::Open(Box::new(large)), (parts.part_bytes() - 1).max(self.plan.limits.bytes));
            } else {
                self.queue.push(Object::File(place.clone(), item), size);
            }
        }
    }

    /// Gives work to all roles that wait, and ends the job when nothing is left.
    fn hand_out(&mut self, out: &mut Outbox) -> Result<(), Broken> {
        if self.finished {
            return Ok(());
        }
        if self.control.go_on().is_err() {
            self.finish(out);
            return Ok(());
        }
        for _ in 0..self.idle_workers.len() {
            let Some(worker) = self.idle_workers.pop_front() else { break };
            let number = self.crew.worker_of(worker).unwrap_or(0) as usize;
            match self.next_task(number) {
                Some((work, doing)) => {
                    self.task += 1;
                    self.doing.insert(self.task, (worker, doing));
                    out.push((worker, Message::Do(self.task, work)));
                }
                None => self.idle_workers.push_back(worker),
            }
        }
        while self.queue.len() < self.plan.most_objects
            && let Some(explorer) = self.held.pop_front()
        {
            out.push((explorer, Message::Continue));
        }
        while !self.idle_explorers.is_empty()
            && self.queue.len() < self.plan.most_objects
            && let Some(walk) = self.walks.pop()?
        {
            let Some(explorer) = self.idle_explorers.pop_front() else { break };
            out.push((explorer, Message::Walk(walk)));
        }
        let explored = self.idle_explorers.len() == self.crew.explorers as usize && self.walks.is_empty();
        if explored && self.queue.is_empty() && self.doing.is_empty() {
            self.finish(out);
        } else if explored && !std::mem::replace(&mut self.explored, true) {
            out.push((REPORTER, Message::Explored));
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Outbox) {
        self.finished = true;
        out.extend((MANAGER + 1..self.crew.ranks()).map(|rank| (rank, Message::Finish)));
    }

    fn next_task(&mut self, worker: usize) -> Option<(Work, Doing)> {
        loop {
            let mut objects = self.queue.take(worker)?;
            if objects.len() == 1
                && let Some(object) = objects.pop_if(|object| !matches!(object, Object::File(..)))
            {
                match self.task_of(object) {
                    Some(task) => return Some(task),
                    None => continue,
                }
            }
            let mut groups: Vec<(Arc<DirectoryPair>, Group)> = Vec::new();
            for object in objects {
                let Object::File(place, item) = object else { continue };
                match groups.last_mut() {
                    Some((last, group)) if Arc::ptr_eq(last, &place) => group.items.push(item),
                    _ => {
                        let group = Group { place: DirectoryPair::clone(&place), items: vec![item] };
                        groups.push((place, group));
                    }
                }
            }
            let groups = groups.into_iter().map(|(_, group)| group).collect();
            return Some((Work::Files(groups), Doing::Files));
        }
    }

    /// The task of an object that makes a task of its own; None if it must wait, or if nothing is
    /// left to do for it.
    fn task_of(&mut self, object: Object) -> Option<(Work, Doing)> {
        match object {
            Object::Open(large) => {
                let claims = Claim::all_of(&large);
                if let Some(claim) = claims.iter().find(|claim| self.claimed.contains_key(claim)) {
                    self.claimed.entry(claim.clone()).or_default().push(*large);
                    return None;
                }
                self.claimed.extend(claims.into_iter().map(|claim| (claim, Vec::new())));
                Some((Work::Open(Large::clone(&large)), Doing::Open(*large)))
            }
            Object::Part(number, part) => {
                let large = self.cut.get(&number)?.large.clone();
                Some((Work::Part(large, part), Doing::Part(number)))
            }
            Object::Close(number) => {
                let large = self.cut.get(&number)?.large.clone();
                Some((Work::Close(large), Doing::Close(number)))
            }
            Object::File(..) => None,
        }
    }

    fn opened(&mut self, task: u64, large: Large, parts: Vec<u32>) {
        if !matches!(self.doing.remove(&task), Some((_, Doing::Open(_)))) {
            return;
        }
        let left = parts.len();
        let part_bytes = large.part_bytes;
        self.cut.insert(task, Cut { large, left, good: true });
        for part in parts {
            self.queue.push(Object::Part(task, part), part_bytes.max(self.plan.limits.bytes + 1));
        }
        if left == 0 {
            self.queue.push(Object::Close(task), u64::MAX);
        }
    }

    fn ended(&mut self, Ended { task, good }: Ended) {
        match self.doing.remove(&task) {
            // The file needs no work, or cannot be done.
            Some((_, Doing::Open(large))) => self.let_others(&large),
            Some((_, Doing::Part(number))) => {
                let Some(cut) = self.cut.get_mut(&number) else { return };
                cut.left -= 1;
                cut.good &= good;
                match (cut.left, cut.good) {
                    (0, true) => self.queue.push(Object::Close(number), u64::MAX),
                    (0, false) => self.let_go(number),
                    _ => {}
                }
            }
            Some((_, Doing::Close(number))) => self.let_go(number),
            Some((_, Doing::Files)) | None => {}
        }
    }

    fn let_go(&mut self, number: u64) {
        if let Some(cut) = self.cut.remove(&number) {
            self.let_others(&cut.large);
        }
    }

    /// A file is done, so that work on others that wait for it can start.
    fn let_others(&mut self, done: &Large) {
        for large in Claim::all_of(done).iter().filter_map(|claim| self.claimed.remove(claim)).flatten() {
            let weight = (large.part_bytes - 1).max(self.plan.limits.bytes);
            self.queue.push(Object::Open(Box::new(large)), weight);
        }
    }
}

impl Role for Manager {
    fn handle(&mut self, from: Rank, message: Message, out: &mut Outbox) -> Result<(), Broken> {
        match message {
            Message::Found { groups, walks, done } => {
                groups.into_iter().for_each(|group| self.add(group));
                walks.into_iter().rev().for_each(|walk| self.walks.push(walk));
                let waiting = if done { &mut self.idle_explorers } else { &mut self.held };
                waiting.push_back(from);
            }
            Message::Ready => self.idle_workers.push_back(from),
            Message::Opened(task, large, parts) => self.opened(task, large, parts),
            Message::Done(ended) => ended.into_iter().for_each(|ended| self.ended(ended)),
            Message::Failed(why) if !self.finished => {
                out.push((REPORTER, Message::Broken(why)));
                self.finish(out);
            }
            _ => {}
        }
        self.hand_out(out)
    }

    fn work(&mut self, out: &mut Outbox) -> Result<(), Broken> {
        self.hand_out(out)
    }

    fn next(&self) -> Next {
        match self.finished {
            true => Next::End,
            // It checks regularly whether it must stop.
            false => Next::WaitUntil(std::time::Instant::now() + std::time::Duration::from_millis(100)),
        }
    }
}

/// A message with directories is at most as long as one with files.
const _: () = assert!(NAME_BYTES <= 1 << 20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Stat;
    use fs::{FileKind, Time};

    fn item(name: &str, size: u64, links: u32) -> Item {
        let time = Time::default();
        let stat = Stat {
            kind: FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links,
            device: 0,
            size,
            allocated: size,
            accessed: time,
            modified: time,
            changed: time,
            identity: (1, size),
        };
        Item { name: name.into(), stat }
    }

    const CREW: Crew = Crew { explorers: 2, workers: 2 };

    fn manager(walks: Vec<Walk>) -> Manager {
        let limits = QueueLimits { bytes: 100, objects: 10 };
        let plan = Plan { policy: Policy::Demand, limits, part_bytes: Some(1 << 16), most_objects: 5 };
        Manager::new(CREW, plan, walks, Arc::default())
    }

    fn say(manager: &mut Manager, from: Rank, message: Message) -> Outbox {
        let mut out = Outbox::new();
        manager.handle(from, message, &mut out).unwrap();
        out
    }

    fn found(sizes: &[u64], done: bool) -> Message {
        let items = sizes.iter().map(|&size| item(&size.to_string(), size, 1)).collect();
        Message::Found { groups: vec![Group { place: DirectoryPair::default(), items }], walks: vec![], done }
    }

    fn number(message: &Message) -> u64 {
        let Message::Do(number, _) = message else { panic!("{message:?}") };
        *number
    }

    #[test]
    fn explorers_wait_while_the_queue_is_full() {
        let walk = Walk::Directory(DirectoryPair::default());
        let mut manager = manager(vec![walk.clone(), walk.clone()]);
        let mut out = Outbox::new();
        manager.work(&mut out).unwrap();
        assert_eq!(out, [(2, Message::Walk(walk.clone())), (3, Message::Walk(walk))]);
        assert_eq!(say(&mut manager, 2, found(&[1, 1], false)), [(2, Message::Continue)]);
        assert_eq!(say(&mut manager, 2, found(&[1, 1, 1], false)), [], "the queue is full");
        assert_eq!(say(&mut manager, 3, found(&[], true)), []);
        let out = say(&mut manager, 4, Message::Ready);
        let [(4, Message::Do(1, Work::Files(groups))), (2, Message::Continue)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(groups.iter().map(|group| group.items.len()).sum::<usize>(), 5);
        assert_eq!(say(&mut manager, 5, Message::Ready), []);
        assert_eq!(say(&mut manager, 2, found(&[], true)), [(REPORTER, Message::Explored)]);
        let out = say(&mut manager, 4, Message::Done(vec![Ended { task: 1, good: true }]));
        let finish: Outbox = (1..6).map(|rank| (rank, Message::Finish)).collect();
        assert_eq!(out, finish);
        assert_eq!(manager.next(), Next::End);
    }

    #[test]
    fn a_large_file_is_closed_when_all_its_parts_are_there() {
        let mut manager = manager(vec![]);
        manager.idle_explorers.clear();
        let items = vec![item("large", 200_000, 2), item("other name", 200_000, 2)];
        let groups = vec![Group { place: DirectoryPair::default(), items }];
        say(&mut manager, 2, Message::Found { groups, walks: vec![], done: true });
        let open = say(&mut manager, 4, Message::Ready);
        let [(4, Message::Do(task, Work::Open(large)))] = &open[..] else { panic!("{open:?}") };
        assert_eq!((*task, large.part_bytes), (1, 1 << 16));
        assert_eq!(say(&mut manager, 5, Message::Ready), [], "the other name waits");
        let opened = Large { ino: Ino(99), ..large.clone() };
        let mut out = say(&mut manager, 4, Message::Opened(1, opened.clone(), vec![0, 3]));
        out.extend(say(&mut manager, 4, Message::Ready));
        let parts: Vec<&Work> =
            out.iter().map(|(_, m)| if let Message::Do(_, work) = m { work } else { panic!() }).collect();
        assert_eq!(parts, [&Work::Part(opened.clone(), 0), &Work::Part(opened.clone(), 3)]);
        let (first, second) = (number(&out[0].1), number(&out[1].1));
        assert_eq!(say(&mut manager, 4, Message::Done(vec![Ended { task: first, good: true }])), []);
        say(&mut manager, 5, Message::Ready);
        let out = say(&mut manager, 5, Message::Done(vec![Ended { task: second, good: true }]));
        let [(_, Message::Do(close, Work::Close(closed)))] = &out[..] else { panic!("{out:?}") };
        assert_eq!(closed, &opened);
        say(&mut manager, 5, Message::Ready);
        let out = say(&mut manager, 5, Message::Done(vec![Ended { task: *close, good: true }]));
        assert!(
            matches!(&out[..], [(_, Message::Do(_, Work::Open(large)))] if large.item.name == b"other name"),
            "{out:?}"
        );
    }

    #[test]
    fn a_part_that_fails_leaves_the_file_open() {
        let mut manager = manager(vec![]);
        say(&mut manager, 2, found(&[200_000], true));
        let out = say(&mut manager, 4, Message::Ready);
        let [(4, Message::Do(1, Work::Open(large)))] = &out[..] else { panic!("{out:?}") };
        let out = say(&mut manager, 4, Message::Opened(1, large.clone(), vec![0, 1]));
        assert_eq!(out, []);
        let out = [say(&mut manager, 4, Message::Ready), say(&mut manager, 5, Message::Ready)].concat();
        let ended =
            [(&out[0].1, false), (&out[1].1, true)].map(|(message, good)| Ended { task: number(message), good });
        manager.idle_explorers = [2, 3].into();
        let out = say(&mut manager, 4, Message::Done(ended.to_vec()));
        assert_eq!(out[0], (1, Message::Finish), "nothing is closed, and the job ends");
    }

    #[test]
    fn a_failure_and_a_cancellation_end_the_job() {
        let mut failed = manager(vec![Walk::Directory(DirectoryPair::default())]);
        let out = say(&mut failed, 5, Message::Failed("no room".into()));
        assert_eq!(out[0], (REPORTER, Message::Broken("no room".into())));
        assert_eq!((out.len(), failed.next()), (6, Next::End));
        let mut cancelled = manager(vec![Walk::Directory(DirectoryPair::default())]);
        cancelled.control.cancel();
        let mut out = Outbox::new();
        cancelled.work(&mut out).unwrap();
        assert_eq!((out.len(), cancelled.next()), (5, Next::End));
    }
}
