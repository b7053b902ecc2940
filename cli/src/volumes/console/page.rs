//! What a console knows at the moment: it looks again and again, and tells those who watch.

use super::act::Wanted;
use super::events::between;
use super::history::History;
use super::key::Key;
use super::sample::{Look, clients, point, write_cost};
use super::{Subject, metrics, words};
use crate::show;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use volume::lock;

/// Events that are kept.
const EVENTS: usize = 200;
/// A look that takes longer than that is late.
const LATE: Duration = Duration::from_secs(10);
/// It looks no more often than in this many times the time that a look takes.
const REST: u32 = 20;

#[derive(Default)]
struct Known {
    last: Look,
    history: History,
    /// The newest first: when, and what.
    events: VecDeque<(u64, String)>,
    problem: Option<String>,
    /// Why the last look saw nothing.
    missing: Option<String>,
    /// When the next look should have ended (seconds since 1970).
    due: f64,
}

pub struct Console {
    subject: Subject,
    pub key: Option<Key>,
    known: Mutex<Known>,
    /// The newest state, for those who watch.
    pub told: watch::Sender<Arc<str>>,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Console {
    pub fn new(subject: Subject, key: Option<Key>) -> Self {
        let (told, _) = watch::channel(Arc::from("{}"));
        Self { subject, key, known: Mutex::default(), told }
    }

    /// Host names by which browsers reach the page.
    pub fn hosts(&self) -> &[String] {
        &self.subject.hosts
    }

    /// Looks as long as the process lives.
    pub fn look(&self) {
        loop {
            let begun = Instant::now();
            self.look_once();
            let pause = self.subject.every.max(begun.elapsed() * REST).min(Duration::from_secs(3600));
            lock(&self.known).due = now() + (pause + LATE.max(begun.elapsed() * 3)).as_secs_f64();
            std::thread::sleep(pause);
        }
    }

    fn look_once(&self) {
        let answer = self.subject.source.ask(&[Some("status"), Some("--json"), None]);
        let mut numbers = metrics::Values::default();
        let mut silent = Vec::new();
        for address in &self.subject.metrics {
            match metrics::get(*address) {
                Ok(more) => metrics::add(&mut numbers, more),
                Err(why) => silent.push(format!("no metrics from {address}: {why}")),
            }
        }
        let mut known = lock(&self.known);
        let document = serde_json::from_str::<Value>(&answer.output).ok();
        let document = document.filter(|document| document["type"] != "error");
        let failed = || answer.errors.trim().trim_start_matches("weft: ").to_owned();
        let problem = if document.is_none() { Some(failed()) } else { silent.into_iter().next() };
        if problem.is_some() && problem != known.problem {
            let text = problem.clone().unwrap_or_default();
            note(&mut known, text);
        }
        known.missing = document.is_none().then(|| problem.clone().unwrap_or_default());
        known.problem = problem;
        if let Some(status) = document {
            let look = Look { t: now(), status, metrics: numbers };
            for event in between(&known.last.status, &look.status) {
                note(&mut known, event);
            }
            let point = point(&known.last, &look);
            known.history.push(point);
            known.last = look;
        }
        let state = self.state(&known).to_string();
        drop(known);
        self.told.send_replace(state.into());
    }

    fn state(&self, known: &Known) -> Value {
        let status = &known.last.status;
        let is_late = known.due > 0.0 && now() > known.due.max(known.last.t + LATE.as_secs_f64());
        let name = status["name"].as_str().unwrap_or(&self.subject.name);
        let unknown = |why: &str| words::unknown(name, known.last.t as u64, now() as u64, why);
        let (words, is_known) = match &known.missing {
            Some(why) => (json!(unknown(why)), false),
            None if status.is_null() => (Value::Null, false),
            None if is_late => (json!(unknown("it does not answer in time")), false),
            None => (json!(words::of(status)), true),
        };
        json!({
            "volume": self.subject.name,
            "at": known.last.t,
            "every": self.subject.every.as_secs(),
            "words": words,
            "known": is_known,
            "status": status,
            "problem": known.problem,
            "clients": clients(&known.last),
            "write_cost": write_cost(&known.last),
            "growth": known.history.growth(),
            "point": known.history.points().last(),
            "events": known.events.iter().map(|(when, what)| json!([when, what])).collect::<Vec<_>>(),
            "login": self.key.is_some(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// The state as it is at this moment: what was told may be old.
    pub fn current(&self) -> Arc<str> {
        self.state(&lock(&self.known)).to_string().into()
    }

    /// All points that are remembered.
    pub fn history(&self) -> String {
        json!(lock(&self.known).history.points()).to_string()
    }

    /// Does what an operator wants, in the background; its end is an event.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub fn act(self: &Arc<Self>, wanted: &Wanted) -> Result<(), String> {
        let command = wanted.command(&lock(&self.known).last.status)?;
        note(&mut lock(&self.known), format!("{}: asked for on this page", command.called));
        let console = self.clone();
        let work = move || {
            let words: Vec<Option<&str>> = command.words.iter().map(Option::as_deref).collect();
            let answer = console.subject.source.ask(&words);
            let how = match (answer.status, answer.errors.lines().last()) {
                (0, _) => "done".to_owned(),
                (_, Some(why)) => why.trim_start_matches("weft: ").to_owned(),
                (status, None) => format!("it ended with status {status}"),
            };
            show::warning(format_args!("the console: {}: {how}", command.called));
            note(&mut lock(&console.known), format!("{}: {how}", command.called));
            console.look_once();
        };
        std::thread::Builder::new().name("console".into()).spawn(work).map(drop).map_err(|why| why.to_string())
    }
}

fn note(known: &mut Known, what: String) {
    known.events.push_front((now() as u64, what));
    known.events.truncate(EVENTS);
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;
    use crate::volumes::remote::Answer;

    /// Answers, one after another.
    struct Script(Mutex<Vec<Answer>>);

    impl Source for Script {
        fn ask(&self, _: &[Option<&str>]) -> Answer {
            lock(&self.0).pop().unwrap()
        }
    }

    fn console(mut answers: Vec<Answer>) -> Console {
        answers.reverse();
        let source = Arc::new(Script(Mutex::new(answers)));
        let every = Duration::from_secs(2);
        let subject =
            Subject { source, name: "/srv/films".into(), metrics: Vec::new(), every, key: None, hosts: Vec::new() };
        Console::new(subject, None)
    }

    fn told(console: &Console) -> Value {
        serde_json::from_str(&console.current()).unwrap()
    }

    fn good() -> Answer {
        let status = json!({ "name": "films", "healthy": true, "targets": [], "verified_at": 5 });
        Answer { status: 0, output: status.to_string(), errors: String::new() }
    }

    #[test]
    fn a_volume_that_does_not_answer_is_not_shown_as_healthy() {
        let bad = || Answer { status: 1, output: String::new(), errors: "weft: no server answers".into() };
        let console = console(vec![bad(), good(), bad(), good()]);
        console.look_once();
        assert_eq!(told(&console)["words"]["sentence"], "Nothing is known of /srv/films: no server answers.");
        console.look_once();
        assert_eq!((&told(&console)["words"]["level"], &told(&console)["known"]), (&json!("good"), &json!(true)));
        console.look_once();
        let state = told(&console);
        let sentence = state["words"]["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("Nothing is known of films since ") && sentence.ends_with("no server answers."));
        assert_eq!((&state["words"]["level"], &state["known"]), (&json!("bad"), &json!(false)));
        console.look_once();
        assert_eq!(told(&console)["words"]["level"], "good");
    }

    #[test]
    fn a_look_that_does_not_end_is_told() {
        let console = console(vec![good()]);
        console.look_once();
        {
            let mut known = lock(&console.known);
            (known.last.t, known.due) = (now() - 30.0, now() - 1.0);
        }
        let state = told(&console);
        assert!(state["words"]["sentence"].as_str().unwrap().ends_with("it does not answer in time."), "{state}");
        assert_eq!(state["words"]["level"], "bad");
    }
}
